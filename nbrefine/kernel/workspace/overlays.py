"""The working folder of a session: each branch's overlay of it, and the commit at adoption.

`folders.scan` and `folders.compare` tell what changed where there is no overlay.  What an overlay
is, and how it differs from the folder itself, stands in `inside/branching/overlay.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
import shutil
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Collection
from pathlib import Path
from typing import Any, Literal

from nbrefine.errors import UsageError
from nbrefine.files import FileChanges
from nbrefine.kernel.inside.branching import overlay
from nbrefine.kernel.workspace.commit import Commit
from nbrefine.kernel.workspace.folders import SECONDS, Pairs, listed, printable
from nbrefine.kernel.workspace.layers import difference

WorkspaceMode = Literal["auto", "overlay", "report"]
"""`overlay`: each branch gets one; `report`: none does, changes are only told; `auto`: an
overlay where the host allows it."""

_TICK = 10_000_000  # nanoseconds: the clock of a file system may stand still for so long

_LIMIT = 20.0  # seconds; it takes 0.05 where nothing hangs


class Workspace:
    """A session's working folder and the overlays over it.

    Making one may start a process to see what the host allows, so it belongs into a worker
    thread, as does all of a `Layer`.

    Parameters
    ----------
    folder: where the session's kernels work.
    private: the session's private folder, which goes away with it; it takes the layers.
    ignore: paths relative to `folder` that are neither told nor committed, such as records.

    Raises
    ------
    UsageError: `mode` is "overlay" and none can be had.
    """

    def __init__(
        self,
        folder: Path,
        private: Path,
        *,
        mode: WorkspaceMode = "auto",
        ignore: Collection[str] = (),
    ) -> None:
        self.folder = folder.resolve()
        self.ignore = frozenset(ignore)
        self.reason = "it was not asked for" if mode == "report" else probe(self.folder, private)
        """Why branches get no overlay, or ""."""
        if mode == "overlay" and self.reason:
            raise UsageError(
                f"The working folder {folder} cannot have an overlay: {self.reason}",
                hint='Choose workspace="report", or another folder',
            )
        self._layers = private.resolve() / "layers"
        self._count = 0
        # Layers are made, committed and closed in worker threads.
        self.lock = threading.RLock()
        self.own: dict[tuple[int, int], int] = {}
        """What commits have written: device and inode -> time of its last change."""

    def layer(self, below: Layer | None = None) -> Layer:
        """Make the layer of a new branch.

        Parameters
        ----------
        below: the layer of the kernel that is branched, if that works in an overlay itself.
        """
        with self.lock:
            self._count += 1
            return Layer(self, self._layers / str(self._count), below)


class Layer:
    """What one branch changes in the working folder.

    It stays on disk until it is closed and no branch stands on it any more; what could not be
    committed stays for as long as the private folder does.
    """

    def __init__(self, workspace: Workspace, place: Path, below: Layer | None) -> None:
        self._workspace = workspace
        self.place = place
        self.upper = place / "u"  # short, as the names of all layers must fit into one page
        self.chain: tuple[Layer, ...] = (self, *(below.chain if below else ()))
        """This layer and those that it stands on, newest first."""
        self.users = 0
        """How many layers that are not closed stand on it, itself included."""
        self.applied = 0
        """Until when the folder has what was done here, by the clock of the file system."""
        self.dropped = False
        """Whether nothing that was done here is to reach the folder."""
        self.kept = False
        """Whether it holds what could not be committed, so that it outlives its close."""
        self._closed = False
        self._committed: Pairs = {}
        for folder in (self.upper, place / "w"):
            folder.mkdir(parents=True)
        # The overlay's root shows the owner, mode, times and access lists of the upper.
        facts = workspace.folder.stat()
        with contextlib.suppress(PermissionError):  # a folder of somebody else's
            shutil.chown(self.upper, facts.st_uid, facts.st_gid)
        shutil.copystat(workspace.folder, self.upper)
        self.started = self.upper.stat().st_ctime_ns
        for layer in self.chain:
            layer.users += 1

    @property
    def settings(self) -> dict[str, Any]:
        """What `overlay.enter` and `overlay.leave` take."""
        return {
            "folder": str(self._workspace.folder),
            "upper": str(self.upper),
            "work": str(self.place / "w"),
            "lowers": [str(layer.upper) for layer in self.chain[1:]],
        }

    @property
    def copied(self) -> int:
        """Until when files came here only because the branch had them open at its beginning."""
        try:
            return int((self.place / "w" / overlay.COPIED).read_text(encoding="ascii"))
        except (OSError, ValueError):  # the branch has not begun
            return 0

    def changes(self) -> FileChanges:
        """Tell what the branch has changed of what it saw at its beginning."""
        lowers = [*(layer.upper for layer in self.chain[1:]), self._workspace.folder]
        ignore = self._workspace.ignore
        found = difference(self.upper, lowers, since=self.copied, ignore=ignore)
        return listed(found.pairs, isolated=True, skipped=found.skipped, problems=found.problems)

    def commit(self) -> FileChanges:
        """Apply the layer, and before it those below, to the folder; tell what changed there.

        A second call applies what came late, and tells of both.  Of a layer that was dropped
        nothing is applied.
        """
        if self.dropped:
            return FileChanges()
        problems: list[str] = []
        with self._workspace.lock:
            # What lies below has been applied once and for all: to do so again would undo what
            # was done above it.
            below = [layer for layer in self.chain[1:] if not layer.applied]
            for layer in (*reversed(below), self):
                self.place.touch()
                now = self.place.stat().st_ctime_ns
                commit = Commit(
                    upper=layer.upper,
                    folder=self._workspace.folder,
                    started=layer.started,
                    applied=max(layer.applied, layer.copied),
                    move=layer.users == 1,
                    own=self._workspace.own,
                    ignore=self._workspace.ignore,
                    pairs=self._committed,
                    problems=problems,
                )
                commit.run()
                if commit.failed:
                    layer.kept = True
                    told = f"what was not committed stays in {layer.upper} until the session ends"
                    problems.append(printable(told))
                layer.applied = now - _TICK
        pairs = {path: pair for path, pair in self._committed.items() if pair[0] != pair[1]}
        return listed(pairs, problems=problems)

    async def adopt(
        self, leave: Callable[[dict[str, Any]], Awaitable[list[overlay.Hazard]]]
    ) -> FileChanges:
        """Commit, let the branch go on in the folder itself, and close the layer.

        Parameters
        ----------
        leave: has the branch's process call `overlay.leave` with the settings that it is given.

        Tells what changed in the folder; problems include what stayed in the overlay.
        """
        before = await asyncio.to_thread(self.commit)
        left = await leave(self.settings)
        # What threads of the branch wrote between the commit and its leaving.
        after = await asyncio.to_thread(self.commit)
        await asyncio.to_thread(self.close)
        told = [*before.problems, *(hazard["detail"] for hazard in left), *after.problems]
        return dataclasses.replace(after, problems=tuple(dict.fromkeys(told)))

    def close(self) -> None:
        """Let go of the layer; a second call does nothing."""
        with self._workspace.lock:
            if self._closed:
                return
            self._closed = True
            for layer in self.chain:
                layer.users -= 1
                if layer.users == 0 and not layer.kept:
                    overlay.remove(str(layer.place))


def probe(folder: Path, private: Path) -> str:
    """Tell why a folder cannot have an overlay whose layers lie in a private folder, or "".

    It is found out once for a folder and the file system of the layers.
    """
    key = folder, private.stat().st_dev
    if key not in _probed:
        _probed[key] = _probe(folder, private)
    return _probed[key]


_probed: dict[tuple[Path, int], str] = {}


def _probe(folder: Path, private: Path) -> str:
    if sys.platform != "linux":
        return "only Linux has overlays"
    if not folder.is_dir():
        return "it is no folder"
    if private.resolve().is_relative_to(folder):
        return "it holds the private folder in which the layers would lie"
    if mounted := _mounted_below(folder):
        return f"another file system is mounted in it, at {printable(mounted)}"
    if shared := _shared_with_others(folder):
        return f"{printable(shared)} belongs to another user or group and may be changed"
    try:
        tried = subprocess.run(
            [sys.executable, "-I", "-S", overlay.__file__, str(folder), str(private)],
            capture_output=True,
            check=False,
            cwd="/",
            stdin=subprocess.DEVNULL,
            text=True,
            errors="replace",
            timeout=_LIMIT,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"it could not be tried out: {error}"
    if tried.returncode:
        return f"it could not be tried out: {tried.stderr.strip().rpartition(chr(10))[2]}"
    return tried.stdout.strip()


def _mounted_below(folder: Path) -> str:
    above = str(folder).rstrip("/") + "/"
    mounts = (mount for mount in overlay.mounts() if mount.place.startswith(above))
    return next((mount.place for mount in mounts), "")


def _shared_with_others(folder: Path) -> str:
    """Find what the user may change but, in a user namespace, could not copy to a layer.

    It looks no longer than a scan may take.
    """
    user, group = os.geteuid(), os.getegid()
    if user == 0:
        return ""
    deadline = time.monotonic() + SECONDS
    for path, folders, names in os.walk(folder):
        for name in (*folders, *names):
            inner = Path(path, name)
            with contextlib.suppress(OSError):
                facts = inner.lstat()
                others = (facts.st_uid, facts.st_gid) != (user, group)
                if stat.S_ISLNK(facts.st_mode) or not others:
                    continue
                if os.access(inner, os.W_OK, effective_ids=True):
                    return str(inner.relative_to(folder))
        if time.monotonic() > deadline:
            break
    return ""
