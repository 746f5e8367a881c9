"""One run as a file: the YAML task file of `nbrefine run`, checked key by key before any work.

The command line's options have the same names and win over the file's::

    task: Store the mean body mass of each species in `means`.
    data: penguins.csv
    setup: |
      import pandas as pd
      df = pd.read_csv("penguins.csv")
    tests: tests.py            # one line that ends in .py is a file; anything else is code
    model: local
    max_turns: 5

`WorkConfig` tells how paths are read.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from pydantic import Field

from nbrefine.config.work import WorkConfig
from nbrefine.values import Task


class RunConfig(WorkConfig):
    """What one run is asked to do; every field is a key of the task file."""

    see: ClassVar[str] = "See `nbrefine run --help` for the keys"
    what: ClassVar[str] = "task file"
    code_keys: ClassVar[tuple[str, ...]] = ("setup", "tests", "code")

    task: Annotated[str, Field(min_length=1)]
    """The request in plain words."""
    entry_point: str = ""
    """Name of the function that a `check(candidate)` test is given."""
    code: str = ""
    """A first attempt, as code or one `.py` file; without it the model writes that too."""
    max_turns: Annotated[int, Field(ge=1)] = 5
    """How many attempts there may be."""
    history: str = "current"
    """How much of the past the model sees."""

    @property
    def test_target(self) -> str:
        return self.entry_point

    def to_task(self) -> Task:
        """Give the task as the loop takes it; the loop adds the data files' paths itself."""
        return Task(
            prompt=self.task,
            id=self.id,
            setup=self.setup,
            tests=self.tests,
            entry_point=self.entry_point,
        )

    def to_arguments(self) -> dict[str, Any]:
        """Give what `start` takes."""
        return {
            "task": self.to_task(),
            **super().to_arguments(),
            "initial_code": self.code,
            "max_turns": self.max_turns,
            "timeout": self.timeout,
            "isolation": self.isolation,
            "rebuild_limit": self.rebuild_limit,
            "workspace": self.workspace,
            "history": self.history,
            "sampling": self.to_sampling(),
        }
