"""What a process asks the Linux kernel for about itself; see prctl(2)."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal

_SET_DEATH_SIGNAL, _SET_DUMPABLE, _SET_NAME = 1, 4, 15
_SET_CHILD_SUBREAPER, _SET_NO_NEW_PRIVILEGES = 36, 38

_CAPABILITIES = 0x20080522  # _LINUX_CAPABILITY_VERSION_3

# Found once: a child would copy what the search writes to.
_libc = ctypes.CDLL(None, use_errno=True)
_control, _capset = _libc.prctl, _libc.capset


def die_with_parent(parent: int) -> None:
    """End with the parent, which is this one; at once, where it has ended already."""
    _control(_SET_DEATH_SIGNAL, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() not in (parent, 0):  # 0: it lives outside of this process's namespace
        os._exit(1)


def hide_memory() -> None:
    """Let no other process of the user read the memory or descriptors of this one."""
    _control(_SET_DUMPABLE, 0, 0, 0, 0)


def adopt_orphans() -> None:
    """Become the parent of descendants that lose theirs."""
    _control(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def children(pid: int) -> list[int]:
    """Give the children of a process, also those that nobody has waited for.

    Raises
    ------
    OSError: there is no such process.
    """
    file = os.open(f"/proc/{pid}/task/{pid}/children", os.O_RDONLY | os.O_CLOEXEC)
    try:
        parts = []
        while part := os.read(file, 1 << 16):  # a page at a time
            parts.append(part)
        return [int(each) for each in b"".join(parts).split()]
    finally:
        os.close(file)


def name(words: str) -> None:
    """Name the process, as `ps` and `top` show it."""
    _control(_SET_NAME, ctypes.c_char_p(words.encode()), 0, 0, 0)


def end_first() -> None:
    """Be what the kernel ends first where memory runs out, and not who is not to blame for that."""
    _control(_SET_DUMPABLE, 1, 0, 0, 0)  # as the file is the superuser's where memory is hidden
    try:
        with contextlib.suppress(OSError):
            file = os.open("/proc/self/oom_score_adj", os.O_WRONLY | os.O_CLOEXEC)
            os.write(file, b"1000")
            os.close(file)
    finally:
        hide_memory()


def drop_privileges() -> None:
    """Give up all capabilities, and have programs that are executed not gain any.

    Raises
    ------
    OSError: the kernel refuses.
    """
    if _control(_SET_NO_NEW_PRIVILEGES, 1, 0, 0, 0) < 0 or _capset(_HEADER, _NONE) < 0:
        error = ctypes.get_errno()
        raise OSError(error, f"no privileges: {os.strerror(error)}")


_HEADER = (ctypes.c_uint32 * 2)(_CAPABILITIES, 0)
_NONE = (ctypes.c_uint32 * 6)()
