"""Where a multi-step episode goes from here: pure decisions over its plans and turns."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from nbrefine.planning import Progress, StepLimits, counted, progress
from nbrefine.planning.plans import done_by, standing
from nbrefine.planning.progress import numbered
from nbrefine.stopping import StopRule
from nbrefine.values import Episode, Stop, Subtask, TestReport, Turn

Planning = Literal["auto", "ask", "none"]
"""Whether a model may make a plan, must begin with one, or makes none."""

Wants = Literal["act", "plan"]

MISSES = 2
"""Replies without a plan after which a model is not asked for it any more."""


@dataclass(frozen=True, slots=True)
class Course:
    """The rules by which the work goes on."""

    limits: StepLimits
    rules: StopRule
    max_turns: int
    max_replans: int
    planning: Planning
    accept_best: bool

    def now(self, episode: Episode, given_up: Collection[int]) -> Progress:
        """Tell where the work stands."""
        return progress(
            episode.plans,
            episode.turns,
            limits=self.limits,
            rules=self.rules,
            max_replans=self.max_replans,
            given_up=given_up,
        )

    def may_plan(self, episode: Episode) -> bool:
        """Tell whether a plan of the model's is welcome at any time."""
        return self.planning != "none" and not episode.plans

    def wants(self, episode: Episode, now: Progress, missed: int) -> Wants:
        """Say what the next reply should be.

        Parameters
        ----------
        missed: how many replies held no plan where one was asked for, since there was one.
        """
        if missed >= MISSES or self.planning == "none":
            return "act"
        first = self.planning == "ask" and not (episode.plans or episode.accepted)
        again = now.exhausted != "" and now.replans_left > 0
        return "plan" if first or again else "act"

    def escalated(self, now: Progress) -> bool:
        """Tell whether the next prompt asks for another approach."""
        return not now.exhausted and self.rules.should_escalate(now.turns)


def best_of(now: Progress) -> Turn | None:
    """Give the best of a step's attempts that ran without an error; ties go to the earliest."""
    ran = [turn for turn in now.turns if turn.result is not None and turn.result.ok]
    ran = [turn for turn in ran if turn.result is not None and not turn.result.exited]
    return max(ran, key=lambda turn: turn.score, default=None)


def pending(episode: Episode) -> tuple[tuple[int, Subtask], ...]:
    """Give those of the task's own subtasks that are not done, with their numbers."""
    if episode.plan is None:
        return ()
    done = done_by(episode.turns)
    own = standing(episode.plans, episode.turns).own
    return tuple(
        (number, episode.plan.subtasks[number - 1]) for number in own if number not in done
    )


def unmet(episode: Episode) -> tuple[int, ...]:
    """Give the steps whose best attempt was adopted although not all that it must do held."""
    return tuple(turn.step for turn in episode.accepted if turn.verdict != "solved")


def not_held(steps: Sequence[int]) -> str:
    """Say of which steps not all checks held."""
    listed = f"step{'s' if len(steps) != 1 else ''} {', '.join(map(str, steps))}"
    return f"not all checks of {listed} held; the best attempt was kept there"


def gave_up(episode: Episode, now: Progress, why: str = "") -> Stop:
    """Say what was given up, and how far the best attempt at it had come.

    Parameters
    ----------
    why: the reason, which is told of a step on which nothing was tried.
    """
    parts = [_told(episode, number, why) for number in now.given_up]
    parts += [
        f"step {number} was not begun, since it needs what is missing" for number in now.blocked
    ]
    told = {*now.given_up, *now.blocked}
    left = (number for number, _ in pending(episode) if number not in told)
    parts += [f"{_goal(episode, number)} was not done" for number in left]
    return Stop("gave-up", "; ".join(parts))


def _told(episode: Episode, number: int, why: str) -> str:
    goal = _goal(episode, number)
    turns = numbered([turn for turn in episode.turns if turn.step == number])
    tried = [turn for turn in turns if turn.tried and not turn.stopped]
    mute = sum(
        turn.verdict in ("no-code", "incomplete-reply") for turn in turns if turn.kind == "attempt"
    )
    refused = sum(turn.kind == "answer" for turn in turns)
    counts = [counted(len(tried), "attempt")] if tried else []
    counts += [f"{mute:,} {'reply' if mute == 1 else 'replies'} without code"] if mute else []
    counts += [f"{counted(refused, 'answer')} not taken"] if refused else []
    if not counts:
        reason = f": {why[:1].lower()}{why[1:]}" if why else ""
        return f"{goal} was given up without an attempt{reason}"
    best = max(tried, key=lambda turn: (turn.result is not None, *turn.score), default=None)
    named = f" (the best was attempt {best.attempt}, {_outcome(best)})" if best else ""
    return f"{goal} was given up after {' and '.join(counts)}{named}"


def _goal(episode: Episode, number: int) -> str:
    subtasks = episode.plan.subtasks if episode.plan is not None else ()
    if number > len(subtasks):
        return "the answer" if subtasks and episode.task.answer else f"step {number}"
    return f"step {number} ({subtasks[number - 1].goal})"


def _outcome(turn: Turn) -> str:
    if turn.tests is not None:
        return f"{turn.tests.passed}/{turn.tests.total} of its checks held"
    if turn.result is None:
        return "which did not run"
    if turn.result.error is not None:
        return f"which raised {turn.result.error.ename}"
    return f"which ended with the status {turn.result.status}"


def all_done(episode: Episode, report: TestReport | None = None) -> Stop:
    """End an episode of which all subtasks are done and no answer is asked.

    Parameters
    ----------
    report: what the tests of the whole task said; None where it has none.
    """
    if steps := unmet(episode):
        return Stop("gave-up", not_held(steps))
    checks, lost = still_held(episode)
    held = [f"{counted(checks, 'check')} held"] if checks else []
    if report is not None:
        held.append(f"{counted(report.total, 'test')} of the whole task passed")
    steps_done = len(done_by(episode.turns))
    told = f", {', '.join(held)}" if held else "" if lost else "; nothing checks them"
    return Stop("solved", f"{counted(steps_done, 'step')} done{told}{lost}")


def still_held(episode: Episode) -> tuple[int, str]:
    """Count the checks of steps that hold, and say of which steps they no longer do."""
    known = episode.settings.get("lost_checks", ())
    turns = [turn for turn in episode.accepted if turn.tests is not None]
    held = sum(turn.tests.total for turn in turns if turn.tests and turn.step not in known)
    lost = sorted({turn.step for turn in turns if turn.step in known})
    if not lost:
        return held, ""
    of = " and ".join(f"step {number}" for number in lost)
    return held, f"; the checks of {of} no longer hold since it was gone on with"


def noted(episode: Episode, head: str, rest: str) -> Episode:
    """Tell something more in the feedback on the newest turn, unless it says so already."""
    if not episode.turns or head in episode.turns[-1].feedback:
        return episode
    last = episode.turns[-1]
    told = "\n\n".join(part for part in (last.feedback, f"{head}\n{rest}") if part)
    return replace(episode, turns=(*episode.turns[:-1], replace(last, feedback=told)))
