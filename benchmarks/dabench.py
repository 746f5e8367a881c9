"""Answer data questions of InfiAgent-DABench with `solve`, and count the right ones.

Every question is a goal of its own with its own folder: the table, the episode notebook, and
`outcome.json`, which says what came of it. A question that has an outcome is not asked again, so
that a run that was stopped goes on where it was. Every notebook is replayed in a fresh kernel.

An answer is right where each labelled field is, as `nbrefine.taskdata.dabench.rounded` has it;
how many are by upstream's own stricter rule is said below the table.

The questions (CC-BY-NC-4.0) are not part of nbrefine. DATA is a folder with `questions.jsonl`,
one row a question with its label, and `tables`; by default that of the shared data.

    python benchmarks/dabench.py OUT [--data DATA] [--level easy] [--ids 9,10] [--model local]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from nbrefine import load, replay
from nbrefine.answers import fields_of
from nbrefine.errors import NbrefineError
from nbrefine.models import Model, resolve
from nbrefine.solving import solve
from nbrefine.taskdata.dabench import answers_match, dabench_task, rounded
from nbrefine.values import Episode

SHARED = Path(os.environ.get("NBREFINE_SHARED_DATA", Path(__file__).parents[2] / "shared" / "data"))


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one question."""

    id: int
    level: str
    right: bool
    exact: bool
    """Whether it is right by upstream's rule too."""
    expected: dict[str, str]
    given: dict[str, str]
    stop: str
    turns: int
    seconds: float
    tokens: int
    replayed: str
    """"same", or what differs."""


def main() -> None:
    asked = arguments()
    rows = list(chosen(asked.data / "questions.jsonl", asked.level, asked.ids))
    model = resolve(asked.model)
    outcomes = []
    print(HEAD)
    try:
        for row in rows:
            outcomes.append(answered(row, model, asked))
            print(line(outcomes[-1]), flush=True)
    finally:
        asyncio.run(model.aclose())
    right = sum(outcome.right for outcome in outcomes)
    exact = sum(outcome.exact for outcome in outcomes)
    same = sum(outcome.replayed == "same" for outcome in outcomes)
    seconds = sum(outcome.seconds for outcome in outcomes)
    print(
        f"\n{right} of {len(outcomes)} right, {exact} by upstream's rule; "
        f"{same} notebooks replayed the same; {seconds:.0f} s; model: {model.name}"
    )


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Answer data questions of DABench.")
    parser.add_argument("out", type=Path, help="folder for notebooks and outcomes")
    parser.add_argument("--data", type=Path, default=SHARED / "dabench")
    parser.add_argument("--level", choices=["easy", "medium", "hard"])
    parser.add_argument("--ids", type=lambda text: [int(part) for part in text.split(",")])
    parser.add_argument("--model", default="local")
    parser.add_argument("--max-turns", type=int, default=6)
    parser.add_argument("--max-tokens", type=int, default=700)
    return parser.parse_args()


def chosen(path: Path, level: str | None, ids: list[int] | None) -> Iterable[dict[str, Any]]:
    for text in path.read_text().splitlines():
        row = json.loads(text)
        if level in (None, row["level"]) and (ids is None or row["id"] in ids):
            yield row


def answered(row: dict[str, Any], model: Model, asked: argparse.Namespace) -> Outcome:
    """Give what came of a question, asking it only where that is not known yet."""
    folder = asked.out / f"{row['id']:04}"
    told = folder / "outcome.json"
    if told.exists():
        return Outcome(**json.loads(told.read_text()))
    folder.mkdir(parents=True, exist_ok=True)
    table = folder / row["file_name"]
    shutil.copyfile(asked.data / "tables" / row["file_name"], table)
    record = folder / "episode.ipynb"
    started = time.monotonic()
    solve(
        replace(dabench_task(row), files=()),
        data=table,
        model=model,
        record=record,
        overwrite=True,
        max_turns=asked.max_turns,
        max_tokens=asked.max_tokens,
    )
    seconds = time.monotonic() - started
    outcome = judged(row, load(record), seconds, replayed(record))
    told.write_text(json.dumps(asdict(outcome), indent=1, ensure_ascii=False) + "\n")
    return outcome


def replayed(record: Path) -> str:
    try:
        again = replay(record)
    except NbrefineError as trouble:
        return str(trouble)
    first = again.first
    return "same" if again.ok or first is None else f"{first.cell}: {first.verdict}"


def judged(row: dict[str, Any], episode: Episode, seconds: float, again: str) -> Outcome:
    expected = dict(dabench_task(row).metadata["labels"])
    given = fields_of(episode.answer.text) if episode.answer else {}
    right = answers_match(episode.answer, expected, alike=rounded).right
    stop = episode.stop.reason if episode.stop else "none"
    return Outcome(
        id=row["id"],
        level=row["level"],
        right=right,
        exact=answers_match(episode.answer, expected).right,
        expected=expected,
        given={name: given[name] for name in expected if name in given},
        stop=stop,
        turns=len(episode.turns),
        seconds=round(seconds, 1),
        tokens=episode.usage.total_tokens,
        replayed=again,
    )


HEAD = """\
| id | level | right | answer | label | stop | turns | seconds | tokens | replay |
|---|---|---|---|---|---|---|---|---|---|"""


def line(outcome: Outcome) -> str:
    given, label = (
        ", ".join(f"{name}={value}" for name, value in fields.items()).replace("|", "\\|")[:60]
        for fields in (outcome.given, outcome.expected)
    )
    cells = (
        outcome.id,
        outcome.level,
        "yes" if outcome.right else "no",
        given,
        label,
        outcome.stop,
        outcome.turns,
        f"{outcome.seconds:.0f}",
        outcome.tokens,
        outcome.replayed,
    )
    return f"| {' | '.join(map(str, cells))} |"


if __name__ == "__main__":
    main()
