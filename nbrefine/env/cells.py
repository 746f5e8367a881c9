"""From a reply to the cell it holds, and from how the attempt went to what a turn tells of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from nbrefine.env.attempt import Attempt
from nbrefine.env.turns import feedback_texts
from nbrefine.extraction import extract, one_of_many
from nbrefine.files import SHOWN
from nbrefine.hints import did_you_mean
from nbrefine.kernel.state.namespace import describe
from nbrefine.leftovers import leftovers, stale_notice
from nbrefine.outputs import CellResult, Output
from nbrefine.prompts import feedback
from nbrefine.redaction import clean_text
from nbrefine.rewards.tests import signal
from nbrefine.state import Action
from nbrefine.values import (
    Episode,
    Extraction,
    RewardType,
    Signal,
    SignalBundle,
    TestReport,
    Turn,
    Verdict,
)

UNDONE = 1200
"""Characters that tell of the variables that are gone with a rejected attempt."""


def with_late(episode: Episode, late: tuple[Output, ...]) -> Episode:
    """Give what came late in the session to the last cell that ran in it: not in a lost branch."""
    if not late:
        return episode
    for at, turn in reversed(list(enumerate(episode.turns))):
        if turn.result is not None and (turn.accepted or turn.isolation != "fork"):
            told = replace(turn, result=_longer(turn.result, late))
            return replace(episode, turns=(*episode.turns[:at], told, *episode.turns[at + 1 :]))
    if episode.setup is None:
        return episode
    return replace(episode, setup=_longer(episode.setup, late))


def _longer(result: CellResult, late: tuple[Output, ...]) -> CellResult:
    return replace(result, outputs=result.outputs + late)


def read(action: Action, language: str) -> Extraction:
    """Find the code to run in an action."""
    if action.code is not None:
        return Extraction(
            "given", clean_text(action.code), language, "the caller supplied the code"
        )
    finish = action.reply.finish if action.reply else "stop"
    return extract(action.text or "", language=language, finish=finish)


def not_run(turn: Turn, language: str) -> Turn:
    """Tell in a turn of a reply that held no code to run."""
    text = feedback(turn.extraction, reply=turn.reply, language=language)
    return replace(turn, feedback=text, signals=NOTHING_RAN)


def tried(
    turn: Turn, done: Attempt, earlier: Sequence[Turn], language: str, *, files: str = ""
) -> Turn:
    """Tell in a turn what came of its attempt.

    Parameters
    ----------
    earlier: the turns before it.
    files: which files it may have meant, see `misnamed`.
    """
    stale = stale_in(turn, done, earlier)
    turn = ran(turn, done, stale)
    if done.accepted:
        return turn
    return replace(turn, feedback=_told(turn, done, stale, language, files))


def stale_in(turn: Turn, done: Attempt, earlier: Sequence[Turn]) -> str:
    """Say what rejected attempts had left: names that the code read, and files; "" for nothing."""
    if done.isolation == "fork":
        return ""
    names = stale_notice(turn.code, leftovers(earlier)) if done.isolation == "none" else ""
    files = ", ".join(list(_files_left(earlier))[:SHOWN])
    told = f"Files that rejected attempts wrote are there still: {files}." if files else ""
    return " ".join(part for part in (names, told) if part)


def _files_left(earlier: Sequence[Turn]) -> dict[str, None]:
    """Give the files that rejected attempts wrote without a branch, and no accepted one since."""
    left: dict[str, None] = {}
    for turn in earlier:
        if turn.files is None or turn.files.isolated:
            continue
        for change in turn.files.changes:
            if turn.accepted or change.action == "deleted":
                left.pop(change.path, None)
            elif change.kind == "file":
                left[change.path] = None
    return left


def ran(turn: Turn, done: Attempt, stale: str = "") -> Turn:
    """Put into a turn what came of its attempt, but for the feedback."""
    return replace(
        turn,
        result=done.result,
        tests=done.tests,
        signals=_signals(done.result, done.tests),
        verdict=_verdict(done.result, accepted=done.accepted),
        accepted=done.accepted,
        isolation=done.isolation,
        isolation_reason=" ".join(part for part in (done.reason, stale) if part),
        shared=done.shared,
        digest=done.left.digest if done.left and done.accepted else None,
        change=done.change,
        files=done.files,
    )


def _told(turn: Turn, done: Attempt, stale: str, language: str, files: str) -> str:
    """Compose what the model is told of a rejected attempt."""
    return feedback(
        turn.extraction,
        result=without_rebuilt(done),
        tests=done.tests,
        state=describe(done.onward.variables if done.onward else ()),
        undone=undone_by(done),
        hint=hint_for(turn.extraction, done, stale, files),
        language=language,
    )


def hint_for(extraction: Extraction, done: Attempt, stale: str = "", files: str = "") -> str:
    """Say what may have gone wrong in a rejected attempt, as far as that can be guessed.

    Parameters
    ----------
    stale: what earlier attempts had left.
    files: which files it may have meant.
    """
    cases = done.tests.cases if done.tests else ()
    raised = "\n".join([str(done.result.error or ""), *(case.message for case in cases)])
    hints = [files, one_of_many(extraction.blocks, raised), stale, _unkept(done), _written(done)]
    if done.result.error is not None:
        variables = done.left.variables if done.left else ()
        keys = {variable.name: variable.keys for variable in variables if variable.keys}
        hints.insert(0, did_you_mean(extraction.code, done.result.error, keys))
    return "\n".join(part for part in hints if part)


def _unkept(done: Attempt) -> str:
    """Say why an attempt was not kept although all went well."""
    well = done.result.ok and not done.result.exited and (not done.tests or done.tests.solved)
    if done.accepted or not well:
        return ""
    return (
        "It was not kept, because the session did not answer afterwards: "
        "leave no object that blocks or ends the process when it is shown."
    )


def _written(done: Attempt) -> str:
    """Say which files stay as a rejected attempt has left them, where nothing held them back."""
    files = done.files
    if done.accepted or files is None or files.isolated or not files.total:
        return ""
    return f"What it did to files stays: it {files.describe()}."


def undone_by(done: Attempt) -> str:
    """Describe the variables that a rejected attempt had made or changed."""
    found = done.onward.variables if done.onward else ()
    left = done.left.variables if done.left else ()
    return describe([variable for variable in left if variable not in found], limit=UNDONE)


def without_rebuilt(done: Attempt) -> CellResult:
    """Give an attempt's result in which only that is lost which the next one does not find."""
    there = {variable.name for variable in done.onward.variables} if done.onward else set()
    lost = tuple(name for name in done.result.lost if done.onward and name not in there)
    return replace(done.result, lost=lost)


NOTHING_RAN = SignalBundle((Signal("execution", RewardType.OUTCOME, 0.0),))
"""The signals of a turn in which no cell ran."""


def _signals(result: CellResult, report: TestReport | None) -> SignalBundle:
    """Give the signal of the tests, or of the cell itself where the task has none."""
    if report is not None:
        return SignalBundle((signal(report),))
    reward = 1.0 if result.ok else 0.0
    return SignalBundle((Signal("execution", RewardType.OUTCOME, reward),))


def _verdict(result: CellResult, *, accepted: bool) -> Verdict:
    """Tell how an attempt that ran is judged."""
    if accepted:
        return "solved"
    if result.status == "timeout":
        return "timeout"
    return "crashed" if result.status == "died" else "failed"


def with_extra(turn: Turn, extra: SignalBundle) -> Turn:
    """Give a turn the signals of further rewards; what they say helps a rejected attempt only."""
    told = (turn.feedback, *(() if turn.accepted else feedback_texts(extra)))
    return replace(
        turn,
        signals=SignalBundle((*turn.signals, *extra)),
        feedback="\n\n".join(text for text in told if text),
    )
