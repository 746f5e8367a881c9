"""The prompts of a trajectory: the environment's chat, or the past as a runner shows it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from nbrefine.history import (
    NO_FEEDBACK,
    HistoryFunction,
    PromptBudget,
    entries_of,
    full_history,
    joined,
    said,
)
from nbrefine.prompts import fill
from nbrefine.state import State
from nbrefine.values import Episode, Message, Turn


@dataclass(frozen=True, slots=True)
class TurnInfoConfig:
    """What a prompt says of turns.

    In every text `{turn}` (1-based, the one to come), `{max_steps}` and `{turns_remaining}` (the
    one to come among them) are filled in.
    """

    task_suffix: str = "\n\nYou have a maximum of {max_steps} turns."
    """Follows the task."""
    state_prefix: str = "[Turn {turn}/{max_steps}]\n"
    """Precedes what is newest."""
    task_suffix_no_max: str = ""
    """Follows the task where the environment has no limit of turns."""
    state_prefix_no_max: str = "[Turn {turn}]\n"
    """Precedes what is newest where the environment has no limit of turns."""

    def suffix(self, turn: int, max_steps: int | None) -> str:
        """Give what follows the task."""
        text = self.task_suffix_no_max if max_steps is None else self.task_suffix
        return _filled(text, turn, max_steps)

    def prefix(self, turn: int, max_steps: int | None) -> str:
        """Give what precedes the newest observation."""
        text = self.state_prefix_no_max if max_steps is None else self.state_prefix
        return _filled(text, turn, max_steps)


def _filled(text: str, turn: int, max_steps: int | None) -> str:
    if max_steps is None:
        return fill(text, turn=turn)
    return fill(text, turn=turn, max_steps=max_steps, turns_remaining=max_steps - turn + 1)


@dataclass(frozen=True, slots=True)
class Wording:
    """How a runner puts prompts together; see `TrajectoryRunner`."""

    system_prompt: str | None = None
    system_prompt_fn: Callable[[State], str] | None = None
    turn_info: TurnInfoConfig | None = None
    history_fn: HistoryFunction | None = None
    prompt_budget: PromptBudget | None = None
    reasoning: bool = False
    note: str = ""


class Prompt:
    """Puts together the prompts of one trajectory, of which it must see the first state.

    Parameters
    ----------
    wording: how.
    max_steps: turns until the environment truncates an episode; None where it does not.
    """

    def __init__(self, wording: Wording, max_steps: int | None) -> None:
        self._wording = wording
        self._max_steps = max_steps
        self._system = wording.system_prompt
        self._opening: tuple[Message, ...] = ()

    def __call__(self, state: State, episode: Episode) -> tuple[Message, ...]:
        """Give the messages to send at a state."""
        wording, turns, shown = self._wording, episode.turns, state.observation.messages
        if not turns:
            self._opening = shown or (Message("user", state.observation.prompt),)
            if wording.system_prompt_fn is not None:
                self._system = wording.system_prompt_fn(state)
        if not turns or not shown or wording.history_fn or wording.prompt_budget:
            return self._told(turns)
        return self._as_shown(shown, turns)

    def _told(self, turns: Sequence[Turn]) -> tuple[Message, ...]:
        """Tell the task, the past as the runner is to show it, and what is newest."""
        wording, turn = self._wording, len(turns) + 1
        opening = self._with_suffix(self._opening, turn)
        newest = ""
        if turns:
            newest = self._prefix(turn) + (turns[-1].feedback or NO_FEEDBACK)
        else:
            opening = self._with_prefix(opening, turn)
        opening = self._introduced(opening)
        entries = entries_of(turns, reasoning=wording.reasoning)
        if wording.prompt_budget is not None:
            return wording.prompt_budget.build(opening, entries, newest, note=wording.note)
        past = (wording.history_fn or full_history)(entries)
        return joined(opening, [*past, Message("user", newest)], wording.note)

    def _as_shown(self, shown: Sequence[Message], turns: Sequence[Turn]) -> tuple[Message, ...]:
        """Send the environment's own chat, with what the runner has to add."""
        turn = len(turns) + 1
        written = {
            past.reply.text: said(past, reasoning=self._wording.reasoning)
            for past in turns
            if past.reply is not None
        }
        chat = [
            Message(message.role, written.get(message.content, message.content))
            if message.role == "assistant"
            else message
            for message in shown
        ]
        chat = self._with_prefix(self._with_suffix(chat, turn), turn)
        return joined(self._introduced(chat), [], self._wording.note)

    def _introduced(self, chat: list[Message]) -> list[Message]:
        """Put the runner's system prompt in the place of the environment's."""
        if self._system is None:
            return chat
        rest = [message for message in chat if message.role != "system"]
        return [Message("system", self._system), *rest]

    def _with_suffix(self, chat: Sequence[Message], turn: int) -> list[Message]:
        """Say something of turns right behind the task, whatever follows in its message."""
        info, task = self._wording.turn_info, self._opening[-1].content
        suffix = info.suffix(turn, self._max_steps) if info is not None else ""
        told = list(chat)
        for at, message in enumerate(told):
            if message.role == "user" and message.content.startswith(task):
                told[at] = Message("user", f"{task}{suffix}{message.content.removeprefix(task)}")
                break
        return told

    def _with_prefix(self, chat: Sequence[Message], turn: int) -> list[Message]:
        """Number the turn before what is newest, which may follow the task in its message."""
        told, prefix = list(chat), self._prefix(turn)
        (task,) = self._with_suffix(self._opening[-1:], turn)
        for at in reversed(range(len(told))):
            if told[at].role == "user":
                content = told[at].content
                newest = content.removeprefix(task.content).lstrip("\n")
                behind = bool(newest) and content.startswith(task.content)
                text = f"{task.content}\n\n{prefix}{newest}" if behind else f"{prefix}{content}"
                told[at] = Message("user", text)
                break
        return told

    def _prefix(self, turn: int) -> str:
        info = self._wording.turn_info
        return info.prefix(turn, self._max_steps) if info is not None else ""
