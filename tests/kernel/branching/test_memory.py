"""Memory that is made cheap to fork, in processes of their own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

_HUGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")

_CODE = """
import mmap
full = mmap.mmap(-1, 32 << 20, flags=mmap.MAP_PRIVATE)
full.write(b"x" * len(full))
reserve = mmap.mmap(-1, 32 << 20, flags=mmap.MAP_PRIVATE)
reserve[0] = 1

def kilobytes(field):
    with open("/proc/self/smaps_rollup") as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith(field))

resident = kilobytes("Rss:")
memory.collapse()
told += [kilobytes("AnonHugePages:"), kilobytes("Rss:") - resident]
told += [full[:] == b"x" * len(full), reserve[:2] == b"\\x01\\x00"]
"""


@pytest.mark.skipif(
    not _HUGE_PAGES.exists() or "[never]" in _HUGE_PAGES.read_text(),
    reason="this system has no huge pages",
)
def test_full_memory_goes_into_huge_pages_and_a_reserve_is_left_alone(
    process: Callable[..., list[Any]],
) -> None:
    huge, grown, same, untouched = process(_CODE)
    assert huge >= 28 << 10  # but for what lies before and after whole huge pages
    assert grown < 4 << 10
    assert same
    assert untouched


_MAPS = """
import fcntl, mmap, tempfile
writable = mmap.mmap(-1, 1 << 20, flags=mmap.MAP_SHARED)
with tempfile.TemporaryFile(dir=".") as file:
    file.truncate(1 << 20)
    named = mmap.mmap(file.fileno(), 1 << 20, flags=mmap.MAP_SHARED)

def found():
    return [memory.shared(), memory.programs()]

told.append(found())

def refuse(*_):
    raise OSError("no such ioctl, as before Linux 6.11")

fcntl.ioctl = refuse
told.append(found())
"""


def test_an_older_linux_tells_the_same_of_its_memory(process: Callable[..., list[Any]]) -> None:
    """There the whole list is read instead of asking for what is looked for."""
    asked, read = process(_MAPS)
    assert read == asked
    shared, programs = read
    assert [size for _, size, path in shared if path.endswith(" (deleted)")] == [1 << 20] * 2
    assert any("python" in path.rpartition("/")[2] for _, _, path in programs)
    assert any("_ctypes" in path for _, _, path in programs)
