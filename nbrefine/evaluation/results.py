"""What an evaluation has found: rows in a file that only grows, and the figures made of them.

The first line of `results.jsonl` holds the settings, every further one an episode that has ended.
A second evaluation with the same settings goes on from there: it keeps what is good and does again
what ended in the host's trouble.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from threading import Lock
from typing import IO, Any, cast, get_args

from filelock import FileLock, Timeout

from nbrefine._version import __version__
from nbrefine.errors import RecordError, UsageError
from nbrefine.findings import Finding, findings
from nbrefine.metrics import Aggregate, Metrics, Outcome, aggregate, compute_all_metrics
from nbrefine.notebook.files import replace_file, unwritable
from nbrefine.notebook.reading import unreadable
from nbrefine.trajectory import Trajectory
from nbrefine.values import StopReason, Usage, Verdict

SCHEMA = "nbrefine.results/1"


@dataclass(frozen=True, slots=True)
class Row:
    """One episode of an evaluation, as its line in the file holds it."""

    task_index: int
    sample: int
    outcome: Outcome
    task: str = ""
    """The task's id, or the environment's name and the task's index where it has none."""
    seed: int | None = None
    stop: StopReason = "stopped"
    detail: str = ""
    """Why the episode ended, in one sentence."""
    tests: tuple[int, int] | None = None
    """How many tests the last submission passed, and how many there were."""
    notebook: str = ""
    """The episode's record, relative to the file's folder, where it is kept."""
    findings: tuple[Finding, ...] = ()
    """Signs in this episode that a test is wrong."""

    @property
    def errored(self) -> bool:
        """Whether the host's trouble ended it, so that it says nothing and is done again."""
        return self.outcome.verdict == "infra-error"

    def to_dict(self) -> dict[str, Any]:
        """Give it as plain JSON, flat but for lists; null stands for a reward that is no number.

        `verdict`, `solved` and `solved_at` are those that count: where a grade was given, its.
        `passed_at` is the turn that passed what the model was shown.
        """
        outcome = self.outcome
        wrong = outcome.passing_but_wrong
        return {
            "task_index": self.task_index,
            "sample": self.sample,
            "task": self.task,
            "verdict": "failed" if wrong else outcome.verdict,
            "solved": outcome.solved,
            "solved_at": (outcome.solved_at or outcome.turns) if outcome.solved else None,
            "passed_at": outcome.solved_at,
            "passing_but_wrong": wrong,
            "graded": outcome.graded,
            "turns": outcome.turns,
            "reward": _finite(outcome.reward),
            "turn_rewards": [_finite(reward) for reward in outcome.turn_rewards],
            "formats": list(outcome.formats),
            "tests": list(self.tests) if self.tests else None,
            "stop": self.stop,
            "detail": self.detail,
            "seed": self.seed,
            "input_tokens": outcome.usage.input_tokens,
            "output_tokens": outcome.usage.output_tokens,
            "cached_tokens": outcome.usage.cached_tokens,
            "helper_input_tokens": outcome.helper_usage.input_tokens,
            "helper_output_tokens": outcome.helper_usage.output_tokens,
            "seconds": outcome.seconds,
            "notebook": self.notebook,
            "findings": [asdict(finding) for finding in self.findings],
        }

    @classmethod
    def from_dict(cls, row: Mapping[str, Any]) -> Row:
        """Read it again.

        Raises
        ------
        KeyError, TypeError, ValueError: it is no such row.
        """
        if row["verdict"] not in get_args(Verdict) or row["stop"] not in get_args(StopReason):
            raise ValueError(f"{row['verdict']!r} is no verdict, or {row['stop']!r} no reason")
        tokens = (row[f"{kind}_tokens"] for kind in ("input", "output", "cached"))
        # Files of earlier versions do not tell them.
        helpers = (row.get(f"helper_{kind}_tokens", 0) for kind in ("input", "output"))
        outcome = Outcome(
            task=row["task_index"],
            verdict="solved" if row.get("passing_but_wrong") else row["verdict"],
            sample=row["sample"],
            solved_at=row.get("passed_at", row["solved_at"]),
            graded=row["graded"],
            turns=row["turns"],
            turn_rewards=tuple(math.nan if told is None else told for told in row["turn_rewards"]),
            formats=tuple(row["formats"]),
            usage=Usage(*tokens),
            helper_usage=Usage(*helpers),
            seconds=row["seconds"],
        )
        return cls(
            task_index=row["task_index"],
            sample=row["sample"],
            outcome=outcome,
            task=row["task"],
            seed=row["seed"],
            stop=row["stop"],
            detail=row["detail"],
            tests=cast("tuple[int, int]", tuple(row["tests"])) if row["tests"] else None,
            notebook=row["notebook"],
            findings=tuple(_finding(each) for each in row["findings"]),
        )


def _finding(told: Mapping[str, Any]) -> Finding:
    return Finding(**{**told, "evidence": tuple(told["evidence"])})


def _finite(reward: float) -> float | None:
    return reward if math.isfinite(reward) else None


@dataclass(frozen=True, slots=True)
class EvaluationResult:
    """What came of an evaluation, by the names of its environments."""

    metrics: Mapping[str, Metrics]
    rows: Mapping[str, tuple[Row, ...]]
    """All episodes, those of earlier runs into the same folder included."""
    trajectories: Mapping[str, tuple[Trajectory, ...]]
    """The episodes of this run, as they ended."""
    model: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    complete: bool = True
    """Whether every episode asked for has ended; not where it was stopped."""

    @property
    def accuracy(self) -> Aggregate:
        """How often episodes were solved, over all environments, each of which weighs the same."""
        return aggregate(metrics.accuracy for metrics in self.metrics.values())

    @property
    def findings(self) -> dict[str, tuple[Finding, ...]]:
        """Signs that tests are wrong, for a person to decide; no figure depends on them.

        By all samples of a task together, as far as they are of this run, or else by one episode.
        """
        return {name: self._findings(name) for name in self.rows}

    def _findings(self, name: str) -> tuple[Finding, ...]:
        together = findings(each.episode for each in self.trajectories.get(name, ()))
        alone = (finding for row in self.rows[name] for finding in row.findings)
        # What all samples say of a test takes the place of what each of them says.
        known: dict[tuple[str, str, str], Finding] = {}
        for each in (*together, *alone):
            known.setdefault((each.task or each.detail, each.kind, each.test), each)
        return tuple(known.values())

    @property
    def errored(self) -> int:
        """How many episodes ended in the host's trouble."""
        return sum(row.errored for rows in self.rows.values() for row in rows)

    def to_dict(self, *, include_results: bool = True) -> dict[str, Any]:
        """Give it as plain JSON; for the parameter see `save`."""
        told: dict[str, Any] = {
            "schema": SCHEMA,
            "version": __version__,
            "model": self.model,
            "complete": self.complete,
            "settings": dict(self.settings),
            "accuracy": self.accuracy.to_dict(),
            "metrics": {name: metrics.to_dict() for name, metrics in self.metrics.items()},
            "findings": {
                name: [asdict(finding) for finding in found]
                for name, found in self.findings.items()
            },
        }
        if include_results:
            told["results"] = {
                name: [row.to_dict() for row in rows] for name, rows in self.rows.items()
            }
        return told

    def save(self, path: str | Path, include_results: bool = True) -> None:
        """Write it to a JSON file.

        Parameters
        ----------
        path: where to.
        include_results: whether a row for every episode goes with the figures.

        Raises
        ------
        RecordError: it cannot be written; an older file is untouched then.
        """
        told = self.to_dict(include_results=include_results)
        replace_file(Path(path), json.dumps(told, indent=1, allow_nan=False) + "\n")


def create_evaluation_result(
    rows: Mapping[str, Iterable[Row]],
    *,
    trajectories: Mapping[str, Iterable[Trajectory]] | None = None,
    model: str = "",
    settings: Mapping[str, Any] | None = None,
    complete: bool = True,
) -> EvaluationResult:
    """Make the figures of rows, by the names of their environments."""
    ordered = {
        name: tuple(sorted(found, key=lambda row: (row.task_index, row.sample)))
        for name, found in rows.items()
    }
    return EvaluationResult(
        metrics={
            name: compute_all_metrics(row.outcome for row in found)
            for name, found in ordered.items()
        },
        rows=ordered,
        trajectories={name: tuple(found) for name, found in (trajectories or {}).items()},
        model=model,
        settings=dict(settings or {}),
        complete=complete,
    )


class ResultsFile:
    """The rows of one environment, in `results.jsonl` of a folder.

    Parameters
    ----------
    folder: where it is; made if it is not there.
    settings: what the rows depend on, as plain JSON.

    Raises
    ------
    UsageError: the folder holds results of other settings, or another evaluation writes there.
    RecordError: the file cannot be read or written.
    """

    def __init__(self, folder: Path, settings: Mapping[str, Any]) -> None:
        self.path = folder / "results.jsonl"
        self.rows: dict[tuple[int, int], Row] = {}
        """The newest row of every task and sample."""
        self._file: IO[bytes] | None = None
        self._writing = Lock()
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._lock = FileLock(folder / ".results.lock", timeout=0, thread_local=False)
            self._lock.acquire()
        except Timeout:
            raise UsageError(
                f"Another evaluation writes into {folder}",
                hint="Wait for it, or give another output_dir",
            ) from None
        except OSError as error:
            raise unwritable(self.path, error) from None
        try:
            self._open(json.loads(json.dumps(settings)))
        except BaseException:
            self.close()
            raise

    def _open(self, settings: dict[str, Any]) -> None:
        try:
            held = self.path.read_bytes() if self.path.exists() else b""
        except OSError as error:
            raise unreadable(self.path, error) from None
        # The last line of a writer that was killed may be torn.
        whole = held[: held.rfind(b"\n") + 1]
        for number, line in enumerate(whole.splitlines()):
            self._take(line, number, settings)
        try:
            self._file = self.path.open("ab")
            self._file.truncate(len(whole))
        except OSError as error:
            raise unwritable(self.path, error) from None
        if not whole:
            self._write({"schema": SCHEMA, "version": __version__, "settings": settings})

    def _take(self, line: bytes, number: int, settings: dict[str, Any]) -> None:
        try:
            read = json.loads(line)
            if number:
                row = Row.from_dict(read)
                self.rows[row.task_index, row.sample] = row
                return
            was = {SCHEMA: dict}[read["schema"]](read["settings"])
        except (KeyError, TypeError, ValueError) as error:
            raise RecordError(
                f"Line {number + 1} of {self.path} is no result of nbrefine ({error!r})",
                hint="Give another output_dir",
            ) from None
        if different := _differences(was, settings):
            raise UsageError(
                f"{self.path.parent} holds results of other settings: {different}",
                hint="Give another output_dir, or the settings as they were",
            )

    def append(self, row: Row) -> None:
        """Write a row and make sure of it; any thread may.

        Raises
        ------
        RecordError: it cannot be written.
        """
        with self._writing:
            self._write(row.to_dict())
            self.rows[row.task_index, row.sample] = row

    def _write(self, line: Mapping[str, Any]) -> None:
        assert self._file is not None
        try:
            self._file.write(json.dumps(line).encode() + b"\n")
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as error:
            raise unwritable(self.path, error) from None

    def close(self) -> None:
        """Let go of the file; another evaluation may write to it then."""
        if self._file is not None:
            self._file.close()
        self._lock.release()


def _differences(was: Mapping[str, Any], now: Mapping[str, Any], at: str = "") -> str:
    """Name what differs: "inference.temperature was 0.0 and is 0.8"."""
    told = []
    for key in [*was, *(key for key in now if key not in was)]:
        before, after = was.get(key), now.get(key)
        if isinstance(before, Mapping) and isinstance(after, Mapping):
            told.append(_differences(before, after, f"{at}{key}."))
        elif before != after:
            pair = (repr(each[key]) if key in each else "left out" for each in (was, now))
            told.append(f"{at}{key} was {next(pair)} and is {next(pair)}")
    return ", ".join(filter(None, told))


def plain(value: Any) -> Any:
    """Give a value as plain JSON, with its text where JSON has no word for it."""
    return json.loads(json.dumps(value, default=str))
