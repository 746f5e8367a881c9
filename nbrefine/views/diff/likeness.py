"""What is taken for equal though it is not: by the named rules that a replay compares by."""

from __future__ import annotations

from collections.abc import Sequence

from nbrefine.rerun.clock import Ran
from nbrefine.rerun.comparing import Ruler
from nbrefine.rerun.rules import MARK, Likened
from nbrefine.values import Turn

RULER = Ruler()
"""All rules: addresses, the clock, durations, paths, floats that are close …"""

PICTURE = "[image/"
"""How a line begins that stands for a picture."""


def outputs_alike(a: Turn, b: Turn, told: tuple[str, str]) -> tuple[bool, tuple[str, ...]]:
    """Tell whether two turns put out the same, and after which rules.

    Most outputs that differ do so in the first line that does, whatever the rules: looking at that
    line first makes a long episode quick to compare.

    Parameters
    ----------
    told: the outputs as text, which differ.
    """
    if a.result is None or b.result is None:
        return False, ()
    found = [text.split("\n") for text in told]
    others = [both for both in zip(*found, strict=False) if both[0] != both[1]]
    if _of_lines_alone(others):
        if len(found[0]) != len(found[1]) or not _alike(others[:1], a, b).same:
            return False, ()
        likened = _alike(others, a, b)
        return likened.same, likened.after
    ran = _ran(a), _ran(b)
    put_out = RULER.outputs(a.result, b.result, ran)
    ended = RULER.errors(a.result.error, b.result.error, ran)
    after = dict.fromkeys((*put_out.after, *ended.after))
    return put_out.same and ended.same, tuple(after)


def _of_lines_alone(others: Sequence[tuple[str, str]]) -> bool:
    """Tell whether each line may be compared by itself: no set goes on, and none is a picture."""
    return not any(
        line.startswith(PICTURE) or line.count("{") != line.count("}")
        for both in others
        for line in both
    )


def _alike(others: Sequence[tuple[str, str]], a: Turn, b: Turn) -> Likened:
    was, now = ("\n".join(lines) for lines in zip(*others, strict=True))
    return RULER.texts(was, now, (_ran(a), _ran(b)))


def texts_alike(a: str, b: str, of: tuple[Turn, Turn]) -> bool:
    """Tell whether two texts say the same, which came with two turns."""
    return a == b or RULER.texts(a, b, (_ran(of[0]), _ran(of[1])), MARK).same


def _ran(turn: Turn) -> Ran:
    """Tell when a turn's output came, and how long that took."""
    if turn.result is None:
        return Ran.of(turn.started, None)
    timing = turn.result.timing
    return Ran.of(timing.reply or timing.busy or turn.started, timing.seconds)
