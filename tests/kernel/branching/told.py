"""What a process tells of its hazards."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Process = Callable[..., list[Any]]
"""Runs code in a process of its own, and gives what it put into `told`."""


def kinds(hazards: list[dict[str, str]]) -> list[tuple[str, str]]:
    """Give the kind and the verdict of each."""
    return [(each["kind"], each["verdict"]) for each in hazards]
