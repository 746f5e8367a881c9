"""An episode: turns, and the stop that ends them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal

from nbrefine.bindings import StateChange, StateDigest
from nbrefine.files import Artifact, FileChanges
from nbrefine.outputs import CellResult
from nbrefine.values.messages import Extraction, Message, Reply, Usage
from nbrefine.values.signals import SignalBundle, TestReport
from nbrefine.values.tasks import Answer, Plan, Task


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


TurnKind = Literal["attempt", "inspection", "plan", "answer"]
"""What a reply was about.

`attempt`: code to run or something handed in, or nothing that could be read; `inspection`: a
look at a variable or a file, which runs no cell; `plan`: subtasks; `answer`: the end.
"""


@dataclass(frozen=True, slots=True)
class Turn:
    """One model reply and all that came of it; with a cell or a submission, it is an attempt."""

    number: int
    """1-based, over the whole episode."""
    kind: TurnKind = "attempt"
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
    stopped: bool = False
    """Whether a person has ended it, which is no fault of the model's or the host's."""
    accepted: bool = False
    """Whether the attempt became the session; always False for the other kinds."""
    artifacts: tuple[Artifact, ...] = ()
    """The files that an accepted attempt wrote or changed."""
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
    """Wall time of the whole turn, model call included; what a person took to decide is not."""

    @property
    def code(self) -> str:
        """The code that ran, or ""."""
        return self.extraction.code if self.extraction.status in ("found", "given") else ""

    @property
    def tried(self) -> bool:
        """Whether a cell ran or, where an environment runs none, something was handed in."""
        return self.kind == "attempt" and (self.result is not None or bool(self.code))

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
    "gave-up",
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
class GradeNote:
    """What a grader said of an episode's last submission; its tests are hidden, and not named."""

    verdict: Verdict
    passed: int = 0
    """Tests that passed, visible and hidden ones."""
    total: int = 0


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
    plans: tuple[Plan, ...] = ()
    """The plans that were followed, one after the other; () where there was none."""
    answer: Answer | None = None
    """What the agent answered, in the form that was asked for; None where it did not."""
    grade: GradeNote | None = None
    """None where none was given; all else here is what the feedback said."""

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
        last = self.turns[-1].verdict
        # A step that went well is no success of an episode that ended otherwise.
        return "failed" if last == "solved" and self.stop is not None else last

    @property
    def attempts(self) -> tuple[Turn, ...]:
        """The turns that tried something: see `Turn.tried`."""
        return tuple(turn for turn in self.turns if turn.tried)

    @property
    def accepted(self) -> tuple[Turn, ...]:
        """The attempts that became the session, in order."""
        return tuple(turn for turn in self.turns if turn.accepted)

    @property
    def plan(self) -> Plan | None:
        """The plan that holds at the end."""
        return self.plans[-1] if self.plans else None

    @property
    def artifacts(self) -> tuple[Artifact, ...]:
        """The files that accepted attempts left, each as it was last, in order of their paths."""
        last = {each.path: each for turn in self.turns for each in turn.artifacts}
        return tuple(last[path] for path in sorted(last))

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
        "model": (turn.reply.model if turn.reply else "") or episode.model,
        "turn": turn.number,
        "kind": turn.kind,
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
