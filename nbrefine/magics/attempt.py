"""One cell tried in a branch of the kernel that this process is."""

from __future__ import annotations

import queue
import re
import signal
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from nbrefine._portal import Run
from nbrefine.bindings import StateChange
from nbrefine.env.folder import FolderWatch
from nbrefine.files import FileChanges
from nbrefine.kernel import Kernel
from nbrefine.kernel.branching import copy
from nbrefine.kernel.core import Core
from nbrefine.kernel.messages.execution import Ticket
from nbrefine.kernel.state.changes import changes, describe
from nbrefine.kernel.state.digest import Snapshot, snapshot
from nbrefine.notebook.markdown import one_line
from nbrefine.outputs import CellResult, Hazard

T = TypeVar("T")

Job = Callable[[], None]

_LINES = 1500  # characters in which a change is told
_NAMES = 5  # that are told at once
_WORD = re.compile(r"\w+")


class MainThread:
    """The main thread while it waits for the portal: it does what only it can do meanwhile."""

    def __init__(self) -> None:
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()

    def post(self, job: Job) -> None:
        """Have it call a function."""
        self._jobs.put(job)

    def wait(self, work: Coroutine[Any, Any, T], *, on_interrupt: Job | None = None) -> T:
        """Do the work on the portal, and the jobs here, until the work has ended.

        Parameters
        ----------
        on_interrupt: called on the portal when a person interrupts; the work is cancelled
            where it is None.
        """

        async def told() -> T:
            try:
                return await work
            finally:
                self._jobs.put(None)

        run = Run(told(), on_stop=on_interrupt)
        before = signal.signal(signal.SIGINT, lambda *_: run.stop())
        try:
            while (job := self._jobs.get()) is not None:
                job()
        finally:
            signal.signal(signal.SIGINT, before)
        return run.result()


@dataclass(frozen=True, slots=True)
class Attempt:
    """A cell that has run in a branch, and the branch."""

    source: str
    trial: Kernel
    result: CellResult
    hazards: tuple[Hazard, ...]
    """What the branch did not simply take along."""
    before: Snapshot
    after: Snapshot | None
    """None where the branch has ended."""
    files: FileChanges | None
    """What it did to the working folder, or would do; None where nobody could look."""

    @property
    def change(self) -> StateChange | None:
        """What the cell would change; None where nobody can tell any more."""
        return changes(self.before, self.after) if self.after is not None else None

    @property
    def partly(self) -> tuple[str, ...]:
        """Names that seem unchanged and were compared in part only; all where nothing changed.

        Where something has, those that stand in the cell.
        """
        change = self.change
        if change is None or not change.partly:
            return ()
        words = set(_WORD.findall(self.source))
        named = tuple(name for name in change.partly if name in words)
        return named if named or change.names else change.partly

    @property
    def columns(self) -> tuple[str, ...]:
        """Which columns of tables would come and go: "columns of df: new z; gone x"."""
        if self.after is None:
            return ()
        were, told = _columns(self.before), []
        for name, now in _columns(self.after).items():
            before = were.get(name, now)
            moved = {
                "new": [each for each in now if each not in before],
                "gone": [each for each in before if each not in now],
            }
            parts = (f"{how} {_several(those)}" for how, those in moved.items() if those)
            if said := "; ".join(parts):
                told.append(f"columns of {name}: {said}")
        return tuple(told)

    def describe(self) -> str:
        """Say in a few lines what became of the cell and what it would change."""
        same = "nothing" if self.untouched else "no variable"
        lines = [f"In a branch, so {same} here has changed. The cell {self._outcome}"]
        lines += self._files
        lines += (
            f"Not as here: {hazard.detail}."
            for hazard in self.hazards
            if hazard.verdict in ("lost", "shared")
        )
        return "\n".join(lines)

    @property
    def untouched(self) -> bool:
        """Whether it is known that nothing of the cell stays: no file, and nothing both share."""
        shared = any(hazard.verdict == "shared" for hazard in self.hazards)
        return not shared and self.files is not None and self.files.untouched

    @property
    def _files(self) -> list[str]:
        files = self.files
        if files is None:
            return ["files: nobody could look, and what the cell wrote is not held back here."]
        held = "" if files.isolated else ", which are not held back here"
        told = [f"files{held}: {text}"] if (text := files.describe()) else []
        if files.skipped and not files.isolated:
            told.append(f"not looked into: {', '.join(files.skipped)}")
        return told

    @property
    def _outcome(self) -> str:
        if self.result.death is not None:
            return f"ended the branch: {self.result.death}."
        if self.result.exited:
            return "calls exit() or quit(), which would end this kernel."
        told = describe(self.change, limit=_LINES) if self.change is not None else ""
        partly = in_part(self.partly)
        if told:
            change = "\n".join(filter(None, (f"would change:\n{told}", *self.columns, partly)))
        else:
            seen = f", as far as was seen; {partly}" if partly else ""
            change = f"would change no variable{seen}."
        return _ENDINGS.get(self.result.status, change)


def in_part(names: Sequence[str]) -> str:
    """Say which names were compared in part; "" where there are none."""
    if not names:
        return ""
    return f"compared only in part: {_several(names)}"


def _columns(moment: Snapshot) -> dict[str, tuple[str, ...]]:
    """Give the names of the columns of each table of which all are known."""
    return {
        each.name: each.keys
        for each in moment.variables
        if each.shape is not None and len(each.shape) == 2 and each.shape[1] == len(each.keys)
    }


def _several(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMES} more" if len(names) > _NAMES else ""
    return f"{', '.join(map(one_line, names[:_NAMES]))}{more}"


_ENDINGS = {
    "error": "failed there.",
    "timeout": "was interrupted there, as its time was up.",
    "interrupted": "was interrupted there.",
}


async def attempt(
    core: Core,
    source: str,
    *,
    timeout: float | None,  # noqa: ASYNC109 - seconds until the cell is interrupted
    on_message: Callable[[str, dict[str, Any]], object],
    ticket: Ticket,
) -> Attempt:
    """Run a cell in a branch of a kernel.

    Parameters
    ----------
    timeout: seconds until the cell is interrupted; None lets it run.
    on_message: called on the portal with what the cell shows.
    ticket: by which the cell is interrupted.

    Raises
    ------
    BranchRefused: the kernel cannot be branched.
    KernelError: the branch did not come up.
    """
    made = await copy(core)
    try:
        trial = Kernel(await made.branch())
    finally:
        made.release()
    try:
        before, folder = await snapshot(trial.core), await FolderWatch.begin(trial)
        result = await trial.core.run(
            source, timeout=timeout, on_output=None, on_message=on_message, ticket=ticket
        )
        after = await snapshot(trial.core) if trial.alive else None
        files = await folder.end()
    except BaseException:
        await trial.aclose()
        raise
    return Attempt(source, trial, result, trial.core.hazards, before, after, files)
