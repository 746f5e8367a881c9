"""What the magics have in common: their arguments, their refusals and their words."""

from __future__ import annotations

import argparse
import math
import threading
from typing import Any, NoReturn

from IPython.core.error import UsageError as Refusal

__all__ = ["Options", "Refusal", "kernel_of", "no_arguments", "say", "seconds"]

_NO_KERNEL = (
    "this is plain IPython, and only a Jupyter kernel can be branched: "
    "open a notebook, or `jupyter console`"
)


class Options(argparse.ArgumentParser):
    """Refuses what it does not know instead of ending the kernel."""

    def error(self, message: str) -> NoReturn:
        raise Refusal(f"{message}; {self.format_usage().strip()}")


def seconds(text: str) -> float:
    """Read a time."""
    read = float(text)
    if not 0 < read < math.inf:
        raise argparse.ArgumentTypeError(f"{text} is no time; give seconds above 0")
    return read


def no_arguments(magic: str, line: str) -> None:
    """Refuse what stands behind a magic that takes nothing.

    Raises
    ------
    UsageError: there is something.
    """
    if line.strip() and not line.lstrip().startswith("#"):
        raise Refusal(f"{magic} takes no arguments, and got: {line.strip()}")


def kernel_of(shell: Any) -> Any:
    """Give ipykernel's kernel that this process is.

    Raises
    ------
    UsageError: this is plain IPython, or a subshell.
    """
    kernel = getattr(shell, "kernel", None)
    if kernel is None:
        raise Refusal(_NO_KERNEL)
    if threading.current_thread() is not threading.main_thread():
        raise Refusal("a subshell cannot branch the kernel: only its main thread can")
    return kernel


def say(text: str) -> None:
    """Tell something below the cell."""
    print(text)  # noqa: T201 - a magic's words are the cell's output
