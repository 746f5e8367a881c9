"""What the open descriptors of this process are."""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
from collections.abc import Iterator
from typing import Any


def table() -> dict[int, str]:
    """Map each open descriptor above 2 to what the system says it is, as in `/proc/self/fd`."""
    found: dict[int, str] = {}
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # the listing's own descriptor is gone by now
            if int(name) > 2:
                found[int(name)] = os.readlink(f"/proc/self/fd/{name}")
    return found


def is_file(target: str) -> bool:
    """Tell a file or folder with a path from a device, a pipe, a socket or a kernel object."""
    return target.startswith("/") and not target.startswith(("/dev/pts", "/dev/null", "/proc/"))


def is_writable(descriptor: int) -> bool:
    """Tell whether a descriptor was opened for writing."""
    return bool(fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE)


@contextlib.contextmanager
def as_socket(descriptor: int) -> Iterator[socket.socket]:
    """Look at a socket that someone else owns."""
    opened = socket.socket(fileno=os.dup(descriptor))
    try:
        yield opened
    finally:
        opened.close()


def address_text(address: Any) -> str:
    """Give a socket address as people write it; "" for an unnamed one."""
    if isinstance(address, tuple):
        return f"{address[0]}:{address[1]}"
    if isinstance(address, bytes):  # the abstract namespace of Linux
        return address.replace(b"\0", b"@", 1).decode("utf-8", "backslashreplace")
    return str(address)
