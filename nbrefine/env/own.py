"""Files in a working folder that are about the work and no data of it: records and the goal.

They are known by what they hold, and never by a name that somebody else's file may have.
"""

from __future__ import annotations

import json
import re
from functools import lru_cache
from pathlib import Path

JOURNAL = ".nbrefine.jsonl"
"""What the name of a journal ends in."""

LARGEST = 20_000_000
"""Bytes of a notebook that is looked into."""

GOAL = 64_000
"""Bytes of a file that may give the goal."""

_RECORD = re.compile(rb'"schema": ?"nbrefine\.episode/')
"""Stands unescaped in the metadata of an episode's notebook, and in no text of a notebook, but
perhaps in JSON that one shows."""


def is_own(path: Path, goal: str) -> bool:
    """Tell whether a file is an episode's record, a part of one, or gives the goal.

    Parameters
    ----------
    goal: what is asked for, as it was before more was asked for from a step on.
    """
    if path.name.endswith(JOURNAL):
        return True
    if path.suffix == ".ipynb":
        return _is_record(path)
    if path.parent.suffix == ".files":
        return _is_record(path.parent.with_suffix(".ipynb"))
    return path.suffix in (".yaml", ".yml") and _gives(path, goal)


def _gives(path: Path, goal: str) -> bool:
    """Tell whether a YAML file has the goal."""
    try:
        facts = path.stat()
    except OSError:
        return False
    said = _goal_in(path, facts.st_mtime_ns, facts.st_size) if facts.st_size <= GOAL else ""
    return bool(said) and said == goal.strip()


@lru_cache(maxsize=512)
def _goal_in(path: Path, _changed: int, _size: int) -> str:
    import yaml

    try:
        text = path.read_text("utf-8") if path.is_file() else ""
        given = yaml.safe_load(text) if _ASKS.search(text) else None
    except Exception:  # noqa: BLE001 - of what is no YAML, PyYAML raises what comes
        return ""
    said = given.get("goal") if isinstance(given, dict) else None
    return said.strip() if isinstance(said, str) else ""


_ASKS = re.compile(r"^[\"']?goal[\"']?\s*:", re.MULTILINE)


def _is_record(path: Path) -> bool:
    try:
        facts = path.stat()
    except OSError:
        return False
    return facts.st_size <= LARGEST and _holds_episode(path, facts.st_mtime_ns, facts.st_size)


@lru_cache(maxsize=512)  # a folder is listed at each turn
def _holds_episode(path: Path, _changed: int, _size: int) -> bool:
    try:
        text = path.read_bytes() if path.is_file() else b""
        # Reading all of it takes long, and is needed for what may show a record as data only.
        found = json.loads(text)["metadata"]["nbrefine"] if _RECORD.search(text) else {}
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return False
    return isinstance(found, dict) and "schema" in found
