"""A kernel's private folder, and finding every process that came out of it.

The folder's path stands in the kernel's environment and so in that of all its descendants,
also of those that made a session of their own and outlived their parents.  Where several kernels
of a session share the folder, its path and a number stand there.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import tempfile
import threading
import time
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

from nbrefine.kernel.inside.branching import overlay

MARK = "NBREFINE_KERNEL"
"""Name of the environment variable that holds the folder's path, or that and a kernel's number."""

_PREFIX = "nbrefine-"
_LONGEST = 86  # of 107 bytes that a local socket's path may have; the name of one takes 21
_YOUNG = 10.0  # seconds in which a folder may not be locked yet


class RuntimeFolder:
    """A new folder that only this user can enter, locked for as long as this process lives."""

    def __init__(self) -> None:
        base = _base()
        _sweep_once(base)
        self.path = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=base))
        self._lock = os.open(self.path, os.O_RDONLY)
        fcntl.flock(self._lock, fcntl.LOCK_EX)

    def remove(self) -> None:
        """Remove the folder with all that is in it; a second call does nothing."""
        # Taken first: at exit the loop and the main thread may both come here.
        lock, self._lock = self._lock, -1
        if lock >= 0:
            overlay.remove(str(self.path))
            os.close(lock)


def _base() -> Path:
    found = Path(tempfile.gettempdir())
    return found if len(os.fsencode(found)) + len(_PREFIX) + 8 <= _LONGEST else Path("/tmp")  # noqa: S108 - mkdtemp makes a private folder there


_swept: set[Path] = set()


def _sweep_once(base: Path) -> None:
    """Begin a sweep if this process has not; much may lie there, and nobody waits for it."""
    if base not in _swept:
        _swept.add(base)
        threading.Thread(target=_sweep, args=(base,), name="nbrefine-sweep", daemon=True).start()


def _sweep(base: Path) -> None:
    """Remove the folders, and end the processes, of controllers that were killed."""
    for folder in base.glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):
            # Not what a link leads to, which others may have put there.
            lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                facts = os.fstat(lock)
                if facts.st_uid != os.getuid() or time.time() - facts.st_mtime < _YOUNG:
                    continue
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # fails while the owner lives
                kill_family(None, folder)
                overlay.remove(str(folder))
            finally:
                os.close(lock)


Family = dict[int, str]
"""Process id -> start time, which tells a process from a later one with its number."""


def family(pid: int | None, folder: Path) -> Family:
    """Find the descendants of a process, itself left out, and all that carry the folder's mark.

    Nothing is found where the host has no /proc.
    """
    parents: dict[int, int] = {}
    started: Family = {}
    found: set[int] = set()
    for each in _processes():
        with contextlib.suppress(OSError, IndexError, ValueError):
            fields = Path(f"/proc/{each}/stat").read_bytes().rpartition(b")")[2].split()
            parents[each], started[each] = int(fields[1]), fields[19].decode()
            if _is_marked(each, str(folder)):
                found.add(each)
    for each in parents:
        ancestor: int | None = each
        while pid is not None and ancestor is not None:
            ancestor = parents.get(ancestor)
            if ancestor == pid:
                found.add(each)
    return {each: started[each] for each in found if each not in (pid, os.getpid())}


def kill_family(pid: int | None, folder: Path, *, known: Family | None = None) -> None:
    """End every process of a family, and those that it makes meanwhile.

    Parameters
    ----------
    known: members seen earlier, which may have lost parent and mark since.
    """
    for _ in range(5):
        members = family(pid, folder)
        alive = {each: start for each, start in (known or {}).items() if _start(each) == start}
        if not members and not alive:
            return
        for each in {**members, **alive}:
            with contextlib.suppress(OSError):
                os.kill(each, signal.SIGKILL)
        known = None


def brood(pid: int, mark: str, *, others: Collection[int], reapers: Iterable[int]) -> Family:
    """Find what one kernel of several has started: its descendants, and what has lost its parents.

    Looks at this kernel's part of the tree only, so that it takes less than a millisecond.

    Parameters
    ----------
    mark: what the kernel's own `MARK` says.
    others: kernels and checkpoints, which are left out with all beneath them.
    reapers: processes that adopt a descendant whose parent has ended.
    """
    found: Family = {}
    more = [each for each in _children(pid) if each not in others]
    for reaper in reapers:
        more += [
            each for each in _children(reaper) if each not in others and _is_marked(each, mark)
        ]
    while more:
        each = more.pop()
        if each != pid and each not in found and (start := _start(each)):
            found[each] = start
            more += [below for below in _children(each) if below not in others]
    return found


def kill(members: Family) -> bool:
    """End those that still are the processes they were, and tell whether there were any."""
    alive = [each for each, start in members.items() if _start(each) == start]
    for each in alive:
        with contextlib.suppress(OSError):
            os.kill(each, signal.SIGKILL)
    return bool(alive)


def _is_marked(pid: int, mark: str) -> bool:
    """Tell whether a process has this mark, or the mark is a folder's and it has one beneath."""
    sought = f"{MARK}={mark}".encode()
    with contextlib.suppress(OSError):
        for entry in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
            if entry == sought or entry.startswith(sought + b"/"):
                return True
    return False


def _children(pid: int) -> list[int]:
    found: list[int] = []
    with contextlib.suppress(OSError):
        for task in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208 - a path each costs more
            with contextlib.suppress(OSError):
                text = Path(f"/proc/{pid}/task/{task}/children").read_bytes()
                found += [int(each) for each in text.split()]
    return found


def _processes() -> Iterator[int]:
    with contextlib.suppress(OSError):  # no /proc: the process group is all that can be reached
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                yield int(entry.name)


def _start(pid: int) -> str:
    with contextlib.suppress(OSError, IndexError):
        stat = Path(f"/proc/{pid}/stat").read_bytes()
        return stat.rpartition(b")")[2].split()[19].decode()
    return ""
