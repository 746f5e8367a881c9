"""The environment: `step(state, action)` runs one attempt and tells what came of it.

It alone decides where an attempt runs and what becomes of a rejected one.  Drivers over it
(`nbrefine.loop`) choose the actions; the `Episode` in `state.hidden` is the whole truth.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from uuid import uuid4

from nbrefine._portal import Run
from nbrefine._version import __version__
from nbrefine.env.attempt import attempt
from nbrefine.env.base import checked_index
from nbrefine.env.cells import not_run, read, tried, with_extra, with_late
from nbrefine.env.live import REBUILD_LIMIT, LiveEnvironment
from nbrefine.env.looking import Folder
from nbrefine.env.misnamed import misnamed
from nbrefine.env.points import Hold, Point
from nbrefine.env.preparation import check_tests, setup_source
from nbrefine.env.session import IsolationPolicy, Session
from nbrefine.env.turns import early_answer, refuse_blank, refuse_ended
from nbrefine.errors import InvalidTaskError
from nbrefine.files import FileChanges
from nbrefine.history import History, current, fresh
from nbrefine.kernel import Kernel, OutputLimits
from nbrefine.kernel.state.namespace import describe
from nbrefine.kernel.workspace.overlays import WorkspaceMode
from nbrefine.prompts import escalation, system, task_prompt
from nbrefine.rewards.base import RewardFunction, refuse_namesakes, signals_of
from nbrefine.state import Action, Observation, State, StateMetadata, StepResult
from nbrefine.stopping import StopRule, sightings
from nbrefine.values import (
    Episode,
    Message,
    SignalBundle,
    Stop,
    Task,
    Turn,
    utc_now,
)


@dataclass(frozen=True, slots=True)
class NotebookHidden:
    """What a state of a `NotebookEnvironment` knows and the model does not see."""

    episode: Episode
    opening: tuple[Message, ...]
    """System message and task as first shown; every later prompt starts with them."""
    escalated: bool = False
    """Whether the observation asks for another approach."""
    point: Point | None = None
    """The state of the session that the next attempt begins from."""
    hold: Hold | None = None
    """What this state has of it, until it is released."""
    session: Session | None = None
    """Whose point that is; the next `reset` begins another one."""
    tentative: bool = False
    """Whether what is accepted from here becomes the session only by `settle`."""


class NotebookEnvironment(LiveEnvironment):
    """Attempts run as cells in branches of a live kernel; an accepted one becomes the session.

    An attempt begins from setup and accepted cells and nothing else: it runs in a copy-on-write
    branch of the session (isolation `fork`), and its tests in a branch of that.  Where the kernel
    cannot branch, or not safely, the session is rebuilt in a fresh kernel (`rebuild`) if that
    takes at most `rebuild_limit`; else the attempt runs in the session as it is (`none`), but in
    a kernel that was handed in only where that was asked for.  The turn says which, and why.

    A state may be stepped any number of times until the next `reset`.  An older one brings back
    its namespace, but not the files of the working folder as they were then: what accepted
    attempts have written since stays.

    Parameters
    ----------
    tasks: one task, or several chosen by `options={"task_index": i}` on reset.
    kernel: a kernelspec's name, of which every episode gets a fresh kernel, or a live
        `Kernel`, which is used as it is and stays open; seeds and the task's setup run in it
        as cells, without a branch.
    max_turns: turns until an episode is truncated.
    timeout: seconds a cell may run; None for no limit.
    test_timeout: seconds one test may run.
    isolation: `auto` as told above; `fork` for branches or an error; `rebuild` for no branches;
        `none` to run every attempt in the session as it is.
    rebuild_limit: seconds of recorded run time of setup and accepted cells up to which the
        session is rebuilt.
    confirm: asked with the reason before an attempt runs in the session as it is, where that was
        not asked for; without it, it does in a kernel of ours, and is refused in one handed in.
    workspace, ignore: what becomes of files that attempts write in `cwd`, see `Kernel.start`; a
        live `Kernel` has its own.
    history: which past a prompt shows; by default task, last code and last feedback.
    rules: when a repeated answer calls for another approach.
    cwd: working folder of the kernel; file paths in tasks are relative to it.
    show_tests: whether the prompt shows the visible tests.
    limits: how much of a cell's output is kept, and where all of it goes; a live `Kernel` has
        its own.
    observe_state: whether observations tell the variables that the next attempt finds, in
        `Observation.state`; feedback on a rejected attempt tells them in any case.
    extra_rewards: judge a step beside its tests; their feedback is told, and what is accepted
        does not depend on them.
    submit_keyword: begins a response that is final, accepted or not; None for no such thing.

    Raises
    ------
    UsageError: there is no task, two rewards have one name, or a setting is out of range.
    """

    name = "notebook"

    def __init__(
        self,
        tasks: Task | tuple[Task, ...] | list[Task],
        *,
        kernel: Kernel | str = "python3",
        max_turns: int = 5,
        timeout: float | None = 120.0,
        test_timeout: float = 10.0,
        isolation: IsolationPolicy = "auto",
        rebuild_limit: float = REBUILD_LIMIT,
        confirm: Callable[[str], bool] | None = None,
        workspace: WorkspaceMode = "auto",
        ignore: Collection[str] = (),
        history: History | None = None,
        rules: StopRule | None = None,
        cwd: str | Path | None = None,
        show_tests: bool = True,
        limits: OutputLimits | None = None,
        observe_state: bool = False,
        extra_rewards: Iterable[RewardFunction] = (),
        submit_keyword: str | None = None,
    ) -> None:
        super().__init__(
            tasks,
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
        refuse_blank(submit_keyword)
        self._history = history or current()
        self._rules = rules or StopRule()
        self._show_tests = show_tests
        self._observe_state = observe_state
        self._extra = refuse_namesakes(extra_rewards)
        self._submit_keyword = submit_keyword

    @property
    def reward_functions(self) -> tuple[RewardFunction, ...]:
        """The extra ones; how the cell and its tests went is the environment's own signal."""
        return self._extra

    def tentative(self, state: State, *, tentative: bool = True) -> State:
        """Give a state from which what is accepted does not become the session until `settle`.

        Till then it is kept in its branch, with the files that it has written where they can be
        held back; a state that was reached so and is released leaves no trace.

        Parameters
        ----------
        tentative: False gives the state without this.
        """
        return replace(state, hidden=replace(state.hidden, tentative=tentative))

    def settle(self, state: State) -> FileChanges | None:
        """Let the session go on from a state, of several that were reached from one.

        That is its namespace, and the files that an accepted attempt has held back; those that
        other accepted attempts have written stay as they are.  Gives what changes in the working
        folder; None where nothing was held back.

        Raises
        ------
        KernelError: that state is not kept any more and cannot be rebuilt.
        UsageError: it is of an earlier episode.
        """
        return self.asettle(state).result()

    def asettle(self, state: State) -> Run[FileChanges | None]:
        """Let the session go on from a state; the started form of `settle`."""
        return Run(self._settle(state))

    async def _settle(self, state: State) -> FileChanges | None:
        point = state.hidden.point
        if self._session is None or point is None:
            return None
        return await self._session_of(state).settle(point)

    async def _reset(
        self, *, seed: int | None, options: dict[str, Any] | None
    ) -> tuple[State, dict[str, Any]]:
        options = options or {}
        index = checked_index(options.get("task_index", 0), len(self.tasks))
        task = self.tasks[index]
        check_tests(task)
        session = await self._begin_session(seed)
        language = session.language
        if task.tests and language != "python":
            raise InvalidTaskError(
                f"Tests run in a Python kernel, and this one speaks {language}",
                hint="Give the task without tests",
            )
        handed_in = await session.handed_in()
        setup = await session.setup(setup_source(task, seed, language))
        seen = await session.look(session.here)
        await session.prepare()
        shown = describe(seen.variables)
        asked = task_prompt(task, state=shown, show_tests=self._show_tests, language=language)
        opening = (Message("system", system(language)), Message("user", asked))
        episode = Episode(
            task=task,
            id=options.get("episode_id") or uuid4().hex,
            created=utc_now(),
            kernel=await session.described(),
            handed_in=handed_in,
            seed=seed,
            setup=setup,
            version=__version__,
        )
        state = self._state(episode, opening, session.here, shown)
        return state, {"task_index": index}

    def _state(
        self,
        episode: Episode,
        opening: tuple[Message, ...],
        point: Point,
        shown: str | None,
        *,
        tentative: bool = False,
    ) -> State:
        escalated = episode.stop is None and self._rules.should_escalate(episode.turns)
        messages: tuple[Message, ...] = ()
        if episode.stop is None:
            history = fresh() if escalated else self._history
            note = escalation(sightings(episode.turns)) if escalated else ""
            messages = history(opening, episode.turns, note=note)
        newest = episode.turns[-1].feedback if episode.turns else opening[-1].content
        return State(
            Observation(
                prompt=newest,
                messages=messages,
                task=episode.task.prompt,
                state=shown if self._observe_state else None,
            ),
            NotebookHidden(
                episode, opening, escalated, point, Hold(point), self._session, tentative
            ),
            StateMetadata(len(episode.turns), episode.id, episode.stop is not None),
        )

    async def _step(self, state: State, action: Action) -> StepResult:
        hidden: NotebookHidden = state.hidden
        session = self._session_of(state)
        refuse_ended(hidden.episode.stop)
        self._refuse_released(state)
        started, clock = utc_now(), time.monotonic()
        self.reached = None
        episode = with_late(hidden.episode, await session.kernel.late())
        handed_in = early_answer(action, self._submit_keyword)
        early, answer = handed_in is not None, handed_in or action
        turn, point, shown = await self._attempt(state, answer, episode)
        if self._extra:
            reached = replace(episode, turns=(*episode.turns, turn))
            next_state = self._state(
                reached, hidden.opening, point, shown, tentative=hidden.tentative
            )
            extra = await signals_of(self._extra, state, answer, next_state)
            turn = with_extra(turn, extra)
        waited = action.reply.seconds if action.reply else 0.0
        turn = replace(turn, started=started, seconds=waited + time.monotonic() - clock)
        episode = replace(episode, turns=(*episode.turns, turn))
        episode = replace(episode, stop=self._end(episode, early=early))
        if not hidden.tentative:
            self.reached = episode
        return StepResult(
            self._state(episode, hidden.opening, point, shown, tentative=hidden.tentative),
            turn.signals,
            terminated=turn.accepted or early,
            truncated=episode.stop is not None and not (turn.accepted or early),
            extracted_action=turn.code or None,
            info={
                "turn": turn.number,
                "submission": turn.code or action.text or "",
                "feedback": turn.feedback,
                "solved": turn.accepted,
                "early_submit": early,
            },
        )

    async def _compute_rewards(
        self, state: State, action: Action, next_state: State
    ) -> SignalBundle:
        """Give what the cell and its tests said, which the next state knows, and the extras."""
        own = next_state.hidden.episode.turns[-1].signals.signals[:1]
        answer = early_answer(action, self._submit_keyword) or action
        return SignalBundle((*own, *await signals_of(self._extra, state, answer, next_state)))

    def _end(self, episode: Episode, *, early: bool) -> Stop | None:
        turn = episode.turns[-1]
        if turn.accepted:
            told = f"{turn.tests.passed}/{turn.tests.total} tests passed" if turn.tests else ""
            return Stop("solved", told or "the cell ran without an error")
        if early:
            return Stop("submitted", f"the response began with {self._submit_keyword}")
        if len(episode.turns) >= self.max_turns:
            return Stop("max-turns", f"the limit of turns ({self.max_turns}) was reached")
        return None

    async def _attempt(
        self, state: State, action: Action, episode: Episode
    ) -> tuple[Turn, Point, str | None]:
        """Give the turn, where the next one begins, and the variables that it finds there."""
        assert self._session is not None
        hidden: NotebookHidden = state.hidden
        assert hidden.point is not None
        task, turns = episode.task, episode.turns
        extraction = read(action, self._session.language)
        turn = Turn(
            number=len(turns) + 1,
            attempt=len(turns) + 1,
            messages=state.observation.messages if action.reply else (),
            reply=action.reply,
            extraction=extraction,
            verdict="incomplete-reply" if extraction.status == "incomplete" else "no-code",
            escalated=hidden.escalated and action.reply is not None,
        )
        language = self._session.language
        if extraction.status not in ("found", "given"):
            return not_run(turn, language), hidden.point, state.observation.state
        done = await attempt(
            self._session,
            hidden.point,
            extraction.code,
            task,
            timeout=self._timeout,
            test_timeout=self._test_timeout,
            on_tests=self._on_tests,
            on_changed=lambda done: self._reach(episode, tried(turn, done, turns, language)),
            tentative=hidden.tentative,
        )
        lineage = self._session.kernel.core.lineage
        folder = Folder(lineage.folder, ignore=lineage.ignore, goal=task.prompt)
        files = await misnamed(folder, done.result)
        turn = tried(turn, done, turns, language, files=files)
        onward = done.left if done.accepted else done.onward
        return turn, done.point, describe(onward.variables) if onward else None
