"""A finished turn on one line, as a person reads it while the episode goes on."""

from __future__ import annotations

from nbrefine.notebook import steps, wording
from nbrefine.notebook.markdown import one_line
from nbrefine.values import Episode, Turn


def line(episode: Episode, turn: Turn) -> str:
    """Tell a turn: number, what came of it, tests, cost, and why it failed."""
    return "  ".join(word for word in words(episode, turn) if word)


def words(episode: Episode, turn: Turn) -> tuple[str, str, str, str, str]:
    """Give one finished turn as words: number, what came of it, tests, cost, and why it failed."""
    stepped = steps.in_steps(episode)
    checks = "checks" if episode.plans else "tests"
    tests = f"{turn.tests.passed}/{turn.tests.total} {checks}" if turn.tests else ""
    tokens = f"{turn.reply.usage.total_tokens} tokens, " if turn.reply else ""
    return (
        f"turn {turn.number}, {wording.step_name(episode, turn.step)}"
        if stepped
        else f"turn {turn.number}",
        steps.brief(turn) if stepped else wording.called(turn),
        tests,
        f"{tokens}{turn.seconds:.1f} s",
        _reason(*(steps.by_expression([turn]) if episode.plans else [turn])),
    )


def _reason(turn: Turn) -> str:
    """Say in a few words why a turn failed, or what was looked at or planned."""
    if turn.kind != "attempt":
        return one_line(turn.feedback.strip().partition("\n")[0])
    if turn.accepted:
        return ""
    if why := wording.reason(turn):
        return one_line(why)
    failing = [case.name for case in wording.not_passed(turn)]
    return one_line(f"failing: {', '.join(failing)}") if failing else ""
