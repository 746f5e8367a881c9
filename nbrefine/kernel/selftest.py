"""A look, once for each interpreter, whether its branches are true copies."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncIterator
from uuid import uuid4

from nbrefine.errors import KernelError
from nbrefine.kernel.link import Link
from nbrefine.kernel.messages.collect import OutputLimits
from nbrefine.kernel.messages.execution import Execution
from nbrefine.kernel.processes.evidence import record, recorded
from nbrefine.kernel.processes.forked import Branch, ForkedKernel, Fresh
from nbrefine.kernel.processes.forking import Nursery
from nbrefine.kernel.processes.keeper import Keeper
from nbrefine.kernel.processes.launch import QUIET, Launch
from nbrefine.kernel.processes.line import answer
from nbrefine.outputs import CellResult
from nbrefine.values import KernelInfo

_LIMIT = 30.0  # seconds for each step; all of them together take a fifth of one

_LAUNCH = Launch("self-test")
_STATE = "witness = [{secret!r}]\ndef fail():\n    return witness[1]"
_CHANGE = "witness.append(0)\nwitness[0]"

_testing = asyncio.Lock()


async def proven(keeper: Keeper) -> str:
    """Tell what is wrong with branches of kernels that come from a keeper: "" for nothing.

    The first time for an interpreter, a kernel of the keeper's is started, branched and compared;
    the outcome is recorded, if there was one.
    """
    async with _testing:
        outcome = recorded(keeper)
        if outcome is not None:
            return outcome
        try:
            wrong = await _compare(keeper)
        except (KernelError, TimeoutError, OSError) as error:
            return f"its self-test failed: {error}"  # a busy host's fault, perhaps; tried again
        record(keeper, wrong)
        return wrong


async def _compare(keeper: Keeper) -> str:
    secret = uuid4().hex
    fresh = Fresh.start(keeper, _LAUNCH, display_name="", arguments=QUIET, limit=_LIMIT)
    async with _linked(await fresh) as (process, kernel):
        await _run(kernel, _STATE.format(secret=secret))
        reply = await kernel.request("checkpoint_request", {"id": secret}, _LIMIT)
        if reply.get("status") != "ok":
            return f"its self-test could not copy a kernel: {reply}"
        assert process.line is not None
        told, (connection, pidfd) = await answer(process.line, "checkpoint", _LIMIT)
        os.close(pidfd)
        nursery = Nursery(socket.socket(fileno=connection), told["pid"])
        try:
            branch = await Branch.start(keeper, nursery, _LAUNCH)
            async with _linked(branch) as (_, copy):
                seen = (await _run(copy, _CHANGE)).text.strip()
                raised = (await _run(copy, "witness.pop()\nfail()")).error
            own = (await _run(kernel, "len(witness)")).text.strip()
            expected = (await _run(kernel, "witness[:]\nfail()")).error
        finally:
            nursery.close()
    if seen != repr(secret) or own != "1":
        return "in its self-test a branch and its kernel did not have the state they should have"
    if raised is None or expected is None or raised.ename != expected.ename:
        return "in its self-test a branch did not raise the error that its kernel raised"
    return ""


@contextlib.asynccontextmanager
async def _linked(process: ForkedKernel) -> AsyncIterator[tuple[ForkedKernel, Link]]:
    link = await Link.join(process, KernelInfo(), _LIMIT, lambda *_: None)
    try:
        yield process, link
    finally:
        await link.close()


async def _run(link: Link, source: str) -> CellResult:
    execution = Execution(source, limits=OutputLimits(), redact=str)
    link.execute(execution, store_history=False)
    if not await execution.ended(_LIMIT):
        raise TimeoutError("a cell did not end")
    return await execution.result()
