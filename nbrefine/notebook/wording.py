"""What is worth telling about an episode, in words: for the notebook and the terminal alike."""

from __future__ import annotations

import difflib
import itertools
from collections.abc import Callable, Sequence

from nbrefine.extraction import extract
from nbrefine.kernel.names import bind
from nbrefine.kernel.state.changes import describe
from nbrefine.leftovers import read_in_any_case, stale_names
from nbrefine.notebook.markdown import one_line
from nbrefine.outputs import CellResult
from nbrefine.planning.progress import numbered
from nbrefine.source import parse
from nbrefine.values import CaseResult, Episode, Extraction, KernelInfo, Turn

NAMED = 12
"""Variables of a session that are named."""

COLUMNS = 8
"""Attempts a test matrix shows; a page holds no more columns."""

STATUS = {
    "passed": "pass",
    "failed": "fail",
    "error": "error",
    "timeout": "timeout",
    "not-run": "not run",
}
"""How a test ended, for a table or a sentence."""


def title(episode: Episode) -> str:
    """Name an episode: its task's id, or how the task's prompt begins."""
    first = episode.task.prompt.strip().partition("\n")[0]
    return one_line(episode.task.id or first, 70) or "An episode"


def verdict(episode: Episode) -> str:
    """Tell in one sentence how an episode ended."""
    stop = episode.stop
    many = f"{len(episode.turns)} turn{'' if len(episode.turns) == 1 else 's'}"
    if stop is None:
        return f"Running: {many} so far."
    detail = f": {one_line(stop.detail, 400).rstrip('.')}" if stop.detail else ""
    if stop.reason == "solved":
        return f"Solved after {many}{detail}.{_graded(episode)}"
    speaks_for_itself = detail and stop.reason in (
        "max-turns",
        "budget",
        "cycle",
        "gave-up",
        "stopped",
    )
    why = detail if speaks_for_itself else f": {stop.reason}{detail}"
    return f"Not solved after {many}{why}.{_best(episode)}{_graded(episode)}"


def _graded(episode: Episode) -> str:
    """Tell the grade apart from what the tests said that the model was shown."""
    grade = episode.grade
    if grade is None:
        return ""
    counted = f", {grade.passed}/{grade.total} visible and hidden tests" if grade.total else ""
    return f" Grade: {grade.verdict}{counted}."


def _best(episode: Episode) -> str:
    best = episode.best
    if best is None or episode.accepted:
        return ""
    return f" No attempt was accepted; the best was {place(episode, best)}, {tests(best)}."


def facts(episode: Episode) -> list[tuple[str, str]]:
    """Give the facts of an episode that a reader asks for first, as label and value."""
    kernel, usage, chosen = episode.kernel, episode.usage, chosen_of(episode.turns)
    name = kernel.display_name or kernel.name
    version = f"{kernel.language} {kernel.language_version}".strip()
    found = [
        ("Model", _models(episode)),
        ("Kernel", "" if kernel == KernelInfo() else ", ".join(filter(None, (name, version)))),
        ("Tests", tests(chosen) if chosen and not episode.plans else ""),
        ("Hidden tests", "in the metadata, not shown" if episode.task.hidden_tests else ""),
        ("Tokens", f"{usage.input_tokens:,} in, {usage.output_tokens:,} out"),
        ("Tokens of helpers", _helpers(episode)),
        ("Time", f"{episode.seconds:.1f} s"),
        ("Seed", "none" if episode.seed is None else str(episode.seed)),
        ("Recorded", f"{_moment(episode.created)} by nbrefine {episode.version}".strip()),
        ("Branched from", branched(episode)),
        ("Other when gone on with", "; ".join(differences(episode))),
    ]
    return [(label, fact) for label, fact in found if fact]


def _models(episode: Episode) -> str:
    """Name the model, or, where several have replied, each with its turns."""
    turns: dict[str, list[int]] = {}
    for turn in episode.turns:
        if turn.reply is not None:
            turns.setdefault(turn.reply.model or episode.model, []).append(turn.number)
    if len(turns) < 2:
        return episode.model
    return "; ".join(f"{model} ({listed('turn', numbers)})" for model, numbers in turns.items())


def listed(what: str, numbers: Sequence[int]) -> str:
    """Name what has numbers: "turn 2", "turns 1-3, 5"."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    told = [f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs]
    return f"{what}{'s' if len(numbers) > 1 else ''} {', '.join(told)}"


def differences(episode: Episode) -> list[str]:
    """Say how session and files were other than recorded when the episode was gone on with."""
    told = episode.settings.get("differences", ())
    return [one_line(str(each), 400) for each in told] if isinstance(told, list | tuple) else []


def branched(episode: Episode) -> str:
    """Say which episode this one was branched from, and for what; "" where it began anew."""
    told = episode.settings.get("branched_from")
    if not isinstance(told, dict):
        return ""
    step, name = told.get("step"), one_line(str(told.get("episode") or "another one"))
    asked = one_line(str(told.get("instruction") or ""), 400)
    wanted = f", to do this from there on: {asked}" if asked else ", to do the same again"
    return f"the episode {name}, before step {step}{wanted}"


def _helpers(episode: Episode) -> str:
    """Tell what judges and summaries took; "" where there were none."""
    usage = episode.helper_usage
    return f"{usage.input_tokens:,} in, {usage.output_tokens:,} out" if usage.total_tokens else ""


def came_with(episode: Episode) -> str:
    """Say what an episode needs that is not in its record; "" where there is nothing."""
    names = episode.handed_in
    if names is None:
        return ""
    asked = needed(episode)
    must = (
        f" Before Run All, {_named(asked)} must be there: its cells read what no cell makes."
        if asked
        else ""
    )
    if perhaps := [name for name in read_of_before(episode) if name not in asked]:
        must += f" Some of its code, if it comes to that, reads {_named(perhaps)}."
    listed = _named(names)
    if episode.settings.get("lent"):
        return (
            f"Before its setup, {listed} came by value from another session. None of that is in "
            f"the record, so in a fresh kernel its cells may fail or give another state.{must}"
        )
    held = f", which held {listed}" if names else ""
    return (
        f"The episode began in a live session that was handed in{held}. None of that is in the "
        f"record, so in a fresh kernel its cells may fail or give another state.{must}"
    )


def _named(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMED:,} more" if len(names) > NAMED else ""
    return f"{', '.join(names[:NAMED])}{more}"


def needed(episode: Episode) -> tuple[str, ...]:
    """Name the variables of before without which setup and accepted cells cannot run."""
    return _of_before(episode, read_in_any_case)


def read_of_before(episode: Episode) -> tuple[str, ...]:
    """Name the variables of before that setup and accepted cells may read, and none makes."""
    return _of_before(episode, stale_names)


def _of_before(
    episode: Episode, read: Callable[[str, Sequence[str]], Sequence[str]]
) -> tuple[str, ...]:
    bound: dict[str, None] = {}
    found: dict[str, None] = {}
    setup = episode.setup.source if episode.setup is not None else episode.task.setup
    for source in (setup, *(runnable(turn) or "" for turn in episode.accepted)):
        left = [name for name in episode.handed_in or () if name not in bound]
        found.update(dict.fromkeys(read(source, left)))
        bind(bound, source)
    return tuple(found)


def _moment(created: str) -> str:
    """Give a moment to the second, which is all that a reader asks for."""
    return created.partition(".")[0].removesuffix("Z").replace("T", " ") + " UTC" if created else ""


def chosen_of(turns: Sequence[Turn]) -> Turn | None:
    """Give the last accepted of some turns, or else the best attempt."""
    tried = [turn for turn in turns if turn.tried]
    accepted = [turn for turn in tried if turn.accepted]
    return accepted[-1] if accepted else max(tried, key=lambda turn: turn.score, default=None)


def place(episode: Episode, turn: Turn) -> str:
    """Name an attempt, with its step where there are several."""
    steps = by_step(episode)
    step = f"{step_name(episode, turn.step)}, " if len(steps) > 1 else ""
    known = (each for each in steps.get(turn.step, ()) if each.number == turn.number)
    return f"{step}attempt {next(known, turn).attempt}"


def step_name(episode: Episode, number: int) -> str:
    """Name a step; where all of the plan are done, what is left is to answer."""
    return "the answer" if beyond(episode, number) else f"step {number}"


def beyond(episode: Episode, number: int) -> bool:
    """Tell whether a step is none of the plan's, but the one in which the answer is given."""
    planned = len(episode.plan.subtasks) if episode.plan is not None else number
    return number > planned and episode.task.answer is not None


def by_step(episode: Episode) -> dict[int, tuple[Turn, ...]]:
    """Give the turns of each step, in order, with attempts numbered as a reader counts them."""
    steps: dict[int, list[Turn]] = {}
    for turn in episode.turns:
        steps.setdefault(turn.step, []).append(turn)
    of_kinds = stepwise(episode)
    return {n: numbered(turns) if of_kinds else tuple(turns) for n, turns in steps.items()}


def in_order(episode: Episode) -> tuple[Turn, ...]:
    """Give the turns in the order of the episode, numbered as `by_step` does."""
    turns = (turn for step in by_step(episode).values() for turn in step)
    return tuple(sorted(turns, key=lambda turn: turn.number))


def stepwise(episode: Episode) -> bool:
    """Tell whether an episode is one whose turns may be other things than attempts."""
    return bool(episode.plans) or episode.task.answer is not None


def is_attempt(episode: Episode, turn: Turn) -> bool:
    """Tell whether a turn counts as an attempt to who reads of it."""
    return turn.kind == "attempt" and (turn.tried or not stepwise(episode))


def tests(turn: Turn | None) -> str:
    """Tell how many tests passed."""
    if turn is None or turn.tests is None:
        return "no tests"
    if turn.tests.problem and not turn.tests.cases:
        return one_line(turn.tests.problem)
    return f"{turn.tests.passed}/{turn.tests.total} tests passed"


def left_out(result: CellResult) -> list[str]:
    """Tell what a result holds only a part of, and which files hold all of it."""
    told: dict[str, list[str]] = {}
    for cut in result.cut:
        more = f" and {len(cut.files) - 3} more" if len(cut.files) > 3 else ""
        where = f"{'' if cut.gap else 'all of it '}in {', '.join(cut.files[:3])}{more}"
        rest = "; ".join(filter(None, (where if cut.files else "", cut.gap)))
        told.setdefault(rest, []).append(f"{cut.dropped:,} of {cut.where}, {cut.kept:,} kept")
    return [f"Left out: {'; '.join(filter(None, (*cuts, rest)))}" for rest, cuts in told.items()]


def not_passed(turn: Turn) -> list[CaseResult]:
    """Give the tests that did not pass."""
    return [case for case in turn.tests.cases if not case.passed] if turn.tests else []


def fate(turn: Turn) -> str:
    """Tell what became of an attempt, in a word or two."""
    if turn.accepted:
        return "accepted"
    return f"{'not judged' if turn.verdict in _NOT_THE_MODEL_S else 'rejected'} ({called(turn)})"


def called(turn: Turn) -> str:
    """Give a turn's verdict as a reader is told it: that a person stopped it is no fault."""
    return "stopped by a person" if turn.stopped else turn.verdict


_NOT_THE_MODEL_S = ("infra-error", "invalid-task")


def unjudged(turn: Turn) -> bool:
    """Tell whether trouble that is not the model's came before anything of a reply was tried."""
    return not turn.tried and turn.verdict in _NOT_THE_MODEL_S


def reason(turn: Turn) -> str:
    """Tell why an attempt was judged as it was, without its tests."""
    result = turn.result
    if withheld(turn):
        return one_line(turn.feedback.strip().partition("\n")[0]) or "it was not let run"
    if result is None:
        return _judged(turn) if turn.code else one_line(turn.extraction.reason) or turn.verdict
    if result.death is not None:
        return str(result.death)
    if result.error is not None:
        return one_line(str(result.error))
    if result.status == "timeout":
        return f"did not end within its time limit ({result.timing.seconds:.1f} s)"
    if result.exited:
        return "it called exit() or quit(), which end a notebook's kernel"
    return "" if result.ok else f"the cell ended with status {result.status}"


def withheld(turn: Turn) -> bool:
    """Tell whether a person did not let a cell run."""
    return turn.result is None and bool(turn.code) and turn.signals.by_name("execution") is not None


def _judged(turn: Turn) -> str:
    """Tell why a submission that no session ran was judged as it was."""
    if turn.verdict in ("no-code", "incomplete-reply"):
        return turn.verdict
    told = (signal.metadata or {} for signal in turn.signals)
    failed = next((str(m["compilation_error"]) for m in told if m.get("compilation_error")), "")
    if failed or turn.tests is not None:
        return one_line(failed or (turn.tests.problem if turn.tests else ""))
    if turn.accepted:
        return ""
    if turn.signals.outcome is None:
        return "nothing has judged it"
    return f"its best outcome reward is {turn.signals.outcome:g}"


def where(turn: Turn) -> str:
    """Tell where an attempt ran."""
    if turn.result is not None:
        return isolation(turn)
    if unjudged(turn):
        return "Whether anything was run is not known."
    if not turn.code or withheld(turn) or turn.verdict in ("no-code", "incomplete-reply"):
        return "Nothing was run."
    if turn.tests is not None:
        return "It and its tests ran in processes of their own, not in a live kernel."
    return "It was handed in as it stands; no session ran it."


def runnable(turn: Turn) -> str | None:
    """Give what Run All runs of an attempt, or None where that is text and no code.

    Where no session ran it, it is code if it parses as Python and either has been tested or came
    in a block that says so.
    """
    if turn.result is not None:
        return turn.result.source
    whole = turn.code
    if turn.tests is None:
        tagged = turn.extraction.language in ("python", "py", "python3", "ipython")
        return whole if tagged and parse(whole) is not None else None
    found = Extraction("found", whole) if parse(whole) is not None else extract(whole)
    valid = found.status == "found" and parse(found.code) is not None
    return found.code if valid else None


def language(episode: Episode, turn: Turn) -> str:
    """Name what an attempt is written in."""
    if turn.result is not None:
        return episode.kernel.language
    return "text" if runnable(turn) is None else "python"


def isolation(turn: Turn) -> str:
    """Tell where an attempt ran and what the session keeps of it."""
    where = {
        "fork": "It ran in a branch of the session",
        "rebuild": "It ran in a session rebuilt from the setup and the accepted cells",
        "none": "It ran in the live session as it was",
    }[turn.isolation]
    because = f" ({one_line(turn.isolation_reason)})" if turn.isolation_reason else ""
    return f"{where}{because}{_kept(turn)}."


def _kept(turn: Turn) -> str:
    result = turn.result
    if turn.isolation != "fork" and result is not None and (result.death or result.lost):
        return "; its kernel ended, and what the session held was lost with it"
    if turn.isolation == "none":
        return ", which keeps what it did"
    if turn.accepted:
        return ""
    if turn.isolation == "rebuild":
        return f"; a session that is built anew has nothing of it{_staying(turn)}"
    stays = _staying(turn)
    return f"; the session keeps nothing of it{stays}" if stays else "; nothing is kept of it"


def _staying(turn: Turn) -> str:
    """Tell what a rejected attempt did outside of the namespace, or may have done."""
    files, told = turn.files, ""
    if files is None or not files.untouched:
        known = files is not None and files.total
        told = f"; files it {'has' if known else 'may have'} written stay"
    if turn.shared:
        told += f"; what it did to what both have stays: {one_line(', '.join(turn.shared))}"
    return told


def changed(turn: Turn) -> list[str]:
    """Tell what an attempt changed in the session and in its folder, a line each."""
    lines = describe(turn.change).splitlines() if turn.change else []
    if turn.files is not None and (files := turn.files.describe()):
        stays = not (turn.accepted or turn.files.isolated) and turn.files.total
        lines.append(f"files: {files}{', which stays so' if stays else ''}")
    return lines


def diff(before: Turn, after: Turn) -> str:
    """Give the unified diff between the code of two attempts, or "" where it is the same."""
    names = (f"attempt {before.attempt}", f"attempt {after.attempt}")
    old, new = before.code.splitlines(), after.code.splitlines()
    return "\n".join(difflib.unified_diff(old, new, *names, lineterm=""))


def matrix(turns: Sequence[Turn]) -> tuple[list[str], list[list[str]]]:
    """Give header and rows of the table test x attempt, in words, the last attempts only."""
    shown = [turn for turn in turns if turn.tests is not None][-COLUMNS:]
    cases = [_cases(turn) for turn in shown]
    names = dict.fromkeys(name for found in cases for name in found)
    header = ["Test", *(f"Attempt {turn.attempt}" for turn in shown)]
    rows = [
        [name, *(STATUS[found[name].status] if name in found else "not there" for found in cases)]
        for name in names
    ]
    return header, rows


def regressions(turns: Sequence[Turn]) -> list[str]:
    """Name the tests that passed in one attempt and not in the next, one sentence each."""
    told = []
    tested = [turn for turn in turns if turn.tests is not None]
    for before, after in itertools.pairwise(tested):
        passed = {name for name, case in _cases(before).items() if case.passed}
        lost = [name for name, case in _cases(after).items() if name in passed and not case.passed]
        if lost:
            names = ", ".join(lost)
            told.append(
                f"Regression at attempt {after.attempt}: {names} passed at attempt "
                f"{before.attempt} and no longer does."
            )
    return told


def _cases(turn: Turn) -> dict[str, CaseResult]:
    return {case.name: case for case in turn.tests.cases} if turn.tests else {}
