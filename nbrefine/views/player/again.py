"""How to go on from a scene of an episode: commands to copy, since looking runs nothing."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path

from nbrefine.solving.starting import KIND
from nbrefine.values import Episode
from nbrefine.views.story import Scene


@dataclass(frozen=True, slots=True)
class Way:
    """One way to go on."""

    told: str
    """What it does, in a sentence."""
    text: str
    """What to run."""
    language: str


def ways(episode: Episode, scene: Scene, path: Path | None) -> list[Way]:
    """Give the ways to go on from a scene.

    Parameters
    ----------
    path: the episode's notebook; None where nobody knows it, and a name stands for it.
    """
    name = str(path) if path is not None else "EPISODE.ipynb"
    found = []
    if episode.settings.get("kind") == KIND:
        found.append(_branch(name, scene))
    elif scene.code:
        found.append(_from_code(episode, name, scene))
    if any(turn.accepted and turn.result is not None for turn in episode.turns):
        found.append(
            Way(
                "Run setup and accepted cells again in a fresh kernel, and compare the state with "
                "the record. In a terminal:",
                f"nbrefine replay {shlex.quote(name)}",
                "console",
            )
        )
    return found


def _branch(name: str, scene: Scene) -> Way:
    step = scene.turn.step
    return Way(
        f"Begin a new episode that shares everything before step {step}, and do what you write "
        "from there on. In a terminal:",
        f"nbrefine solve --branch {shlex.quote(name)} --from-step {step} "
        '-o again.ipynb "WHAT TO DO OTHERWISE"',
        "console",
    )


def _from_code(episode: Episode, name: str, scene: Scene) -> Way:
    place = [turn.number for turn in episode.turns].index(scene.turn.number)
    model = episode.model if episode.model.startswith(("local", "openai:")) else "local"
    return Way(
        "Begin a new episode of the same task with this code as its first attempt; the model is "
        "asked only if that fails. In Python:",
        "import nbrefine\n\n"
        f"episode = nbrefine.load({name!r})\n"
        f"nbrefine.refine(\n    episode.task,\n    model={model!r},\n"
        f"    initial_code=episode.turns[{place}].code,\n    record='again.ipynb',\n)",
        "python",
    )
