"""What tests of multi-step episodes say to an environment, and what they read off its states."""

from __future__ import annotations

from nbrefine.env import MultiStepEnvironment
from nbrefine.postconditions import file_written, holds
from nbrefine.state import Action, State
from nbrefine.values import Episode, Reply, Subtask, ToolCall, Turn

TWO = (
    Subtask("Load the rows", postconditions=(holds("len(rows) == 3"),)),
    Subtask("Write them", needs=(1,), postconditions=(file_written("out.txt"),)),
)


def cell(code: str) -> Action:
    return Action.from_text(f"Next.\n\n```python\n{code}\n```\n")


def called(name: str, /, **arguments: object) -> Action:
    reply = Reply("", finish="tool-calls", tool_calls=(ToolCall(name, arguments),))
    return Action.from_reply(reply)


def text(words: str) -> Action:
    return Action.from_reply(Reply(words))


def driven(env: MultiStepEnvironment, *actions: Action | str) -> State:
    """Begin an episode and take its first steps; a string is a cell."""
    state, _ = env.reset(seed=0)
    for action in actions:
        state = env.step(state, cell(action) if isinstance(action, str) else action).next_state
    return state


def episode_of(state: State) -> Episode:
    episode: Episode = state.hidden.episode
    return episode


def newest(state: State) -> Turn:
    return episode_of(state).turns[-1]


def prompt(state: State) -> str:
    return "\n\n".join(message.content for message in state.observation.messages)
