"""The environment of multi-step agents: subtasks one after the other on one live kernel.

Each step of it is one reply: a cell, a look at something, a plan, or the answer.  A cell is
accepted, and becomes the session, where all that its subtask asks for holds in a branch of it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, get_args
from uuid import uuid4

from nbrefine._version import __version__
from nbrefine.briefing import Seen, brief
from nbrefine.briefing.amending import unamended
from nbrefine.env.answering import Answering
from nbrefine.env.approval import Approve
from nbrefine.env.base import checked_index
from nbrefine.env.cells import with_late
from nbrefine.env.course import Course, Planning, Wants, all_done, best_of, gave_up, noted, pending
from nbrefine.env.live import REBUILD_LIMIT, LiveEnvironment, one_of
from nbrefine.env.looking import Folder, pictures
from nbrefine.env.points import Hold, Point
from nbrefine.env.preparation import answered, borrow, check_steps, recordable, setup_source
from nbrefine.env.resumption import bring_to, refuse_done
from nbrefine.env.session import IsolationPolicy, Session
from nbrefine.env.turning import Turned, Turning
from nbrefine.env.turns import refuse_ended
from nbrefine.env.undo import Undo
from nbrefine.errors import UsageError
from nbrefine.kernel import Kernel, OutputLimits
from nbrefine.kernel.state.changes import lately
from nbrefine.kernel.state.namespace import describe
from nbrefine.kernel.workspace.overlays import WorkspaceMode
from nbrefine.moves import tools_for
from nbrefine.planning import Progress, StepLimits, first_plan
from nbrefine.prompts import told_tests
from nbrefine.state import Action, Observation, State, StateMetadata, StepResult
from nbrefine.stopping import StopRule
from nbrefine.values import Episode, Message, SignalBundle, Stop, Task, Turn, utc_now


@dataclass(frozen=True, slots=True)
class MultiStepHidden:
    """What a state of a `MultiStepEnvironment` knows and the model does not see."""

    episode: Episode
    now: Progress
    wants: Wants = "act"
    """What the next reply should be."""
    given_up: frozenset[int] = frozenset()
    """Numbers of the subtasks that were given up."""
    missed: int = 0
    """How many replies held no plan where one was asked for, since there was one."""
    escalated: bool = False
    """Whether the observation asks for another approach."""
    point: Point | None = None
    """The state of the session that the next cell begins from."""
    hold: Hold | None = None
    """What this state has of it, until it is released."""
    session: Session | None = None
    """Whose point that is; the next `reset` begins another one."""
    shown: str = ""
    """The variables that are there, in a few lines."""
    tested: Point | None = None
    """Where the tests of the whole task did not pass."""

    @property
    def step(self) -> int:
        """Number of the subtask that the next reply is for."""
        return self.now.step


@dataclass(frozen=True, slots=True)
class _Standing:
    """Where an episode stands, and the session with it."""

    episode: Episode
    point: Point
    shown: str
    given_up: frozenset[int] = frozenset()
    missed: int = 0
    tested: Point | None = None
    """Where the tests of the whole task did not pass."""


class MultiStepEnvironment(LiveEnvironment):
    """A goal is worked on in steps, whose accepted cells make up the session, one by one.

    Cells run where those of a `NotebookEnvironment` do, and the same holds of states.  A subtask
    is done when a cell ran without an error and its postconditions hold in a branch of that;
    without a plan, every cell that ran without an error ends a step.  A subtask whose limits are
    used up is planned anew, or given up.

    Parameters
    ----------
    tasks: one task, or several chosen by `options={"task_index": i}` on reset.  One without
        subtasks and form of an answer is answered in words.
    kernel: see `NotebookEnvironment`.
    lend: a live kernel and the names of variables that are copied by value from it into ours
        before anything else.
    max_turns: turns until an episode is truncated.
    limits_per_step: what may be spent on one subtask.
    max_replans: how often the rest of the work may be planned anew.
    planning: whether a model may make a plan (`auto`), begins with one where the task has none
        (`ask`), or makes none (`none`).
    style: whether replies are fenced text or calls of tools.
    images: whether prompts carry the pictures that the newest cell has shown.
    accept_best: whether of a subtask that would be given up the best attempt that ran without an
        error is adopted.
    approve: asked before each cell of the model's runs; the time it takes is not the step's.
    rules: when repeats call for another approach, and when they end a step.
    timeout, test_timeout, isolation, rebuild_limit, confirm, workspace, ignore, cwd, limits: see
        `NotebookEnvironment`; `test_timeout` holds for each check.
    undo: keeps the files that an accepted cell changes, until whoever records its turn settles it.

    Raises
    ------
    UsageError: there is no task, or a setting is out of range.
    """

    name = "multistep"

    def __init__(
        self,
        tasks: Task | Sequence[Task],
        *,
        kernel: Kernel | str = "python3",
        lend: tuple[Kernel, tuple[str, ...]] | None = None,
        max_turns: int = 30,
        limits_per_step: StepLimits = StepLimits(),  # noqa: B008 - frozen
        max_replans: int = 1,
        planning: Planning = "auto",
        style: Literal["fenced", "tools"] = "fenced",
        images: bool = False,
        accept_best: bool = False,
        approve: Approve | None = None,
        rules: StopRule | None = None,
        timeout: float | None = 120.0,
        test_timeout: float = 10.0,
        isolation: IsolationPolicy = "auto",
        rebuild_limit: float = REBUILD_LIMIT,
        confirm: Callable[[str], bool] | None = None,
        workspace: WorkspaceMode = "auto",
        ignore: Collection[str] = (),
        cwd: str | Path | None = None,
        limits: OutputLimits | None = None,
        undo: Undo | None = None,
    ) -> None:
        given = (tasks,) if isinstance(tasks, Task) else tuple(tasks)
        super().__init__(
            [answered(task) for task in given],
            max_turns=max_turns,
            kernel=kernel,
            timeout=timeout,
            test_timeout=test_timeout,
            isolation=isolation,
            rebuild_limit=rebuild_limit,
            confirm=confirm,
            workspace=workspace,
            ignore=ignore,
            cwd=cwd,
            limits=limits,
        )
        if max_replans < 0:
            raise UsageError(f"max_replans is {max_replans}", hint="Give 0 or more")
        one_of("planning", planning, get_args(Planning))
        one_of("style", style, ("fenced", "tools"))
        if lend is not None and isinstance(kernel, Kernel):
            raise UsageError(
                "Variables are lent to a kernel of ours, and one was handed in",
                hint="Give kernel= or lend=",
            )
        self._lend = lend
        self._course = Course(
            limits_per_step, rules or StopRule(), max_turns, max_replans, planning, accept_best
        )
        self._tools = style == "tools"
        self._images = images
        self._approve = approve
        self._undo = undo

    async def _reset(
        self, *, seed: int | None, options: dict[str, Any] | None
    ) -> tuple[State, dict[str, Any]]:
        """Begin an episode, or go on with the one in `options["episode"]`.

        To go on, setup and accepted cells run again in a fresh kernel, and what they do to the
        working folder is thrown away; `info["differences"]` says how the session is not what it
        was.  A kernel that was handed in must hold that session, and something must be left to do.
        """
        options = options or {}
        earlier: Episode | None = options.get("episode")
        index = checked_index(options.get("task_index", 0), len(self.tasks))
        task = self.tasks[index] if earlier is None else answered(recordable(earlier.task))
        seed = seed if earlier is None else earlier.seed
        session = await self._begin_session(seed)
        session.undo = self._undo
        check_steps(task, session.language)
        plan = first_plan(task)
        lent = await borrow(session, *self._lend) if self._lend is not None else None
        if earlier is None:
            episode = Episode(
                task=task,
                id=options.get("episode_id") or uuid4().hex,
                created=utc_now(),
                handed_in=lent or await session.handed_in(),
                setup=await session.setup(setup_source(task, seed, session.language)),
                seed=seed,
                version=__version__,
                plans=(plan,) if plan else (),
            )
            differences: tuple[str, ...] = ()
        else:
            episode = replace(earlier, task=task, stop=None, answer=None)
            brought = await bring_to(session, self._folder(task), episode, self._test_timeout)
            episode, differences = brought.noted(episode), brought.differences
        point = session.here
        seen = await session.look(point)
        await session.prepare()
        episode = replace(episode, kernel=await session.described())
        recent = lately(turn.change for turn in reversed(episode.accepted))
        standing = _Standing(episode, point, describe(seen.variables, recent=recent))
        state = await self._settled(standing)
        if earlier is not None:
            refuse_done(earlier, state.hidden.episode)
        return state, {"task_index": index, "differences": differences}

    def _folder(self, task: Task) -> Folder:
        assert self._session is not None
        known = self._session.kernel.core.lineage.folder
        path = known or (Path(self._cwd) if self._cwd is not None else None)
        return Folder(path, data=task.files, ignore=self._ignore, goal=unamended(task))

    async def _step(self, state: State, action: Action) -> StepResult:
        hidden: MultiStepHidden = state.hidden
        session = self._session_of(state)
        refuse_ended(hidden.episode.stop)
        self._refuse_released(state)
        assert hidden.point is not None
        started, clock = utc_now(), time.monotonic()
        self.reached = None
        episode = with_late(hidden.episode, await session.kernel.late())
        turn = Turn(
            number=len(episode.turns) + 1,
            step=hidden.now.step,
            attempt=len(hidden.now.turns) + 1,
            messages=state.observation.messages if action.reply else (),
            reply=action.reply,
            escalated=hidden.escalated and action.reply is not None,
            started=started,
        )
        here = Turned(turn, hidden.point, hidden.shown)
        turned = await self._turning(session, episode).take(here, action, hidden.now, hidden.wants)
        seconds = time.monotonic() - clock - turned.waited
        seconds += action.reply.seconds if action.reply else 0.0
        turn = replace(turned.turn, seconds=seconds)
        episode = replace(
            episode,
            turns=(*episode.turns, turn),
            plans=(*episode.plans, turned.plan) if turned.plan else episode.plans,
            answer=turned.answer,
            stop=turned.stop,
            grade=None,  # one that was given is of what was there before
        )
        missed = 0 if turned.plan else hidden.missed + turned.missed
        standing = _Standing(
            episode, turned.point, turned.shown, hidden.given_up, missed, hidden.tested
        )
        self.reached = episode
        after = await self._settled(standing)
        self.reached = after.hidden.episode
        if self.reached.stop is None:
            session.prepare_next()
        return _result(after, action)

    def _turning(self, session: Session, episode: Episode) -> Turning:
        folder = self._folder(episode.task)
        return Turning(
            session,
            folder,
            episode,
            may_plan=self._course.may_plan(episode),
            approve=self._approve,
            answering=self._answering(session, folder),
            timeout=self._timeout,
            test_timeout=self._test_timeout,
            on_tests=self._on_tests,
            on_changed=partial(self._reach, episode),
        )

    def _answering(self, session: Session, folder: Folder) -> Answering:
        return Answering(session, folder, limit=self._test_timeout, on_tests=self._on_tests)

    async def _settled(self, at: _Standing) -> State:
        """Decide what comes next, which may be to give up what is used up, or to end."""
        while True:
            now = self._course.now(at.episode, at.given_up)
            wants = self._course.wants(at.episode, now, at.missed)
            if at.episode.stop is None and now.finished:
                at = await self._finished(at, now)
            if at.episode.stop is not None or not now.exhausted or wants == "plan":
                break
            adopted = await self._adopt_best(at, now)
            at = adopted or replace(at, given_up=at.given_up | {now.step}, missed=0)
            if adopted is None and now.subtask is None:
                why, now = now.exhausted, self._course.now(at.episode, at.given_up)
                stop = gave_up(at.episode, now, why)
                at = replace(at, episode=replace(at.episode, stop=stop))
        if at.episode.stop is None and len(at.episode.turns) >= self.max_turns:
            stop = Stop("max-turns", f"the limit of turns ({self.max_turns}) was reached")
            at = replace(at, episode=replace(at.episode, stop=stop))
        return await self._state(at, now, wants)

    async def _finished(self, at: _Standing, now: Progress) -> _Standing:
        """End an episode of which no subtask is left, or say what does not hold yet."""
        assert self._session is not None
        episode, task = at.episode, at.episode.task
        if now.given_up or now.blocked or pending(episode):  # what was planned anew since is not
            return replace(at, episode=replace(episode, stop=gave_up(episode, now)))
        if task.answer is not None or at.tested is at.point:
            return at
        answering = self._answering(self._session, self._folder(task))
        report = await answering.checked(episode, None, at.point)
        if report is not None and not report.solved:
            missed = f"{report.passed}/{report.total} tests of the whole task pass."
            episode = noted(episode, missed, told_tests(report))
            return replace(at, episode=episode, tested=at.point)
        return replace(at, episode=replace(episode, stop=all_done(episode, report)))

    async def _adopt_best(self, at: _Standing, now: Progress) -> _Standing | None:
        """Adopt the best attempt at a step that is used up, where that was asked for."""
        best = best_of(now) if self._course.accept_best else None
        if best is None or best.accepted:
            return None
        if any(turn.number > best.number for turn in at.episode.accepted):
            return None  # it would stand, and be run again, before what ran before it
        assert self._session is not None
        turned = await self._turning(self._session, at.episode).adopt(best, at.point)
        if turned is None:
            return None
        place, turns = best.number - 1, at.episode.turns
        turns = (*turns[:place], turned.turn, *turns[place + 1 :])
        self.reached = episode = replace(at.episode, turns=turns, grade=None)
        return replace(at, episode=episode, point=turned.point, shown=turned.shown)

    async def _state(self, at: _Standing, now: Progress, wants: Wants) -> State:
        episode = at.episode
        over = episode.stop is not None
        escalated = not over and wants == "act" and self._course.escalated(now)
        may_plan = self._course.may_plan(episode)
        newest = episode.turns[-1] if episode.turns else None
        messages: tuple[Message, ...] = ()
        if not over:
            wrote = [each.path for each in episode.artifacts]
            there = await self._folder(episode.task).described(wrote)
            drawn = pictures(newest.result) if newest is not None and self._images else ()
            messages = brief(
                episode.task,
                episode.plans,
                episode.turns,
                now,
                Seen(at.shown, there.folder, there.elsewhere, images=drawn),
                wants=wants,
                may_plan=may_plan,
                tools=self._tools,
                escalated=escalated,
                language=episode.kernel.language,
            )
        tools = tools_for(plan=may_plan or wants == "plan", answer=episode.task.answer is not None)
        return State(
            Observation(
                prompt=newest.feedback if newest else messages[-1].content if messages else "",
                messages=messages,
                available_tools=tools if self._tools and not over else (),
                task=episode.task.prompt,
                state=at.shown,
            ),
            MultiStepHidden(
                episode,
                now,
                wants,
                at.given_up,
                at.missed,
                escalated,
                at.point,
                Hold(at.point),
                self._session,
                at.shown,
                at.tested,
            ),
            StateMetadata(len(episode.turns), episode.id, over),
        )

    async def _compute_rewards(
        self, state: State, action: Action, next_state: State
    ) -> SignalBundle:
        """Give what the step's turn was told, which the next state knows."""
        signals: SignalBundle = next_state.hidden.episode.turns[-1].signals
        return signals


def _result(state: State, action: Action) -> StepResult:
    episode: Episode = state.hidden.episode
    turn, stop = episode.turns[-1], episode.stop
    solved = episode.solved
    return StepResult(
        state,
        turn.signals,
        terminated=solved,
        truncated=stop is not None and not solved,
        extracted_action=turn.code or None,
        info={
            "turn": turn.number,
            "kind": turn.kind,
            "step": turn.step,
            "submission": turn.code or action.text or "",
            "feedback": turn.feedback,
            "accepted": turn.accepted,
            "solved": solved,
        },
    )
