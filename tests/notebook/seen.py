"""What there is to see in the notebook of an episode."""

from __future__ import annotations

from typing import Any

from nbrefine import notebook
from nbrefine.notebook.steps import steps_of
from nbrefine.values import Episode


def cells_of(episode: Episode) -> dict[str, Any]:
    return {cell["id"]: cell for cell in notebook.to_notebook(episode)["cells"]}


def source_of(episode: Episode, cell_id: str) -> str:
    return str(cells_of(episode)[cell_id]["source"])


def fates_of(episode: Episode) -> list[str]:
    return [step.fate for step in steps_of(episode)]
