"""From a row to a task, by the names of its columns."""

from __future__ import annotations

import ast
import difflib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

from nbrefine.errors import InvalidTaskError, UsageError
from nbrefine.source import parse
from nbrefine.values import Task

_TESTS = ("test_list", "test", "tests")
_HIDDEN_TESTS = ("hidden_tests", "hidden_test")
_ANSWERS = ("answer", "canonical_solution")
_ENTRY_POINTS = ("entry_point",)
_IDS = ("task_id", "id", "name")
BEFORE_TESTS = ("test_imports", "test_setup_code")
"""What MBPP's tests need; run after the solution, before which 367 and 927 raise a NameError."""


@dataclass(frozen=True, slots=True)
class Columns:
    """Which column of a row says what; "" where none does."""

    question: str = "question"
    answer: str = "answer"
    test: str = ""
    """Tests as source, or a list of asserts."""
    entry_point: str = ""
    id: str = ""
    hidden_test: str = ""
    """Tests that nobody is shown, for a grade alone."""

    @classmethod
    def among(
        cls,
        available: Sequence[str],
        *,
        question: str = "question",
        answer: str = "answer",
        test: str | None = None,
        entry_point: str | None = None,
        hidden_test: str | None = None,
    ) -> Self:
        """Choose the columns of a set.

        Parameters
        ----------
        available: the columns there are.
        answer: "" takes none; where there are tests, a usual name (answer, canonical_solution)
            that is not there takes none either.
        test, entry_point, hidden_test: None takes the first usual name that is there: test_list,
            test or tests, entry_point, hidden_tests or hidden_test; "" takes none.

        Raises
        ------
        UsageError: a named column is not among those available.
        """
        columns = cls(
            question,
            answer,
            _first(_TESTS, available) if test is None else test,
            _first(_ENTRY_POINTS, available) if entry_point is None else entry_point,
            _first(_IDS, available),
            _first(_HIDDEN_TESTS, available) if hidden_test is None else hidden_test,
        )
        if answer in _ANSWERS and answer not in available and (columns.test or columns.hidden_test):
            columns = replace(columns, answer="")
        for role in ("question", "answer", "test", "entry_point", "hidden_test"):
            name = getattr(columns, role)
            if name and name not in available:
                near = difflib.get_close_matches(name, available, n=1)
                hint = f"Name the {role.replace('_', ' ')} column"
                raise UsageError(
                    f"There is no column {name!r}; the columns are {', '.join(available)}",
                    hint=f"{hint}, perhaps {near[0]!r}" if near else hint,
                )
        return columns


def to_task(row: Mapping[str, Any], columns: Columns) -> Task:
    """Make a task of a row.

    Where the question is Python that ends in the head of the function to write, as in HumanEval,
    what stands before that function is the setup, `metadata["prompt_code"]` is the question, and
    the reference is both joined.

    Raises
    ------
    InvalidTaskError: the question is missing or blank.
    """
    question = text_of(row, columns.question)
    number = text_of(row, columns.id)
    if not question.strip():
        raise InvalidTaskError(
            f"Row {number or '?'} asks nothing: its {columns.question!r} is blank",
            hint="Leave the row out, or name another column",
        )
    entry_point = text_of(row, columns.entry_point).strip()
    answer = text_of(row, columns.answer)
    before = preamble(question, entry_point) if entry_point else None
    begun = before is not None and not defines(answer, entry_point)
    return Task(
        question,
        id=number,
        setup=before or "",
        tests=tests_of(row, columns.test),
        hidden_tests=tests_of(row, columns.hidden_test),
        entry_point=entry_point,
        reference=question + answer if begun and answer else answer,
        metadata={} if before is None else {"prompt_code": question},
    )


def text_of(row: Mapping[str, Any], column: str) -> str:
    """Give a column's value as text with plain line ends; "" where it is missing or None."""
    return _text(row.get(column)) if column else ""


def texts_of(row: Mapping[str, Any], column: str) -> list[str]:
    """Give a column's texts, one or a list of them, without blank ones."""
    value = row.get(column) if column else None
    texts = value if isinstance(value, list | tuple) else [value]
    return [text for text in map(_text, texts) if text.strip()]


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, list | tuple | dict):
        return json.dumps(value, ensure_ascii=False, default=str)
    return str(value).replace("\r\n", "\n").replace("\r", "\n")


def tests_of(row: Mapping[str, Any], column: str) -> str:
    """Give a column's tests as one source, with what they need before them."""
    tests = texts_of(row, column)
    needed = [text for name in BEFORE_TESTS for text in texts_of(row, name)]
    return "\n".join(needed + tests) if tests else ""


def preamble(prompt: str, entry_point: str) -> str | None:
    """Give what stands before the function that a prompt ends in; None if it does not end so."""
    tree = parse(f"{prompt.rstrip()}\n    pass\n", magics=False)
    last = tree.body[-1] if tree is not None and tree.body else None
    if not isinstance(last, ast.FunctionDef | ast.AsyncFunctionDef) or last.name != entry_point:
        return None
    first = min([last.lineno, *(decorator.lineno for decorator in last.decorator_list)])
    return "\n".join(prompt.split("\n")[: first - 1]).strip("\n")


def defines(code: str, name: str) -> bool:
    """Tell whether a source defines a function or class of that name at its top level."""
    tree = parse(code, magics=False)
    return tree is not None and any(getattr(node, "name", "") == name for node in tree.body)


def _first(names: Sequence[str], available: Sequence[str]) -> str:
    return next((name for name in names if name in available), "")
