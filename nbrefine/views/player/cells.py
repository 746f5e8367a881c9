"""Which player belongs to which cell, so that none outlives the output that showed it."""

from __future__ import annotations

from typing import Any, Protocol


class Closing(Protocol):
    """Something that a cell shows."""

    def close(self) -> None:
        """End it."""


_shown: dict[str, list[Closing]] = {}


def belongs_to_this_cell(view: Closing) -> None:
    """Close a view when the cell that is running runs again.

    Where the front end does not say which cell it runs, a view stays until it is closed.
    """
    from IPython.core.getipython import get_ipython

    shell: Any = get_ipython()
    running: Any = getattr(shell, "get_parent", dict)() or {}
    cell = (running.get("metadata") or {}).get("cellId")
    if cell:
        _shown.setdefault(str(cell), []).append(view)
        shell.events.register("pre_run_cell", _before)  # once, however often it is asked for


def _before(info: Any) -> None:
    for view in _shown.pop(str(info.cell_id), ()):
        view.close()
