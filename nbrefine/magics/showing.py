"""A branch's outputs shown in the notebook, and a cell's own outputs held back for a while."""

from __future__ import annotations

import contextlib
import re
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

from nbrefine.kernel.messages.collect import Collector, OutputLimits
from nbrefine.outputs import Display, Failure, Output, Stream

SHOWN = frozenset(
    {
        "stream",
        "display_data",
        "update_display_data",
        "execute_result",
        "error",
        "clear_output",
    }
)
"""Kinds of messages that a notebook shows."""

_HELD = 10_000_000  # characters that are held back before all of it is let go
_VIEW = "application/vnd.jupyter.widget-view+json"
_ADDRESS = re.compile(r"0x[0-9a-fA-F]{6,}")
_CELL_FILE = re.compile(r"(?<=[/\\]ipykernel_)\d+(?=[/\\]\d+\.py)")
"""The number of a process, in the name that a warning gives to a cell."""


def show(kernel: Any, kind: str, content: dict[str, Any]) -> None:
    """Show an output of another kernel as one of the running cell.

    A widget that exists in the other kernel only is shown as its text, since nobody would move it.

    Parameters
    ----------
    kernel: ipykernel's kernel of this process.
    """
    data = content.get("data")
    if data and _VIEW in data and not _has_widget(kernel, data[_VIEW]):
        content = {**content, "data": {mime: data[mime] for mime in data if mime != _VIEW}}
    kernel.session.send(
        kernel.iopub_socket,
        kind,
        content,
        parent=kernel.get_parent("shell"),
        ident=kind.encode(),
    )


def _has_widget(kernel: Any, view: Any) -> bool:
    model = view.get("model_id") if isinstance(view, dict) else None
    return model in kernel.comm_manager.comms


@dataclass(frozen=True, slots=True)
class Shown:
    """What outputs come to for a reader, without what differs from one run to the next."""

    stdout: str
    stderr: str
    displays: tuple[str, ...]
    error: str

    @classmethod
    def of(cls, outputs: tuple[Output, ...]) -> Shown:
        """Sum outputs up."""
        displays = tuple(_displayed(each) for each in outputs if isinstance(each, Display))
        errors = "\n".join(str(each) for each in outputs if isinstance(each, Failure))
        streams = [each for each in outputs if isinstance(each, Stream)]
        return cls(_text(streams, "stdout"), _text(streams, "stderr"), displays, _plain(errors))


def _text(streams: list[Stream], name: str) -> str:
    return _plain("".join(each.text for each in streams if each.name == name))


def _displayed(display: Display) -> str:
    return _plain(repr(sorted((mime, repr(value)) for mime, value in display.data.items())))


def _plain(text: str) -> str:
    return _CELL_FILE.sub("…", _ADDRESS.sub("0x…", text))


class Withheld:
    """Holds back what the cell shows in the block, until `release`, or for good.

    More than a reader could take in at once is not held back but shown as it comes.

    Parameters
    ----------
    kernel: ipykernel's kernel of this process.
    redact: applied to every text that is compared.
    """

    def __init__(self, kernel: Any, redact: Callable[[str], str]) -> None:
        self._session = kernel.session
        self._collector = Collector(OutputLimits(), redact=redact)
        self._messages: list[tuple[tuple[Any, ...], dict[str, Any]]] | None = []
        self._size = 0
        self._lock = threading.RLock()  # text comes from the IOPub thread

    def __enter__(self) -> Self:
        _flush()  # what was printed before is not of this block
        self._send = self._session.send
        self._session.send = self._take
        return self

    def __exit__(self, *exception: object) -> None:
        _flush()
        self._session.send = self._send

    @property
    def released(self) -> bool:
        """Whether it has been shown."""
        return self._messages is None

    @property
    def shown(self) -> Shown:
        """What it comes to."""
        return Shown.of(self._collector.take()[0])

    def release(self) -> None:
        """Show what was held back, and hold back nothing any more."""
        with self._lock:
            messages, self._messages = self._messages, None
            for args, kwargs in messages or ():
                self._send(*args, **kwargs)

    def _take(self, stream: Any, message: Any, *args: Any, **kwargs: Any) -> Any:
        kind, content = _read(message, args, kwargs)
        if kind not in SHOWN:
            return self._send(stream, message, *args, **kwargs)
        with self._lock:
            self._collector.feed(kind, content)
            if self._messages is None:
                return self._send(stream, message, *args, **kwargs)
            self._messages.append(((stream, message, *args), kwargs))
            self._size += len(str(content.get("text", ""))) or 1000
            if self._size > _HELD:
                self.release()
        return None


class Diverted:
    """Gives what the cells in the block show to somebody else, and to no front end.

    Parameters
    ----------
    kernel: ipykernel's kernel of this process.
    tell: takes kind and content, in any thread.
    """

    def __init__(self, kernel: Any, tell: Callable[[str, dict[str, Any]], object]) -> None:
        self._session = kernel.session
        self._tell = tell

    def __enter__(self) -> Self:
        _flush()
        self._send = self._session.send
        self._session.send = self._take
        return self

    def __exit__(self, *exception: object) -> None:
        _flush()
        self._session.send = self._send

    def _take(self, stream: Any, message: Any, *args: Any, **kwargs: Any) -> Any:
        kind, content = _read(message, args, kwargs)
        if kind not in SHOWN:
            return self._send(stream, message, *args, **kwargs)
        self._tell(kind, content)
        return None


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):  # a cell may have put anything there
            stream.flush()


def _read(
    message: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[str, dict[str, Any]]:
    """Give the kind and the content of what `Session.send` is asked to send."""
    if isinstance(message, dict):
        return str(message["header"]["msg_type"]), message["content"]
    content = args[0] if args else kwargs.get("content")
    return str(message), content or {}
