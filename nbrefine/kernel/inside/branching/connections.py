"""Which sockets of this process lead somewhere, and who speaks over them."""

from __future__ import annotations

import contextlib
import gc
import socket
import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

from . import debugging, descriptors

_ESTABLISHED = 1  # of tcp(7)
_CHANNELS = ("shell_port", "iopub_port", "stdin_port", "control_port", "hb_port")


class Connection(NamedTuple):
    """A socket that is connected to a named peer, or listens there."""

    descriptor: int
    address: str
    """As people write it: the peer's, or where it listens."""
    listens: bool
    inner: bool
    """Both ends are in this process."""


def of_user(app: Any, table: dict[int, str]) -> list[Connection]:
    """Find the connections that are neither the kernel's own nor nbrefine's.

    A connection that its peer has closed is none: whoever uses it next will see that anyway.
    """
    found: list[tuple[int, Any, Any]] = []
    for descriptor, target in table.items():
        if not target.startswith("socket:"):
            continue
        # ZeroMQ's own thread may close one at any time.
        with contextlib.suppress(OSError), descriptors.as_socket(descriptor) as opened:
            own, peer = _names(opened)
            tied = descriptors.is_tied(descriptor)
            if tied and _is_live(opened) and not _is_ours(app, own, peer):
                found.append((descriptor, own, peer))
    names = {descriptors.address_text(own) for _, own, _ in found}
    return [
        Connection(
            descriptor,
            descriptors.address_text(own if peer is None else peer or own),
            listens=peer is None,
            inner=descriptors.address_text(peer or "") in names,
        )
        for descriptor, own, peer in found
    ]


def reopened_on_demand(candidates: set[int]) -> set[int]:
    """Give the descriptors of clients that connect anew when they find a connection closed.

    These are the HTTP clients of the standard library, urllib3 and requests, and of httpcore and
    httpx. Their objects are searched for, as nothing else tells whose a socket is.
    """
    kinds = set(_http_kinds())
    if not kinds or not candidates:
        return set()
    found = set()
    for each in gc.get_objects():
        if type(each) in kinds:
            with contextlib.suppress(Exception):  # it is closed, or half made
                opened = each.sock if hasattr(each, "sock") else each.get_extra_info("socket")
                found.add(opened.fileno())
    return found & candidates


def _names(opened: socket.socket) -> tuple[Any, Any]:
    """Give a socket's own name and its peer's, None for one that listens."""
    if opened.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
        return opened.getsockname(), None
    return opened.getsockname(), opened.getpeername()


def _is_live(opened: socket.socket) -> bool:
    if opened.family not in (socket.AF_INET, socket.AF_INET6):
        return True
    if opened.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
        return True
    return opened.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] == _ESTABLISHED


def _is_ours(app: Any, own: Any, peer: Any) -> bool:
    ports = {getattr(app, name, 0) for name in _CHANNELS}
    debugger = debugging.ports(app)
    pipe = getattr(getattr(app, "iopub_thread", None), "_pipe_port", 0)
    for name in (own, peer):
        if isinstance(name, tuple):
            if (
                name[1] == pipe
                or name[1] in debugger
                or (name[1] in ports and getattr(app, "transport", "") == "tcp")
            ):
                return True
        elif name in {f"{app.ip}-{port}" for port in ports} or "/nbrefine-" in str(name or ""):
            return True
    return False


def _http_kinds() -> Iterator[type[Any]]:
    client: Any = sys.modules.get("http.client")
    if client is not None:
        yield from _with_subclasses(client.HTTPConnection)
    for package in ("httpcore", "httpcore2"):
        for backend, name in (("sync", "SyncStream"), ("anyio", "AnyIOStream")):
            kind = getattr(sys.modules.get(f"{package}._backends.{backend}"), name, None)
            if kind is not None:
                yield kind


def _with_subclasses(kind: type[Any]) -> Iterator[type[Any]]:
    yield kind
    for subclass in kind.__subclasses__():
        yield from _with_subclasses(subclass)
