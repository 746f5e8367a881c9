"""The words of nbrefine as values: task, message, reply, turn, signal, stop, episode.

Every value is frozen.  An `Episode` is the single truth about a run: histories, messages,
trajectories, the notebook and the handbook's dicts are derived from it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import Enum
from typing import Any, Literal

from nbrefine.bindings import StateChange, StateDigest
from nbrefine.files import FileChanges
from nbrefine.outputs import CellResult, Output


def utc_now() -> str:
    """Give the present moment as ISO 8601 in UTC, to the microsecond."""
    return datetime.now(UTC).isoformat().replace("+00:00", "Z")


Verdict = Literal[
    "solved",
    "failed",
    "timeout",
    "crashed",
    "incomplete-reply",
    "no-code",
    "invalid-task",
    "infra-error",
]
"""How an attempt or an episode is judged; the last two never count against the model."""

Isolation = Literal["fork", "rebuild", "none"]
"""Where an attempt ran.

`fork`: in a copy-on-write branch; `rebuild`: in a fresh kernel in which setup and all accepted
cells were run again; `none`: in the live session itself, which keeps what the attempt did.
"""


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


@dataclass(frozen=True, slots=True)
class Message:
    """One chat message."""

    role: Literal["system", "user", "assistant"]
    content: str


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens one or more model calls took, as the server counted them."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    """The part of `input_tokens` that was served from a prompt cache."""

    @property
    def total_tokens(self) -> int:
        return self.input_tokens + self.output_tokens

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.cached_tokens + other.cached_tokens,
        )


@dataclass(frozen=True, slots=True)
class Sampling:
    """How a reply is drawn; None leaves a setting to the server."""

    temperature: float | None = None
    top_p: float | None = None
    max_tokens: int | None = None
    seed: int | None = None
    stop: tuple[str, ...] = ()


Finish = Literal["stop", "length", "content-filter", "tool-calls", "unknown"]
"""Why a model stopped writing; `length` means the reply was cut at the token limit."""


@dataclass(frozen=True, slots=True)
class Reply:
    """One answer of a model, unedited."""

    text: str
    finish: Finish = "stop"
    usage: Usage = Usage()
    model: str = ""
    """The model's name as the server gave it."""
    reasoning: str = ""
    """A separate thinking section, where the server sends one."""
    seconds: float = 0.0
    """Wall time of the call, retries included."""
    retries: int = 0
    sampling: Sampling = Sampling()
    """The settings the reply was drawn with."""


@dataclass(frozen=True, slots=True)
class Extraction:
    """What was found in a reply where code was expected."""

    status: Literal["found", "given", "no-code", "incomplete"]
    """`found`: a fenced block; `given`: the caller supplied code, nothing was read;
    `incomplete`: a fence was opened and not closed."""
    code: str = ""
    """The chosen code; for `incomplete`, the part that arrived, which is never run."""
    language: str = ""
    """The chosen block's tag, lower case."""
    reason: str = ""
    """Why this block was chosen, or why there is none, in one sentence."""
    blocks: int = 0
    """How many fenced blocks the reply held."""


class RewardType(Enum):
    """What a signal speaks of."""

    OUTCOME = "outcome"
    STEP = "step"
    FORMAT = "format"
    PROCESS = "process"


@dataclass(frozen=True, slots=True)
class Signal:
    """A named reward with optional textual feedback."""

    name: str
    reward_type: RewardType
    reward: float | None = None
    feedback: str | None = None
    metadata: dict[str, Any] | None = None
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class SignalBundle:
    """All signals of one step, in order."""

    signals: tuple[Signal, ...] = ()

    @classmethod
    def single(
        cls,
        reward: float | None,
        name: str = "reward",
        reward_type: RewardType = RewardType.OUTCOME,
    ) -> SignalBundle:
        """Make a bundle of one signal."""
        return cls((Signal(name, reward_type, reward),))

    @classmethod
    def empty(cls) -> SignalBundle:
        """Make a bundle without signals."""
        return cls()

    @property
    def total(self) -> float:
        """The sum of reward times weight over the signals that have a reward."""
        return sum(s.reward * s.weight for s in self.signals if s.reward is not None)

    @property
    def outcome(self) -> float | None:
        """The best reward of an outcome signal; None where none has one, and NaN is none."""
        rewards = (s.reward for s in self.by_type(RewardType.OUTCOME))
        return max((r for r in rewards if r is not None and not math.isnan(r)), default=None)

    def by_name(self, name: str) -> Signal | None:
        """Give the first signal of that name, or None."""
        return next((s for s in self.signals if s.name == name), None)

    def by_type(self, reward_type: RewardType) -> tuple[Signal, ...]:
        """Give the signals of one type, in order."""
        return tuple(s for s in self.signals if s.reward_type is reward_type)

    def numeric_signals(self) -> tuple[Signal, ...]:
        """Give the signals that have a reward, in order."""
        return tuple(s for s in self.signals if s.reward is not None)

    def feedback_texts(self) -> tuple[str, ...]:
        """Give every feedback text, in order."""
        return tuple(s.feedback for s in self.signals if s.feedback is not None)

    def __iter__(self) -> Iterator[Signal]:
        return iter(self.signals)

    def __len__(self) -> int:
        return len(self.signals)


@dataclass(frozen=True, slots=True)
class CaseResult:
    """What one visible test said about an attempt."""

    name: str
    """Unique within its report: "test_3", a function's name, or "check[2]"."""
    status: Literal["passed", "failed", "error", "timeout", "not-run"]
    """`failed`: an assertion did not hold; `error`: something else was raised;
    `not-run`: an earlier test ended the process."""
    expression: str = ""
    """The asserted source, on one line."""
    got: str = ""
    """The value that was there, as text."""
    expected: str = ""
    """The value that was asked for, as text."""
    message: str = ""
    """What was raised, or the assertion's own message."""

    @property
    def passed(self) -> bool:
        return self.status == "passed"


@dataclass(frozen=True, slots=True)
class TestReport:
    """What all visible tests said about an attempt: feedback, never a grade."""

    __test__ = False  # not a test class, whatever pytest may think of the name

    cases: tuple[CaseResult, ...] = ()
    problem: str = ""
    """Why there is no case to count, or why cases did not run: "no tests were found" …, or ""."""
    outputs: tuple[Output, ...] = ()
    """What running the tests put out, as one cell with all of them would have it."""
    entry_point: str = ""
    """The function that `check(candidate)` was given, where the session had to tell."""
    seconds: float = 0.0

    @property
    def output(self) -> str:
        """What the tests printed, on both channels."""
        return "".join(output.text for output in self.outputs if output.kind == "stream")

    @property
    def passed(self) -> int:
        return sum(case.passed for case in self.cases)

    @property
    def total(self) -> int:
        return len(self.cases)

    @property
    def failed(self) -> int:
        return self.total - self.passed

    @property
    def solved(self) -> bool:
        """Whether at least one test was found and all of them passed."""
        return self.total > 0 and self.failed == 0


@dataclass(frozen=True, slots=True)
class Turn:
    """One model reply and all that came of it; with a cell or a submission, it is an attempt."""

    number: int
    """1-based, over the whole episode."""
    step: int = 1
    """1-based number of the subtask the turn belongs to."""
    attempt: int = 1
    """1-based within its step."""
    messages: tuple[Message, ...] = ()
    """The prompt as sent; empty where the code was given and no model was asked."""
    reply: Reply | None = None
    extraction: Extraction = Extraction("no-code")
    result: CellResult | None = None
    """None where there was nothing to run."""
    files: FileChanges | None = None
    """What the attempt did to the working folder; None where nobody looked."""
    tests: TestReport | None = None
    """None where the task has no visible tests or nothing ran."""
    signals: SignalBundle = SignalBundle()
    feedback: str = ""
    """What the model is told about this turn."""
    verdict: Verdict = "failed"
    accepted: bool = False
    isolation: Isolation = "none"
    isolation_reason: str = ""
    shared: tuple[str, ...] = ()
    """What a branch had in common with the session, such as an open database: what the attempt
    did to it stays."""
    digest: StateDigest | None = None
    """What the session's state was after the attempt; None where it was not taken."""
    change: StateChange | None = None
    """What the attempt changed in the session; None where it was not looked at."""
    escalated: bool = False
    """Whether the prompt asked for another approach because code came back unchanged."""
    started: str = ""
    """ISO 8601, UTC."""
    seconds: float = 0.0
    """Wall time of the whole turn, model call included."""

    @property
    def code(self) -> str:
        """The code that ran, or ""."""
        return self.extraction.code if self.extraction.status in ("found", "given") else ""

    @property
    def tried(self) -> bool:
        """Whether a cell ran or, where an environment runs none, something was handed in."""
        return self.result is not None or bool(self.code)

    @property
    def score(self) -> tuple[float, int]:
        """How good the attempt was, for best-so-far: outcome reward, then tests passed."""
        return self.signals.outcome or 0.0, self.tests.passed if self.tests else 0


StopReason = Literal[
    "solved",
    "submitted",
    "max-turns",
    "budget",
    "cycle",
    "stagnation",
    "stopped",
    "killed",
    "invalid-task",
    "infra-error",
]


@dataclass(frozen=True, slots=True)
class Stop:
    """Why an episode ended."""

    reason: StopReason
    detail: str = ""
    """One sentence for a reader."""


@dataclass(frozen=True, slots=True)
class KernelInfo:
    """Which kernel an episode ran on."""

    name: str = ""
    """Kernelspec name, such as "python3"; "" for one attached by connection file."""
    display_name: str = ""
    language: str = "python"
    language_version: str = ""
    implementation: str = ""
    """Such as "ipython"."""
    implementation_version: str = ""
    protocol_version: str = ""
    file_extension: str = ".py"
    mimetype: str = "text/x-python"
    pid: int | None = None
    owned: bool = True
    """Whether nbrefine started the process; only such a kernel is ever replaced."""
    platform: str = ""
    packages: dict[str, str] = field(default_factory=dict)
    """Installed distributions of a Python kernel: name -> version."""


@dataclass(frozen=True, slots=True)
class Episode:
    """All of one run, from the task to the stop: the unit of record, replay and view."""

    task: Task
    id: str = ""
    created: str = ""
    """ISO 8601, UTC."""
    turns: tuple[Turn, ...] = ()
    stop: Stop | None = None
    """None while the episode runs."""
    model: str = ""
    kernel: KernelInfo = KernelInfo()
    handed_in: tuple[str, ...] | None = None
    """The variables that the kernel came with; None where the episode began in a fresh one."""
    seed: int | None = 0
    """What `random`, numpy and PYTHONHASHSEED were seeded with; None where they were not."""
    setup: CellResult | None = None
    """The run of the task's setup cell, where there is one."""
    settings: dict[str, Any] = field(default_factory=dict)
    """The loop's settings, as plain JSON, so that a run can be done again."""
    version: str = ""
    """The nbrefine that made the record."""

    @property
    def solved(self) -> bool:
        return self.stop is not None and self.stop.reason == "solved"

    @property
    def verdict(self) -> Verdict:
        """`solved`, or how the last turn was judged, or whose trouble ended it all.

        One that ended before its first turn, as where a budget shared with others was spent, says
        nothing about the model: `infra-error`.
        """
        if self.stop is not None and self.stop.reason in ("solved", "invalid-task", "infra-error"):
            return self.stop.reason
        if not self.turns:
            return "infra-error" if self.stop is not None else "failed"
        return self.turns[-1].verdict

    @property
    def attempts(self) -> tuple[Turn, ...]:
        """The turns that tried something: see `Turn.tried`."""
        return tuple(turn for turn in self.turns if turn.tried)

    @property
    def accepted(self) -> tuple[Turn, ...]:
        """The attempts that became the session, in order."""
        return tuple(turn for turn in self.turns if turn.accepted)

    @property
    def last(self) -> Turn | None:
        """The last attempt."""
        return self.attempts[-1] if self.attempts else None

    @property
    def best(self) -> Turn | None:
        """The attempt with the best score; ties go to the earliest."""
        return max(self.attempts, key=lambda turn: turn.score, default=None)

    @property
    def usage(self) -> Usage:
        """Tokens of the solver's replies; those of others are in `helper_usage`."""
        return sum((turn.reply.usage for turn in self.turns if turn.reply), Usage())

    @property
    def helper_usage(self) -> Usage:
        """Tokens of judges and of summaries of the history, as the turns' signals tell them."""
        told = (signal.metadata or {} for turn in self.turns for signal in turn.signals)
        return sum((Usage(_count(m, "prompt"), _count(m, "completion")) for m in told), Usage())

    @property
    def seconds(self) -> float:
        """Wall time of all turns."""
        return sum(turn.seconds for turn in self.turns)

    def to_rows(self) -> list[dict[str, Any]]:
        """Give one flat dict per turn, for a table or data frame."""
        return [_row(self, turn) for turn in self.turns]


def _count(metadata: Mapping[str, Any], kind: str) -> int:
    tokens = metadata.get(f"{kind}_tokens")
    return tokens if isinstance(tokens, int) else 0


def _row(episode: Episode, turn: Turn) -> dict[str, Any]:
    usage = turn.reply.usage if turn.reply else Usage()
    return {
        "episode": episode.id,
        "task": episode.task.id,
        "model": episode.model,
        "turn": turn.number,
        "step": turn.step,
        "attempt": turn.attempt,
        "verdict": turn.verdict,
        "accepted": turn.accepted,
        "status": turn.result.status if turn.result else None,
        "error": turn.result.error.ename if turn.result and turn.result.error else None,
        "tests_passed": turn.tests.passed if turn.tests else None,
        "tests_total": turn.tests.total if turn.tests else None,
        "reward": turn.score[0],
        "isolation": turn.isolation,
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "seconds": turn.seconds,
        "code": turn.code,
        "feedback": turn.feedback,
    }
