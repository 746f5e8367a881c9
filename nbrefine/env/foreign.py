"""Episodes of environments: those that one keeps, and those put together from what it gives."""

from __future__ import annotations

from uuid import uuid4

from nbrefine._version import __version__
from nbrefine.redaction import clean_text
from nbrefine.state import Action, State, StepResult
from nbrefine.values import Episode, Extraction, Message, Stop, Task, Turn, utc_now


def own(state: State) -> Episode | None:
    """Give the episode that the environment itself keeps in its states."""
    episode = getattr(state.hidden, "episode", None)
    return episode if isinstance(episode, Episode) else None


def begun(state: State, seed: int | None) -> Episode:
    """Begin the episode of an environment that keeps none."""
    return Episode(
        Task(clean_text(state.observation.task or state.observation.prompt)),
        id=state.metadata.episode_id or uuid4().hex,
        created=utc_now(),
        seed=seed,
        version=__version__,
    )


def turn_of(number: int, action: Action, result: StepResult, prompt: tuple[Message, ...]) -> Turn:
    """Tell in a turn what a step of such an environment gave."""
    solved = _solved(result)
    told = "\n\n".join(result.rewards.feedback_texts())
    return Turn(
        number=number,
        attempt=number,
        messages=prompt,
        reply=action.reply,
        extraction=_submission(action, result),
        signals=result.rewards,
        feedback=clean_text(told if result.done else result.next_state.observation.prompt),
        verdict="solved" if solved else "failed",
        accepted=solved,
    )


def ending_of(result: StepResult) -> Stop:
    """Tell how the last step of such an environment ended the episode."""
    if _solved(result):
        return Stop("solved", "the environment says so")
    if result.terminated:
        return Stop("submitted", "the environment ended the episode unsolved")
    return Stop("max-turns", "the environment's limit of turns was reached")


def _submission(action: Action, result: StepResult) -> Extraction:
    if action.code is not None:
        return Extraction("given", clean_text(action.code), reason="the caller supplied the code")
    if result.extracted_action is not None:
        text = clean_text(result.extracted_action)
        return Extraction("found", text, reason="As the environment read it.")
    return Extraction("found", clean_text(action.text or ""), reason="The whole reply.")


def _solved(result: StepResult) -> bool:
    """Ask the step itself, or else whether it ended with an outcome of 1."""
    said = result.info.get("solved")
    if isinstance(said, bool):
        return said
    return result.terminated and (result.rewards.outcome or 0.0) >= 1.0
