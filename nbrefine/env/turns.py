"""From an action and its signals to a turn: what was handed in, how it was judged, how it ended.

Environments whose attempts are judged by reward functions alone share this; decisions are pure.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import get_args

from nbrefine.errors import UsageError
from nbrefine.redaction import clean_text
from nbrefine.rewards.code import program_in, report_of
from nbrefine.state import Action, Observation, State
from nbrefine.thinking import without_thinking
from nbrefine.values import (
    Extraction,
    Message,
    Reply,
    Signal,
    SignalBundle,
    Stop,
    Turn,
    Verdict,
)

COMPLETE = "Episode complete."
"""The observation of an episode that has ended."""

CUT = "Your response was cut off before its end. Make the next one shorter."
"""What a model is told that cannot see that it reached the token limit."""

_RAN = "The program that was run with the tests."


def response(action: Action) -> str:
    """Give the text of an action as it can be recorded and sent."""
    return clean_text(action.text or "")


def begun(state: State, action: Action, extraction: Extraction, number: int) -> Turn:
    """Make a turn of an action, not yet judged."""
    reply = action.reply
    if reply is None and action.code is None:
        reply = Reply(response(action))
    return Turn(
        number=number,
        attempt=number,
        messages=state.observation.messages if action.reply else (),
        reply=reply,
        extraction=extraction,
    )


def judged(turn: Turn, signals: SignalBundle, *, threshold: float) -> Turn:
    """Give a turn its signals and what follows from them; its code is the program that was run.

    Parameters
    ----------
    threshold: the best outcome reward from which on the turn has solved the task.
    """
    solved = (signals.outcome or 0.0) >= threshold
    verdict: Verdict = "solved" if solved else _verdict(signals)
    told = feedback_texts(signals)
    if _cut(turn) and not solved:
        told = (CUT, *told)
        # A reply that held whole code all the same has failed by that code.
        unread = verdict == "no-code" or not any(map(_said, signals))
        verdict = "incomplete-reply" if unread else verdict
    return replace(
        turn,
        extraction=_run(turn.extraction, signals),
        tests=next((report for s in signals if (report := report_of(s)) is not None), None),
        signals=signals,
        feedback="\n\n".join(told),
        verdict=verdict,
        accepted=solved,
    )


def _run(extraction: Extraction, signals: SignalBundle) -> Extraction:
    """Give what was taken out of a submission to be run, where a signal tells of that."""
    ran = next((found for s in signals if (found := program_in(s)) is not None), None)
    if ran is None or ran[0] == extraction.code:
        return extraction if ran is None else replace(extraction, language=ran[1])
    code, language = ran
    return replace(extraction, code=clean_text(code), language=language, reason=_RAN)


def _cut(turn: Turn) -> bool:
    """Tell whether the submission goes on to the end of a response that was cut off."""
    reply = turn.reply
    if reply is None or reply.finish not in ("length", "content-filter"):
        return False
    return clean_text(reply.text).endswith(turn.code)


def _said(signal: Signal) -> Verdict | None:
    """Give the verdict that a signal names."""
    said = (signal.metadata or {}).get("verdict")
    return said if said in get_args(Verdict) else None


def feedback_texts(signals: SignalBundle) -> tuple[str, ...]:
    """Give every feedback text that says something, as it can be recorded and sent."""
    return tuple(clean_text(text) for text in signals.feedback_texts() if text.strip())


def _verdict(signals: SignalBundle) -> Verdict:
    """Tell how an attempt failed; where nothing has judged it, whose trouble that is."""
    said = [verdict for verdict in map(_said, signals) if verdict is not None]
    if signals.outcome is not None:
        models = (v for v in said if v not in ("solved", "invalid-task", "infra-error"))
        return next(models, "failed")
    if said and said[0] != "solved":
        return said[0]
    failed = any((signal.metadata or {}).get("error") for signal in signals)
    return "infra-error" if failed else "invalid-task"


def solved_stop(turn: Turn) -> Stop:
    """Tell of an episode that ends with the turn that solved its task: what has decided that."""
    best, tests = turn.score[0], turn.tests
    if tests is not None and tests.total and tests.passed / tests.total == best:
        return Stop("solved", f"{tests.passed}/{tests.total} tests passed")
    return Stop("solved", f"the best outcome reward is {best:g}")


def refuse_ended(stop: Stop | None) -> None:
    """Refuse a step beyond the end.

    Raises
    ------
    UsageError: there is a stop.
    """
    if stop is not None:
        raise UsageError("The episode has ended", hint="Call reset() for another one")


def ended(task: str | None, state: str | None = None) -> Observation:
    """Give the observation of an episode that has ended."""
    return Observation(prompt=COMPLETE, task=task, state=state)


def opening_of(system: str, prompt: str) -> tuple[Message, ...]:
    """Give the messages an episode begins with."""
    asked = Message("user", prompt)
    return (Message("system", system), asked) if system else (asked,)


def refuse_blank(keyword: str | None) -> None:
    """Refuse a keyword that every response begins with.

    Raises
    ------
    UsageError: it is blank.
    """
    if keyword is not None and not keyword.strip():
        raise UsageError("A blank submit_keyword begins every response", hint="Give a word or None")


def early_answer(action: Action, keyword: str | None) -> Action | None:
    """Give an action that hands in early as it is judged, or None where it does not.

    The keyword is no part of an answer; the reply that holds it stays as it was.
    """
    behind = None if action.code is not None else handed_in(response(action), keyword)
    return None if behind is None else replace(action, text=behind)


def handed_in(text: str, keyword: str | None) -> str | None:
    """Give what a response hands in behind the keyword that it begins with; None without it.

    The keyword is taken in its exact case and as a whole word, after thinking and blanks and in
    Markdown's emphasis if it likes: "**SUBMIT** 42", but not "submitting my code below" or
    "SUBMIT_NOW".
    """
    if keyword is None:
        return None
    answer = without_thinking(text)
    found = re.match(_SUBMIT.format(re.escape(keyword)), answer)
    return answer[found.end() :] if found else None


# A mark of emphasis may close right behind the word; a joined word may not go on there.  What
# follows keeps its indentation, which may be that of a function's body.
_SUBMIT = (
    r"\s*(?P<mark>[*_]{{1,3}}|`)?{}(?![*_`]*[^\W_]|[-'\u2019]\w)"
    r"[:.]?(?(mark)(?:(?P=mark))?)[:.]?(?:(?:[ \t]*\r?\n)+|[ \t]*)"
)
