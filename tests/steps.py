"""Episodes of several steps, built by hand; what their cells put out is what Python gives."""

from __future__ import annotations

import hashlib
from typing import Any

from nbrefine.files import Artifact, FileChange, FileChanges
from nbrefine.outputs import CellResult, Display, Failure, Stream, Timing
from nbrefine.planning import planned
from nbrefine.postconditions import file_written, holds, in_range
from nbrefine.values import (
    Answer,
    AnswerForm,
    CaseResult,
    Episode,
    Extraction,
    KernelInfo,
    Plan,
    Postcondition,
    Reply,
    RewardType,
    Signal,
    SignalBundle,
    Stop,
    Subtask,
    Task,
    TestReport,
    ToolCall,
    Turn,
    Usage,
)

MOMENT = "2026-03-01T10:00:00.000000Z"
SETUP = 'with open("fares.csv", "w") as file:\n    file.write("fare\\n3\\n4\\n5\\n");'
MEAN = b"4.0"
KERNEL = KernelInfo("python3", "Python 3 (ipykernel)", "python", "3.11.7")


def _report(*statuses: str, asked: tuple[Postcondition, ...]) -> TestReport:
    return TestReport(
        tuple(
            CaseResult(f"test_{number}", status, check.source.removeprefix("assert "))  # type: ignore[arg-type]
            for number, (status, check) in enumerate(zip(statuses, asked, strict=True), 1)
        )
    )


def cell(number: int, step: int, attempt: int, code: str, **fields: Any) -> Turn:
    """Give an attempt that ran, accepted where no error and no failed check says otherwise."""
    outputs, error = fields.pop("outputs", ()), fields.pop("error", None)
    tests = fields.get("tests")
    good = error is None and (tests is None or tests.solved)
    result = CellResult(
        code,
        "error" if error else "ok",
        (*outputs, error) if error else outputs,
        error,
        number + 1,
        Timing(MOMENT, MOMENT, MOMENT, MOMENT, 0.02),
    )
    return Turn(
        number=number,
        step=step,
        attempt=attempt,
        reply=Reply(f"```python\n{code}\n```", usage=Usage(100, 20)),
        extraction=Extraction("found", code, "python", "the only block", 1),
        result=result,
        feedback="It ran." if good else "It did not do.",
        verdict="solved" if good else "failed",
        accepted=fields.pop("accepted", good),
        isolation="fork",
        started=MOMENT,
        seconds=1.0,
        **fields,
    )


def _said(number: int, kind: Any, step: int, attempt: int, text: str, **fields: Any) -> Turn:
    calls = fields.pop("calls", ())
    return Turn(
        number=number,
        kind=kind,
        step=step,
        attempt=attempt,
        reply=Reply(text, usage=Usage(90, 10), tool_calls=calls),
        verdict=fields.pop("verdict", "solved"),
        started=MOMENT,
        seconds=0.5,
        **fields,
    )


LOADED = holds("len(fares) == 3", told="fares has three numbers")
IN_RANGE = in_range("mean", low=0, high=10)
WRITTEN = file_written("mean.txt")
NOT_EMPTY = holds("import os\nassert os.path.getsize('mean.txt') == 3")


def answered() -> Episode:
    """Three steps of the task's, each done; a look and a failure before; two answers, one taken."""
    subtasks = (
        Subtask("Read `fares` from fares.csv", (), (LOADED,)),
        Subtask("Compute the mean", (1,), (IN_RANGE,)),
        Subtask("Write the mean to mean.txt", (1, 2), (WRITTEN, NOT_EMPTY)),
    )
    form = AnswerForm(
        "fields", "@mean[the mean]", fields=("mean",), postconditions=(holds("mean == 4"),)
    )
    missing = Failure("ValueError", "invalid literal", ("ValueError: invalid literal",))
    written = Artifact("mean.txt", 3, hashlib.sha256(MEAN).hexdigest())
    look = ToolCall("inspect_variable", {"name": "fares"}, "c1")
    turns = (
        _said(
            1,
            "inspection",
            1,
            1,
            "",
            calls=(look,),
            verdict="failed",
            feedback="There is no variable `fares`.",
        ),
        cell(
            2,
            1,
            2,
            'fares = [int(line) for line in open("fares.csv")]',
            error=missing,
            tests=_report("not-run", asked=(LOADED,)),
        ),
        cell(
            3,
            1,
            3,
            'with open("fares.csv") as file:\n    fares = [int(n) for n in list(file)[1:]]',
            tests=_report("passed", asked=(LOADED,)),
        ),
        cell(
            4,
            2,
            1,
            'mean = sum(fares) / len(fares)\nprint("mean", mean)\nmean',
            outputs=(
                Stream("stdout", "mean 4.0\n"),
                Display({"text/plain": "4.0"}, execution_count=5),
            ),
            tests=_report("passed", asked=(IN_RANGE,)),
        ),
        cell(
            5,
            3,
            1,
            'with open("Mean.txt", "w") as file:\n    file.write(str(mean));',
            tests=_report("error", "error", asked=(WRITTEN, NOT_EMPTY)),
        ),
        cell(
            6,
            3,
            2,
            'with open("mean.txt", "w") as file:\n    file.write(str(mean));',
            tests=_report("passed", "passed", asked=(WRITTEN, NOT_EMPTY)),
            files=FileChanges((FileChange("mean.txt", "created", size=3),), isolated=True),
            artifacts=(written,),
        ),
        _said(
            7,
            "answer",
            4,
            1,
            "```answer\nThe mean is 4.\n```",
            verdict="failed",
            feedback="The field mean is missing.",
        ),
        _said(
            8,
            "answer",
            4,
            2,
            "```answer\n@mean[4.0]\n```",
            tests=TestReport((CaseResult("test_1", "passed", "mean == 4"),)),
            signals=SignalBundle((Signal("answer", RewardType.OUTCOME, 1.0),)),
            feedback="The answer was taken.",
        ),
    )
    return Episode(
        task=Task(
            "Give the mean fare.",
            "mean-fare",
            setup=SETUP,
            files=("fares.csv",),
            tests="assert len(fares) == 3",
            subtasks=subtasks,
            answer=form,
        ),
        id="e5",
        created=MOMENT,
        turns=turns,
        stop=Stop("solved", "answered in the asked form; 2 checks of it held"),
        model="scripted",
        kernel=KERNEL,
        setup=CellResult(SETUP, "ok", execution_count=1, timing=Timing(MOMENT, seconds=0.01)),
        settings={"max_turns": 30},
        version="0.1.0",
        plans=(Plan(subtasks),),
        answer=Answer("@mean[4.0]", {"mean": "4.0"}, turn=8),
    )


def gave_up() -> Episode:
    """The model's plan, another one after a step failed twice, and a step given up after all."""
    own = holds("rows == 5")
    first = (Subtask("Count the rows", (), (own,)), Subtask("Draw a plot", (1,)))
    second = (
        Subtask("Count the rows by hand"),
        Subtask("Check the count", (1,)),
        Subtask("Write a note"),
    )
    failed = _report("failed", asked=(own,))
    broken = Failure("ZeroDivisionError", "division by zero", ("ZeroDivisionError",))
    turns = [
        _said(1, "plan", 1, 1, "```plan\n1. Count the rows\n2. Draw a plot\n```"),
        cell(2, 1, 2, "rows = 3", tests=failed),
        cell(3, 1, 3, "rows = 4", tests=failed),
        _said(4, "plan", 1, 4, "I have no plan.", verdict="failed", feedback="That is no plan."),
        _said(5, "plan", 1, 5, "```plan\n- Count the rows by hand\n```"),
        cell(6, 2, 1, "1 / 0", error=broken),
        cell(7, 4, 1, 'note = "it cannot be counted"'),
    ]
    plan = planned((), (), _own(first), since=2)
    another = planned((plan,), turns[:5], second, since=6, reason="Step 1 has had 2 attempts of 2")
    return Episode(
        task=Task("Count what cannot be counted.", "uncountable"),
        id="e6",
        created=MOMENT,
        turns=tuple(turns),
        stop=Stop("gave-up", "step 2 (Count the rows by hand) was given up after 1 attempt"),
        model="scripted",
        kernel=KERNEL,
        version="0.1.0",
        plans=(plan, another),
    )


def _own(subtasks: tuple[Subtask, ...]) -> tuple[Subtask, ...]:
    """Let the checks be the model's own."""
    return tuple(
        Subtask(
            each.goal,
            each.needs,
            tuple(Postcondition(c.source, c.told, "model") for c in each.postconditions),
        )
        for each in subtasks
    )
