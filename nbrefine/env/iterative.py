"""Iterative refinement: a single-turn environment, or tasks alone, as a loop of feedback.

A step judges a submission anew from the wrapped environment's first state, which the `State`
itself carries: the environment keeps nothing, so that episodes may run side by side.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from nbrefine._portal import call_user
from nbrefine._version import __version__
from nbrefine.budget import Budget
from nbrefine.env.base import Environment, close_all, whole_index
from nbrefine.env.templates import Templates, summary_request
from nbrefine.env.turns import (
    begun,
    early_answer,
    ended,
    feedback_texts,
    judged,
    refuse_blank,
    refuse_ended,
    response,
    solved_stop,
)
from nbrefine.env.wrapped import IterativeTask, UnsolvableWarning, call, wrapped
from nbrefine.errors import UsageError
from nbrefine.history import fresh, full
from nbrefine.models import Model, resolve
from nbrefine.redaction import clean_text
from nbrefine.rewards.base import RewardFunction, refuse_namesakes, signals_of
from nbrefine.rewards.format import answer_in
from nbrefine.state import Action, EnvironmentSpec, Observation, State, StateMetadata, StepResult
from nbrefine.thinking import without_thinking
from nbrefine.values import (
    Episode,
    Extraction,
    Message,
    Reply,
    RewardType,
    Sampling,
    Signal,
    SignalBundle,
    Stop,
    Task,
    Turn,
    utc_now,
)

if TYPE_CHECKING:
    from nbrefine.extractors import Extractor

__all__ = ["IterativeEnvironment", "IterativeHidden", "IterativeTask", "UnsolvableWarning"]

HistorySummarizer = Callable[[tuple[str, ...], tuple[tuple[str, ...], ...]], str]
"""From the earlier submissions and the feedback texts of each to the history's section."""

SUMMARY = Sampling(temperature=0.0, max_tokens=512)
"""How a model that sums up the history is asked."""


@dataclass(frozen=True, slots=True)
class IterativeHidden:
    """What a state of an `IterativeEnvironment` knows and the model does not see.

    A name that it does not have is looked up in `inner_hidden`.
    """

    task_index: int
    inner_hidden: Any
    """What the wrapped environment's first state hides."""
    task_prompt: str
    turn: int = 0
    """Submissions so far."""
    submissions: tuple[str, ...] = ()
    feedback_history: tuple[tuple[str, ...], ...] = ()
    """The feedback texts of each submission."""
    max_turns: int = 3
    episode: Episode = field(default_factory=lambda: Episode(Task("")))
    """All that has happened so far; the counts and texts above follow from it."""
    inner_state: State | None = None
    """The wrapped environment's first state, from which every submission is judged."""
    opening: tuple[Message, ...] = ()
    """The messages of the first prompt; every later one starts with them."""

    @property
    def ground_truth(self) -> str:
        """The expected answer, under whichever name it is hidden; "" where there is none."""
        return answer_in(self.inner_hidden)

    def __getattr__(self, name: str) -> Any:
        # A copy that has no fields yet asks for some, and would be sent round in circles.
        if name.startswith("__") or name in _OWN:
            raise AttributeError(name)
        return getattr(self.inner_hidden, name)


_OWN = frozenset(field.name for field in fields(IterativeHidden))


class IterativeEnvironment(Environment):
    """A loop around single-turn tasks: submit, read the feedback, revise.

    It ends when the best outcome reward reaches `solved_threshold` (terminated), with a response
    that begins with `submit_keyword` (terminated), or after `max_turns` (truncated).

    The chat that an observation holds begins with the inner environment's system message or, where
    it has none, with the `instructions` of a reward, such as how to write code that is found. It
    has each attempt once: the newest as the model's own message, earlier ones in the text of the
    feedback, as `include_history` says.

    Parameters
    ----------
    inner: the environment to wrap; it takes one answer, and its `spec` says `pure_step`.
    tasks: tasks instead of an environment, chosen by `options={"task_index": i}` on reset.
    submission_extractor: takes the submission out of a response; without one, and where it finds
        nothing, the submission is the whole response.
    max_turns: submissions until an episode is truncated.
    include_history: whether feedback tells of earlier attempts too.
    history_summarizer: writes what is told of them, called in a thread of its own.
    submit_keyword: begins a response that is final; None for no such thing.
    solved_threshold: the outcome reward that solves a task.
    extra_rewards: judge a step beside the inner environment's own, on the whole response.
    prompts: templates that replace `initial`, `feedback` or `history_entry`; see
        `nbrefine.env.templates`, where `COUNTED_PROMPTS` tell how many turns are left.
    summarize_history: have `env_model` write what is told of earlier attempts.
    env_model: the environment's own model, in any form that `refine` takes; the tokens of each
        summary are in the turn's signal "history_summary" and in `Episode.helper_usage`.
    budget: what its calls are charged to.

    Raises
    ------
    UsageError: neither or both of `inner` and `tasks` are given, `inner` cannot be stepped from
        its first state again and again, two rewards have one name, or a setting is out of
        range.
    """

    def __init__(
        self,
        inner: Environment | None = None,
        tasks: Iterable[IterativeTask | Task] | IterativeTask | Task | None = None,
        submission_extractor: Extractor | None = None,
        *,
        max_turns: int = 3,
        include_history: bool = True,
        history_summarizer: HistorySummarizer | None = None,
        submit_keyword: str | None = "SUBMIT",
        solved_threshold: float = 1.0,
        extra_rewards: Iterable[RewardFunction] = (),
        prompts: Mapping[str, str] | None = None,
        summarize_history: bool = False,
        env_model: Model | str | Callable[..., Any] | Iterable[Any] | None = None,
        budget: Budget | None = None,
    ) -> None:
        if max_turns < 1:
            raise UsageError(f"max_turns is {max_turns}, but an episode has at least one turn")
        if math.isnan(solved_threshold):
            raise UsageError("solved_threshold is nan, which no reward reaches")
        refuse_blank(submit_keyword)
        if summarize_history and env_model is None:
            raise UsageError("summarize_history needs a model", hint="Give env_model=")
        if summarize_history and history_summarizer is not None:
            raise UsageError(
                "The history has two authors", hint="Leave out summarize_history or the summarizer"
            )
        self._extra = tuple(extra_rewards)
        self._templates = Templates.of(prompts, max_turns=max_turns, submit_keyword=submit_keyword)
        self._inner = wrapped(inner, tasks, self._extra)
        refuse_namesakes(self.reward_functions)
        self.max_turns = max_turns
        self._extractor = submission_extractor
        self._include_history = include_history
        self._summarizer = history_summarizer
        self._submit_keyword = submit_keyword
        self._threshold = solved_threshold
        self._model = resolve(env_model) if summarize_history and env_model is not None else None
        self._close_model = self._model is not None and self._model is not env_model
        self._budget = budget

    @property
    def spec(self) -> EnvironmentSpec:
        inner = self._inner.spec
        return EnvironmentSpec(
            f"{inner.name}_iterative",
            "iterative",
            max_steps=self.max_turns,
            is_multi_turn=True,
            supports_task_index=inner.supports_task_index,
            supports_len=inner.supports_len,
            supports_seed=inner.supports_seed,
            pure_step=True,
            metadata=dict(inner.metadata),
        )

    @property
    def reward_functions(self) -> tuple[RewardFunction, ...]:
        """The inner environment's own, then the extra ones."""
        return (*getattr(self._inner, "reward_functions", ()), *self._extra)

    @property
    def prompts(self) -> dict[str, str]:
        return dict(self._templates.texts)

    def __len__(self) -> int:
        return len(self._inner)

    async def _close(self) -> None:
        """Release what the inner environment, the rewards and a model of its own hold."""
        model = (self._model,) if self._close_model else ()
        await close_all((self._inner, *self._extra, *model))

    async def _reset(
        self, *, seed: int | None, options: dict[str, Any] | None
    ) -> tuple[State, dict[str, Any]]:
        options = dict(options or {})
        index = whole_index(options.get("task_index", 0))
        if "task_index" in options:
            options["task_index"] = index
        inner, info = await call(self._inner, "reset", seed=seed, options=options)
        prompt = clean_text(inner.observation.prompt)
        task = getattr(inner.hidden, "task", None)
        episode = Episode(
            task=task if isinstance(task, Task) else Task(prompt),
            id=options.get("episode_id") or uuid4().hex,
            created=utc_now(),
            seed=seed,
            version=__version__,
        )
        hidden = IterativeHidden(
            task_index=index,
            inner_hidden=inner.hidden,
            task_prompt=prompt,
            max_turns=self.max_turns,
            episode=episode,
            inner_state=inner,
            opening=_opening(
                inner.observation, self._instructions(), self._templates.initial(prompt)
            ),
        )
        asked = hidden.opening[-1].content
        observation = Observation(asked, hidden.opening, task=prompt)
        facts = {"task_index": hidden.task_index}
        return State(observation, hidden, StateMetadata(0, episode.id, info=facts)), info

    def _instructions(self) -> str:
        """Give what a reward has to tell a model for its answers to be read, or ""."""
        told = (getattr(reward, "instructions", "") for reward in self.reward_functions)
        return next(filter(None, told), "")

    async def _step(self, state: State, action: Action) -> StepResult:
        hidden: IterativeHidden = state.hidden
        refuse_ended(hidden.episode.stop)
        started, clock = utc_now(), time.monotonic()
        answer = early_answer(action, self._submit_keyword)
        early = answer is not None
        submission, judgeable = await self._read(action, answer)
        turn = begun(state, action, judgeable, number=hidden.turn + 1)
        signals = await self._signals(state, answer or action, turn)
        turn = judged(turn, signals, threshold=self._threshold)
        waited = action.reply.seconds if action.reply else 0.0
        turn = replace(turn, started=started, seconds=waited + time.monotonic() - clock)
        stop = self._end(turn, early=early)
        hidden = _advanced(hidden, turn, stop, submission)
        return StepResult(
            await self._state(hidden, state, early=early),
            signals,
            terminated=early or turn.accepted,
            truncated=stop is not None and not (early or turn.accepted),
            extracted_action=submission,
            info={
                "turn": turn.number,
                "submission": submission,
                "feedback": hidden.feedback_history[-1],
                "solved": turn.accepted,
                "early_submit": early,
            },
        )

    async def _read(self, action: Action, answer: Action | None) -> tuple[str, Extraction]:
        """Give the submission, which keeps the keyword, and what is judged of it, without."""
        found = await self._extract(action)
        if answer is None or found.code != response(action):
            return found.code, found
        return found.code, replace(found, code=answer.text or "")

    async def _extract(self, action: Action) -> Extraction:
        text = response(action)
        if action.code is not None:
            return Extraction("given", text, reason="the caller supplied the submission")
        if self._extractor is None:
            return Extraction("found", text, reason="The whole response.")
        found, told = await call_user(self._extractor.extract, text)
        why = str(told.get("detail") or "")
        if found is None:
            reason = f"The whole response, since nothing was found in it. {why}".strip()
            return Extraction("found", text, reason=reason)
        return Extraction("found", clean_text(found), str(told.get("language") or ""), why)

    async def _compute_rewards(
        self, state: State, action: Action, next_state: State
    ) -> SignalBundle:
        answer = early_answer(action, self._submit_keyword)
        _, judgeable = await self._read(action, answer)
        own = await self._judged_by_inner(state, judgeable.code)
        shown = answer or action
        return SignalBundle((*own, *await signals_of(self._extra, state, shown, next_state)))

    async def _judged_by_inner(self, state: State, submission: str) -> SignalBundle:
        first = state.hidden.inner_state
        result: StepResult = await call(self._inner, "step", first, Action(submission))
        return result.rewards

    async def _signals(self, state: State, action: Action, turn: Turn) -> SignalBundle:
        own = await self._judged_by_inner(state, turn.code)
        # The next state as far as it is known before there is any feedback.
        hidden = _advanced(state.hidden, replace(turn, signals=own), None, turn.code)
        metadata = replace(state.metadata, step=hidden.turn)
        next_state = replace(state, hidden=hidden, metadata=metadata)
        return SignalBundle((*own, *await signals_of(self._extra, state, action, next_state)))

    def _end(self, turn: Turn, *, early: bool) -> Stop | None:
        if turn.accepted:
            return solved_stop(turn)
        if early:
            return Stop("submitted", f"the response began with {self._submit_keyword}")
        if turn.number >= self.max_turns:
            return Stop("max-turns", f"the limit of turns ({self.max_turns}) was reached")
        return None

    async def _state(self, hidden: IterativeHidden, before: State, *, early: bool) -> State:
        turn, stop = hidden.episode.turns[-1], hidden.episode.stop
        observation = ended(hidden.task_prompt)
        if stop is None:
            observation, summary = await self._told(hidden)
            hidden = _with_summary(hidden, summary)
        info = {
            "task_index": hidden.task_index,
            "turn": hidden.turn,
            "solved": turn.accepted,
            "early_submit": early,
        }
        metadata = StateMetadata(hidden.turn, before.metadata.episode_id, stop is not None, info)
        return State(observation, hidden, metadata)

    async def _told(self, hidden: IterativeHidden) -> tuple[Observation, Reply | None]:
        """Tell what came of the newest turn, and of those before it; give a summary's reply too."""
        turns, prompt = _as_submitted(hidden), hidden.task_prompt
        past, summary = "", None
        if self._include_history and len(turns) > 1:
            past, summary = await self._past(hidden)
            past = past.strip("\n")
        text = self._templates.feedback(prompt, turns, f"{past}\n\n" if past else "")
        # Where the text holds the attempt, the model's own message would send it once more.
        chat = fresh() if self._templates.shows_submission else full()
        messages = chat(hidden.opening, (replace(turns[-1], feedback=text),))
        return Observation(text, messages, task=prompt), summary

    async def _past(self, hidden: IterativeHidden) -> tuple[str, Reply | None]:
        turns = _as_submitted(hidden)
        if self._model is not None:
            reply = await self._model.complete(
                summary_request(hidden.task_prompt, turns[:-1]),
                sampling=SUMMARY,
                budget=self._budget,
            )
            return without_thinking(clean_text(reply.text)), reply
        if self._summarizer is not None:
            told = await call_user(
                self._summarizer, hidden.submissions[:-1], hidden.feedback_history[:-1]
            )
            if not isinstance(told, str):
                raise UsageError(
                    f"The history_summarizer gave {type(told).__name__}", hint="Have it give a text"
                )
            return clean_text(told), None
        return self._templates.history(hidden.task_prompt, turns), None


def _opening(observation: Observation, instructions: str, text: str) -> tuple[Message, ...]:
    """Put our first words in the place of the inner environment's.

    Parameters
    ----------
    instructions: begin a chat that has no system message of its own.
    """
    before = observation.messages
    if before and before[-1].role == "user":
        before = before[:-1]
    if instructions and not any(message.role == "system" for message in before):
        before = (Message("system", instructions), *before)
    return (*before, Message("user", text))


def _as_submitted(hidden: IterativeHidden) -> tuple[Turn, ...]:
    """Give the turns with their submissions whole, not only the programs found in them."""
    return tuple(
        replace(turn, extraction=replace(turn.extraction, code=text))
        for turn, text in zip(hidden.episode.turns, hidden.submissions, strict=True)
    )


def _with_summary(hidden: IterativeHidden, summary: Reply | None) -> IterativeHidden:
    """Record what a summary of the history took, with the turn after which it was written."""
    if summary is None:
        return hidden
    *before, turn = hidden.episode.turns
    tokens = {
        "prompt_tokens": summary.usage.input_tokens,
        "completion_tokens": summary.usage.output_tokens,
    }
    signal = Signal("history_summary", RewardType.PROCESS, None, None, tokens)
    turn = replace(turn, signals=SignalBundle((*turn.signals, signal)))
    return replace(hidden, episode=replace(hidden.episode, turns=(*before, turn)))


def _advanced(
    hidden: IterativeHidden, turn: Turn, stop: Stop | None, submission: str
) -> IterativeHidden:
    episode = hidden.episode
    return replace(
        hidden,
        turn=turn.number,
        submissions=(*hidden.submissions, submission),
        feedback_history=(*hidden.feedback_history, feedback_texts(turn.signals)),
        episode=replace(episode, turns=(*episode.turns, turn), stop=stop),
    )
