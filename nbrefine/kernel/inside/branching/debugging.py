"""The debugger of a kernel, which a forked child has only as a remainder that must not act."""

from __future__ import annotations

import os
import posix
import sys
import threading
from typing import Any

_CONSTANTS = "_pydevd_bundle.pydevd_constants"
_TOOL = 0  # sys.monitoring.DEBUGGER_ID, from Python 3.12 on


def is_attached(app: Any) -> bool:
    """Tell whether a client debugs the kernel now."""
    return bool(getattr(getattr(app.kernel, "debugger", None), "is_started", False))


def ports(app: Any) -> set[int]:
    """Give the ports of the debugger's connections, also of one that was detached again."""
    client = getattr(getattr(app.kernel, "debugger", None), "debugpy_client", None)
    found = {int(getattr(client, "debugpy_port", -1))}  # ipykernel keeps it as text
    constants: Any = sys.modules.get(_CONSTANTS)
    if constants is not None:
        reader = getattr(constants.get_global_debugger(), "reader", None)
        opened = getattr(reader, "sock", None)
        if opened is not None and opened.fileno() >= 0:
            found.add(opened.getsockname()[1])
    return found - {-1}


def traces() -> bool:
    """Tell whether the debugger, attached or not, looks at every line that runs."""
    return type(sys.gettrace()).__module__.startswith("_pydevd")


def forget() -> None:
    """Let nothing be traced in this forked child, nor its own forks be taken for new sessions.

    Pydevd would stop at a breakpoint and wait for a client that nobody connects.
    """
    constants: Any = sys.modules.get(_CONSTANTS)
    if constants is None:
        return
    os.fork = posix.fork
    constants.GlobalDebuggerHolder.global_dbg = None  # whom threads ask when they start
    if traces():
        tracing: Any = sys.modules["pydevd_tracing"]
        tracing.SetTrace(None)  # as `sys.settrace` is replaced by one that complains
        threading.settrace(None)
    monitoring: Any = getattr(sys, "monitoring", None)
    if monitoring is not None and monitoring.get_tool(_TOOL) is not None:
        monitoring.set_events(_TOOL, 0)
        monitoring.free_tool_id(_TOOL)
