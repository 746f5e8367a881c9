"""A person between the model and the kernel: who is asked before a cell runs, and what they say."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, get_args

from nbrefine._portal import call_user
from nbrefine.errors import UsageError
from nbrefine.redaction import clean_text

Verb = Literal["approve", "edit", "reject", "stop"]


@dataclass(frozen=True, slots=True)
class Proposal:
    """Code that a model wants to run."""

    code: str
    step: int
    """Number of the subtask it is for."""
    goal: str
    """What that subtask, or without a plan the whole task, is about."""
    reply: str
    """All that the model wrote with it."""
    attempt: int
    """1-based within its step."""
    what: Literal["cell", "checks"] = "cell"
    """`checks`: those of a plan of the model's, which run after the cells of its steps; they are
    asked for once, before the plan is taken, and cannot be edited."""


@dataclass(frozen=True, slots=True)
class Decision:
    """What is to become of a proposed cell."""

    action: Verb
    """`approve` runs it; `edit` runs `code` in its place; `reject` runs nothing and tells the
    model why; `stop` ends the episode."""
    code: str = ""
    """For `edit`."""
    reason: str = ""
    """What the model is told of a rejection, and the record of a stop."""

    def __post_init__(self) -> None:
        if self.action not in get_args(Verb):
            raise UsageError(
                f"There is no decision {self.action!r}",
                hint=f"Use one of: {', '.join(get_args(Verb))}",
            )
        if (self.action == "edit") != bool(self.code.strip()):
            raise UsageError("Code goes with the decision to edit, and only with that")


Approve = Callable[[Proposal], "Decision | bool"]
"""Asked in a worker thread before a cell runs, and before a plan with checks is taken; True
approves it, False rejects it."""


async def decided(approve: Approve | None, proposal: Proposal) -> Decision:
    """Ask what is to become of a proposal; without anybody to ask, it is approved.

    Raises
    ------
    UsageError: the answer is no decision, or edits the checks of a plan.
    """
    if approve is None:
        return Decision("approve")
    answer = await call_user(approve, proposal)
    if isinstance(answer, bool):
        return Decision("approve" if answer else "reject")
    if not isinstance(answer, Decision):
        raise UsageError(
            f"approve gave {answer!r}", hint="Let it give a Decision, or True or False"
        )
    if answer.action == "edit" and proposal.what == "checks":
        raise UsageError("The checks of a plan cannot be edited", hint="Approve or reject them")
    return Decision(answer.action, clean_text(answer.code), clean_text(answer.reason))
