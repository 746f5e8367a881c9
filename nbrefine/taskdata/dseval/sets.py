"""DSEval's problem sets: a session each, in which one question follows the other."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

from nbrefine.taskdata.columns import text_of
from nbrefine.values import Subtask, Task

Checks = Mapping[str, Any]
"""What is compared, as the set's authors configured it: kind of check -> its settings."""

_TEMPLATES: Mapping[str, tuple[str, ...]] = {
    "empty": (),
    "basic": ("crash",),
    "intact": ("crash", "namespace_intact"),
    "comparison": ("crash", "namespace_intact", "result"),
}


@dataclass(frozen=True, slots=True)
class Question:
    """One row of a set: a question, or code that every solver finds run before."""

    number: int
    """Number of the row in its set, from 0 on; what recorded answers call the question's index."""
    code: str
    """The reference; as hidden as a reference is."""
    text: str = ""
    """What is asked; "" for code that only prepares."""
    checks: Checks = field(default_factory=dict)
    """With those of its template; none where nothing is asked."""
    forbidden: tuple[str, ...] = ()
    """Names that are of no use meanwhile, such as the labels a model is tested with."""
    seconds: float = 1.0
    """Upstream's time limit, of the machine it was set on."""

    @property
    def asked(self) -> bool:
        return bool(self.text)


@dataclass(frozen=True, slots=True)
class ProblemSet:
    """A session of DSEval."""

    id: str
    rows: tuple[Question, ...]
    files: tuple[str, ...] = ()
    """Data files; the working folder has them in `inputs/`."""

    @property
    def questions(self) -> tuple[Question, ...]:
        return tuple(row for row in self.rows if row.asked)

    def task(self) -> Task:
        """Make one task of the set: its questions are subtasks, all on one session."""
        setup = [row.code for row in self.rows if not row.asked]
        return Task(
            "Answer questions about data, one after the other, in one notebook.",
            id=self.id,
            setup="\n".join(setup),
            files=self.files,
            subtasks=tuple(Subtask(row.text.strip()) for row in self.questions),
        )

    def task_of(self, question: Question) -> Task:
        """Make a task of one question, for which the reference has answered those before."""
        before = [row.code for row in self.rows if row.number < question.number]
        return Task(
            question.text.strip(),
            id=f"{self.id}/{question.number}",
            setup="\n".join(before),
            files=self.files,
            reference=question.code,
        )


def dseval_sets(
    rows: Iterable[Mapping[str, Any]], *, inputs: str | Path = ""
) -> tuple[ProblemSet, ...]:
    """Make problem sets of the rows of DSEval (Zhang et al. 2024, arXiv 2402.17168).

    Parameters
    ----------
    rows: one a step, sets one after the other, with the columns set_id, step, question,
        is_context, reference_code, validator and execution (both JSON), and data_files.
    inputs: folder with one folder a set, in which its data files are.

    Raises
    ------
    json.JSONDecodeError: validator or execution are no JSON.
    """
    found = []
    for name, group in groupby(rows, key=lambda row: text_of(row, "set_id")):
        steps = sorted(group, key=lambda row: int(row["step"]))
        files = {str(file): None for row in steps for file in row.get("data_files") or ()}
        paths = tuple(str(Path(inputs) / name / file) for file in files)
        found.append(ProblemSet(name, tuple(map(_question, steps)), paths))
    return tuple(found)


def _question(row: Mapping[str, Any]) -> Question:
    text = "" if row.get("is_context") else text_of(row, "question")
    limits = json.loads(text_of(row, "execution") or "{}")
    return Question(
        int(row["step"]),
        text_of(row, "reference_code"),
        text,
        _checks(json.loads(text_of(row, "validator") or "{}")) if text else {},
        tuple(limits.get("forbid_names", ())),
        float(limits.get("max_time", 1)),
    )


def _checks(given: dict[str, Any]) -> Checks:
    template = given.pop("template", "comparison")
    return {**dict.fromkeys(_TEMPLATES[template]), **given}
