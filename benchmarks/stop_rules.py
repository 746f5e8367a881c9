"""What stop rules save and what they lose, on real repair trajectories.

Reads LDB's published logs (Apache-2.0; the part in the shared data: episodes of two attempts
or more, every program in order with its recorded test feedback) and asks each rule after each
attempt whether to stop there.  A call is saved where a logged repair would not have been
asked for; a fix is lost where the rule stops before the repair that solved the task.

    python benchmarks/stop_rules.py [ldb_trajectories.jsonl.gz]
"""

from __future__ import annotations

import gzip
import json
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nbrefine.outputs import CellResult
from nbrefine.stopping import StopRule, detect_cycle, fingerprint
from nbrefine.values import CaseResult, Extraction, TestReport, Turn

SHARED = Path(os.environ.get("NBREFINE_SHARED_DATA", Path(__file__).parents[2] / "shared" / "data"))

Rule = Callable[[Sequence[Turn]], bool]

RULES: dict[str, Rule] = {
    "detect_cycle(lookback=3), exact text": lambda turns: detect_cycle(
        [{"code": turn.code} for turn in turns]
    ),
    "second sighting: StopRule(max_sightings=2)": lambda turns: (
        StopRule(max_sightings=2).decide(turns) is not None
    ),
    "third sighting: StopRule(), the default": lambda turns: StopRule().decide(turns) is not None,
    "3 identical in a row": lambda turns: _last(turns, 3) == "AAA",
    "strict A-B-A-B": lambda turns: _last(turns, 4) == "ABAB",
    "at most 3 repairs": lambda turns: len(turns) > 3,
    "at most 5 repairs": lambda turns: len(turns) > 5,
}


def _last(turns: Sequence[Turn], count: int) -> str:
    """Give the pattern of the newest turns, such as "ABAB" for two that take turns."""
    marks = [fingerprint(turn) for turn in turns[-count:]]
    known = list(dict.fromkeys(marks))
    return "".join(chr(ord("A") + known.index(mark)) for mark in marks)


@dataclass(frozen=True, slots=True)
class Figures:
    """What a rule did to all episodes."""

    calls: int
    saved: int
    fixes: int
    lost: int


def read(path: Path) -> list[dict[str, Any]]:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def measure(rows: Sequence[dict[str, Any]], rule: Rule) -> Figures:
    """Ask a rule about the logs as they were written."""
    return figures([(_turns(row), row["is_solved"]) for row in rows], rule)


def figures(episodes: Iterable[tuple[Sequence[Turn], bool]], rule: Rule) -> Figures:
    """Ask a rule about episodes, each with whether its last attempt is a fix."""
    calls = saved = fixes = lost = 0
    for turns, fixed in episodes:
        ends = (n for n in range(1, len(turns)) if rule(turns[:n]))
        skipped = len(turns) - next(ends, len(turns))
        calls += len(turns) - 1
        saved += skipped
        fixes += fixed
        lost += fixed and skipped > 0
    return Figures(calls, saved, fixes, lost)


def _turns(row: dict[str, Any]) -> list[Turn]:
    attempts = zip(row["implementations"], json.loads(row["test_feedback"]), strict=True)
    return [
        Turn(
            number,
            extraction=Extraction("found", code),
            result=CellResult(code, "ok"),
            tests=TestReport((CaseResult(feedback, "failed"),)),
        )
        for number, (code, feedback) in enumerate(attempts, 1)
    ]


def main() -> None:
    default = SHARED / "recorded" / "ldb_trajectories.jsonl.gz"
    rows = read(Path(sys.argv[1]) if len(sys.argv) > 1 else default)
    print(f"{len(rows)} episodes\n")
    print("| stop rule | calls saved | fixes lost |\n|---|---|---|")
    for name, rule in RULES.items():
        it = measure(rows, rule)
        print(
            f"| {name} | {it.saved} of {it.calls} ({it.saved / it.calls:.0%})"
            f" | {it.lost} of {it.fixes} ({it.lost / it.fixes:.0%}) |"
        )


if __name__ == "__main__":
    main()
