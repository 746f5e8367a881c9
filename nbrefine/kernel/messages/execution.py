"""One request to run a cell, from the message that asks for it to its result."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from typing import Any, Literal

from nbrefine.kernel.messages.collect import Collector, OutputLimits, failure_of
from nbrefine.kernel.messages.observer import Observer
from nbrefine.kernel.messages.redacted import redacted_failure
from nbrefine.kernel.messages.sequence import Sequence
from nbrefine.outputs import CellResult, Death, Output, Status, Timing

PRIVATE = "application/vnd.nbrefine+json"
"""MIME type of messages from helper code, which are never outputs."""

OnMessage = Callable[[str, dict[str, Any]], object]
"""Takes the kind and the content of each message that shows or clears an output."""

Private = tuple[str, Callable[[Any], None]]
"""What marks this request's private messages in their metadata, and who gets their data."""

_SHOWN = {
    "stream",
    "display_data",
    "update_display_data",
    "execute_result",
    "error",
    "clear_output",
}

_MUTE = 2.0  # seconds after idle in which a reply may still come
_CUT_OFF = 0.3  # the same after an interrupt, which may end ipykernel's own work on the reply
_NO_REPLY = (
    "the kernel was idle again without a reply, as after a cell that broke sys.stdout or "
    "sys.stderr; what it had run of this cell is not known"
)
_IDLE = 10.0  # seconds without a message after the reply in which idle may still come


class Execution:
    """What is known so far of a cell that runs.

    It has ended when both its reply and idle have arrived, or the process has exited.
    """

    def __init__(
        self,
        source: str,
        *,
        limits: OutputLimits,
        redact: Callable[[str], str],
        on_output: Callable[[Output], object] | None = None,
        on_message: OnMessage | None = None,
    ) -> None:
        self.source = source
        self.redact = redact
        self.cause: Literal["timeout", "interrupted"] | None = None
        """Why the controller interrupted it, if it did."""
        self.stop_asked = False
        self.mute = False
        """Whether the kernel went idle and never replied."""
        self.done = False
        self.settled = asyncio.Event()
        """Set when whoever conducts the cell is done with it, restart included."""
        self.death: Death | None = None
        self.rungs: list[str] = []
        self.lost: tuple[str, ...] = ()
        self.notes: list[str] = []
        self._on_message = on_message
        self._private: dict[str, Callable[[Any], None]] = {}
        self._collector = Collector(limits, redact=redact)
        self._observer = Observer(on_output, limits.cell, redact) if on_output else None
        self._reply: dict[str, Any] | None = None
        self._idle = False
        self._begun = False  # the kernel has echoed the source
        self._exited = False
        self._failed = False  # an error came over IOPub
        self._times: dict[str, str] = {}
        self._changed = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self.sequence = Sequence()
        self._loop = asyncio.get_running_loop()
        self._start = self._loop.time()
        self._seconds = 0.0

    def ask_stop(self) -> None:
        """Ask whoever conducts the cell to interrupt it."""
        self.stop_asked = True
        self._changed.set()

    def listen(self, nonce: str, callback: Callable[[Any], None]) -> None:
        """Give private messages that carry the nonce to the callback."""
        self._private[nonce] = callback

    async def _something(self, seconds: float | None) -> None:
        """Wait for something to happen, at most so long."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._changed.wait()
        self._changed.clear()

    async def ended(self, seconds: float | None) -> bool:
        """Wait for the end, at most so long, and tell whether it came."""
        deadline = None if seconds is None else self._loop.time() + seconds
        while not self.done:
            left = None if deadline is None else deadline - self._loop.time()
            if left is not None and left <= 0:
                break
            await self._something(left)
        return self.done

    async def attend(self, limit: float | None) -> Literal["timeout", "interrupted"] | None:
        """Stay until the cell has ended or has to be interrupted, and give the reason if so."""
        deadline = None if limit is None else self._loop.time() + limit
        while not self.done:
            left = None if deadline is None else deadline - self._loop.time()
            if left is not None and left <= 0:
                return "timeout"
            if self.stop_asked:
                return "interrupted"
            await self._something(left)
        return self.cause

    def on_reply(self, message: dict[str, Any]) -> None:
        """Take the reply in."""
        self._reply = message["content"]
        self._times["reply"] = str(message["header"].get("date", ""))
        if self._idle:
            self._end()
        else:
            self._set_timer(_IDLE, self._on_no_idle)

    def on_iopub(self, message: dict[str, Any]) -> None:
        """Take an IOPub message of this request in."""
        kind, content = message["msg_type"], message["content"]
        if self._reply is not None:  # it has overtaken a backlog of output
            self._set_timer(_IDLE, self._on_no_idle)
        if kind == "status":
            self._on_status(content.get("execution_state"), message)
        elif kind == "execute_input":
            self._begun = True
            self._times["input"] = str(message["header"].get("date", ""))
        elif not self._is_private(kind, content):
            self._failed |= kind == "error"
            self._add(kind, content)

    def die(self, death: Death) -> None:
        """The process has exited."""
        if not self.done:
            self.death = death
            self._end()

    def _on_status(self, state: str | None, message: dict[str, Any]) -> None:
        if state == "busy":
            self._times["busy"] = str(message["header"].get("date", ""))
        elif state == "idle":
            self._times["idle"] = str(message["header"].get("date", ""))
            self._idle = True
            if self._reply is not None:
                self._end()
            else:
                self._set_timer(_CUT_OFF if self.rungs else _MUTE, self._on_mute)

    def _is_private(self, kind: str, content: dict[str, Any]) -> bool:
        nonce = private_nonce(kind, content)
        if nonce in self._private:  # else it is another client's
            self._private[nonce](content["data"][PRIVATE])
        return nonce != ""

    def _add(self, kind: str, content: dict[str, Any]) -> None:
        if self._on_message is not None and kind in _SHOWN:
            self._on_message(kind, content)
        output = self._collector.feed(kind, content)
        if output is not None and self._observer is not None:
            self._observer.offer(output)

    def _set_timer(self, seconds: float, action: Callable[[], None]) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(seconds, action)

    def _on_mute(self) -> None:
        self.mute = True
        self._reply = {"status": "error", "ename": "NoReply", "evalue": _NO_REPLY}
        self._end()

    def _on_no_idle(self) -> None:
        self.notes.append(
            f"the kernel did not say within {_IDLE:g} s of its reply that it was idle"
        )
        self._end()

    def _end(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self.done = True
        self._seconds = self._loop.time() - self._start
        self._changed.set()

    @property
    def refused(self) -> bool:
        """Whether the kernel answered that it would not run the cell, and did not begin to."""
        return self._state in ("abort", "aborted") and not self._begun and self.cause is None

    @property
    def _state(self) -> str:
        return str((self._reply or {}).get("status", ""))

    @property
    def _status(self) -> Status:
        if self.cause is not None:
            return self.cause
        if self.death is not None:
            return "died"
        if self._state == "ok":
            return "ok"
        return "error" if self._state == "error" else "aborted"

    async def result(self) -> CellResult:
        """Build the result."""
        reply = self._reply or {}
        self._read_payload(reply)
        if missing := self.sequence.missing:
            self.notes.append(f"{missing} messages of the kernel were lost on the way")
        error = None
        if self._state == "error":
            error = redacted_failure(failure_of(reply), self.redact)
            if not self._failed:
                self._add("error", reply)
        if self._observer is not None:
            self.notes.extend(await self._observer.finish())
        await self._collector.finish()
        outputs, cuts = self._collector.take()
        return CellResult(
            source=self.source,
            status=self._status,
            outputs=outputs,
            error=error,
            execution_count=reply.get("execution_count"),
            timing=Timing(**self._times, seconds=self._seconds),
            cut=cuts,
            rungs=tuple(self.rungs),
            death=self.death if self.cause is None else None,
            lost=self.lost,
            exited=self._exited,
            notes=tuple(self.notes),
        )

    def abandon(self) -> None:
        """Let go of what a result would have been built from."""
        if self._observer is not None:
            self._observer.cancel()
        self._collector.clear()

    def _read_payload(self, reply: dict[str, Any]) -> None:
        for payload in reply.get("payload") or ():
            source = payload.get("source")
            if source == "ask_exit":
                self._exited = True
                then = "stays" if payload.get("keepkernel") else "ends"
                self.notes.append(f"exit() or quit() was called; the kernel {then}")
            elif source == "page":  # what `name?` shows in a pager
                self._add("display_data", {"data": payload.get("data") or {}})


def private_nonce(kind: str, content: dict[str, Any]) -> str:
    """Give the nonce of a message that is no output but private to somebody, or ""."""
    if kind != "display_data" or PRIVATE not in content["data"]:
        return ""
    return str((content.get("metadata") or {}).get("nbrefine", ""))


class Ticket:
    """A cell's place in the queue: by it the cell is taken back, or interrupted once it runs."""

    def __init__(self) -> None:
        self.execution: Execution | None = None
        self._work: asyncio.Task[CellResult] | None = None
        self._stopped = False

    async def hand_in(self, work: Coroutine[Any, Any, CellResult]) -> CellResult:
        """Begin the work and wait for it; who is cancelled stops it and sees it end."""
        self._work = asyncio.ensure_future(work)
        if self._stopped:  # before it began
            self._work.cancel()
        try:
            return await asyncio.shield(self._work)
        except asyncio.CancelledError:
            self.stop()
            await asyncio.wait({self._work})
            raise

    def stop(self) -> None:
        """Take the cell back, or interrupt it; one that has ended is left alone."""
        self._stopped = True
        if self.execution is not None:
            self.execution.ask_stop()
        elif self._work is not None:
            self._work.cancel()
