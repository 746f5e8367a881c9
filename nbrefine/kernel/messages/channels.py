"""The sockets of one kernel, read by a thread of their own that never waits for anybody.

A socket that is not read fast enough loses messages without a word (13 % of 100,000 flushed
prints with the usual limit of 1000), so the thread takes everything off the wire at once and
hands it to the portal in batches: one wake-up for a flood, not one for each line.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import os
import socket
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, Literal

import zmq
from jupyter_client.session import Session

Channel = Literal["shell", "control", "iopub", "lost", "unreadable"]
"""Where a message came from; `lost` says that the kernel closed the connection, `unreadable`
that a message could not be read."""

Message = dict[str, Any]
Deliver = Callable[[Channel, Message], None]

_CHANNELS: tuple[Channel, ...] = ("iopub", "control", "shell")
_BURST = 500  # messages taken off one socket before the others have their turn
_GATHER = 20  # milliseconds that text waits for more text, so that a flood wakes nobody each line

_context: zmq.Context[zmq.Socket[bytes]] | None = None
_context_pid = 0
_context_lock = threading.Lock()


def context() -> zmq.Context[zmq.Socket[bytes]]:
    """Give the process's ZeroMQ context; one made before a fork is of no use after it."""
    global _context, _context_pid
    with _context_lock:
        if _context is None or _context_pid != os.getpid():
            _context, _context_pid = zmq.Context(), os.getpid()
        return _context


class Channels:
    """Shell, control and IOPub of one kernel, connected.

    Parameters
    ----------
    connection: what a connection file says.
    deliver: called on the current loop with each message, in order.
    reconnect: milliseconds between attempts to reach the kernel; short while one comes up.
    """

    def __init__(
        self, connection: dict[str, Any], deliver: Deliver, *, reconnect: int = 10
    ) -> None:
        key = connection.get("key", "")
        scheme = connection.get("signature_scheme") or "hmac-sha256"
        self._session = Session(
            key=key if isinstance(key, bytes) else str(key).encode(),
            # To set even the default takes a tenth of a millisecond.
            **({} if scheme == "hmac-sha256" else {"signature_scheme": scheme}),
            # A replay needs somebody between us and the kernel who has worse to offer; the
            # history costs 10 MB a kernel and draws from the caller's `random`.
            digest_history_size=0,
        )
        self.session_id: str = self._session.session
        self._connection = connection
        self._reconnect = reconnect
        self._deliver = deliver
        self._loop = asyncio.get_running_loop()
        self._inbox: deque[tuple[Channel, Message]] = deque()
        self._scheduled = False
        self._gathered: list[tuple[Channel, Message]] = []  # the thread's own
        self._reader = Reader(self._session)
        self._outbox: deque[tuple[str, list[bytes]]] = deque()
        self._pollers = zmq.Poller(), zmq.Poller()  # of all but IOPub, and of everything
        self._lock = threading.Lock()
        self._closing = False
        self._closed = self._loop.create_future()
        self._wake, self._woken = socket.socketpair()
        self._woken.setblocking(False)
        self._thread = threading.Thread(target=self._work, name="nbrefine-drain", daemon=True)
        self._thread.start()

    def send(self, channel: Literal["shell", "control"], kind: str, content: Message) -> str:
        """Send a request and give its id."""
        message = self._session.msg(kind, content)
        self._outbox.append((channel, self._session.serialize(message)))
        self._wake_up()
        return str(message["header"]["msg_id"])

    def nudge(self) -> None:
        """Wake the kernel's shell by a message over a connection of its own.

        ipykernel 7.0 to 7.3 may overlook a request that comes just as it sends a reply, and then
        all that follow (ipykernel #1554).  It looks again when somebody connects or leaves: the
        connection ends when it is answered, in case that answer is such a reply.  It is not asked
        to introduce itself, for which IPython draws a tip by the session's `random`.
        """
        message = self._session.msg("comm_info_request", {})
        self._outbox.append(("nudge", self._session.serialize(message)))
        self._wake_up()

    async def close(self) -> None:
        """Close the sockets and end the thread."""
        if not self._closing:
            self._closing = True
            self._wake_up()
        await asyncio.shield(self._closed)
        self._thread.join()

    def _wake_up(self) -> None:
        with contextlib.suppress(OSError):  # a full pipe wakes just as well
            self._wake.send(b"x", socket.MSG_DONTWAIT)

    def _work(self) -> None:
        sockets: dict[str, zmq.Socket[bytes]] = {}
        try:
            sockets["iopub"] = self._connect("iopub", zmq.SUB)  # first: its welcome is waited for
            sockets["shell"] = self._connect("shell", zmq.DEALER)
            sockets["control"] = self._connect("control", zmq.DEALER)
            sockets["monitor"] = sockets["iopub"].get_monitor_socket(zmq.EVENT_DISCONNECTED)
            others, everything = self._pollers
            for each in (*sockets.values(), self._woken.fileno()):
                everything.register(each, zmq.POLLIN)
                if each is not sockets["iopub"]:
                    others.register(each, zmq.POLLIN)
            while not self._closing:
                if self._gathered:  # more text wakes nobody until it is time
                    ready = dict(others.poll(_GATHER))
                    self._serve(sockets, {**ready, sockets["iopub"]: zmq.POLLIN}, urgent=True)
                else:
                    self._serve(sockets, dict(everything.poll()))
        except zmq.ZMQError as error:
            self._gathered += [("unreadable", {"reason": str(error)}), ("lost", {})]
            self._hand_over()
        finally:
            if "iopub" in sockets:
                sockets["iopub"].disable_monitor()
            for each in sockets.values():
                each.close(linger=0)
            self._wake.close()
            self._woken.close()
            with contextlib.suppress(RuntimeError):  # the loop is gone, and its waiters too
                self._loop.call_soon_threadsafe(self._closed.set_result, None)

    def _serve(
        self, sockets: dict[str, zmq.Socket[bytes]], ready: dict[Any, int], *, urgent: bool = False
    ) -> None:
        """Send what is to be sent, take in what has come, and pass it on.

        Parameters
        ----------
        urgent: pass it on even if it is text alone.
        """
        if self._woken.fileno() in ready:
            self._send_all(sockets)
        if sockets["monitor"] in ready:
            sockets["monitor"].recv_multipart()
            while self._receive("iopub", sockets["iopub"]) is not None:
                pass  # what arrived before the connection broke comes first
            self._gathered.append(("lost", {}))
            urgent = True
        if sockets.get("nudge") in ready:
            self._leave(sockets)
        for name in _CHANNELS:
            if sockets[name] in ready:
                urgent |= bool(self._receive(name, sockets[name]))
        if self._gathered and (urgent or len(self._gathered) >= _BURST):
            self._hand_over()

    def _connect(self, channel: str, kind: int) -> zmq.Socket[bytes]:
        made: zmq.Socket[bytes] = context().socket(kind)
        made.linger = 0
        made.sndhwm = made.rcvhwm = 0
        made.reconnect_ivl = self._reconnect
        if public := self._connection.get("curve_publickey"):
            made.curve_publickey = made.curve_serverkey = _bytes(public)
            made.curve_secretkey = _bytes(self._connection["curve_secretkey"])
        if kind == zmq.SUB:
            made.subscribe(b"")
        port, transport = self._connection[f"{channel}_port"], self._connection["transport"]
        separator = ":" if transport == "tcp" else "-"
        made.connect(f"{transport}://{self._connection['ip']}{separator}{port}")
        return made

    def _send_all(self, sockets: dict[str, zmq.Socket[bytes]]) -> None:
        with contextlib.suppress(BlockingIOError):
            while self._woken.recv(4096):
                pass
        while self._outbox:
            channel, frames = self._outbox.popleft()
            if channel == "nudge":
                self._leave(sockets)  # an earlier one that has no answer
                sockets["nudge"] = self._connect("shell", zmq.DEALER)
                for poller in self._pollers:
                    poller.register(sockets["nudge"], zmq.POLLIN)
            sockets[channel].send_multipart(frames)

    def _leave(self, sockets: dict[str, zmq.Socket[bytes]]) -> None:
        nudge = sockets.pop("nudge", None)
        if nudge is not None:
            for poller in self._pollers:
                poller.unregister(nudge)
            nudge.close(linger=0)

    def _receive(self, channel: Channel, source: zmq.Socket[bytes]) -> bool | None:
        """Take what is there off a socket, and tell whether any of it is more than text.

        None: there was nothing.
        """
        urgent = None
        for _ in range(_BURST):
            try:
                frames = source.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                break
            try:
                message = self._reader.read(frames)
            except (ValueError, TypeError, KeyError, IndexError, RecursionError) as error:
                self._gathered.append(("unreadable", {"reason": str(error)}))
                urgent = True
                continue
            self._gathered.append((channel, message))
            urgent = bool(urgent) or message["msg_type"] != "stream"
        return urgent

    def _hand_over(self) -> None:
        with self._lock:
            self._inbox.extend(self._gathered)
            self._gathered.clear()
            if self._scheduled:
                return
            self._scheduled = True
        with contextlib.suppress(RuntimeError):  # the loop ended with the interpreter
            self._loop.call_soon_threadsafe(self._pump)

    def _pump(self) -> None:
        with self._lock:
            batch, self._inbox = self._inbox, deque()
            self._scheduled = False
        for channel, message in batch:
            try:
                self._deliver(channel, message)
            except Exception as error:  # noqa: BLE001 - one message must not take all with it
                self._deliver("unreadable", {"reason": f"{type(error).__name__}: {error}"})


class Reader:
    """Takes the messages of one kernel apart."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._parent: tuple[bytes, Message] = (b"", {})

    def read(self, frames: list[bytes]) -> Message:
        """Check a message's signature and take it apart.

        `Session.deserialize` spends most of its 75 microseconds on turning dates, of which we
        show one or two a cell, into objects; and the parent is the same for a whole cell.
        """
        parts: list[Any] = self._session.feed_identities(frames)[1]
        signature, header, parent, metadata, content = parts[:5]
        signed = self._session.sign(parts[1:5])
        if self._session.auth is not None and not hmac.compare_digest(signature, signed):
            raise ValueError("its signature is not the kernel's")
        if parent != self._parent[0]:
            self._parent = (parent, self._session.unpack(parent))
        head = self._session.unpack(header)
        return {
            "header": head,
            "msg_type": head["msg_type"],
            "parent_header": self._parent[1],
            "metadata": {} if metadata == b"{}" else self._session.unpack(metadata),
            "content": self._session.unpack(content),
        }


def _bytes(key: str | bytes) -> bytes:
    return key if isinstance(key, bytes) else key.encode()
