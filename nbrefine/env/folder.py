"""What an attempt does to the working folder: read off its overlay, or seen by looking twice."""

from __future__ import annotations

import asyncio

from nbrefine.files import FileChanges
from nbrefine.kernel import Kernel
from nbrefine.kernel.workspace.folders import Snapshot, compare, scan


class FolderWatch:
    """A look at a kernel's working folder before an attempt, to be compared with one after it.

    Parameters
    ----------
    kernel: where the attempt runs.
    before: what the folder held; None where the kernel has an overlay, or its folder is not known.
    """

    def __init__(self, kernel: Kernel, before: Snapshot | None) -> None:
        self._kernel = kernel
        self._before = before

    @classmethod
    async def begin(cls, kernel: Kernel) -> FolderWatch:
        """Look for the first time, where an overlay does not make it unnecessary."""
        if kernel.core.layer is not None:
            return cls(kernel, None)
        return cls(kernel, await _scan(kernel))

    @property
    def held_back(self) -> bool:
        """Whether what is written does not reach the folder itself."""
        return self._kernel.core.layer is not None

    async def end(self) -> FileChanges | None:
        """Tell what has changed; None where nobody could look."""
        if self.held_back:
            return await self._kernel.files()
        after = await _scan(self._kernel)
        if self._before is None or after is None:
            return None
        return await asyncio.to_thread(compare, self._before, after)


async def _scan(kernel: Kernel) -> Snapshot | None:
    lineage = kernel.core.lineage
    if lineage.folder is None:
        return None
    return await asyncio.to_thread(scan, lineage.folder, ignore=lineage.ignore)
