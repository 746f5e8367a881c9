"""An episode of three steps that is left before its end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from nbrefine.solving import solve
from nbrefine.values import Episode

STEPS: list[dict[str, Any]] = [
    {"goal": "Begin a list.", "check": "items == ['a']"},
    {"goal": "Go on with it.", "needs": 1, "check": "items == ['a', 'b']"},
    {"goal": "Write it down.", "needs": 2, "check": {"file": "items.txt"}},
]
BEGIN = "```python\nitems = ['a']\nopen('log.txt', 'a').write('1')\n```"
ON = "```python\nitems.append('b')\nopen('log.txt', 'a').write('2')\n```"
WRONG = "```python\nitems.append('c')\nopen('log.txt', 'a').write('w')\n```"
WRITE = "```python\nopen('items.txt', 'w').write(' '.join(items))\n```"


def left(folder: Path, *replies: str, **settings: Any) -> Path:
    """Give the record of an episode that has used up its turns."""
    record = folder / "e.ipynb"
    solve(
        "Make a list.",
        subtasks=STEPS,
        model=list(replies),
        record=record,
        max_turns=len(replies),
        **settings,
    )
    return record


def codes(episode: Episode) -> list[tuple[int, str, bool]]:
    return [(turn.step, turn.code.split("\n")[0], turn.accepted) for turn in episode.turns]
