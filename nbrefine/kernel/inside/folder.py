"""The working folder as this kernel sees it, which may be through an overlay."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from .link import Emit


def remove(emit: Emit, folder: str, paths: list[str]) -> None:
    """Remove files, links and empty folders, in this order of theirs; leave what is not there."""
    for path in paths:
        target = Path(folder, path)
        with suppress(OSError):
            if target.is_dir() and not target.is_symlink():
                target.rmdir()
            else:
                target.unlink()


def stamps(emit: Emit, paths: list[str]) -> dict[str, tuple[int, str]]:
    """Give when those of some files that are there were put there, in ns, and where they are."""
    found = {}
    for path in paths:
        with suppress(OSError, ValueError):
            found[path] = (Path(path).stat().st_ctime_ns, os.path.realpath(path))
    return found
