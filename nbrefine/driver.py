"""One episode of any environment: ask the model, take the step, until something says stop.

This is the one fold of nbrefine.  The environment's `step` is the transition, `StopRule` and
`Budget` decide, and every finished turn is recorded before the model is asked again; a reply
whose step ran into trouble or was stopped is recorded too, unjudged.  `loop`, `runner` and what
builds on them choose the settings and drive episodes by it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field, replace
from typing import Any

from nbrefine._portal import Run, call_user
from nbrefine.budget import Budget
from nbrefine.env.base import Environment
from nbrefine.env.foreign import begun, ending_of, own, turn_of
from nbrefine.errors import (
    BudgetExceeded,
    InvalidTaskError,
    NbrefineError,
    RecordError,
    RunStopped,
)
from nbrefine.exchange import Prompts, offered, sendable
from nbrefine.models import Model
from nbrefine.notebook import Recorder
from nbrefine.redaction import clean_text
from nbrefine.state import Action, State
from nbrefine.stopping import StopRule, repeated
from nbrefine.values import (
    Episode,
    Extraction,
    Message,
    Reply,
    Sampling,
    Stop,
    Turn,
    utc_now,
)

ESCALATED_TEMPERATURE = 0.8
"""Temperature for the turn after a repeated reply of any kind, where the caller's is lower.

At temperature 0 the same prompt gives the same answer: 3,758 of 5,318 logged repair calls came
after their episode's first pair of equal programs in a row.
"""

BY_A_PERSON = Stop("stopped", "stopped by a person")
AFTER_A_TURN = Stop("stopped", "stopped by a person after a turn")

Compose = Callable[[State, Episode], Sequence[Message]]
"""From a state and the episode so far to the messages to send."""


_DOING = {
    "starting": "getting the kernel ready",
    "paused": "paused",
    "asking": "asking the model",
    "running": "running the code",
    "testing": "running the tests",
    "ended": "closing the record",
    "closing": "letting go of the kernel",
}


@dataclass(frozen=True, slots=True)
class Activity:
    """What a running episode is doing at this moment."""

    doing: str = "starting"
    """"starting", "paused", "asking", "running", "testing", "ended" or "closing"."""
    turn: int = 0
    """1-based number of the turn; 0 before the first."""
    since: float = field(default_factory=time.monotonic)
    """When it began, by `time.monotonic`."""
    reply_text: str = ""
    """What the model has written so far in this turn."""

    @property
    def told(self) -> str:
        """What is being done, in words."""
        return _DOING.get(self.doing, self.doing)


class EpisodeRun(Run[Episode]):
    """The handle to a running episode: `await` it, ask for its `result()`, `pause()` or `stop()`.

    `stop()` ends the current model call or cell and closes the record; the result is then the
    episode so far with the stop reason "stopped".

    Parameters
    ----------
    earlier: how many turns it begins with, where it goes on with an episode.
    """

    def __init__(self, driver: Driver, *, earlier: int = 0) -> None:
        self._driver = driver
        self.earlier = earlier
        """How many turns it begins with."""
        super().__init__(driver.drive(), on_stop=driver.stop)

    def pause(self) -> None:
        """Let the turn that has begun end, and ask the model no more until `resume()`.

        Kernel and record stay open, and a budget of seconds goes on.
        """
        self._loop.call_soon_threadsafe(self._driver.pause)

    def resume(self) -> None:
        """Go on after `pause()`."""
        self._loop.call_soon_threadsafe(self._driver.resume)

    def finish(self) -> None:
        """Let the turn that has begun end, and the episode with it.

        The result then has the stop reason "stopped", unless that turn has ended it in another
        way: the goal is reached or given up, no turn is left, or a rule says stop.
        """
        self._loop.call_soon_threadsafe(self._driver.finish)

    @property
    def episode(self) -> Episode | None:
        """The episode up to its last finished turn; None before its environment is ready."""
        return self._driver.episode

    @property
    def activity(self) -> Activity:
        """What is being done at this moment."""
        return self._driver.seen

    @property
    def stopping(self) -> bool:
        """Whether it was stopped, and ends as soon as it can."""
        return self._driver.stopping

    @property
    def recorded(self) -> bool:
        """Whether all of the episode is there, and in its record.

        Nobody needs to wait for what is done then: kernel and model are let go of.
        """
        return self.done() or self._driver.activity.doing == "closing"


class Driver:
    """Drives one episode: the fold over an environment's `step`.

    The episode is the environment's own, `state.hidden.episode`; for an environment that keeps
    none, it is put together from what its steps give.

    Parameters
    ----------
    env: the transition.
    model: what answers.
    options: what `reset` is told, such as `task_index` and `episode_id`.
    seed: seeds `reset`, and for every turn the model's sampling; None leaves both to chance.
    compose: from a state and the episode so far to the messages to send, in a worker thread; by
        default what the observation shows.
    initial_code: code that is evaluated as the first turn, before the model is asked.
    rules: when to stop on repeats; None: never.
    budget: what may be spent; checked before every model call.
    sampling: how replies are drawn.
    recorder: writes the record while the episode runs, or gives what does, in a worker thread, from
        the episode as it begins.
    settings: what the record says of the settings, as plain JSON.
    on_turn: called in a worker thread with the episode after each turn, once that is recorded.
    close_env, close_model: whether to close them when the episode has ended.
    """

    def __init__(
        self,
        env: Environment,
        model: Model,
        *,
        options: Mapping[str, Any] | None = None,
        seed: int | None = 0,
        compose: Compose | None = None,
        initial_code: str = "",
        rules: StopRule | None = None,
        budget: Budget | None = None,
        sampling: Sampling = Sampling(temperature=0.0),
        recorder: Recorder | Callable[[Episode], Recorder] | None = None,
        settings: Mapping[str, Any] | None = None,
        on_turn: Callable[[Episode], object] | None = None,
        close_env: bool = True,
        close_model: bool = False,
    ) -> None:
        self.episode: Episode | None = None
        self.activity = Activity()
        self._env = env
        self._model = model
        self._options = dict(options or {})
        self._seed = seed
        self._compose = compose
        self._initial_code = initial_code
        self._rules = rules
        self._budget = budget or Budget()
        self._sampling = sampling
        self._recorder = recorder if isinstance(recorder, Recorder) else None
        self._make_recorder = recorder if not isinstance(recorder, Recorder) else None
        self._settings = dict(settings or {})
        self._on_turn = on_turn
        self._close_env = close_env
        self._close_model = close_model
        self._prompts = Prompts(())
        self._scribe = ThreadPoolExecutor(1, "nbrefine-record")
        self._fold_task: asyncio.Task[Stop] | None = None
        self._stopping: Stop | None = None
        self._last: Stop | None = None
        self._going = asyncio.Event()
        self._going.set()

    def pause(self) -> None:
        """Ask the model no more until `resume()`; runs on the portal."""
        self._going.clear()

    def resume(self) -> None:
        """Go on after `pause()`; runs on the portal."""
        self._going.set()

    def finish(self) -> None:
        """End the episode with the turn that has begun; runs on the portal."""
        begun = self.activity.doing not in ("starting", "paused")
        self._last = AFTER_A_TURN if begun else BY_A_PERSON
        if self.activity.doing == "paused":
            self.stop()

    def stop(self, why: Stop = BY_A_PERSON) -> None:
        """End the current call or cell and, with it, the episode; runs on the portal.

        A second call does nothing: what is being ended has begun to tell what it has reached.
        """
        if self._stopping is None:
            self._stopping = why
            if self._fold_task is not None:
                self._fold_task.cancel()

    @property
    def stopping(self) -> bool:
        """Whether the current call or cell is being ended, and the episode with it."""
        return self._stopping is not None

    @property
    def seen(self) -> Activity:
        """What is being done at this moment."""
        testing = getattr(self._env, "testing", False)
        return replace(self.activity, doing="testing") if testing else self.activity

    async def drive(self) -> Episode:
        """Run the episode to its end, close its record and release everything.

        Raises
        ------
        RunStopped: it was stopped before it had begun.
        Exception: the host's or the caller's trouble; its `episode` holds the turns so far.
        """
        trouble: Exception | None = None
        recorded = False
        try:
            try:
                stop = await self._until_stopped()
            except Exception as raised:  # noqa: BLE001 - the record is closed, then it goes on up
                trouble, stop = raised, stop_for(raised)
            if self.episode is not None:
                # A step that is stopped may have brought the end before.
                self.episode = replace(self.episode, stop=self.episode.stop or stop)
                await self._record(Recorder.end)
                recorded = trouble is None
        except RecordError as raised:
            trouble = trouble or raised
        finally:
            self._doing("ended")
            await self._release(recorded=recorded)
        if trouble is None:
            assert self.episode is not None
            return self.episode
        with suppress(AttributeError):  # a foreign exception may take none
            trouble.episode = self.episode  # type: ignore[attr-defined]
        raise trouble

    async def _until_stopped(self) -> Stop:
        self._fold_task = asyncio.create_task(self._fold())
        if self._stopping is not None:
            self._fold_task.cancel()
        try:
            return await self._fold_task
        except BudgetExceeded as limit:
            return Stop("budget", limit.message)
        except RunStopped as refused:
            if self.episode is None:
                raise
            return Stop("stopped", refused.message)
        except asyncio.CancelledError:
            if self._stopping is None:
                raise
            if self.episode is None:
                raise RunStopped("The episode was stopped before its kernel was ready") from None
            return self._stopping

    async def _fold(self) -> Stop:
        await self._model.check()
        state, _ = await self._env.areset(seed=self._seed, options=self._options or None)
        self.episode = self._described(own(state) or begun(state, self._seed))
        self._prompts = Prompts(self.episode.turns)
        await self._begin_record()
        action = Action.from_code(self._initial_code) if self._initial_code else None
        while (stop := self._decide()) is None:
            prompt: tuple[Message, ...] = ()
            if action is None:
                prompt, reply = await self._ask(state)
                action = Action.from_reply(reply)
            state = await self._step(state, action, prompt)
            self._budget.add_turn()
            await self._record(Recorder.turn)
            if self._on_turn is not None:
                await call_user(self._on_turn, self.episode)
            action = None
        return stop

    def _decide(self) -> Stop | None:
        assert self.episode is not None
        return (
            self.episode.stop
            or (self._rules.decide(self.episode.turns) if self._rules is not None else None)
            or self._last
        )

    async def _ask(self, state: State) -> tuple[tuple[Message, ...], Reply]:
        """Give the prompt as sent and what the model answered."""
        while not self._going.is_set():
            self._doing("paused")
            await self._going.wait()
        self._budget.check()
        self._doing("asking")
        prompt = await self._composed(state)
        reply = await self._model.complete(
            prompt,
            sampling=self._draw(state),
            budget=self._budget,
            on_text=self._hear,
            **offered(state, self._model),
        )
        return prompt, reply

    async def _composed(self, state: State) -> tuple[Message, ...]:
        shown = state.observation
        messages: Sequence[Message] = shown.messages or (Message("user", shown.prompt),)
        if self._compose is not None:
            messages = await call_user(self._compose, state, self.episode)
        return sendable(messages, self._model)

    def _draw(self, state: State) -> Sampling:
        """Give the settings of the next reply: a seed for the turn, more heat on a repeat."""
        assert self.episode is not None
        drawn = self._sampling
        if self._seed is not None:
            drawn = replace(drawn, seed=1000 * self._seed + len(self.episode.turns) + 1)
        # Only some environments ask for another approach, and none does for a plan or a look.
        escalated = getattr(state.hidden, "escalated", None)
        again = escalated or (escalated is not None and repeated(self.episode.turns))
        if again and (drawn.temperature or 0.0) < ESCALATED_TEMPERATURE:
            drawn = replace(drawn, temperature=ESCALATED_TEMPERATURE)
        return drawn

    async def _step(self, state: State, action: Action, prompt: tuple[Message, ...]) -> State:
        assert self.episode is not None
        self._doing("running")
        started, clock = utc_now(), time.monotonic()
        try:
            result = await self._env.astep(state, action)
        except (Exception, asyncio.CancelledError) as trouble:
            ending = stop_for(trouble) if isinstance(trouble, Exception) else self._stopping
            if (reached := self._reached(prompt, started, clock)) is not None:
                self.episode = _ended_by(ending, reached)
            elif action.reply is not None and ending is not None:  # it was paid for
                turn = _unjudged(self.episode, state, action.reply, prompt, ending)
                self.episode = self._with(turn, started, clock)
            raise
        episode = own(result.next_state)
        if episode is None:
            turn = turn_of(len(self.episode.turns) + 1, action, result, prompt)
            episode = self._with(turn, started, clock)
        if episode.stop is None and result.done:
            episode = replace(episode, stop=ending_of(result))
        self.episode = self._described(self._prompts.restored(episode, prompt))
        return result.next_state

    def _reached(self, prompt: tuple[Message, ...], started: str, clock: float) -> Episode | None:
        """Give what a step has brought that did not come to its end; None where that is nothing.

        A cell that is in the session is in the episode, too.
        """
        assert self.episode is not None
        reached: Episode | None = getattr(self._env, "reached", None)
        before = len(self.episode.turns)
        if reached is None or reached.id != self.episode.id or len(reached.turns) <= before:
            return None
        turn = reached.turns[-1]
        if not turn.seconds:
            turn = _timed(turn, started, clock)
        reached = replace(reached, turns=(*reached.turns[:-1], turn))
        return self._described(self._prompts.restored(reached, prompt))

    def _with(self, turn: Turn, started: str, clock: float) -> Episode:
        assert self.episode is not None
        turn = _timed(turn, started, clock)
        return replace(self.episode, turns=(*self.episode.turns, turn))

    def _described(self, episode: Episode) -> Episode:
        settings = {**episode.settings, **self._settings}
        return replace(episode, model=self._model.name, settings=settings)

    def _doing(self, what: str) -> None:
        turn = len(self.episode.turns) + 1 if self.episode is not None else 0
        self.activity = Activity(what, turn)

    def _hear(self, text: str) -> None:
        heard = self.activity.reply_text + text if text else ""  # "" says that it begins anew
        self.activity = replace(self.activity, reply_text=heard)

    async def _begin_record(self) -> None:
        if (make := self._make_recorder) is not None:
            assert self.episode is not None
            loop = asyncio.get_running_loop()
            self._recorder = await loop.run_in_executor(self._scribe, make, self.episode)
        await self._record(Recorder.begin)

    async def _record(self, write: Callable[[Recorder, Episode], None]) -> None:
        """Write to the record in its own thread, one write after the other."""
        if self._recorder is not None:
            loop = asyncio.get_running_loop()
            assert self.episode is not None
            await loop.run_in_executor(self._scribe, write, self._recorder, self.episode)

    async def _release(self, *, recorded: bool) -> None:
        """Close record, environment and model, in this order, each whatever the others do."""
        async with AsyncExitStack() as stack:
            if self._close_model:
                stack.push_async_callback(self._model.aclose)
            if self._close_env:
                stack.push_async_callback(self._env.aclose)
            stack.callback(self._scribe.shutdown, wait=False)
            if self._recorder is not None:
                loop = asyncio.get_running_loop()
                await loop.run_in_executor(self._scribe, self._recorder.close)
            if recorded:
                self._doing("closing")


def _timed(turn: Turn, started: str, clock: float) -> Turn:
    waited = turn.reply.seconds if turn.reply else 0.0
    return replace(turn, started=started, seconds=waited + time.monotonic() - clock)


def stop_for(trouble: Exception) -> Stop:
    """Give the reason for which an episode ends that ran into trouble."""
    if isinstance(trouble, InvalidTaskError):
        return Stop("invalid-task", trouble.message)
    if isinstance(trouble, RunStopped):
        return Stop("stopped", trouble.message)
    if isinstance(trouble, NbrefineError):
        return Stop("infra-error", str(trouble))
    return Stop("infra-error", f"{type(trouble).__name__}: {trouble}".removesuffix(": "))


def _ended_by(ending: Stop | None, episode: Episode) -> Episode:
    """Say in the newest turn, where it was not judged, whether a person has ended it."""
    *before, newest = episode.turns
    if ending is None or ending.reason != "stopped" or newest.verdict != "infra-error":
        return episode
    return replace(episode, turns=(*before, replace(newest, stopped=True)))


def _unjudged(
    episode: Episode, state: State, reply: Reply, prompt: tuple[Message, ...], ending: Stop
) -> Turn:
    """Tell in a turn, which is no attempt, of a reply that nothing has judged."""
    step = getattr(state.hidden, "step", 1)
    return Turn(
        number=len(episode.turns) + 1,
        step=step,
        attempt=1 + sum(turn.step == step for turn in episode.turns),
        messages=prompt,
        reply=reply,
        extraction=Extraction("no-code", reason=clean_text(f"It was not judged: {ending.detail}")),
        verdict="invalid-task" if ending.reason == "invalid-task" else "infra-error",
        stopped=ending.reason == "stopped",
    )
