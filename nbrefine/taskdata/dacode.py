"""DA-Code (Huang et al. 2024, arXiv 2410.07331): data work whose result is a file, and its judge.

Of its metrics, those that compare tables and short JSON answers are here. Scores of predictions
and clusterings, which upstream computes from the competition's hidden labels, and plots are not:
such a task says so and is not judged.
"""

from __future__ import annotations

import csv
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nbrefine.errors import UsageError
from nbrefine.taskdata.columns import text_of
from nbrefine.values import Answer, AnswerForm, Task

TOLERANCE = 1e-3
"""How far numbers may differ, absolutely: upstream's."""

_MISSING = frozenset(
    (
        *("", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND"),
        *("1.#QNAN", "<NA>", "N/A", "NA", "NULL", "NaN", "None", "n/a", "nan", "null"),
    )
)
"""What pandas, by which upstream reads tables, takes for a missing value."""

Value = float | str | None


@dataclass(frozen=True, slots=True)
class Score:
    """How well a task was done."""

    value: float | None
    """From 0.0 to 1.0; None where it is not judged."""
    detail: str = ""
    """What was not right, or why it is not judged."""


def dacode_task(row: Mapping[str, Any], *, source: str | Path = "") -> Task:
    """Make a task of a row of DA-Code.

    Parameters
    ----------
    row: instruction, `source_files` and the `eval` configuration as JSON.
    source: folder with one folder a task, in which its files are.
    """
    rules = _rules(row)
    name = text_of(row, "id")
    wanted = tuple(file for result in rules["result"] for file in _listed(result.get("file")))
    return Task(
        text_of(row, "instruction").strip(),
        id=name,
        files=tuple(str(Path(source) / name / file) for file in row.get("source_files") or ()),
        answer=AnswerForm("files", files=wanted) if wanted else AnswerForm("text"),
        metadata={"level": text_of(row, "hardness"), "eval": rules},
    )


def dacode_score(
    task: Task, answer: Answer | str | None, *, folder: str | Path, gold: str | Path
) -> Score:
    """Judge what was done by upstream's rules, as far as they are here.

    Parameters
    ----------
    task: as `dacode_task` gives it.
    answer: what was answered in words, for tasks that ask for no file.
    folder: the working folder, in which the asked files are.
    gold: folder with one folder a task, in which the right files are.
    """
    rules = task.metadata["eval"]
    scores: list[Score] = []
    for metric, result, options in zip(
        rules["func"], rules["result"], rules["options"], strict=True
    ):
        if metric == "compare_csv":
            for file in _listed(result["file"]):
                name = Path(file).name
                scores.append(
                    compare_csv(Path(folder) / file, Path(gold) / task.id / name, options)
                )
        elif metric == "compare_text":
            text = answer.text if isinstance(answer, Answer) else answer or ""
            scores.append(compare_text(text, result["number"][0], options))
        else:
            return Score(None, f"not judged: {metric} is not implemented")
    known = [each.value for each in scores if each.value is not None]
    told = "; ".join(each.detail for each in scores if each.detail)
    return Score(sum(known) / len(known), told)


def compare_csv(
    written: str | Path, gold: str | Path, options: Mapping[str, Any] | None = None
) -> Score:
    """Compare two tables column by column; names of columns are not looked at.

    A column of the gold table is found where any column that was written holds its values, with
    numbers within `TOLERANCE`. Upstream sorts the values of `ignore_order` as text; here numbers
    are sorted by size, so that 9.9999 and 10.0001 meet.

    Parameters
    ----------
    options: `condition_cols`, the indices of the gold columns that count; `score_rule`, "divide"
        for the share of columns found or "all" for 1 or 0; `ignore_order` of the rows.

    Raises
    ------
    UsageError: the gold table cannot be read.
    """
    options = options or {}
    try:
        wanted = _columns(Path(gold))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UsageError(f"The gold table {gold} cannot be read: {error}") from error
    try:
        found = _columns(Path(written))
    except FileNotFoundError:
        return Score(0.0, f"{Path(written).name} was not written")
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        return Score(0.0, f"{Path(written).name} is no table: {error}")
    names = list(wanted)
    chosen = [names[at] for at in options.get("condition_cols") or range(len(names))]
    loose = bool(options.get("ignore_order", False))
    missed = [
        name
        for name in chosen
        if not any(_same(wanted[name], column, loose=loose) for column in found.values())
    ]
    told = (
        f"no column holds the values of {', '.join(name[1] for name in missed)}" if missed else ""
    )
    if options.get("score_rule", "divide") == "all":
        return Score(0.0 if missed else 1.0, told)
    return Score(1.0 - len(missed) / len(chosen), told)


def compare_text(
    text: str, gold: Mapping[str, Any], options: Mapping[str, Any] | None = None
) -> Score:
    """Compare an answer that is a JSON object with the right one: 1.0 where all keys are right.

    Keys must be the gold's own, as upstream has it, also where these differ from the ones that
    the instruction shows (di-text-002, di-text-003). Unlike upstream, which stops at the first
    item, all items of a list count.
    """
    loose = bool((options or {}).get("ignore_order", False))
    found = re.search(r"\{.*\}", text, re.DOTALL)
    try:
        given = json.loads(found[0]) if found else None
    except json.JSONDecodeError:
        given = None
    if not isinstance(given, dict):
        return Score(0.0, "the answer holds no JSON object")
    missed = [key for key, value in gold.items() if not _alike(value, given.get(key), loose=loose)]
    return Score(0.0 if missed else 1.0, f"not right: {', '.join(missed)}" if missed else "")


def _rules(row: Mapping[str, Any]) -> dict[str, Any]:
    given = row["eval"]
    rules: dict[str, Any] = json.loads(given) if isinstance(given, str) else dict(given)
    for key in ("func", "result", "options"):
        rules[key] = _listed(rules.get(key) or ({} if key == "options" else None))
    return rules


def _listed(value: Any) -> list[Any]:
    return [] if value is None else value if isinstance(value, list) else [value]


def _columns(path: Path) -> dict[tuple[int, str], list[Value]]:
    """Read a table's columns, each as numbers where all of its values are."""
    with path.open(encoding="utf-8-sig", newline="") as file:
        rows = [row for row in csv.reader(file) if row]
    if not rows:
        raise csv.Error("it is empty")
    width = len(rows[0])
    if any(len(row) > width for row in rows):
        raise csv.Error("rows are longer than the first one")
    texts = [[*row, *[""] * (width - len(row))] for row in rows[1:]]
    names = enumerate(rows[0])
    return {name: _typed([row[name[0]] for row in texts]) for name in names}


def _typed(texts: Sequence[str]) -> list[Value]:
    values = [None if text.strip() in _MISSING else text for text in texts]
    truths = {"True": 1.0, "False": 0.0, "TRUE": 1.0, "FALSE": 0.0, "true": 1.0, "false": 0.0}
    if None not in values and all(value in truths for value in values):
        return [truths[str(value)] for value in values]
    try:
        return [None if value is None else float(value) for value in values]
    except ValueError:
        return list(values)


def _same(wanted: Sequence[Value], found: Sequence[Value], *, loose: bool) -> bool:
    if len(wanted) != len(found):
        return False
    if loose:
        wanted, found = sorted(wanted, key=_rank), sorted(found, key=_rank)
    return all(_close(a, b) for a, b in zip(wanted, found, strict=True))


def _rank(value: Value) -> tuple[int, float, str]:
    if value is None:
        return (2, 0.0, "")
    return (0, value, "") if isinstance(value, float) else (1, 0.0, value)


def _close(wanted: Value, found: Value) -> bool:
    if isinstance(wanted, float) and isinstance(found, float):
        return math.isclose(wanted, found, abs_tol=TOLERANCE)
    return wanted == found


def _alike(wanted: Any, given: Any, *, loose: bool) -> bool:
    """Compare JSON values: numbers within the tolerance, texts without their case."""
    if isinstance(wanted, list):
        items = given if isinstance(given, list) else [given]
        if len(items) != len(wanted):
            return False
        if loose:
            wanted, items = sorted(wanted, key=_key), sorted(items, key=_key)
        return all(_alike(a, b, loose=loose) for a, b in zip(wanted, items, strict=True))
    if isinstance(wanted, dict):
        return (
            isinstance(given, dict)
            and wanted.keys() == given.keys()
            and all(_alike(value, given[key], loose=loose) for key, value in wanted.items())
        )
    if isinstance(wanted, str):
        return isinstance(given, str) and wanted.casefold() == given.casefold()
    if isinstance(wanted, bool) or not isinstance(wanted, int | float):
        return bool(wanted == given)
    try:
        return math.isclose(wanted, float(given), rel_tol=0.0, abs_tol=TOLERANCE)
    except (TypeError, ValueError):
        return False


def _key(value: Any) -> str:
    return json.dumps(value).casefold()
