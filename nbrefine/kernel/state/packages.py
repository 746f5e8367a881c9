"""Which packages a kernel has, so that a replay can say what has changed since."""

from __future__ import annotations

from nbrefine.kernel.core import Core
from nbrefine.kernel.helper import ask


async def packages(core: Core) -> dict[str, str]:
    """Give the installed distributions, name -> version; {} for kernels of other languages.

    Raises
    ------
    KernelDeadError: the kernel had ended, or ended meanwhile.
    KernelError: it did not answer in time.
    """
    if core.info.language != "python":
        return {}
    found: dict[str, str] = await ask(core, "packages", "installed")
    return found
