"""A goal that is changed from one of its steps on: how that is said, and what holds at a step."""

from __future__ import annotations

import re

_AMENDED = re.compile(
    r"^From step (\d+) on: (.+?)(?=\n\nFrom step \d+ on: |\Z)", re.MULTILINE | re.DOTALL
)


def amended(prompt: str, step: int, instruction: str) -> str:
    """Give a goal with what is wanted otherwise from a step on."""
    return f"{prompt}\n\nFrom step {step} on: {instruction}"


def instructions(prompt: str, step: int) -> list[str]:
    """Give what was added to a goal that holds at a step, the newest last."""
    return [said.strip() for since, said in _AMENDED.findall(prompt) if int(since) <= step]
