"""A goal as a file: the YAML of `nbrefine solve`, checked key by key before any work.

The command line's options have the same names and win over the file's::

    goal: Compare the mean body mass of the species.
    data: penguins.csv
    subtasks:
      - goal: Read penguins.csv into `df`.
        check: {frame: df, min_rows: 300, columns: [species, body_mass_g]}
      - goal: Write the mean of each species to means.csv.
        needs: 1
        check: {file: means.csv}
    answer: fields:Adelie,Gentoo
    max_attempts: 3

`WorkConfig` tells how paths are read.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, field_validator

from nbrefine.config.work import WorkConfig
from nbrefine.planning import subtasks_of
from nbrefine.solving.settings import DEFAULTS, Settings, complete
from nbrefine.solving.starting import answer_form
from nbrefine.values import Task


class SolveConfig(WorkConfig):
    """What a multi-step agent is asked to do; every field is a key of the goal file."""

    see: ClassVar[str] = "See `nbrefine solve --help` for the keys"
    what: ClassVar[str] = "goal file"

    goal: Annotated[str, Field(min_length=1)]
    """The request in plain words."""
    subtasks: Any = ()
    """The steps to take, each in words or with `goal`, `needs` and `check`."""
    answer: Any = None
    """The form of the answer: `text`, `value`, `fields:NAME,NAME`, `files:PATH,PATH`, or a block
    with the keys of an `AnswerForm`."""
    planning: Literal["auto", "ask", "none"] = DEFAULTS["planning"]
    """Whether the model may make a plan, must begin with one, or works without."""
    style: Literal["fenced", "tools"] = DEFAULTS["style"]
    """Whether the model writes fenced blocks, or calls tools."""
    images: bool = DEFAULTS["images"]
    """Whether a model that takes images gets the pictures that a cell drew."""
    max_turns: Annotated[int, Field(ge=1)] = DEFAULTS["max_turns"]
    """How many replies there may be in all."""
    max_attempts: Annotated[int, Field(ge=1)] = DEFAULTS["max_attempts"]
    """How many attempts there may be at one subtask."""
    max_step_tokens: Annotated[int, Field(ge=1)] | None = DEFAULTS["max_step_tokens"]
    """How many tokens one subtask may take."""
    max_step_seconds: Annotated[float, Field(gt=0)] | None = DEFAULTS["max_step_seconds"]
    """How long one subtask may take."""
    max_replans: Annotated[int, Field(ge=0)] = DEFAULTS["max_replans"]
    """How often the rest of the work may be planned anew."""
    accept_best: bool = DEFAULTS["accept_best"]
    """Whether the best attempt at a failed subtask is kept."""
    test_timeout: Annotated[float, Field(gt=0)] = DEFAULTS["test_timeout"]
    """Seconds that one postcondition or test may run."""

    @field_validator("subtasks")
    @classmethod
    def _steps(cls, value: Any) -> Any:
        return subtasks_of(value, origin="task") if value else ()

    @field_validator("answer")
    @classmethod
    def _form(cls, value: Any) -> Any:
        return None if value is None else answer_form(value)

    def to_task(self) -> Task:
        """Give the goal as a task; `start_solving` adds the data files' paths itself."""
        return Task(
            prompt=self.goal,
            id=self.id,
            setup=self.setup,
            tests=self.tests,
            subtasks=self.subtasks,
            answer=self.answer,
        )

    def to_settings(self) -> Settings:
        """Give what `start_solving` takes as settings."""
        return complete({name: getattr(self, name) for name in DEFAULTS})

    def to_arguments(self) -> dict[str, Any]:
        """Give what `start_solving` takes."""
        return {"goal": self.to_task(), **super().to_arguments(), **self.to_settings()}
