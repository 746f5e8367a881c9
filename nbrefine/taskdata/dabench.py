"""InfiAgent-DABench (Hu et al. 2024, arXiv 2401.05507): questions about tables, and their judge."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nbrefine.answers import fields_form, fields_of
from nbrefine.errors import InvalidTaskError
from nbrefine.taskdata.columns import text_of
from nbrefine.values import Answer, Task

Alike = Callable[[str, str], bool]
"""Tells whether the value that was given is the one on the label."""

_CLOSE = 1e-6


def dabench_task(row: Mapping[str, Any], *, tables: str | Path = "") -> Task:
    """Make a task of a row of DABench: a question about one table, answered as `@name[value]`.

    `metadata["labels"]` is what the answer must be, and like all metadata it reaches no prompt.

    Parameters
    ----------
    row: a question joined with its label, the columns being those of upstream's files.
    tables: folder of the tables; the task names its own in it.

    Raises
    ------
    InvalidTaskError: the row names no field to answer with.
    """
    form = fields_form(text_of(row, "format"))
    if form is None:
        raise InvalidTaskError(
            f"Row {text_of(row, 'id') or '?'} has no field such as @name[value] in its 'format'",
            hint="Leave the row out",
        )
    asked = (text_of(row, "question"), text_of(row, "constraints"))
    return Task(
        "\n\n".join(text.strip() for text in asked if text.strip()),
        id=text_of(row, "id"),
        files=(str(Path(tables) / text_of(row, "file_name")),),
        answer=form,
        metadata={
            "level": text_of(row, "level"),
            "concepts": tuple(row.get("concepts") or ()),
            "labels": {name: str(value) for name, value in row.get("common_answers") or ()},
        },
    )


def exactly(given: str, label: str) -> bool:
    """Tell whether two texts are the same, or numbers that differ by less than 1e-6.

    Upstream's rule (`eval_closed_form.py`), by which published results were counted.
    """
    if given == label:
        return True
    try:
        return abs(float(given) - float(label)) < _CLOSE
    except ValueError:
        return False


def rounded(given: str, label: str) -> bool:
    """Tell whether two texts are the same but for case, or numbers once both are rounded.

    Numbers are rounded to the label's decimals; quotes and blanks around a text do not count. It
    also takes right answers that `exactly` refuses: more decimals than were asked for, "Yes"
    for "yes".
    """
    given, label = (text.strip().strip("\"'").casefold() for text in (given, label))
    if given == label:
        return True
    places = len(label.partition(".")[2]) if "e" not in label else 15
    try:
        return abs(round(float(given), places) - round(float(label), places)) < 10.0**-places / 2
    except (ValueError, OverflowError):
        return False


@dataclass(frozen=True, slots=True)
class Marks:
    """What is right in an answer, field by field."""

    fields: Mapping[str, bool]
    """For each name on the label, whether its value was given."""

    @property
    def right(self) -> bool:
        """Whether all fields are; what upstream calls accuracy by question is the mean of it."""
        return all(self.fields.values())

    @property
    def share(self) -> float:
        """The share of fields that are; its mean is upstream's proportional accuracy."""
        return sum(self.fields.values()) / len(self.fields) if self.fields else 1.0


def answers_match(
    answer: Answer | str | None, labels: Mapping[str, str], *, alike: Alike = exactly
) -> Marks:
    """Judge an answer by its label; fields that the label does not name are not looked at.

    Parameters
    ----------
    answer: an episode's answer, or a text that holds fields; None is wrong in every field.
    labels: name -> value, as `metadata["labels"]` of the task.
    alike: when a value is right: upstream's `exactly`, or `rounded`.
    """
    text = answer.text if isinstance(answer, Answer) else answer or ""
    given = fields_of(text)
    return Marks(
        {name: name in given and alike(given[name], label) for name, label in labels.items()}
    )
