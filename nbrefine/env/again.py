"""Cells that are not a model's turn: the setup, and those that run once more.

They rebuild a session, or bring one to where an earlier one ended.
"""

from __future__ import annotations

import asyncio
import filecmp
import shutil
import tempfile
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import suppress
from pathlib import Path

from nbrefine.errors import InvalidTaskError, KernelError
from nbrefine.kernel import Kernel
from nbrefine.kernel.branching import copy
from nbrefine.kernel.helper import ask
from nbrefine.kernel.workspace.folders import Snapshot, compare, scan
from nbrefine.outputs import CellResult

_AGAIN = 60.0
"""Seconds that a cell may run when it is run again, beside ten times what all ran before."""

Named = Sequence[tuple[str, str]]
"""What a cell is called in an error, and its source."""

After = Callable[[str, Kernel], Awaitable[None]]
"""Awaited with a cell's name and the kernel in which it has just run again."""


async def set_up(kernel: Kernel, source: str) -> CellResult:
    """Run the setup cell of a task.

    Raises
    ------
    InvalidTaskError: it failed.
    """
    result = await kernel.run(source, timeout=None)
    if not result.ok:
        raise InvalidTaskError(
            f"The task's setup ended with {result.error or result.death or result.status}",
            hint="Run the setup by itself and mend it",
        )
    return result


def numbered(accepted: Sequence[str]) -> Named:
    """Name accepted cells by their places."""
    return [(f"accepted cell {n}", source) for n, source in enumerate(accepted, 1)]


async def run_again(
    kernel: Kernel, cells: Named, seconds: float, after: After | None = None
) -> None:
    """Run cells once more that ran without an error.

    Parameters
    ----------
    seconds: how long all of them ran then.

    Raises
    ------
    KernelError: one of them ends with an error now.
    """
    for name, source in cells:
        result = await kernel.run(source, timeout=_AGAIN + 10 * seconds)
        if not result.ok:
            ended = result.error or result.death or result.status
            raise KernelError(
                f"The session cannot be rebuilt: {name}, run again, ended with {ended}",
                hint="Choose isolation='fork', or cells that can run twice in one folder",
            )
        if after is not None:
            await after(name, kernel)


async def run_without_files(
    kernel: Kernel,
    cells: Named,
    seconds: float,
    keep: Collection[str],
    made: Collection[str] = (),
    *,
    after: After | None = None,
) -> tuple[str, ...]:
    """Run cells once more, and throw away what they do to the working folder.

    They run in an overlay of it; where there is none, files are put back that they have changed.

    Parameters
    ----------
    keep: paths relative to the working folder of the files that are put back.
    made: paths of what was not there when the cells first ran, nor is it in an overlay.
    after: called after each cell; it must leave the kernel as it is.

    Gives what has changed in the folder all the same, a sentence each.
    """
    branch = await _overlaid(kernel)
    if branch is not None:
        async with branch:
            await _remove(branch, made)
            await run_again(branch, cells, seconds, after)
            await _flush(branch)
            assert branch.core.layer is not None
            branch.core.layer.dropped = True
            files = await kernel.adopt(branch)
            return files.problems if files else ()
    with tempfile.TemporaryDirectory(prefix="nbrefine-kept-") as away:
        folder = kernel.core.lineage.folder
        # Nothing is removed here: a kill would leave it so.
        kept = await asyncio.to_thread(_Kept, folder, Path(away), keep)
        try:
            await run_again(kernel, cells, seconds, after)
            await _flush(kernel)
        finally:
            told = await asyncio.to_thread(kept.put_back)
    return told


async def _overlaid(kernel: Kernel) -> Kernel | None:
    """Give a branch whose files are held back; None where there is none."""
    try:
        branch = await kernel.branch()
    except KernelError:
        return None
    if branch.core.layer is not None:
        return branch
    await branch.aclose()
    return None


async def _remove(kernel: Kernel, paths: Collection[str]) -> None:
    """Remove files from the working folder as a kernel sees it."""
    folder = kernel.core.lineage.folder
    if paths and folder is not None and kernel.info.language == "python":
        # What is in a folder goes before it.
        await ask(kernel.core, "folder", "remove", str(folder), sorted(paths, reverse=True))


async def _flush(kernel: Kernel) -> None:
    """Have written what files that are open have in memory, as a copy of the kernel needs it.

    Written later, it would go to the files that are to stay as they are.
    """
    with suppress(KernelError):
        (await copy(kernel.core)).release()


class _Kept:
    """Copies of files in a working folder.

    Parameters
    ----------
    folder: the working folder; None where that is not known, so that nothing can be kept.
    away: where the copies lie.
    paths: which files, relative to the folder; those that are not there are left out.
    """

    def __init__(self, folder: Path | None, away: Path, paths: Collection[str]) -> None:
        self._folder = folder
        self._away = away
        there = [] if folder is None else [each for each in paths if (folder / each).is_file()]
        self._paths = sorted(there)
        for path in self._paths:
            assert folder is not None
            (away / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(folder / path, away / path)
        self._before = Snapshot() if folder is None else scan(folder)

    def put_back(self) -> tuple[str, ...]:
        """Give the files the content that they had; tell what else has changed in the folder."""
        if self._folder is None:
            return ("the working folder is not known, so its files were not kept as they were",)
        for path in self._paths:
            target, kept = self._folder / path, self._away / path
            if not (target.is_file() and filecmp.cmp(kept, target, shallow=False)):
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(kept, target)
        left = compare(self._before, scan(self._folder))
        others = [each for each in left.changes if each.path not in self._paths]
        return (
            *(f"{each.path} was {each.action} when the cells ran again" for each in others),
            *left.problems,
        )
