"""Call functions of `nbrefine.kernel.inside` in a Python kernel, out of the session's sight.

The modules are sent as source when a kernel does not have them yet, which it is asked with every
call: so it does not matter who restarted it. A call is one expression whose value is None. It
binds no name, enters no history, and reaches `sys` without a single name of the namespace or the
builtins, which the session may have replaced.
"""

from __future__ import annotations

import hashlib
import json
import secrets
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nbrefine.errors import KernelDeadError, KernelError, UsageError
from nbrefine.kernel.messages.redacted import redacted
from nbrefine.outputs import CellResult

if TYPE_CHECKING:
    from nbrefine.kernel.core import Core

_MODULES = (
    "link",
    "guard",
    "listing",
    "look",
    "walk",
    "builtin",
    "parts",
    "tables",
    "digest",
    "cases",
    "rewrite",
    "record",
    "units",
    "surroundings",
    "trial",
    "packages",
    "folder",
    "transfer",
    "checkpoint",
)
"""In the order of their imports of each other."""

_SYS = (
    "[kind for kind in ().__class__.__class__.__subclasses__(().__class__.__class__) "
    'if kind.__module__ == "enum"][0].__contains__.__globals__["sys"]'
)
"""Through the metaclasses, which are few: to list all classes is to copy, in a branch, the pages
that they are on, which takes longer than most calls."""

_INSTALL = """
import builtins, sys, types
package = sys.modules[name] = types.ModuleType(name)
package.__path__ = []
for part, source in modules:
    module = sys.modules[name + "." + part] = types.ModuleType(name + "." + part)
    module.__package__ = name
    module.__builtins__ = dict(vars(builtins))
    setattr(package, part, module)
    exec(compile(source, "<nbrefine " + part + ">", "exec"), module.__dict__)
"""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a call gave: a value or an error of its own, and the cell that carried it."""

    result: CellResult
    value: Any = None
    raised: str = ""
    """The exception that came instead of the value, as text, or ""."""
    answered: bool = False
    """Whether the call came to its end, well or not."""


async def call(
    core: Core,
    module: str,
    function: str,
    *args: Any,
    timeout: float | None,  # noqa: ASYNC109  the kernel keeps the time, and interrupts
    on_message: Callable[[Any], None] | None = None,
    awaits: bool = False,
) -> Answer:
    """Call `function(emit, *args)` of a module of `nbrefine.kernel.inside`.

    Parameters
    ----------
    args: plain JSON values.
    timeout: seconds until the call is interrupted, as a cell would be.
    on_message: called on the portal with each JSON value that the function emits.
    awaits: the function is a coroutine function.

    Raises
    ------
    UsageError: it is not a Python kernel.
    KernelDeadError: the kernel had ended before.
    """
    if core.info.language != "python":
        raise UsageError(
            f"This needs a Python kernel, and {core.info.name} speaks {core.info.language}"
        )
    name, install = _package()
    method = "call_async" if awaits else "call"

    def source(nonce: str) -> str:
        arguments = ", ".join(_literal(item) for item in (nonce, module, function))
        called = f"inside.link.{method}({arguments}, {_literal(json.dumps(args))})"
        if awaits:
            return f"await {_SYS}.modules[{_literal(name)}].{called.partition('.')[2]}"
        return f"(lambda inside: inside and {called})({_SYS}.modules.get({_literal(name)}))"

    answer = await _execute(core, source, timeout, on_message)
    if not answer.answered and answer.result.ok:
        installed = await core.execute(install, timeout=timeout, store_history=False)
        if not installed.ok:
            return Answer(installed)
        answer = await _execute(core, source, timeout, on_message)
    return answer


def install_here() -> None:
    """Bring the modules to this very process, so that none of its copies has to be sent them."""
    name, install = _package()
    if name not in sys.modules:
        eval(install)  # noqa: S307 - it is ours


async def ask(
    core: Core,
    module: str,
    function: str,
    *args: Any,
    timeout: float | None = 30.0,  # noqa: ASYNC109  the kernel keeps the time
    on_message: Callable[[Any], None] | None = None,
) -> Any:
    """Give the value of a call; raises what `call` and `value_of` do."""
    return value_of(
        await call(core, module, function, *args, timeout=timeout, on_message=on_message)
    )


def value_of(answer: Answer) -> Any:
    """Give the value an answer holds.

    Raises
    ------
    KernelDeadError: the kernel ended meanwhile.
    KernelError: the call did not come to its end, or raised.
    """
    if answer.answered and not answer.raised:
        return answer.value
    if answer.result.death is not None:
        raise KernelDeadError(f"A call into the kernel got no answer: {answer.result.death}")
    why = answer.raised or str(answer.result.error or answer.result.status)
    raise KernelError(f"A call into the kernel failed: {why}", hint="Restart the kernel")


async def _execute(
    core: Core,
    source: Callable[[str], str],
    timeout: float | None,  # noqa: ASYNC109  the kernel keeps the time, and interrupts
    on_message: Callable[[Any], None] | None,
) -> Answer:
    nonce = secrets.token_hex(16)
    told: dict[str, Any] = {}

    def receive(data: Any) -> None:
        # The same few keys and kinds come thousands of times.
        body = redacted(json.loads(data), cache(core.redact))
        if "message" not in body:
            told.update(body)
        elif on_message is not None:
            on_message(body["message"])

    result = await core.execute(
        source(nonce), timeout=timeout, store_history=False, private=(nonce, receive)
    )
    raised = ": ".join(part for part in told.get("raised", ()) if part)
    return Answer(result, told.get("value"), raised, bool(told))


@cache
def _package() -> tuple[str, str]:
    """Give the name of the package inside kernels, which follows from its text, and its cell."""
    folder = Path(__file__).parent / "inside"
    modules = [[part, (folder / f"{part}.py").read_text("utf-8")] for part in _MODULES]
    text = json.dumps(modules)
    name = f"_nbrefine_{hashlib.sha256(text.encode()).hexdigest()[:12]}"
    install = (
        f"(lambda sys: sys.modules['builtins'].exec({_literal(_INSTALL)}, "
        "{'__builtins__': sys.modules['builtins'], "
        f"'name': {_literal(name)}, 'modules': {modules!a}}}))({_SYS})"
    )
    return name, install


def _literal(text: str) -> str:
    return ascii(text)
