"""What a check of a file asks beyond its source: that the file was written in this episode.

The source alone holds for a file that lay there before, and under Run All there is no more to
ask.  So where a file is there that no accepted cell has written, the checks of an attempt ask
besides whether it is another one than it was.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from datetime import datetime

from nbrefine.env.looking import Folder
from nbrefine.kernel import Kernel
from nbrefine.kernel.helper import ask
from nbrefine.values import CaseResult, Episode, Postcondition, TestReport


def written_by(conditions: Iterable[Postcondition]) -> tuple[str, ...]:
    """Give the paths of the files that must have been written."""
    return tuple(dict.fromkeys(each.writes for each in conditions if each.writes))


def asked_of(episode: Episode) -> tuple[str, ...]:
    """Give the paths of all files that the checks of an episode ask for, its answer's included."""
    subtasks = episode.plan.subtasks if episode.plan is not None else ()
    asked = [each for subtask in subtasks for each in subtask.postconditions]
    form = episode.task.answer
    return written_by((*asked, *(form.postconditions if form is not None else ())))


def unwatched(episode: Episode) -> bool:
    """Tell whether cells became the session, and nobody could look at what they wrote."""
    return bool(episode.accepted) and all(turn.files is None for turn in episode.accepted)


async def lying_there(
    kernel: Kernel, folder: Folder, conditions: Iterable[Postcondition], episode: Episode
) -> dict[str, int]:
    """Give those files that are there although no accepted cell wrote them, and since when.

    They are looked for where the checks do so: in the kernel, in the folder that is its own by
    now, and where links lead.
    """
    seen = written_by(_held(episode))
    paths = [path for path in written_by(conditions) if path not in seen]
    if not paths or unwatched(episode) or kernel.info.language != "python":
        return {}
    found: dict[str, tuple[int, str]] = await ask(kernel.core, "folder", "stamps", paths)
    reals = await folder.reals([each.path for each in episode.artifacts])
    begun = _begun(episode)
    return {
        path: stamp
        for path, (stamp, real) in found.items()
        # What lies elsewhere is not watched, and its time is all that is known of it.
        if real not in reals and (folder.holds(real) or stamp < begun)
    }


def _held(episode: Episode) -> list[Postcondition]:
    """Give the checks of steps that accepted cells have passed."""
    subtasks = episode.plan.subtasks if episode.plan is not None else ()
    passed = [turn for turn in episode.accepted if turn.tests is not None and turn.tests.solved]
    steps = [turn.step for turn in passed if turn.step <= len(subtasks)]
    return [each for step in steps for each in subtasks[step - 1].postconditions]


def _begun(episode: Episode) -> float:
    """Give when the first turn began, in nanoseconds since the epoch."""
    first = next((turn.started for turn in episode.turns if turn.started), "")
    return datetime.fromisoformat(first).timestamp() * 1e9 if first else float("inf")


def asking(stamps: Mapping[str, int]) -> str:
    """Give tests that ask of files whether they are other ones than they were.

    No program can set `st_ctime` as it likes.
    """
    return "".join(
        f'assert __import__("os").stat({path!a}).st_ctime_ns != {stamp}, {_before(path)!a}\n'
        for path, stamp in stamps.items()
    )


def reported(report: TestReport | None, stamps: Mapping[str, int]) -> TestReport | None:
    """Tell what such tests said in words, and nothing where all is well."""
    if report is None or not stamps:
        return report
    own = len(report.cases) - len(stamps)
    if own < 1:  # nothing was run at all
        return report
    asked, rest = report.cases[:own], report.cases[own:]
    told = [
        _told(case, path) if case.status == "failed" else case
        for case, path in zip(rest, stamps, strict=True)
        # Where it could not be asked, what was asked before says why, if anything does.
        if case.status == "failed" or (not case.passed and all(each.passed for each in asked))
    ]
    return replace(report, cases=(*asked, *told))


def with_unwritten(report: TestReport, paths: Collection[str]) -> TestReport:
    """Add to a report of what holds at the end the files that no accepted cell has written."""
    cases = [_told(CaseResult(f"file_{n}", "failed"), path) for n, path in enumerate(paths, 1)]
    return replace(report, cases=(*report.cases, *cases))


def _told(case: CaseResult, path: str) -> CaseResult:
    asked = f"{path} is written by a cell"
    return replace(case, expression=asked, got="", expected="", message=_before(path))


def _before(path: str) -> str:
    return f"{path} was there before and has not been written"
