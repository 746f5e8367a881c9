"""From a reply to the cell it holds, and from how the cell went to what a turn says of it."""

from __future__ import annotations

from dataclasses import replace

from nbrefine.env.turns import feedback_texts
from nbrefine.extraction import extract
from nbrefine.outputs import CellResult, Output
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


def cell_signals(result: CellResult | None, report: TestReport | None) -> SignalBundle:
    """Give the signal of the tests, or of the cell itself where the task has none."""
    if report is not None:
        return SignalBundle((signal(report),))
    reward = 1.0 if result is not None and result.ok else 0.0
    return SignalBundle((Signal("execution", RewardType.OUTCOME, reward),))


def with_extra(turn: Turn, extra: SignalBundle) -> Turn:
    """Give a turn the signals of further rewards; what they say helps a rejected attempt only."""
    told = (turn.feedback, *(() if turn.accepted else feedback_texts(extra)))
    return replace(
        turn,
        signals=SignalBundle((*turn.signals, *extra)),
        feedback="\n\n".join(text for text in told if text),
    )


def cell_verdict(result: CellResult, *, accepted: bool) -> Verdict:
    """Tell how an attempt that ran is judged."""
    if accepted:
        return "solved"
    if result.status == "timeout":
        return "timeout"
    return "crashed" if result.status == "died" else "failed"
