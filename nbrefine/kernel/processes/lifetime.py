"""What all kernel processes of ours have in common: their last words, and an end that is told."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from pathlib import Path

from nbrefine.outputs import Death

_TAIL = 16_384  # bytes of the error channel that are kept
_FAULTS = ("SIGSEGV", "SIGFPE", "SIGABRT", "SIGBUS", "SIGILL", "SIGTRAP")


class Lifetime:
    """One run of a kernel's process, listened to until it has ended."""

    def __init__(self) -> None:
        self.pid: int | None = None
        """Process id, where the kernel is a process of this host."""
        self.exited: asyncio.Future[Death] = asyncio.get_running_loop().create_future()
        self._words = b""
        self._ear = -1

    def _listen(self) -> int:
        """Begin to listen to the error channel, and give the descriptor that writes to it."""
        self._ear, mouth = os.pipe()
        os.set_blocking(self._ear, False)
        asyncio.get_running_loop().add_reader(self._ear, self._hear)
        return mouth

    def _hear(self) -> None:
        with contextlib.suppress(BlockingIOError, OSError):
            for _ in range(16):
                heard = os.read(self._ear, 65_536)
                if not heard:
                    asyncio.get_running_loop().remove_reader(self._ear)
                    return
                self._words = (self._words + heard)[-_TAIL:]

    def _end(self, code: int | None, memory: int | None, crash: Path | None) -> None:
        """Tell how the process has ended.

        Parameters
        ----------
        code: as `subprocess.Popen.returncode` has it; None where nobody knows.
        memory: the most bytes it had in memory.
        crash: where faulthandler has left a stack.
        """
        if self.exited.done():
            return
        self._hear()
        name = _signal_name(-code) if code is not None and code < 0 else ""
        stack = ""
        if name in _FAULTS and crash:
            with contextlib.suppress(OSError):
                stack = crash.read_text(errors="replace")[-_TAIL:]
        self.exited.set_result(
            Death(
                exit_code=code if not name else None,
                signal=name,
                stderr=self._last_words(),
                stack=stack.strip(),
                peak_memory=memory,
            )
        )

    def _last_words(self) -> str:
        return "\n".join(self._words.decode(errors="replace").strip().splitlines()[-20:])

    def _stop_listening(self) -> None:
        if self._ear >= 0:
            asyncio.get_running_loop().remove_reader(self._ear)
            os.close(self._ear)
            self._ear = -1


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal
        return f"signal {number}"
