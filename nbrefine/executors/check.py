"""One check: a tester and a candidate are forked, listened to, and gone."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Self

from nbrefine.executors.account import Account, named
from nbrefine.executors.base import CodeExecutionResult
from nbrefine.executors.inside import frames
from nbrefine.executors.nursery import Child, Limits, Nursery, NurseryLost
from nbrefine.executors.streams import Kept

_BEGIN = 30.0  # seconds in which the tests must be planned, as a busy host may be slow to fork
_LEAVE = 0.5  # seconds in which a candidate must have left by itself when its tests are done
_CHUNK = 1 << 18
_TOLD = 5.0  # seconds in which the end of one that is gone must have been told


_FAULTS = {-signal.SIGSEGV, -signal.SIGBUS, -signal.SIGFPE, -signal.SIGILL, -signal.SIGABRT}


class TesterFault(NurseryLost):
    """The process of the tests did what no process may, so that its end is no other's doing.

    `account` is what it had reported, closed with that.
    """

    def __init__(self, status: int, account: Account) -> None:
        super().__init__(f"the process that runs the tests was {named(status)}")
        account.fail(f"{self}, by a value of the code's")
        self.account = account


@dataclass(frozen=True, slots=True)
class Job:
    """What is checked."""

    message: bytes
    """Code and limits, as the tester reads them; of a task that is not kept, its parts too."""
    timeout: float
    """Seconds for all of it."""
    task: tuple[str, ...] = ()
    """Tests, setup and entry point, if they are worth to be kept compiled."""


async def check(
    job: Job, testers: Nursery, candidates: Nursery, limits: Limits
) -> CodeExecutionResult:
    """Check in two new processes, which are gone afterwards.

    Raises
    ------
    TesterFault: the process of the tests broke down, as it may once by no fault of the code.
    NurseryLost: a process was gone before its time, and the code cannot be blamed for it.
    ExecutorError: one could not be forked or confined.
    """
    account = Account()
    with Kept() as stdout, Kept() as stderr, _Pair() as report, _Pair() as calls:
        # What the code returns may make the tests take as much memory as it could itself.
        bounded = Limits(memory=limits["memory"], processes=None, file_size=None)
        fds = [calls.far.fileno(), report.far.fileno()]
        tester = testers.fork(bounded, fds, job.task)
        try:
            fds = [calls.near.fileno(), stdout.mouth, stderr.mouth]
            candidate = candidates.fork(limits, fds)
            try:
                for each in (calls.near, calls.far, report.far, stdout, stderr):
                    each.close()
                seconds = await _listen(job, report.near, tester, candidate, account)
                await _leave(account, candidate)
            finally:
                candidate.kill()
        finally:
            tester.kill()
        return account.result(
            stdout=await stdout.text(),
            stderr=await stderr.text(),
            isolation=(*candidates.isolation, *_told(limits)),
            seconds=seconds,
        )


class _Pair:
    """Two connected sockets, closed in the end."""

    def __enter__(self) -> Self:
        self.near, self.far = socket.socketpair()
        return self

    def __exit__(self, *_: object) -> None:
        self.near.close()
        self.far.close()


async def _listen(
    job: Job, sock: socket.socket, tester: Child, candidate: Child, account: Account
) -> float:
    """Give the tester its job and take in what it reports, until it is done or time is over.

    The time in seconds is given; it begins when the tests are planned.
    """
    hearing = _Hearing(sock, candidate, account)
    limit, began = _BEGIN, time.monotonic()
    try:
        async with asyncio.timeout(limit):
            with contextlib.suppress(ConnectionError):  # where it has ended, that is heard
                await asyncio.get_running_loop().sock_sendall(
                    sock, len(job.message).to_bytes(4, "big") + job.message
                )
            await hearing.begun
        limit, began = job.timeout, time.monotonic()
        async with asyncio.timeout(limit):
            await hearing.over
    except TimeoutError:
        candidate.kill()
        tester.kill()
        if not account.planned:
            raise NurseryLost(f"no test was known within {limit:g} s") from None
        account.run_out(limit)
        return time.monotonic() - began
    finally:
        hearing.end()
    if account.done:
        return time.monotonic() - began
    if candidate.ended.done():
        candidate.ended.result()
    raise _lost(account, await _end_of(tester))


def _lost(account: Account, status: int) -> NurseryLost:
    if status in _FAULTS and account.code == "ok":
        return TesterFault(status, account)
    return NurseryLost(f"the process that runs the tests ended with status {status}")


class _Hearing:
    """Takes in what a tester reports, as it comes.

    `over` comes in the end: it is done, or gone, or waits for what cannot come.
    `begun` comes with the first that is heard, or with the end.
    """

    def __init__(self, sock: socket.socket, candidate: Child, account: Account) -> None:
        loop = asyncio.get_running_loop()
        self.begun: asyncio.Future[None] = loop.create_future()
        self.over: asyncio.Future[None] = loop.create_future()
        self._account = account
        self._sock = sock
        self._candidate = candidate
        self._data = bytearray()
        sock.setblocking(False)
        loop.add_reader(sock, self._read)
        candidate.ended.add_done_callback(self._give_up)

    def end(self) -> None:
        """Take in nothing more."""
        asyncio.get_running_loop().remove_reader(self._sock)
        self._candidate.ended.remove_done_callback(self._give_up)

    def _give_up(self, ended: asyncio.Future[int]) -> None:
        if ended.exception() is not None:
            self._end()

    def _end(self) -> None:
        self._begin()
        if not self.over.done():
            self.over.set_result(None)

    def _begin(self) -> None:
        if not self.begun.done():
            self.begun.set_result(None)

    def _read(self) -> None:
        try:
            data = self._sock.recv(_CHUNK)
        except BlockingIOError:
            return
        except ConnectionError:
            data = b""
        if not data:
            asyncio.get_running_loop().remove_reader(self._sock)
            self._end()
            return
        self._data += data
        try:
            for message in self._messages():
                self._take(message)
        except Exception as error:  # noqa: BLE001 - raised where it is waited for
            self._begin()
            if not self.over.done():
                self.over.set_exception(error)

    def _messages(self) -> Iterator[dict[str, Any]]:
        """Give the messages that are there as a whole."""
        start = 0
        while (end := start + 4 + int.from_bytes(self._data[start : start + 4], "big")) <= len(
            self._data
        ):
            yield frames.unpack(bytes(self._data[start + 4 : end]))
            start = end
        del self._data[:start]

    def _take(self, message: dict[str, Any]) -> None:
        if "interrupt" in message:
            self._candidate.signal(signal.SIGINT)
        elif "kill" in message:
            self._candidate.kill()
        else:
            self._account.take(message)
            self._begin()
        if self._account.done:
            self._end()


async def _leave(account: Account, candidate: Child) -> None:
    """Wait until the candidate has ended; add how, where it did so before its time."""
    if not candidate.ended.done():
        await asyncio.wait([candidate.ended], timeout=_LEAVE)
    candidate.kill()
    status = await _end_of(candidate)
    if account.lost_candidate:
        account.explain_end(status)


async def _end_of(child: Child) -> int:
    """Give the exit code of a child that has ended or is about to, or minus its signal."""
    if not child.ended.done():
        await asyncio.wait([child.ended], timeout=_TOLD)
    if not child.ended.done():
        raise NurseryLost(f"a process was still there {_TOLD:g} s after its end")
    return child.ended.result()


def _told(limits: Limits) -> Iterator[str]:
    if limits["memory"] is not None:
        yield f"{limits['memory'] >> 20:,} MiB of address space a process"
    if limits["file_size"] is not None:
        yield f"{limits['file_size'] >> 20:,} MiB a file"
