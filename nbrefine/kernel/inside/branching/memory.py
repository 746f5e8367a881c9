"""What a fork does with memory.

What it shares instead of copying is found, and copied where that is right; what it has to copy
is made cheap.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import mmap
import os
from typing import NamedTuple

LIMIT = 64 << 20
"""Bytes of shared memory that are copied for a branch at most."""

# ioctl(2) of /proc/PID/maps, since Linux 6.11. To read all of the file takes 2 ms with the
# libraries of a scientific session.
_QUERY = 0xC0686611
_WRITABLE, _EXECUTABLE, _SHARED, _NEXT, _OF_FILE = 0x02, 0x04, 0x08, 0x10, 0x20
_MAP_FIXED = 0x10

_HUGE = 2 << 20
_COLLAPSE = 25  # MADV_COLLAPSE, since Linux 6.1


class Mapping(NamedTuple):
    """A part of this process's memory, and what lies behind it."""

    start: int
    size: int
    path: str


def shared() -> list[Mapping]:
    """Find the memory that is shared and writable."""
    return _mappings(_WRITABLE | _SHARED)


def programs() -> list[Mapping]:
    """Find the code that was loaded from files: the program's and its libraries'.

    The loader could list them, too, but it would call back with its lock held: a thread that
    imports a library waits for that lock with Python's own held, and both would wait for ever.
    """
    return _mappings(_EXECUTABLE | _OF_FILE)


def _mappings(flags: int) -> list[Mapping]:
    maps = os.open("/proc/self/maps", os.O_RDONLY | os.O_CLOEXEC)
    try:
        try:
            return _queried(maps, flags)
        except OSError:
            return _read(maps, flags)
    finally:
        os.close(maps)


def is_unnamed(mapping: Mapping) -> bool:
    """Tell memory without a name, shared with processes forked from here, as semaphores are."""
    return mapping.path.endswith(" (deleted)")


def is_lasting(mapping: Mapping) -> bool:
    """Tell memory that others find by its name: a file, or POSIX shared memory.

    Devices and the index of an SQLite database's log are neither.
    """
    path = mapping.path
    if is_unnamed(mapping) or not path.startswith("/") or path.endswith("-shm"):
        return False
    return not path.startswith("/dev/") or path.startswith("/dev/shm/")  # noqa: S108  compared only


class Copies:
    """What unnamed shared memory holds now, to be given to a forked child as its own.

    There it stays shared with what the child forks itself, so locks among these go on working.
    """

    def __init__(self) -> None:
        self._held: list[tuple[Mapping, bytes]] = []
        mappings = [each for each in shared() if is_unnamed(each)]
        if not mappings or sum(each.size for each in mappings) > LIMIT:
            return
        # Where nothing lies behind a mapping this fails, and a plain access would kill.
        with contextlib.suppress(OSError), open("/proc/self/mem", "rb", buffering=0) as memory:
            for each in mappings:
                with contextlib.suppress(OSError):
                    content = os.pread(memory.fileno(), each.size, each.start)
                    self._held.append((each, content))

    def place(self) -> None:
        """Put the copies where the shared memory was."""
        if not self._held:
            return
        put = ctypes.CDLL(None, use_errno=True).mmap
        put.restype = ctypes.c_void_p
        put.argtypes = (
            ctypes.c_void_p,
            ctypes.c_size_t,
            ctypes.c_int,
            ctypes.c_int,
            ctypes.c_int,
            ctypes.c_long,
        )
        access = mmap.PROT_READ | mmap.PROT_WRITE
        for (start, size, _), content in self._held:
            flags = mmap.MAP_SHARED | mmap.MAP_ANONYMOUS | _MAP_FIXED
            if put(start, size, access, flags, -1, 0) != start:
                number = ctypes.get_errno()
                raise OSError(number, os.strerror(number))
            ctypes.memmove(start, content, len(content))
        self._held.clear()


def collapse() -> None:
    """Move the memory of this process into huge pages, so that a fork of it has less to copy.

    A fork copies an entry for each page, and the end of a process takes it back: 3 ms each for
    70 MB. A child that writes to a huge page gets a small one of its own, as ever. Where the
    system has no such pages nothing changes.
    """
    advise, resident = ctypes.CDLL(None).madvise, ctypes.CDLL(None).mincore
    advise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    resident.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p)
    pages = ctypes.create_string_buffer(_HUGE // mmap.PAGESIZE)
    for start, end in _private():
        for at in range(-(-start // _HUGE) * _HUGE, end - _HUGE + 1, _HUGE):
            # What is not there would be: a stack, or room that was taken in reserve.
            if resident(at, _HUGE, pages) == 0 and sum(pages.raw) > len(pages) * 3 // 4:
                advise(at, _HUGE, _COLLAPSE)


def _private() -> list[tuple[int, int]]:
    """Find the writable memory that no file lies behind."""
    found = []
    with open("/proc/self/maps") as lines:
        for line in lines:
            fields = line.split()
            if fields[1] == "rw-p" and fields[5:] in ([], ["[heap]"]):
                start, end = fields[0].split("-")
                found.append((int(start, 16), int(end, 16)))
    return found


class _Query(ctypes.Structure):
    """`struct procmap_query` of linux/fs.h."""

    _fields_ = (
        ("size", ctypes.c_uint64),
        ("flags", ctypes.c_uint64),
        ("address", ctypes.c_uint64),
        ("start", ctypes.c_uint64),
        ("end", ctypes.c_uint64),
        ("unused", ctypes.c_uint64 * 4),
        ("device", ctypes.c_uint32 * 2),
        ("name_size", ctypes.c_uint32),
        ("build_id_size", ctypes.c_uint32),
        ("name", ctypes.c_uint64),
        ("build_id", ctypes.c_uint64),
    )


def _queried(maps: int, flags: int) -> list[Mapping]:
    found: list[Mapping] = []
    name = ctypes.create_string_buffer(os.pathconf("/", "PC_PATH_MAX"))
    query = _Query(size=ctypes.sizeof(_Query), flags=flags | _NEXT, name=ctypes.addressof(name))
    while True:
        query.name_size = len(name)
        try:
            fcntl.ioctl(maps, _QUERY, query)
        except FileNotFoundError:
            return found
        start, query.address = query.start, query.end
        path = os.fsdecode(name.value) if query.name_size else ""
        found.append(Mapping(start, query.end - start, path))


def _read(maps: int, flags: int) -> list[Mapping]:
    found = []
    with open(maps, "rb", closefd=False) as file:
        for line in file:
            fields = line.split(maxsplit=5)
            path = os.fsdecode(fields[5].rstrip(b"\n")) if len(fields) > 5 else ""
            if not flags & ~_flags(fields[1], path):
                start, end = (int(part, 16) for part in fields[0].split(b"-"))
                found.append(Mapping(start, end - start, path))
    return found


def _flags(permissions: bytes, path: str) -> int:
    """Give what a line of maps says, in the bits of a query."""
    letters = zip(permissions, b"-wxs", (0, _WRITABLE, _EXECUTABLE, _SHARED), strict=True)
    told = sum(bit for letter, meant, bit in letters if letter == meant)
    return told | (_OF_FILE if path.startswith("/") else 0)
