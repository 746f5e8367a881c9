"""A folder and a process group for each process: what holds where there are no namespaces."""

from __future__ import annotations

import contextlib
import os
import signal
import time

from . import prctl

_ROUNDS = 2000  # what is ended leaves its own children to us, so the last round finds none
_AGAIN = 0.001  # seconds


class Folders:
    """Forks processes that get a folder each, and clears away what they leave.

    Parameters
    ----------
    base: holds the folders.
    """

    bounded = False
    """Whether a process can have but so many descendants."""

    def __init__(self, base: str) -> None:
        self._base = base
        self._children: dict[int, str] = {}
        self._made = 0
        prctl.adopt_orphans()

    def fork(self) -> int:
        """Fork: the child's number, and 0 in the child, which is to call `furnish`."""
        self._made += 1
        folder = f"{self._base}/{self._made}"
        pid = os.fork()
        self._children[pid] = folder
        return pid

    def furnish(self) -> list[str]:
        """Enter the folder, which is new; give the paths that are this process's own."""
        folder = self._children[0]
        os.mkdir(folder, 0o700)
        os.chdir(folder)
        live_in(folder)
        return [folder]

    def kill(self, pid: int) -> None:
        """End a child with its process group; what has left that ends when the child is let go."""
        if pid in self._children:
            with contextlib.suppress(OSError):
                os.killpg(pid, signal.SIGKILL)
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)  # its group may be one that it made since

    def free(self, pid: int) -> None:
        """End what a child that has ended has left and may hold it, before it is waited for."""
        end_orphans(self._children)

    def let_go(self, pid: int) -> None:
        """Clear away what a child that has ended has left; nothing happens for another process."""
        folder = self._children.pop(pid, None)
        if folder is not None:
            with contextlib.suppress(OSError):
                os.killpg(pid, signal.SIGKILL)
            end_orphans(self._children)
            remove(folder)

    def sweep(self) -> None:
        """Find nothing more to clear away."""


def live_in(folder: str) -> None:
    """Have programs take a folder for their home, and for where they may write."""
    os.environ["HOME"] = os.environ["TMPDIR"] = folder


def end_orphans(spared: dict[int, str]) -> None:
    """End all processes that have lost their parents to this one, with all beneath them.

    Parameters
    ----------
    spared: children of this process that were none of others.
    """
    for _ in range(_ROUNDS):
        orphans = [pid for pid in prctl.children(os.getpid()) if pid not in spared]
        if not orphans:
            return
        for pid in orphans:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        # All are ended before any is waited for: one may be traced by the next.
        ended = [os.waitpid(pid, os.WNOHANG)[0] for pid in orphans]
        if not any(ended):
            time.sleep(_AGAIN)


def remove(folder: str) -> None:
    """Remove a folder with all that is in it, also what was closed to us."""
    with contextlib.suppress(OSError):
        os.rmdir(folder)  # as nearly all are empty
        return
    for path, names, _ in os.walk(folder):  # top down, so that it may enter what it opens
        for inner in (os.path.join(path, each) for each in names):
            if not os.path.islink(inner):
                with contextlib.suppress(OSError):
                    os.chmod(inner, 0o700)
    import shutil  # here, as it loads libraries that make each fork dearer

    shutil.rmtree(folder, ignore_errors=True)
