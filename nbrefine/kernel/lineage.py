"""What a kernel and its branches have in common: who lives, and the folder they work in."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Collection
from pathlib import Path
from typing import Any, Protocol

from nbrefine.errors import KernelError
from nbrefine.kernel.workspace.overlays import Layer, Workspace, WorkspaceMode


class Member(Protocol):
    """A branch that lives."""

    async def close(self) -> None:
        """End it."""


class Kept(Protocol):
    """A copy of a state."""

    def end(self) -> None:
        """End it, whoever holds it."""


class Passing(Protocol):
    """A copy of a state that the kernel may leave behind."""

    def retire(self) -> None:
        """The kernel goes on."""


class Lineage:
    """One kernel with all its branches, and theirs.

    Parameters
    ----------
    folder: where the first kernel works; None where that is not known.
    mode: whether branches get an overlay of it.
    ignore: paths relative to the folder that are neither told nor committed.
    """

    def __init__(
        self,
        folder: Path | None = None,
        *,
        mode: WorkspaceMode = "report",
        ignore: Collection[str] = (),
    ) -> None:
        self.branches: set[Member] = set()
        """Those that live."""
        self.making: set[asyncio.Task[Any]] = set()
        """What makes one at this moment."""
        self.copies: set[Kept] = set()
        """Those that are there, so that none goes before it is let go."""
        self.closed = False
        """Whether there are to be no more."""
        self.folder = folder
        self.ignore = ignore
        self._process_id = os.getpid()
        self._mode = mode
        self._workspace: Workspace | None = None
        # Each copy of somebody else's kernel has a private folder of its own.
        self._made_for: tuple[Path, Path] | None = None
        self._making = asyncio.Lock()

    @property
    def here(self) -> bool:
        """Whether this is the process that has it, not one that was forked from that."""
        return os.getpid() == self._process_id

    def require_here(self) -> None:
        """Make sure that this is the process that has it.

        Raises
        ------
        KernelError: it was forked from that one.
        """
        if not self.here:
            raise KernelError(
                "The kernel belongs to the process that this one was forked from",
                hint="Start one here",
            )

    async def layer(self, private: Path, below: Layer | None) -> Layer | None:
        """Make a new branch's layer over the folder; None where branches get none.

        Parameters
        ----------
        private: the session's private folder, which holds the layers.
        below: the layer of what is branched, if it has one.

        Raises
        ------
        UsageError: overlays only were asked for, and none can be had.
        """
        if self.folder is None or self._mode == "report":
            return None
        made_for = self.folder, private
        async with self._making:
            if self._workspace is None or self._made_for != made_for:
                self._workspace = await asyncio.to_thread(
                    Workspace, self.folder, private, mode=self._mode, ignore=self.ignore
                )
                self._made_for = made_for
        if self._workspace.reason:
            return None
        making = asyncio.ensure_future(asyncio.to_thread(self._workspace.layer, below))
        try:
            return await asyncio.shield(making)
        except asyncio.CancelledError:
            await asyncio.wait({making})  # the thread makes it all the same
            if making.exception() is None:
                await asyncio.to_thread(making.result().close)
            raise

    @property
    def reason(self) -> str:
        """Why branches get no overlay; "" where they do, or none has been asked for yet."""
        return self._workspace.reason if self._workspace else ""

    async def close(self) -> None:
        """End all branches and copies, also those that are being made."""
        self.closed = True
        for work in self.making:
            work.cancel()
        if self.making:
            await asyncio.wait(set(self.making))
        ended = await asyncio.gather(
            *(branch.close() for branch in list(self.branches)), return_exceptions=True
        )
        for copy in list(self.copies):
            copy.end()
        for trouble in ended:
            if isinstance(trouble, BaseException):
                raise trouble
