"""The kernel's end of the private channel: calls come in as JSON, answers go out as displays.

Answers are `display_data` messages with a MIME type of their own and the caller's nonce in the
metadata, not text on stdout, which the session's code may have replaced or may write to.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

from IPython.core.getipython import get_ipython

Emit = Callable[[Any], None]
"""How a function sends a JSON value to its caller before it returns."""

MIME = "application/vnd.nbrefine+json"

_dumps, _loads = json.dumps, json.loads
_publisher = getattr(get_ipython(), "display_pub", None)


def call(nonce: str, module: str, function: str, arguments: str) -> None:
    """Call `module.function(emit, *arguments)` and send its value.

    A plain exception is sent as the answer; anything else, such as an interrupt, is sent and
    then raised, because it must end the cell.
    """
    try:
        value = _find(module, function)(_emitter(nonce), *_loads(arguments))
    except BaseException as error:
        _send(nonce, {"raised": _told(error)})
        if not isinstance(error, Exception):
            raise
    else:
        _send(nonce, {"value": value})


async def call_async(nonce: str, module: str, function: str, arguments: str) -> None:
    """Do the same for a coroutine function, on the kernel's own loop."""
    try:
        value = await _find(module, function)(_emitter(nonce), *_loads(arguments))
    except BaseException as error:
        _send(nonce, {"raised": _told(error)})
        if not isinstance(error, Exception):
            raise
    else:
        _send(nonce, {"value": value})


def _find(module: str, function: str) -> Callable[..., Any]:
    found: Callable[..., Any] = getattr(sys.modules[f"{__package__}.{module}"], function)
    return found


def _emitter(nonce: str) -> Emit:
    return lambda message: _send(nonce, {"message": message})


def _told(error: BaseException) -> list[str]:
    try:
        text = str(error)
    except Exception:  # noqa: BLE001  __str__ may raise anything
        text = "(its text could not be had)"
    return [type(error).__name__, text[:2000]]


def _send(nonce: str, body: dict[str, Any]) -> None:
    # Straight to the session: `display_pub.publish` flushes sys.stdout first, which may be
    # gone, and passes hooks of the user's. `dumps` gives ASCII, lone surrogates included.
    assert _publisher is not None
    _publisher.session.send(
        _publisher.pub_socket,
        "display_data",
        {"data": {MIME: _dumps(body)}, "metadata": {"nbrefine": nonce}, "transient": {}},
        parent=_publisher.parent_header,
        ident=_publisher.topic,
    )
