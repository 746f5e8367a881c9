"""How far the work on a task has got: derived from its plans and turns alone."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, takewhile

from nbrefine.errors import UsageError
from nbrefine.planning.plans import done_by, standing
from nbrefine.stopping import StopRule, fingerprint
from nbrefine.values import Plan, Subtask, Turn


@dataclass(frozen=True, slots=True)
class StepLimits:
    """What may be spent on one subtask before another plan is asked for, or it is given up."""

    attempts: int = 4
    """Turns that run a cell, hold nothing that could be read, give an answer, or make a plan
    that nobody asked for and that was not taken.  Looks do not count, nor plans that were asked
    for, nor what the host or a person has stopped."""
    tokens: int | None = None
    """Tokens of the replies, prompts included; None: no limit."""
    seconds: float | None = None
    """Wall time of the turns; None: no limit."""

    def __post_init__(self) -> None:
        if self.attempts < 1:
            raise UsageError(f"attempts is {self.attempts}, but one attempt is the least")
        for name, limit in (("tokens", self.tokens), ("seconds", self.seconds)):
            if limit is not None and not limit > 0:
                raise UsageError(f"{name} is {limit}, but a limit is above 0")


@dataclass(frozen=True, slots=True)
class Progress:
    """Where the work on a task stands."""

    step: int
    """The number of the subtask worked on now; where there is none, the next number."""
    subtask: Subtask | None
    """None without a plan, or where nothing is left."""
    turns: tuple[Turn, ...] = ()
    """Those of this step."""
    done: tuple[int, ...] = ()
    """The numbers of the steps of which an attempt was accepted."""
    given_up: tuple[int, ...] = ()
    blocked: tuple[int, ...] = ()
    """Those that need one that was given up, or that needs one itself."""
    exhausted: str = ""
    """Why no more is tried on the step, as a sentence; "" where more may be tried."""
    replans_left: int = 0
    planned: bool = False
    """Whether there is a plan."""
    replaced: tuple[int, ...] = ()
    """Those that were begun and not done when another plan took the place of theirs."""

    @property
    def finished(self) -> bool:
        """Whether there is a plan and nothing of it is left to work on."""
        return self.planned and self.subtask is None


def progress(
    plans: Sequence[Plan],
    turns: Sequence[Turn],
    *,
    limits: StepLimits,
    rules: StopRule,
    max_replans: int,
    given_up: Collection[int] = (),
) -> Progress:
    """Tell where the work stands.

    Parameters
    ----------
    plans: all that were followed, in order; () where the steps are not planned.
    turns: all of the episode.
    limits: of each step.
    rules: when repeats end a step.
    max_replans: how often another plan may take the place of one.
    given_up: numbers of the subtasks that were given up so far.
    """
    subtasks = plans[-1].subtasks if plans else ()
    done, replaced = done_by(turns), standing(plans, turns).replaced
    lost = frozenset(given_up) - done - replaced
    blocked = _blocked(subtasks, done, lost | replaced)
    closed = done | replaced | lost | blocked
    step = next(
        (number for number in range(1, len(subtasks) + 1) if number not in closed),
        max(len(subtasks), *done, *lost, 0) + 1,
    )
    here = tuple(turn for turn in turns if turn.step == step)
    return Progress(
        step=step,
        subtask=subtasks[step - 1] if step <= len(subtasks) else None,
        turns=here,
        done=tuple(sorted(done)),
        given_up=tuple(sorted(lost)),
        blocked=tuple(sorted(blocked)),
        exhausted=_exhausted(here, limits, rules) or ("" if plans else _stuck(turns, rules)),
        replans_left=max(0, max_replans - sum(plan.origin == "model" for plan in plans[1:])),
        planned=bool(plans),
        replaced=tuple(sorted(replaced)),
    )


def _blocked(
    subtasks: Sequence[Subtask], done: frozenset[int], lost: frozenset[int]
) -> frozenset[int]:
    blocked: set[int] = set()
    for number, subtask in enumerate(subtasks, start=1):
        if number not in done | lost and not (lost | blocked).isdisjoint(subtask.needs):
            blocked.add(number)
    return frozenset(blocked)


def _exhausted(turns: Sequence[Turn], limits: StepLimits, rules: StopRule) -> str:
    """Say which limit of a step is used up.

    Turns that are about the plan use up none, nor do those that the host did not let be judged.
    """
    spent = [turn for turn in turns if turn.kind != "plan" and turn.verdict != "infra-error"]
    if not spent:
        return ""
    step = f"Step {spent[-1].step} has"
    tries = sum(turn.kind in ("attempt", "answer") for turn in spent)
    if tries >= limits.attempts:
        of = "1 try" if limits.attempts == 1 else f"{limits.attempts:,} tries"
        return f"{step} had {tries:,} of its {of}"
    tokens = sum(turn.reply.usage.total_tokens for turn in spent if turn.reply)
    if limits.tokens is not None and tokens >= limits.tokens:
        return f"{step} taken {tokens:,} of its {counted(limits.tokens, 'token')}"
    seconds = sum(turn.seconds for turn in spent)
    if limits.seconds is not None and seconds >= limits.seconds:
        return f"{step} taken {seconds:.1f} of its {limits.seconds:g} s"
    stop = rules.decide(_comparable(spent))
    return f"In step {spent[-1].step} {stop.detail}" if stop else ""


def _stuck(turns: Sequence[Turn], rules: StopRule) -> str:
    """Say that one cell was accepted again and again, where no plan says which is enough."""
    tried = [turn for turn in reversed(turns) if turn.tried and turn.verdict != "infra-error"]
    cells = list(takewhile(lambda turn: turn.accepted, tried))
    mark = fingerprint(cells[0]) if cells else ""
    count = len(list(takewhile(lambda turn: fingerprint(turn) == mark, cells)))
    if count < rules.max_sightings:
        return ""
    return f"The same cell with the same outcome was run {count} times in a row"


def counted(number: int, what: str) -> str:
    """Say how many there are of something: "1 check", "2 checks"."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def numbered(turns: Sequence[Turn]) -> tuple[Turn, ...]:
    """Number the attempts of a step by what was tried, for who reads of them.

    Looks, answers and replies without code stand between them.  One that a person has stopped is
    none, and the next takes its number.
    """
    counts = accumulate(int(turn.tried and not turn.stopped) for turn in turns)
    return tuple(
        replace(turn, attempt=count + turn.stopped) if turn.tried else turn
        for turn, count in zip(turns, counts, strict=True)
    )


def _comparable(turns: Sequence[Turn]) -> list[Turn]:
    """Give the turns among which the newest may be a repeat.

    A variable may be looked at again after each attempt, as it may have changed.
    """
    if not turns or turns[-1].kind != "inspection":
        return [turn for turn in turns if turn.kind != "inspection"]
    place = max((i for i, turn in enumerate(turns) if turn.kind != "inspection"), default=-1)
    return list(turns[place + 1 :])
