"""When a cell has ended, told from the order of its messages alone."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from nbrefine.kernel.messages import execution as module
from nbrefine.kernel.messages.collect import OutputLimits
from nbrefine.kernel.messages.execution import Execution
from nbrefine.outputs import CellResult, Stream


def message(kind: str, **content: Any) -> dict[str, Any]:
    return {"msg_type": kind, "header": {}, "content": content}


OK = message("execute_reply", status="ok", execution_count=1)
IDLE = message("status", execution_state="idle")
LINE = message("stream", name="stdout", text="a line\n")


def test_a_reply_that_overtakes_a_backlog_of_output_loses_none_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "_IDLE", 1.0)

    async def work() -> CellResult:
        execution = Execution("", limits=OutputLimits(), redact=str)
        execution.on_reply(OK)
        for _ in range(20):  # together longer than idle is waited for without a message
            await asyncio.sleep(0.1)
            execution.on_iopub(LINE)
        assert not execution.done
        execution.on_iopub(IDLE)
        assert await execution.ended(0)
        return await execution.result()

    result = asyncio.run(work())
    assert result.outputs == (Stream("stdout", "a line\n" * 20),)
    assert result.notes == ()


def test_a_kernel_that_never_says_that_it_is_idle_does_not_hold_the_result(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "_IDLE", 0.05)

    async def work() -> CellResult:
        execution = Execution("", limits=OutputLimits(), redact=str)
        execution.on_iopub(LINE)
        execution.on_reply(OK)
        assert await execution.ended(30)
        return await execution.result()

    result = asyncio.run(work())
    assert (result.status, result.outputs) == ("ok", (Stream("stdout", "a line\n"),))
    assert result.notes == ("the kernel did not say within 0.05 s of its reply that it was idle",)


@pytest.mark.parametrize(("rungs", "ended"), [([], False), (["SIGINT"], True)])
def test_no_reply_is_waited_for_long_when_an_interrupt_may_have_ended_it(
    rungs: list[str], ended: bool
) -> None:
    async def work() -> bool:
        execution = Execution("", limits=OutputLimits(), redact=str)
        execution.rungs += rungs
        execution.on_iopub(IDLE)
        return await execution.ended(1.0)

    assert asyncio.run(work()) == ended


@pytest.mark.parametrize("order", [(OK, IDLE), (IDLE, OK)], ids=["reply first", "idle first"])
def test_a_cell_has_ended_when_both_its_reply_and_idle_are_there(
    order: tuple[dict[str, Any], dict[str, Any]],
) -> None:
    async def work() -> list[bool]:
        execution = Execution("", limits=OutputLimits(), redact=str)
        seen = []
        for each in order:
            take = execution.on_reply if each is OK else execution.on_iopub
            take(each)
            seen.append(execution.done)
        return seen

    assert asyncio.run(work()) == [False, True]
