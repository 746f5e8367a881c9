"""Two runs of one loop, turn by turn: where the second first does something else."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import zip_longest

from nbrefine.kernel.state.changes import differences
from nbrefine.notebook.cells import turn_ids
from nbrefine.redaction import clean_text
from nbrefine.rerun.clock import Ran
from nbrefine.rerun.comparing import Comparison, Ruler, short_diff
from nbrefine.rerun.results import RIGHT, Divergence, StepReplay
from nbrefine.rerun.rules import MARK, Likened
from nbrefine.rerun.session import Stated, combined, compare_ends, ran
from nbrefine.values import Episode, Message, Turn

FROM_OUTSIDE = ("budget", "stopped", "killed", "infra-error")
"""How an episode ends that its loop has not ended."""

FEEDBACK = "its feedback is another one"
VERDICT = "verdict: "
"""How a detail begins that tells of a judgement."""

SHOWN = 80
"""Characters that a sentence quotes of a line."""

_STATE = ("variables", "files")
"""The fences of a prompt that tell what a session holds."""


def compared(
    episode: Episode, again: Episode, ruler: Ruler, *, exhausted: bool
) -> tuple[list[StepReplay], Divergence | None]:
    """Compare a loop's second run with its record.

    Parameters
    ----------
    exhausted: whether it asked for more replies than are recorded.
    """
    steps: list[StepReplay] = []
    first: Divergence | None = None
    for place, cell in enumerate(turn_ids(episode)):
        if place >= len(again.turns):
            steps.append(StepReplay(cell, "not run"))
            continue
        parted, asked = _prompt(episode, again, place, ruler)
        turns = episode.turns[place], again.turns[place]
        moments = _moments(episode, again, place, ran=place + 1)
        steps.append(_turn(cell, turns, asked, ruler, moments, seeded=episode.seed is not None))
        first = first or parted or _departed(place, steps[-1])
    return steps, first or _stop(episode, again, exhausted)


def _turn(
    cell: str,
    turns: tuple[Turn, Turn],
    asked: Comparison,
    ruler: Ruler,
    moments: tuple[Ran, Ran],
    *,
    seeded: bool,
) -> StepReplay:
    """Compare all of a turn.

    Parameters
    ----------
    asked: how its prompts compare.
    moments: when what the model was told after them was made.
    """
    was, now = turns
    if _broken_off(was):  # by a person or the host, and not by the loop
        told = Comparison(True, (), ("the recorded turn was broken off",))
        return combined(cell, now.result, (asked, told), recorded=False)
    judged = tuple(_judged(was, now))
    compared_ = [asked, Comparison(not judged, (), judged), _fed_back(turns, ruler, moments)]
    ended = Comparison(True)
    if (was.result is None) != (now.result is None):
        ran_now = "no cell was run" if now.result is None else "a cell was run, and none had been"
        compared_.append(Comparison(False, (), (ran_now,)))
    elif was.result is not None and now.result is not None:
        here = ran(was.result, was.started), ran(now.result, now.started)
        ended = compare_ends(ruler, was.result, now.result, None, here)
        compared_ += [ended, ruler.outputs(was.result, now.result, here)]
    stated = _state(was, now, ruler, seeded=seeded)
    step = combined(cell, now.result, compared_, stated, recorded=True)
    return step if ended.same else replace(step, verdict="error differs")


def _departed(place: int, step: StepReplay) -> Divergence | None:
    """Tell where a turn first went another way whose prompt was as recorded."""
    if step.verdict in RIGHT:
        return None
    told = next((each for each in step.details if each.startswith(VERDICT)), "")
    alone = step.details[:1] == (FEEDBACK,)
    part = "verdict" if told else "feedback" if alone else "cell"
    why = told.removeprefix(VERDICT) or (*step.details, "it put out something else")[0]
    return Divergence(place + 1, part, why, step.diff)


def _broken_off(turn: Turn) -> bool:
    return turn.stopped or turn.verdict in ("infra-error", "invalid-task")


def _judged(was: Turn, now: Turn) -> Iterator[str]:
    """Say how a turn was judged in another way."""
    if was.kind != now.kind:
        yield f"{VERDICT}it was taken for {_a(now.kind)}, not for {_a(was.kind)}"
    if (was.verdict, was.accepted) != (now.verdict, now.accepted):
        yield f"{VERDICT}{_fate(now)}, not {_fate(was)}"
    old, new = ((t.tests.passed, t.tests.total) if t.tests else None for t in (was, now))
    if old != new:
        yield f"{VERDICT}{_passed(new)} passed, not {_passed(old)}"
    elif _held(was) != _held(now):
        yield f"{VERDICT}other tests passed"
    if was.code != now.code:
        yield "its reply was read as other code"


def _held(turn: Turn) -> list[tuple[str, bool]]:
    cases = turn.tests.cases if turn.tests is not None else ()
    return [(case.expression or case.name, case.passed) for case in cases]


def _fed_back(turns: tuple[Turn, Turn], ruler: Ruler, moments: tuple[Ran, Ran]) -> Comparison:
    """Compare what the model was told, or would have been after the last turn."""
    was, now = (turn.feedback for turn in turns)
    if ruler.level == "lax":
        return Comparison(True)
    likened = ruler.texts(was, now, moments, MARK)
    if likened.same:
        return Comparison(True, tuple(name for name in likened.after if name != MARK.name))
    diff = short_diff(likened.was, likened.now)
    return Comparison(False, (), (FEEDBACK,), diff)


def _a(kind: str) -> str:
    return f"an {kind}" if kind[0] in "aeiou" else f"a {kind}"


def _fate(turn: Turn) -> str:
    return f"{turn.verdict} and accepted" if turn.accepted else turn.verdict


def _passed(counted: tuple[int, int] | None) -> str:
    return f"{counted[0]} of {counted[1]} tests" if counted else "no tests"


def _state(was: Turn, now: Turn, ruler: Ruler, *, seeded: bool) -> Stated:
    if ruler.level == "lax" or not seeded or was.digest is None or now.digest is None:
        return Stated()
    details = differences(was.digest, now.digest)
    return Stated("differs" if details else "same", details)


def _moments(episode: Episode, again: Episode, place: int, *, ran: int) -> tuple[Ran, Ran]:
    """Tell when prompts were made, and how long anything that they tell of can have taken."""

    def moment(of: Episode) -> Ran:
        seconds = sum(t.result.timing.seconds for t in of.turns[:ran] if t.result is not None)
        return Ran.of(of.turns[place].started or of.created, seconds)

    return moment(episode), moment(again)


def _prompt(
    episode: Episode, again: Episode, place: int, ruler: Ruler
) -> tuple[Divergence | None, Comparison]:
    """Compare a turn's prompts, and name the first part that is another one."""
    was, now = episode.turns[place], again.turns[place]
    if ruler.level == "lax":
        return None, Comparison(True)
    ran_ = _moments(episode, again, place, ran=place)
    after: dict[str, None] = {}
    parted: Divergence | None = None
    for old, new in zip_longest(was.messages, now.messages):
        if old is None or new is None or old.role != new.role:
            told = f"{len(now.messages)} messages, not {len(was.messages)}"
            parted = Divergence(place + 1, "earlier replies", told)
        elif not (likened := ruler.texts(old.content, new.content, ran_, MARK)).same:
            parted = _parted(episode, place, old, likened)
        elif old.images != new.images:
            parted = Divergence(place + 1, "state", "it came with other pictures")
        else:
            after.update(dict.fromkeys(likened.after))
            continue
        told = f"prompt, {parted.part}: {parted.told}"
        return parted, Comparison(False, (), (told,), parted.diff)
    after.pop(MARK.name, None)
    return None, Comparison(True, tuple(after))


def _parted(episode: Episode, place: int, message: Message, likened: Likened) -> Divergence:
    old, new = likened.was.splitlines(), likened.now.splitlines()
    pairs = enumerate(zip_longest(old, new))
    line = next((n for n, (a, b) in pairs if a != b), len(old))
    told = _first(old[line : line + 1], new[line : line + 1], line + 1)
    part = _part(episode, place, message, old, line)
    return Divergence(place + 1, part, told, short_diff(likened.was, likened.now))


def _first(old: list[str], new: list[str], number: int) -> str:
    """Say how the first lines differ that do; either may have none, or both in their ends alone."""
    if not old or not new:
        extra = clean_text(f"{(old or new)[0]:.80}") if old or new else ""
        gone = f"line {number} is gone: {extra!r}" if old else f"line {number} is new: {extra!r}"
        return gone if old or new else "its lines end otherwise"
    pairs = enumerate(zip(old[0], new[0], strict=False))
    column = next((n for n, (a, b) in pairs if a != b), min(len(old[0]), len(new[0])))
    begins = max(0, column - SHOWN // 2) if column >= SHOWN else 0
    cut = [f"{'…' * (begins > 0)}{each[begins : begins + SHOWN]}" for each in (old[0], new[0])]
    was, now = map(clean_text, cut)
    return f"line {number} is {now!r}, not {was!r}"


def _part(episode: Episode, place: int, message: Message, lines: list[str], line: int) -> str:
    """Name the part of a prompt in which a line stands."""
    if message.role != "user":
        return "system" if message.role == "system" else "earlier replies"
    for above in reversed(lines[: line + 1]):
        if above.startswith("</"):
            break
        if above.startswith("<") and above.endswith(">"):
            name = above[1:].split(" ")[0]
            return "state" if name in _STATE else "feedback"
    if place == 0:
        return "task"
    text = lines[line] if line < len(lines) else ""
    opening = {each for m in episode.turns[0].messages for each in m.content.splitlines()}
    if text.strip() and text in opening:
        return "task"
    earlier = {each for t in episode.turns[:place] for each in t.feedback.splitlines()}
    if text.strip() and text in earlier:
        return "feedback"
    codes = {each for t in episode.turns[:place] for each in t.code.splitlines()}
    if text.strip() and text in codes:
        return "earlier replies"
    return "feedback" if place else "task"


def _stop(episode: Episode, again: Episode, exhausted: bool) -> Divergence | None:
    """Compare how two runs of a loop ended."""
    was, now = episode.stop, again.stop
    from_outside = was is None or was.reason in FROM_OUTSIDE
    then = was.reason if was is not None else "running"
    if exhausted:
        if from_outside:
            return None
        turn = len(episode.turns) + 1
        return Divergence(turn, "stop", f"it asks for another reply, and had ended: {then}")
    reason = now.reason if now is not None else "running"
    if len(again.turns) < len(episode.turns):
        told = f"it ends here ({reason}), and had gone on for {len(episode.turns)} turns"
        return Divergence(len(again.turns) + 1, "stop", told)
    if reason != then and not from_outside:
        return Divergence(len(again.turns), "stop", f"it ends as {reason}, not as {then}")
    return None
