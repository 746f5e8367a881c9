"""What a process prints, read as it comes and kept up to a size."""

from __future__ import annotations

import asyncio
import contextlib
import os
from typing import Self

HEAD, TAIL = 32_768, 32_768
"""Bytes that are kept of the beginning and of the end; what lies between is cut, and told."""

_CHUNK = 65_536
_LAST = 1.0  # seconds in which the end must be read once no process can write any more


class Kept:
    """A pipe that is read as it fills; for use on the portal, as a context.

    `mouth` is the descriptor that a process writes to.
    """

    def __enter__(self) -> Self:
        self._ear, self.mouth = os.pipe()
        os.set_blocking(self._ear, False)
        self._head, self._tail, self._size = b"", b"", 0
        self._ended = asyncio.Event()
        asyncio.get_running_loop().add_reader(self._ear, self._read)
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
        asyncio.get_running_loop().remove_reader(self._ear)
        os.close(self._ear)

    def close(self) -> None:
        """Close our copy of the mouth; a second call does nothing."""
        if self.mouth >= 0:
            os.close(self.mouth)
            self.mouth = -1

    async def text(self) -> str:
        """Give what was printed, once nobody can print any more."""
        with contextlib.suppress(TimeoutError):
            if not self._ended.is_set():
                await asyncio.wait_for(self._ended.wait(), _LAST)
        cut = self._size - len(self._head) - len(self._tail)
        between = f"\n… {cut:,} bytes cut …\n".encode() if cut else b""
        return (self._head + between + self._tail).decode(errors="replace")

    def _read(self) -> None:
        try:
            data = os.read(self._ear, _CHUNK)
        except BlockingIOError:
            return
        if not data:
            asyncio.get_running_loop().remove_reader(self._ear)
            self._ended.set()
            return
        self._size += len(data)
        room = HEAD - len(self._head)
        self._head += data[:room]
        self._tail = (self._tail + data[room:])[-TAIL:]
