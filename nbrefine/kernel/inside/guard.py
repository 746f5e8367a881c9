"""Text of any value, bounded in length and time, whatever its class does.

Built-in containers are walked here, so that a huge one costs no more than what is shown; any
other `__repr__` runs under an alarm, which takes longer to set than most values take to show.
What was left out is told with its count.
"""

from __future__ import annotations

import contextlib
import re
import signal
import threading
from collections.abc import Iterator
from typing import Any

SECONDS = 0.5
"""How long one `__repr__` may take."""

_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
# By the id of a class, as a metaclass may define `__hash__`.
_NUMBERS = {id(kind) for kind in (int, float, bool, complex, type(None))}
_TEXTS = {id(str), id(bytes)}
_BRACKETS = {
    id(kind): (pair[0], pair[1])
    for kind, pair in ((list, "[]"), (tuple, "()"), (set, "{}"), (frozenset, "{}"), (dict, "{}"))
}


class Overdue(BaseException):
    """The time of `time_limit` was up; not an `Exception`, so that few handlers swallow it."""


@contextlib.contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise `Overdue` in the block when `seconds` have passed, again and again until it ends.

    Only the main thread of a POSIX process can be stopped like this; elsewhere there is no limit
    but the controller's. A single long call into C code ends before the alarm is seen.
    """
    if threading.current_thread() is not threading.main_thread() or not hasattr(
        signal, "setitimer"
    ):
        yield
        return
    armed = True

    def ring(signum: int, frame: object) -> None:
        if armed:
            raise Overdue

    handler = signal.signal(signal.SIGALRM, ring)
    timer = signal.setitimer(signal.ITIMER_REAL, seconds, 0.02)
    try:
        yield
    finally:
        armed = False
        signal.setitimer(signal.ITIMER_REAL, *timer)
        signal.signal(signal.SIGALRM, handler)


def show(value: Any, limit: int = 300) -> str:
    """Give the repr of a value in about `limit` characters, and what was left out as a count."""
    kind = id(type(value))
    if kind in _TEXTS or (kind in _NUMBERS and type(value) is not int):
        return clean(_Shower(_UNUSED).show(value, limit, 0))
    try:
        with contextlib.ExitStack() as stack:
            text = _Shower(stack).show(value, limit, 4)
    except Overdue:
        text = f"<{kind_name(value)}, whose repr took over {SECONDS:g} s>"
    except Exception as error:  # noqa: BLE001  a repr may raise anything
        text = f"<{kind_name(value)}, whose repr raised {kind_name(error)}>"
    return clean(text)


_UNUSED = contextlib.ExitStack()
"""For values that are shown without an alarm: setting up a stack takes longer than these do."""


def kind_name(value: Any) -> str:
    """Give the name of a value's class, past any metaclass."""
    return str(_NAME(type(value)))


_MRO = type.__dict__["__mro__"].__get__
_MODULE = type.__dict__["__module__"].__get__
_NAME = type.__dict__["__name__"].__get__


def dtype_name(dtype: Any) -> str:
    """Give the name of an array's dtype; numpy makes its own anew each time, so they are kept."""
    if type(dtype).__module__ != "numpy.dtypes":  # another's hash may read all of its values
        return str(dtype)
    name = _DTYPES.get(dtype)
    if name is None:
        name = str(dtype)
        if dtype.names is None and len(_DTYPES) < 100:
            _DTYPES[dtype] = name
    return name


_DTYPES: dict[Any, str] = {}


def clean(text: str) -> str:
    """Replace lone surrogates, which no message can carry."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode("utf-8")


def cut(text: str, limit: int) -> str:
    """Keep the first `limit` characters and tell how many more there were."""
    if len(text) <= limit:
        return text
    return f"{text[:limit]}… ({len(text) - limit:,} more characters)"


class _Shower:
    """Shows one value; the alarm is set when the first part comes that is not built in."""

    def __init__(self, stack: contextlib.ExitStack) -> None:
        self._stack = stack
        self._limited = False

    def show(self, value: Any, room: int, depth: int) -> str:
        kind = type(value)
        if id(kind) in _NUMBERS:
            if kind is int and value.bit_length() > 10_000:
                return f"<int of {value.bit_length():,} bits>"
            return cut(repr(value), room)
        if id(kind) in _TEXTS:
            more = len(value) - room
            return repr(value) if more <= 0 else f"{value[:room]!r}… ({more:,} more characters)"
        if id(kind) in _BRACKETS:
            return self._container(value, room, depth)
        if not self._limited:
            self._limited = True
            self._stack.enter_context(time_limit(SECONDS))
        return cut(_foreign(value), room)

    def _container(self, value: Any, room: int, depth: int) -> str:
        kind = type(value)
        if not value:
            return repr(value)
        opening, closing = _BRACKETS[id(kind)]
        if depth == 0:
            return f"{opening}… {len(value):,} items{closing}"
        parts: list[str] = []
        used = 0
        for index, item in enumerate(value.items() if kind is dict else value):
            left = max(room - used, 20)
            if kind is dict:
                key, content = (self.show(each, left, depth - 1) for each in item)
                part = f"{key}: {content}"
            else:
                part = self.show(item, left, depth - 1)
            if parts and used + len(part) > room:
                parts.append(f"… {len(value) - index:,} more")
                break
            parts.append(part)
            used += len(part) + 2
        inner = ", ".join(parts)
        if kind is tuple and len(value) == 1:
            inner += ","
        text = f"{opening}{inner}{closing}"
        return f"frozenset({text})" if kind is frozenset else text


def _foreign(value: Any) -> str:
    """Give the repr of a class that is not built in; of long pandas objects, their head only.

    Addresses go: they tell nothing, and differ whenever the same cells run again.
    """
    if is_from(value, "pandas", "DataFrame", "Series") and len(value) > 20:
        return f"{value.head(10)!r}\n… {len(value) - 10:,} more rows"
    text = "".join([repr(value)])  # an exact str, whatever __repr__ gave
    return _ADDRESS.sub("", text)


def is_from(value: Any, package: str, *names: str) -> bool:
    """Tell whether a value's class is one of a package's, without asking the value."""
    for kind in _MRO(type(value)):
        if _NAME(kind) in names:
            module = _MODULE(kind)
            if isinstance(module, str) and module.partition(".")[0] == package:
                return True
    return False
