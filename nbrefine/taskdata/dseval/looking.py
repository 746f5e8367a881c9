"""What is seen of a branch after it has run an answer, as plain data."""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nbrefine.bindings import StateChange
from nbrefine.errors import KernelError
from nbrefine.outputs import CellResult, Display
from nbrefine.taskdata.dseval.sketches import Seen

if TYPE_CHECKING:
    from nbrefine.kernel import Kernel

_TIMEOUT = 120.0  # seconds that a look may take, calls of the answer's functions included


@dataclass(frozen=True, slots=True)
class Observed:
    """What a cell has left in its branch."""

    code: str
    ran: CellResult
    change: StateChange = field(default_factory=StateChange)
    result: Seen | None = None
    """The cell's value; None where it has none."""
    names: dict[str, Seen] = field(default_factory=dict)
    """Those that are asked for and bound."""


class AnswerRaised(KernelError):
    """What was asked of a branch raised there; the text says what."""


async def ask(kernel: Kernel, function: str, *arguments: Any) -> Any:
    """Call a function of `inside` in a branch.

    Raises
    ------
    AnswerRaised: it raised, or took too long.
    KernelError: the branch has ended.
    """
    nonce = secrets.token_hex(16)
    told: dict[str, Any] = {}
    name, install = _module()
    call = f"answer({nonce!r}, {function!r}, {json.dumps(arguments)!a})"
    ran = await kernel.core.execute(
        f"{install} or __import__('sys').modules[{name!r}].{call}",
        timeout=_TIMEOUT,
        store_history=False,
        private=(nonce, lambda data: told.update(json.loads(data))),
    )
    if ran.death is not None:
        raise KernelError(f"A branch ended while it was looked at: {ran.death}")
    if "value" not in told:
        raise AnswerRaised(told.get("raised") or str(ran.error or ran.status))
    return told["value"]


async def observe(kernel: Kernel, code: str, ran: CellResult, names: Sequence[str]) -> Observed:
    """Look at a branch that has just run a cell; what it changed is left to the digests."""
    # Kernels of ours keep no numbered outputs, but the last value is `_` as in every IPython.
    valued = any(isinstance(out, Display) and out.execution_count for out in ran.outputs)
    told = await ask(kernel, "observe", valued, list(names))
    result = told["result"]
    return Observed(
        code,
        ran,
        result=None if result is None else Seen(**result),
        names={name: Seen(**seen) for name, seen in told["names"].items()},
    )


@cache
def _module() -> tuple[str, str]:
    """Give the name of the module in kernels and the expression, false, that puts it there."""
    source = (Path(__file__).parent / "inside.py").read_text("utf-8")
    name = f"_nbrefine_dseval_{hashlib.sha256(source.encode()).hexdigest()[:12]}"
    install = (
        "import sys, types\n"
        "if name not in sys.modules:\n"
        "    module = types.ModuleType(name)\n"
        "    exec(compile(source, '<nbrefine dseval>', 'exec'), module.__dict__)\n"
        "    sys.modules[name] = module\n"
    )
    space = f"{{'name': {name!r}, 'source': {source!a}}}"
    return name, f"__import__('builtins').exec({install!r}, {space})"
