"""A trajectory: an episode as a row of transitions, for training and statistics.

It is derived from the `Episode`, which stays the single truth.
"""

from __future__ import annotations

import reprlib
from dataclasses import asdict, dataclass
from typing import Any

from nbrefine.values import Episode, Message, Signal, SignalBundle, Turn


@dataclass(frozen=True, slots=True)
class Transition:
    """One step: what was seen, what was done, and what came of it."""

    step: int
    """1-based."""
    prompt: tuple[Message, ...]
    """The messages as sent; empty where no model was asked."""
    action: str
    """What the model wrote, or the code that was given."""
    submission: str
    """What was taken from it and judged."""
    signals: SignalBundle
    feedback: str
    next_prompt: tuple[Message, ...]
    """The messages sent after it; empty at the end."""
    terminated: bool
    """The episode ended here by itself: solved or submitted."""
    truncated: bool
    """The episode was ended here: by a limit, a rule, a person or the host's trouble."""

    @property
    def reward(self) -> float:
        """The sum of reward times weight over its signals."""
        return self.signals.total

    @property
    def done(self) -> bool:
        return self.terminated or self.truncated


@dataclass(frozen=True, slots=True)
class Trajectory:
    """An episode seen as transitions."""

    episode: Episode

    def __repr__(self) -> str:  # one line: all that it holds is many pages
        task = reprlib.repr(self.episode.task.id or self.episode.task.prompt)
        return f"Trajectory(task={task}, turns={self.length}, success={self.success})"

    @classmethod
    def from_episode(cls, episode: Episode) -> Trajectory:
        """See an episode as transitions."""
        return cls(episode)

    @property
    def transitions(self) -> tuple[Transition, ...]:
        """The turns in order, each with the prompt that followed it."""
        turns, stop = self.episode.turns, self.episode.stop
        by_itself = stop is not None and stop.reason in ("solved", "submitted")
        prompts = (*(turn.messages for turn in turns), ())
        return tuple(
            Transition(
                step=step,
                prompt=turn.messages,
                action=_action(turn),
                submission=turn.code,
                signals=turn.signals,
                feedback=turn.feedback,
                next_prompt=after,
                terminated=step == len(turns) and by_itself,
                truncated=step == len(turns) and stop is not None and not by_itself,
            )
            for step, (turn, after) in enumerate(zip(turns, prompts[1:], strict=True), 1)
        )

    @property
    def task_index(self) -> int | None:
        """Which task of its environment it is about; None where the record does not say."""
        index = self.episode.settings.get("task_index")
        return index if isinstance(index, int) else None

    @property
    def sample(self) -> int:
        """Which sample of its task it is, from 0 on."""
        sample = self.episode.settings.get("sample", 0)
        return sample if isinstance(sample, int) else 0

    @property
    def total_reward(self) -> float:
        """The rewards of all transitions together."""
        return sum(turn.signals.total for turn in self.episode.turns)

    @property
    def is_terminal(self) -> bool:
        """Whether the episode has ended."""
        return self.episode.stop is not None

    @property
    def success(self) -> bool:
        """Whether the episode ended solved; an answer handed in and wrong is no success."""
        return self.episode.solved

    @property
    def length(self) -> int:
        """How many transitions there are."""
        return len(self.episode.turns)

    def to_rows(self) -> list[dict[str, Any]]:
        """Give one dict per transition, as a table, a data frame or `datasets` takes it.

        The columns are those of `Episode.to_rows`, then `task_index`, `sample`, `prompt`,
        `action`, `signals`, `terminated`, `truncated`, `success` and `stop`.
        """
        stop = self.episode.stop
        return [
            row
            | {
                "task_index": self.task_index,
                "sample": self.sample,
                "prompt": [_message(message) for message in transition.prompt],
                "action": transition.action,
                "signals": [_signal(signal) for signal in transition.signals],
                "terminated": transition.terminated,
                "truncated": transition.truncated,
                "success": self.success,
                "stop": stop.reason if stop else None,
            }
            for row, transition in zip(self.episode.to_rows(), self.transitions, strict=True)
        ]


def _action(turn: Turn) -> str:
    return turn.reply.text if turn.reply is not None else turn.code


def _message(message: Message) -> dict[str, Any]:
    """Give a message as trainers of chat models read it, with images only where it has any."""
    told: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.images:
        told["images"] = [asdict(image) for image in message.images]
    return told


def _signal(signal: Signal) -> dict[str, Any]:
    return {
        "name": signal.name,
        "type": signal.reward_type.value,
        "reward": signal.reward,
        "feedback": signal.feedback,
        "weight": signal.weight,
    }
