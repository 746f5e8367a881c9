"""One turn of a multi-step episode: from what the model wants to do to what came of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from itertools import takewhile

from nbrefine.answers import reminder
from nbrefine.briefing import shortened, turn_feedback
from nbrefine.env import copied, written
from nbrefine.env.answering import (
    Answering,
    Judged,
    answered,
    given_by,
    normal,
    refusal,
    too_early,
)
from nbrefine.env.approval import Approve, Decision, Proposal, decided
from nbrefine.env.attempt import Attempt, attempt
from nbrefine.env.cells import NOTHING_RAN, hint_for, ran, stale_in, undone_by, without_rebuilt
from nbrefine.env.course import Wants, pending
from nbrefine.env.looking import Folder, told_pictures, variable
from nbrefine.env.looking import Seen as Looked
from nbrefine.env.misnamed import misnamed
from nbrefine.env.points import Point
from nbrefine.env.preparation import check_conditions
from nbrefine.env.session import Session
from nbrefine.errors import InvalidTaskError
from nbrefine.kernel.state.changes import lately
from nbrefine.kernel.state.namespace import describe
from nbrefine.moves import Finish, Inspect, MakePlan, Move, Nothing, ReadFile, RunCell, read_move
from nbrefine.planning import Progress, planned
from nbrefine.postconditions import tests_of
from nbrefine.state import Action
from nbrefine.values import (
    Answer,
    AnswerForm,
    Artifact,
    Episode,
    Extraction,
    Plan,
    RewardType,
    Signal,
    SignalBundle,
    Stop,
    Subtask,
    Task,
    Turn,
    Verdict,
)


@dataclass(frozen=True, slots=True)
class Turned:
    """What came of a turn."""

    turn: Turn
    point: Point
    """Where the next cell begins."""
    shown: str
    """The variables that it finds there, in a few lines."""
    plan: Plan | None = None
    """The plan that holds from now on; None where it is the one that did."""
    answer: Answer | None = None
    stop: Stop | None = None
    missed: bool = False
    """Whether a plan was asked for and did not come."""
    waited: float = 0.0
    """Seconds that a person took to decide, which are not the model's."""


class Turning:
    """Carries out what a model wants to do next in an episode.

    Parameters
    ----------
    session: where cells run.
    folder: where they work.
    episode: all so far.
    may_plan: whether a plan is welcome where none was asked for.
    approve: asked before a cell runs.
    answering: judges answers.
    timeout: seconds a cell may run.
    test_timeout: seconds one check may run.
    on_tests: called with True as checks begin and with False as they end.
    on_changed: called with the turn of a cell that has become the session, or has changed it, at
        each moment from which more is known of it.
    """

    def __init__(
        self,
        session: Session,
        folder: Folder,
        episode: Episode,
        *,
        may_plan: bool,
        approve: Approve | None,
        answering: Answering,
        timeout: float | None,
        test_timeout: float,
        on_tests: Callable[[bool], object],
        on_changed: Callable[[Turn], object],
    ) -> None:
        self._session = session
        self._folder = folder
        self._episode = episode
        self._may_plan = may_plan
        self._approve = approve
        self._answering = answering
        self._timeout = timeout
        self._test_timeout = test_timeout
        self._on_tests = on_tests
        self._on_changed = on_changed
        self._language = session.language

    async def take(self, here: Turned, action: Action, now: Progress, wants: Wants) -> Turned:
        """Take a turn.

        Parameters
        ----------
        here: where it begins, and what is known of it before anything is done.
        now: where the work stands.
        wants: what the model was asked for.
        """
        form = self._episode.task.answer
        move = read_move(
            action, language=self._language, form=form, wants=wants, may_plan=self._may_plan
        )
        move = _bounded(move)
        if isinstance(move, MakePlan):
            return await self._planned(here, move, action, now, wants)
        if isinstance(move, Inspect | ReadFile):
            return await self._inspected(here, move, wants)
        if isinstance(move, Finish):
            return await self._finished(here, move, now)
        if wants == "plan" and action.code is None:
            return self._unplanned(here, move)
        if isinstance(move, Nothing):
            return self._nothing(here, move)
        return await self._run(here, move, action, now)

    async def adopt(self, best: Turn, point: Point) -> Turned | None:
        """Run an attempt again that was rejected, and let it become the session.

        Gives its turn, which says so; None where it does not run without an error any more.
        """
        done = await self._attempt(best, (), point, partial(_kept, best))
        if not done.accepted:
            return None
        turn = _kept(best, await self._ran(best, done))
        self._on_changed(turn)
        return Turned(turn, done.point, _variables(done, self._episode))

    async def _planned(
        self, here: Turned, move: MakePlan, action: Action, now: Progress, wants: Wants
    ) -> Turned:
        told = "" if wants == "plan" or self._may_plan else _no_plan(now)
        told = told or self._unfit(move.subtasks)
        if told and wants != "plan":  # it uses up the step's attempts, as all that is of no use
            extraction = Extraction("no-code", reason="The reply holds a plan.")
            return self._nothing(here, Nothing(extraction, told, move.note))
        if not told:
            here, decision = await self._let(here, move, action, now)
            if decision.action in ("reject", "stop"):
                return self._refused(here, move, decision.reason, decision.action == "stop")
        turn = replace(here.turn, kind="plan", verdict="failed" if told else "solved")
        turn = self._fed_back(turn, told, move)
        if told:
            return replace(here, turn=turn, missed=True)
        plans = self._episode.plans
        plan = planned(
            plans,
            (*self._episode.turns, turn),
            move.subtasks,
            since=turn.number + 1,
            reason=now.exhausted if plans else "",
        )
        return replace(here, turn=turn, plan=plan)

    async def _let(
        self, here: Turned, move: MakePlan, action: Action, now: Progress
    ) -> tuple[Turned, Decision]:
        """Ask whether the checks of a plan, which are the model's code, may run."""
        checks = [each for subtask in move.subtasks for each in subtask.postconditions]
        if not checks:
            return here, Decision("approve")
        proposal = Proposal(
            "\n".join(each.source for each in checks),
            here.turn.step,
            "Checks that are to run after the cells of a plan",
            action.text or "",
            _next_attempt(now),
            "checks",
        )
        return await self._asked(here, proposal)

    async def _asked(self, here: Turned, proposal: Proposal) -> tuple[Turned, Decision]:
        """Ask whether code may run, and keep how long that took."""
        asked = time.monotonic()
        decision = await decided(self._approve, proposal)
        return replace(here, waited=time.monotonic() - asked), decision

    def _refused(self, here: Turned, move: MakePlan, reason: str, stops: bool) -> Turned:
        why = f": {reason}" if reason else "."
        verdict: Verdict = "infra-error" if stops else "failed"
        turn = replace(here.turn, kind="plan", verdict=verdict, stopped=stops)
        turn = self._fed_back(turn, f"A person did not let the checks of this plan run{why}", move)
        told = f"a person stopped it at the checks of a plan{why}".removesuffix(".")
        return replace(
            here, turn=turn, missed=not stops, stop=Stop("stopped", told) if stops else None
        )

    def _unfit(self, subtasks: tuple[Subtask, ...]) -> str:
        """Say what keeps the checks of a plan from being run here; "" for nothing."""
        checks = [each for subtask in subtasks for each in subtask.postconditions]
        if checks and self._language != "python":
            return f"Checks cannot be run in a {self._language} kernel: leave them out."
        try:
            check_conditions(checks)
        except InvalidTaskError as unfit:
            return f"{unfit.message}."
        return ""

    def _unplanned(self, here: Turned, move: RunCell | Nothing) -> Turned:
        """Tell of a reply that holds no plan although one was asked for."""
        told = move.problem if isinstance(move, Nothing) else "The cell was not run."
        told = " ".join(part for part in ("A plan was asked for.", told, move.note) if part)
        turn = replace(here.turn, kind="plan", extraction=_not_code(move.extraction), feedback=told)
        return replace(here, turn=turn, missed=True)

    async def _inspected(self, here: Turned, move: Inspect | ReadFile, wants: Wants) -> Turned:
        if isinstance(move, Inspect):
            async with self._session.looking(here.point) as kernel:
                looked: Looked = await variable(kernel, move.name)
        else:
            looked = await self._folder.read(move.path, move.start)
        title = looked.title if looked.text else f"{looked.title.removesuffix('.')}."
        turn = replace(here.turn, kind="inspection", verdict="solved" if looked.found else "failed")
        row = takewhile(lambda turn: turn.kind == "inspection", reversed(self._episode.turns))
        missed = wants == "plan" and len(list(row)) >= LOOKS
        turn = self._fed_back(turn, title, move, seen=looked.text)
        return replace(here, turn=turn, missed=missed)

    async def _finished(self, here: Turned, move: Finish, now: Progress) -> Turned:
        turn = replace(here.turn, kind="answer")
        judged = await self._judged(move.text, self._episode, here.point, turn.number, now)
        accepted = judged.answer is not None
        turn = replace(
            turn,
            tests=judged.tests,
            verdict="solved" if accepted else "failed",
            signals=SignalBundle((Signal("answer", RewardType.OUTCOME, 1.0 if accepted else 0.0),)),
        )
        form = self._episode.task.answer
        like = reminder(form) if form is not None and judged.off_form else ""
        turn = self._fed_back(turn, "\n".join(filter(None, (refusal(judged), like))), move)
        return replace(here, turn=turn, answer=judged.answer, stop=answered(judged, self._episode))

    async def _judged(
        self, said: str, episode: Episode, point: Point, number: int, now: Progress
    ) -> Judged:
        form = episode.task.answer
        if form is None:
            return Judged(None, "No answer is asked for: go on with the steps.")
        if left := pending(episode):
            return Judged(None, too_early(left, now))
        return await self._answering.judge(said, form, episode, point, number)

    def _nothing(self, here: Turned, move: Nothing) -> Turned:
        cut = move.extraction.status == "incomplete"
        turn = replace(
            here.turn,
            extraction=move.extraction,
            verdict="incomplete-reply" if cut else "no-code",
            signals=NOTHING_RAN,
        )
        # What was read of a reply explains itself; a tool's trouble is told as it is.
        told = "" if move.problem == move.extraction.reason and not _called(turn) else move.problem
        if not cut and not _called(turn):
            move = replace(move, note="\n\n".join(filter(None, (move.note, self._reminder()))))
        return replace(here, turn=self._fed_back(turn, told, move))

    def _reminder(self) -> str:
        """Say how an answer looks, to who may have meant one; "" where none can be given yet."""
        form = self._episode.task.answer
        if form is None or not self._episode.accepted or pending(self._episode):
            return ""
        return reminder(form)

    async def _run(self, here: Turned, move: RunCell, action: Action, now: Progress) -> Turned:
        turn = replace(here.turn, extraction=move.extraction)
        if action.code is None:
            goal = now.subtask.goal if now.subtask is not None else self._episode.task.prompt
            said, attempt = action.text or "", _next_attempt(now)
            proposal = Proposal(turn.code, turn.step, goal, said, attempt)
            here, decision = await self._asked(here, proposal)
            if decision.action in ("reject", "stop"):
                return self._rejected(here, turn, move, decision.reason, decision.action == "stop")
            if decision.action == "edit":
                edited = Extraction(
                    "given", decision.code, self._language, "A person edited the proposed cell."
                )
                turn = replace(turn, extraction=edited)
        subtasks = (now.subtask,) if now.subtask is not None else ()
        done = await self._attempt(turn, subtasks, here.point)
        turn = await self._ran(turn, done, subtasks)
        if turn.accepted:
            self._on_changed(turn)
        here = replace(
            here, turn=turn, point=done.point, shown=_variables(done, self._episode, here.shown)
        )
        if not turn.accepted:
            return replace(here, turn=await self._rejected_by_checks(turn, done, move))
        return await self._passed(here, move, now)

    def _rejected(
        self, here: Turned, turn: Turn, move: RunCell, reason: str, stops: bool
    ) -> Turned:
        why = f": {reason}" if reason else "."
        verdict: Verdict = "infra-error" if stops else "failed"
        turn = replace(turn, verdict=verdict, stopped=stops)
        turn = replace(turn, signals=SignalBundle() if stops else NOTHING_RAN)
        turn = self._fed_back(turn, f"A person did not let this cell run{why}", move)
        told = f"a person stopped it before a cell ran{why}".removesuffix(".")
        stop = Stop("stopped", told) if stops else None
        return replace(here, turn=turn, stop=stop)

    async def _attempt(
        self,
        turn: Turn,
        subtasks: tuple[Subtask, ...],
        point: Point,
        kept: Callable[[Turn], Turn] = lambda turn: turn,
    ) -> Attempt:
        """Run a turn's cell; `kept` gives the turn as it stands where that changes the session."""

        def changed(done: Attempt) -> None:
            self._on_changed(kept(self._told(turn, _as_told(done))))

        checks = [each for subtask in subtasks for each in subtask.postconditions]
        done = await attempt(
            self._session,
            point,
            turn.code,
            Task(self._episode.task.prompt, tests=tests_of(checks)),
            timeout=self._timeout,
            test_timeout=self._test_timeout,
            on_tests=self._on_tests,
            on_changed=changed,
            tests_if=copied.dies_of,
            lying=partial(
                written.lying_there,
                folder=self._folder,
                conditions=checks,
                episode=self._episode,
            ),
        )
        return _as_told(done)

    def _told(self, turn: Turn, done: Attempt) -> Turn:
        return ran(turn, done, stale_in(turn, done, self._episode.turns))

    async def _ran(self, turn: Turn, done: Attempt, subtasks: tuple[Subtask, ...] = ()) -> Turn:
        turn = self._told(turn, done)
        if not turn.accepted:
            return turn
        found = await self._folder.artifacts(turn.files)
        found = (*found, *await self._asked_for(turn, found))
        # Its checks saw these written, be it with the bytes of before or by another path.
        known = {each.path for each in (*self._episode.artifacts, *found)}
        checks = [each for subtask in subtasks for each in subtask.postconditions]
        seen = [path for path in written.written_by(checks) if path not in known]
        return replace(turn, artifacts=(*found, *await self._folder.there(seen)))

    async def _asked_for(self, turn: Turn, listed: Sequence[Artifact]) -> tuple[Artifact, ...]:
        """Give the files asked for that a cell wrote, and that are not among those listed."""
        if turn.files is None or not turn.started:
            return ()
        if not turn.files.omitted and not turn.files.problems:
            return ()
        form = self._episode.task.answer
        asked = (*normal(form.files if form is not None else ()), *written.asked_of(self._episode))
        known = {each.path for each in listed}
        paths = [path for path in dict.fromkeys(asked) if path not in known]
        return await self._folder.touched(paths, datetime.fromisoformat(turn.started).timestamp())

    async def _rejected_by_checks(self, turn: Turn, done: Attempt, move: RunCell) -> Turn:
        files = await misnamed(self._folder, done.result)
        stale = stale_in(turn, done, self._episode.turns)
        hints = (
            copied.hint(turn.tests, done.result),
            hint_for(turn.extraction, done, stale, files),
        )
        told = turn_feedback(
            replace(turn, result=without_rebuilt(done)),
            told=told_pictures(turn.result),
            note=move.note,
            hint="\n".join(part for part in hints if part),
            undone=undone_by(done),
            language=self._language,
        )
        return replace(turn, feedback=told)

    async def _passed(self, here: Turned, move: RunCell, now: Progress) -> Turned:
        """Tell of an accepted cell, which may have given the answer in passing."""
        turn = here.turn
        form: AnswerForm | None = self._episode.task.answer
        said = given_by(turn, form) if form is not None else None
        drawn = told_pictures(turn.result)
        if said is None:
            return replace(here, turn=self._fed_back(turn, drawn, move))
        episode = replace(self._episode, turns=(*self._episode.turns, turn))
        judged = await self._judged(said, episode, here.point, turn.number, now)
        told = refusal(judged)
        told = "\n".join(part for part in (drawn, f"The answer was not taken. {told}") if part)
        turn = self._fed_back(turn, drawn if judged.answer else told, move)
        return replace(here, turn=turn, answer=judged.answer, stop=answered(judged, episode))

    def _fed_back(self, turn: Turn, told: str, move: Move, *, seen: str = "") -> Turn:
        text = turn_feedback(turn, told=told, seen=seen, note=move.note, language=self._language)
        return replace(turn, feedback=text)


LOOKS = 4
"""Looks in a row that may go before a plan that was asked for."""

TOLD = 2_000
"""Characters that a model is told of what it wrote and cannot be carried out, which it cites."""


def _as_told(done: Attempt) -> Attempt:
    """Tell of an attempt's checks as the model is told of them."""
    report = written.reported(done.tests, done.stamps)
    return replace(done, tests=copied.narrowed(report, done.result))


def _kept(best: Turn, turn: Turn) -> Turn:
    """Give the turn of a rejected attempt whose cell became the session when it ran again."""
    note = "of all attempts at this step it was the best, and not all of its checks held"
    reason = "; ".join(part for part in (turn.isolation_reason, note) if part)
    return replace(
        turn,
        tests=best.tests,
        signals=best.signals,
        verdict=best.verdict,
        isolation_reason=reason,
    )


def _bounded(move: Move) -> Move:
    move = replace(move, note=shortened(move.note, TOLD))
    if not isinstance(move, Nothing):
        return move
    reason = shortened(move.extraction.reason, TOLD)
    extraction = replace(move.extraction, reason=reason)
    return replace(move, extraction=extraction, problem=shortened(move.problem, TOLD))


def _next_attempt(now: Progress) -> int:
    return 1 + sum(turn.tried and not turn.stopped for turn in now.turns)


def _no_plan(now: Progress) -> str:
    if now.planned:
        return f"There is a plan already: go on with step {now.step}."
    return "No plan is wanted: go on with the next cell."


def _not_code(extraction: Extraction) -> Extraction:
    """Tell in an extraction that what was found was not run."""
    return Extraction("no-code", reason="A plan was asked for.", blocks=extraction.blocks)


def _called(turn: Turn) -> bool:
    return turn.reply is not None and bool(turn.reply.tool_calls)


def _variables(done: Attempt, episode: Episode, before: str = "") -> str:
    onward = done.left if done.accepted else done.onward
    if onward is None:
        return before
    new = (done.change,) if done.accepted else ()
    earlier = (turn.change for turn in reversed(episode.accepted))
    return describe(onward.variables, recent=lately((*new, *earlier)))
