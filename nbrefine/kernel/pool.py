"""Kernels that are ready before anybody asks for one."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path

from nbrefine._portal import Closing, Run
from nbrefine.errors import KernelDeadError, NbrefineError, UsageError
from nbrefine.kernel.live import Kernel
from nbrefine.kernel.messages.collect import OutputLimits

_ATTEMPTS = 3  # kernels that may have died while they waited, before that is an error


class KernelPool(Closing):
    """Keeps fresh kernels ready; one that was taken is the taker's, and never comes back.

    It begins to start kernels at once, and starts another one for each that is taken.

    Parameters
    ----------
    name: kernelspec name, as `jupyter kernelspec list` shows it.
    preload: packages that are imported already when a kernel is there.
    size: kernels that are kept ready.
    starting: how many may be starting at a time; one for each processor by default.
    cwd, env, seed, timeout, limits, arguments: as `Kernel.start` takes them.
    """

    def __init__(
        self,
        name: str = "python3",
        *,
        preload: tuple[str, ...] = (),
        size: int = 2,
        starting: int | None = None,
        cwd: str | Path | None = None,
        env: Mapping[str, str] | None = None,
        seed: int | None = 0,
        timeout: float = 60.0,
        limits: OutputLimits = OutputLimits(),  # noqa: B008 - frozen
        arguments: tuple[str, ...] = (),
    ) -> None:
        if size < 1 or (starting is not None and starting < 1):
            raise UsageError(
                f"A pool of {size} kernels, of which {starting} start at a time",
                hint="Give whole numbers from 1 on",
            )
        self._start: Callable[[], Run[Kernel]] = lambda: Kernel.start(
            name,
            preload=preload,
            cwd=cwd,
            env=env,
            seed=seed,
            timeout=timeout,
            limits=limits,
            arguments=arguments,
        )
        self._size = size
        self._turns = asyncio.Semaphore(starting or os.cpu_count() or 1)
        self._slots: deque[asyncio.Task[Kernel]] = deque()
        self._closed = False
        Run(self._open())

    @property
    def ready(self) -> int:
        """How many kernels can be taken without a wait."""
        return sum(each.done() for each in tuple(self._slots))

    def take(self) -> Run[Kernel]:
        """Take a fresh kernel, which answers already unless all that were ready are taken.

        Raises
        ------
        UsageError: there is no such kernelspec or folder, or the pool is closed.
        KernelStartError: the kernel did not come up; the next call tries another one.
        """
        return Run(self._take())

    async def _take(self) -> Kernel:
        for _ in range(_ATTEMPTS):
            kernel = await self._next()
            if kernel.alive:
                return kernel
            death = kernel.death
            await kernel.aclose()
        raise KernelDeadError(f"Kernels end while they wait to be used: {death}")

    async def _next(self) -> Kernel:
        if self._closed:
            raise UsageError("The pool is closed", hint="Make another one")
        if not self._slots:
            self._fill()
        slot = next((each for each in self._slots if each.done()), self._slots[0])
        self._slots.remove(slot)
        self._fill()
        try:
            return await asyncio.shield(slot)
        except asyncio.CancelledError:
            if self._closed:
                raise UsageError("The pool was closed", hint="Make another one") from None
            self._slots.appendleft(slot)
            raise

    async def _open(self) -> None:
        self._fill()

    def _fill(self) -> None:
        while len(self._slots) < self._size and not self._closed:
            slot = asyncio.ensure_future(self._boot())
            slot.add_done_callback(_look)
            self._slots.append(slot)

    async def _boot(self) -> Kernel:
        async with self._turns:
            starting = self._start()
            try:
                return await starting
            except asyncio.CancelledError:
                with contextlib.suppress(NbrefineError):  # it may have come up at this moment
                    await (await starting).aclose()
                raise

    async def _close(self) -> None:
        self._closed = True
        slots = list(self._slots)
        self._slots.clear()
        for slot in slots:
            slot.cancel()
        found = await asyncio.gather(*slots, return_exceptions=True)
        kernels = [each for each in found if isinstance(each, Kernel)]
        await asyncio.gather(*(each.aclose() for each in kernels))


def _look(slot: asyncio.Task[Kernel]) -> None:
    """Look at a failure, of which whoever takes the slot is told; otherwise asyncio complains."""
    if not slot.cancelled():
        slot.exception()
