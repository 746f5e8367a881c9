"""Shows output to a user's function while a cell still runs, without waiting for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

from nbrefine._portal import call_user
from nbrefine.outputs import Display, Output, Stream

_PATIENCE = 5.0  # seconds a cell's end waits for the last call to return


class Observer:
    """Calls a function with each piece of output, in order, one call at a time.

    Parameters
    ----------
    function: called in a worker thread; text that came since the last call arrives as one.
    limit: characters that may wait while the function is slow.
    redact: applied to every text.
    """

    def __init__(
        self, function: Callable[[Output], object], limit: int, redact: Callable[[str], str]
    ) -> None:
        self._function = function
        self._limit = limit
        self._redact = redact
        self._pieces: list[Output] = []
        self._waiting = 0
        self._skipped = 0
        self._ended = False
        self._wake = asyncio.Event()
        self._task = asyncio.get_running_loop().create_task(self._work())

    def offer(self, output: Output) -> None:
        """Queue a piece of output."""
        size = _size(output)
        if self._waiting + size > self._limit:
            self._skipped += size
            return
        self._waiting += size
        last = self._pieces[-1] if self._pieces else None
        if isinstance(last, Stream) and isinstance(output, Stream) and last.name == output.name:
            self._pieces[-1] = replace(last, text=last.text + output.text)
        else:
            self._pieces.append(output)
        self._wake.set()

    async def finish(self) -> tuple[str, ...]:
        """Let the last calls return, and give what is worth a note."""
        self._ended = True
        self._wake.set()
        await asyncio.wait({self._task}, timeout=_PATIENCE)
        notes = []
        if not self._task.done():
            self._task.cancel()
            notes.append(f"on_output had not returned {_PATIENCE:g} s after the cell's end")
        elif not self._task.cancelled() and (error := self._task.exception()) is not None:
            notes.append(f"on_output raised {type(error).__name__}: {error}")
        if self._skipped:
            notes.append(f"on_output was too slow: {self._skipped:,} characters not shown live")
        return tuple(notes)

    def cancel(self) -> None:
        """Call no more."""
        self._task.cancel()

    async def _work(self) -> None:
        while self._pieces or not self._ended:
            await self._wake.wait()
            self._wake.clear()
            pieces, self._pieces, self._waiting = self._pieces, [], 0
            if pieces:
                await call_user(self._show, pieces)

    def _show(self, pieces: list[Output]) -> None:
        for piece in pieces:
            if isinstance(piece, Stream):
                self._function(replace(piece, text=self._redact(piece.text)))
            else:
                self._function(piece)


def _size(output: Output) -> int:
    if isinstance(output, Stream):
        return len(output.text)
    if isinstance(output, Display):
        return sum(len(str(value)) for value in output.data.values())
    return len(output.evalue) + sum(map(len, output.traceback))
