"""What came of a replay: a verdict for each cell, and what it needs to be understood."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from nbrefine.outputs import CellResult
from nbrefine.rerun.comparing import Level
from nbrefine.values import Episode, KernelInfo

How = Literal["clean", "faithful", "model"]
"""What is run again.

`clean`: setup and accepted cells, as Run All does; `faithful`: all that ran in the session itself,
rejected attempts too; `model`: the whole loop, with the recorded replies.
"""

CellVerdict = Literal["same", "same after", "ran", "differs", "error differs", "not run"]
"""How a cell went.

`same`: outputs, state, files and checks are the recorded ones, as far as they are compared;
`same after`: they are, but for what `after` names; `ran`: it ran to its end, and nothing is
recorded to compare it with; `differs`: outputs, state or files are others, or a check does not
hold; `error differs`: it did not end as recorded; `not run`: an earlier one had not.
"""

StateVerdict = Literal["", "same", "same names", "differs"]
"""How the session's state compares with the recorded one; "" where it was not compared, and
`same names` where values are others in an episode without a seed."""

RIGHT: tuple[CellVerdict, ...] = ("same", "same after", "ran")


@dataclass(frozen=True, slots=True)
class PackageChange:
    """A package that is not there in the recorded version."""

    name: str
    """That of the language for its own version."""
    recorded: str
    """Version in the record, or "" where it was not there."""
    present: str
    """Version in the kernel of the replay, or ""."""
    needed: bool = True
    """Whether it is the language, or a cell imports it."""

    def __str__(self) -> str:
        return f"{self.name} {self.recorded or '(absent)'} → {self.present or '(absent)'}"


@dataclass(frozen=True, slots=True)
class StepReplay:
    """One cell of a replay."""

    cell: str
    """Its id in the episode notebook."""
    verdict: CellVerdict
    after: tuple[str, ...] = ()
    """What was excused, by the names of rules (`nbrefine.rerun.rules`); "chance" for values in an
    episode without a seed, "lost output" for outputs that a notebook has lost."""
    details: tuple[str, ...] = ()
    """Why it failed, how state and files differ, or which checks do not hold, a sentence each."""
    diff: str = ""
    """A short unified diff of outputs that differ, after the rules."""
    state: StateVerdict = ""
    checks: bool = False
    """Whether these are checks or tests and no cell of the agent's."""
    result: CellResult | None = None
    """None where it was not run, and of checks."""

    @property
    def told(self) -> str:
        """The verdict in words."""
        return f"{self.verdict} {', '.join(self.after)}" if self.after else self.verdict


@dataclass(frozen=True, slots=True)
class Divergence:
    """Where a loop on recorded replies first does something else."""

    turn: int
    """1-based; one more than there are where the loops end otherwise."""
    part: str
    """What differs: "system", "task", "state", "feedback", "earlier replies", "reply", "cell",
    "verdict" or "stop"."""
    told: str
    """How it differs, in one sentence."""
    diff: str = ""
    """The first lines that differ."""

    def __str__(self) -> str:
        return f"turn {self.turn}, {self.part}: {self.told}"


@dataclass(frozen=True, slots=True)
class Replay:
    """What came of a replay."""

    kernel: KernelInfo
    packages: tuple[PackageChange, ...]
    """Those that are not as recorded, the ones that the cells import first; () too where the
    record has none."""
    steps: tuple[StepReplay, ...]
    """The setup, where there is one, the cells in order, and checks after the cell they are of."""
    how: How = "clean"
    compare: Level = "tolerant"
    notes: tuple[str, ...] = ()
    """What this replay leaves out or cannot tell, a sentence each."""
    divergence: Divergence | None = None
    """The first one of a model replay; None where there is none."""
    episode: Episode | None = None
    """The new episode of a model replay."""

    @property
    def ok(self) -> bool:
        """Whether every cell ended as recorded, nothing differs, and all checks hold.

        That holds too where no state was `compared`.
        """
        return self.first is None and self.divergence is None

    @property
    def compared(self) -> int:
        """How many states were compared with recorded ones."""
        return sum(step.state != "" for step in self.steps)

    @property
    def first(self) -> StepReplay | None:
        """The first step that is not as recorded."""
        return next((step for step in self.steps if step.verdict not in RIGHT), None)
