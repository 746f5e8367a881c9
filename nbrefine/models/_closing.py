"""The one spelling of closing for models that hold something: `aclose`, `with`, `async with`."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from nbrefine._portal import Run


class Closing:
    """Closes by its `_close`, which runs on the portal and may be called again."""

    async def _close(self) -> None:
        raise NotImplementedError

    async def aclose(self) -> None:
        """Release what the model holds; a later call takes it anew."""
        await Run(self._close())

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        Run(self._close()).result()
