"""What is asked: a task, the steps it is broken into, and the form of its answer."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from nbrefine.files import Artifact

Origin = Literal["task", "model"]
"""Who asks for something: whoever set the task, or the model that works on it."""


@dataclass(frozen=True, slots=True)
class Postcondition:
    """What must hold when a subtask is done, as code that runs in a branch of the attempt."""

    source: str
    """One or more `assert` statements over the names and files of the session."""
    told: str = ""
    """The same in words, for prompts and readers; "" where the code speaks for itself."""
    origin: Origin = "task"
    writes: str = ""
    """Path, relative to the working folder, of a file that a cell of this episode must have
    written, which the source cannot ask for; "" for none."""


@dataclass(frozen=True, slots=True)
class Subtask:
    """One sub-goal of a task; a reader sees it as "Step 2"."""

    goal: str
    """What is to be done, in words."""
    needs: tuple[int, ...] = ()
    """1-based numbers of earlier subtasks whose results it uses: where one of them is given up,
    so is this one."""
    postconditions: tuple[Postcondition, ...] = ()
    """All must hold for it to be done; without any, a cell that ran without an error is enough."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How a task is broken into subtasks, in the order in which they are worked on."""

    subtasks: tuple[Subtask, ...]
    """Number n of an episode's subtasks stands at n - 1; a later plan keeps those begun before."""
    origin: Origin = "task"
    """A later one of the task's was made for another instruction, and is no re-plan."""
    since: int = 1
    """Number of the first turn that it holds for."""
    reason: str = ""
    """Why it has taken the place of an earlier one, or ""."""


@dataclass(frozen=True, slots=True)
class AnswerForm:
    """How the answer to a task must look; what does not is told to the model, not accepted."""

    kind: Literal["text", "fields", "value", "files"] = "text"
    """`text`: words; `fields`: `@name[value]` for each of `fields`; `value`: what the session's
    variable `variable` holds; `files`: the files at `files`."""
    told: str = ""
    """The form in words, as the model is told it."""
    pattern: str = ""
    """Regular expression that the whole text must match, blanks around it aside; "" for any."""
    fields: tuple[str, ...] = ()
    """Names of the fields."""
    variable: str = "answer"
    """Name of the variable that holds a value."""
    files: tuple[str, ...] = ()
    """Paths relative to the working folder; each must exist and not be empty."""
    postconditions: tuple[Postcondition, ...] = ()
    """What must hold of the session besides, such as the range of a value."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What an agent answered."""

    text: str
    """The answer in words: the text, the fields as they were given, a value as Python shows it,
    the names of files."""
    value: Any = None
    """A value as plain JSON data; for fields, name -> text."""
    files: tuple[Artifact, ...] = ()
    turn: int = 0
    """Number of the turn that gave it."""


@dataclass(frozen=True, slots=True)
class Task:
    """What is asked of the model and how the answer is checked."""

    prompt: str
    """The request in plain words."""
    id: str = ""
    """A short name, stable over runs; shown in reports."""
    setup: str = ""
    """Code that runs in the session before the first attempt."""
    files: tuple[str, ...] = ()
    """Paths of data files the task speaks of."""
    tests: str = ""
    """Visible tests: asserts, a `check(candidate)` function or pytest-style functions."""
    entry_point: str = ""
    """Name of the function that `check(candidate)` is given."""
    hidden_tests: str = ""
    """Tests that reach no prompt, no feedback and no process the candidate runs in."""
    reference: str = ""
    """A known solution; as hidden as the hidden tests."""
    metadata: dict[str, Any] = field(default_factory=dict)
    subtasks: tuple[Subtask, ...] = ()
    """The steps it is to be done in; () leaves them to whoever works on it."""
    answer: AnswerForm | None = None
    """What form the answer has; None where the work itself is the answer."""
