"""What a model is told of a turn: of a cell what refinement tells, of the others a sentence."""

from __future__ import annotations

from nbrefine.prompts import feedback, fence_output
from nbrefine.values import Turn


def turn_feedback(
    turn: Turn,
    *,
    told: str = "",
    seen: str = "",
    note: str = "",
    hint: str = "",
    undone: str = "",
    language: str = "python",
) -> str:
    """Say what came of a turn, as the model is told it; "" where its cell simply ran well.

    Parameters
    ----------
    turn: all that is known of it but its feedback.
    told: of an inspection what was looked at, in one line; of a plan or an answer why it was
        refused; of an attempt why nothing was run, or what is amiss with the answer that an
        accepted cell gave.
    seen: of an inspection what was seen, which is data.
    note: what of the reply was not carried out; see `nbrefine.moves`.
    hint: of a rejected attempt, names that were looked up in vain; see `nbrefine.hints`.
    undone: the variables that a rejected attempt had made.
    language: the kernel's.
    """
    if turn.kind == "inspection":
        parts = [told, fence_output(seen, name="seen") if seen else ""]
    elif turn.kind == "plan":
        parts = [f"The plan cannot be followed. {told}" if told else ""]
    elif turn.kind == "answer":
        parts = [f"The answer was not taken. {told}" if told else ""]
    elif turn.accepted:
        parts = [told]
    elif turn.result is None and told:
        parts = [f"Nothing was run. {told}"]
    else:
        parts = [_of_attempt(turn, "\n".join(filter(None, (hint, told))), undone, language)]
    return "\n\n".join(part for part in (*parts, note) if part)


def _of_attempt(turn: Turn, hint: str, undone: str, language: str) -> str:
    return feedback(
        turn.extraction,
        result=turn.result,
        tests=turn.tests,
        reply=turn.reply,
        hint=hint,
        undone=undone,
        language=language,
    )
