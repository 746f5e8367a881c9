"""What the open descriptors of this process are, and how a forked child gets its own.

A fork shares all of them. A branch keeps only files in common with its parent: it reads and writes
these at offsets of its own, and instead of all else it has a stand-in that leads nowhere.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import select
import socket
import stat
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

# Of how a file was opened: what says how it is used, not how it was found or made.
_KEPT_FLAGS = os.O_ACCMODE | os.O_APPEND | os.O_DIRECT | os.O_NOATIME | os.O_SYNC | os.O_DSYNC

_EPOLL = "anon_inode:[eventpoll]"
_NONBLOCKING_TEE = 2  # SPLICE_F_NONBLOCK
_PIPE_ROOM = 1 << 20


def table() -> dict[int, str]:
    """Map each open descriptor above 2 to what the system says it is, as in `/proc/self/fd`."""
    found: dict[int, str] = {}
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # the listing's own descriptor is gone by now
            if int(name) > 2:
                found[int(name)] = os.readlink(f"/proc/self/fd/{name}")
    return found


def is_file(descriptor: int, target: str) -> bool:
    """Tell a regular file or a folder from all else that is open."""
    if not target.startswith("/"):
        return False
    try:
        mode = os.fstat(descriptor).st_mode
    except OSError:  # another thread has closed it
        return False
    return stat.S_ISREG(mode) or stat.S_ISDIR(mode)


def is_writable(descriptor: int) -> bool:
    """Tell whether a descriptor was opened for writing."""
    try:
        return bool(fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE)
    except OSError:
        return False


@contextlib.contextmanager
def as_socket(descriptor: int) -> Iterator[socket.socket]:
    """Look at a socket that someone else owns."""
    opened = socket.socket(fileno=os.dup(descriptor))
    try:
        yield opened
    finally:
        opened.close()


def is_tied(descriptor: int) -> bool:
    """Tell a socket that is connected to a named peer, or listens; datagrams stay whole."""
    with contextlib.suppress(OSError), as_socket(descriptor) as opened:
        if opened.type == socket.SOCK_DGRAM or opened.family == socket.AF_NETLINK:
            return False
        if opened.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
            return True
        return bool(opened.getpeername() or opened.getsockname())
    return False


def address_text(address: Any) -> str:
    """Give a socket address as people write it; "" for an unnamed one."""
    if isinstance(address, tuple):
        return f"{address[0]}:{address[1]}"
    if isinstance(address, bytes):  # the abstract namespace of Linux
        return address.replace(b"\0", b"@", 1).decode("utf-8", "backslashreplace")
    return str(address)


def part(noted: Mapping[int, str]) -> dict[int, str]:
    """Give this forked child descriptors of its own, and tell what they are now.

    Parameters
    ----------
    noted: what the parent's were before the fork, without those of the kernel's own plumbing;
        what is something else by now is left alone.
    """
    now = table()
    ours = {each: target for each, target in noted.items() if now.get(each) == target}
    for descriptor, target in ours.items():
        with contextlib.suppress(OSError):
            _part_one(descriptor, target)
    pipes: dict[str, list[int]] = defaultdict(list)
    for descriptor, target in ours.items():
        if target.startswith("pipe:"):
            pipes[target].append(descriptor)
    for ends in pipes.values():
        with contextlib.suppress(OSError):
            _part_pipe(ends)
    for descriptor, target in ours.items():
        if target == _EPOLL:  # last, as it watches the others
            with contextlib.suppress(OSError):
                _replace(descriptor, _copied_epoll(descriptor))
    now = table()
    return {each: now[each] for each in ours if each in now}


def _part_one(descriptor: int, target: str) -> None:
    if is_file(descriptor, target):
        _reopen(descriptor)
    elif target.startswith("socket:"):
        if is_tied(descriptor) or _is_controllers(descriptor):
            _replace(descriptor, _dead_socket())
    elif target == "anon_inode:[eventfd]":
        _replace(descriptor, os.eventfd(0))
    elif target in ("anon_inode:inotify", "anon_inode:[timerfd]", "anon_inode:[signalfd]"):
        _replace(descriptor, _dead_pipe(os.O_RDONLY))


def _is_controllers(descriptor: int) -> bool:
    """Tell an end of one of nbrefine's own connections, where it runs in the kernel itself.

    A copy of the controller's end would keep every process on the other side from ever ending.
    """
    with contextlib.suppress(OSError), as_socket(descriptor) as opened:
        return opened.family == socket.AF_UNIX and opened.type == socket.SOCK_SEQPACKET
    return False


def _reopen(descriptor: int) -> None:
    flags = fcntl.fcntl(descriptor, fcntl.F_GETFL)
    if flags & os.O_PATH:  # nothing is read or written by it
        return
    position = os.lseek(descriptor, 0, os.SEEK_CUR)
    opened = os.open(f"/proc/self/fd/{descriptor}", flags & _KEPT_FLAGS | os.O_CLOEXEC)
    os.lseek(opened, position, os.SEEK_SET)
    _replace(descriptor, opened)


def _replace(descriptor: int, new: int) -> None:
    """Put another file behind a descriptor, and keep the manner of the old one."""
    manner = fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_NONBLOCK
    inheritable = os.get_inheritable(descriptor)
    os.dup2(new, descriptor, inheritable=inheritable)
    os.close(new)
    fcntl.fcntl(descriptor, fcntl.F_SETFL, fcntl.fcntl(descriptor, fcntl.F_GETFL) | manner)


def _dead_socket() -> int:
    """Give a connection whose other end is closed: reading ends, writing fails."""
    ours, theirs = socket.socketpair()
    theirs.close()
    return ours.detach()


def _dead_pipe(access: int) -> int:
    read, write = os.pipe()
    kept, other = (read, write) if access == os.O_RDONLY else (write, read)
    os.close(other)
    return kept


def _part_pipe(ends: list[int]) -> None:
    """Give a pipe between parts of this process a copy; cut one that leads to another process."""
    access = {end: fcntl.fcntl(end, fcntl.F_GETFL) & os.O_ACCMODE for end in ends}
    if os.O_RDONLY not in access.values() or os.O_WRONLY not in access.values():
        for end in ends:
            _replace(end, _dead_pipe(access[end]))
        return
    read, write = os.pipe()
    source = next(end for end in ends if access[end] == os.O_RDONLY)
    # What waits in the pipe is copied without being taken from the parent.
    ctypes.CDLL(None).tee(source, write, _PIPE_ROOM, _NONBLOCKING_TEE)
    for end in ends:
        _replace(end, os.dup(read if access[end] == os.O_RDONLY else write))
    os.close(read)
    os.close(write)


def _copied_epoll(descriptor: int) -> int:
    """Watch what another epoll watches; of one that C code made, only what is named by number."""
    made = select.epoll()
    with open(f"/proc/self/fdinfo/{descriptor}") as file:
        for line in file:
            fields = line.replace(":", " ").split()
            if fields[0] == "tfd" and int(fields[1]) == int(fields[5], 16) & 0xFFFFFFFF:
                with contextlib.suppress(OSError):
                    made.register(int(fields[1]), int(fields[3], 16))
    return os.dup(made.fileno())
