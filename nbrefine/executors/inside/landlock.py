"""Landlock: what a process may read and write, and that it reaches no process outside its own.

The numbers are those of `linux/landlock.h`; what an older kernel lacks is left out.
"""

from __future__ import annotations

import ctypes
import os
import struct
from typing import NamedTuple

_CREATE, _ADD, _RESTRICT = 444, 445, 446  # the same on every architecture

_EXECUTE, _WRITE, _READ, _LIST = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_REFER, _TRUNCATE, _IOCTL = 1 << 13, 1 << 14, 1 << 15
_OF_FILES = _EXECUTE | _WRITE | _READ | _TRUNCATE | _IOCTL
_READING = _EXECUTE | _READ | _LIST
_TCP = 0b11  # bind and connect
_SCOPES = 0b11  # abstract sockets and signals

_syscall = ctypes.CDLL(None, use_errno=True).syscall


class Rule(NamedTuple):
    """What may be done with a file, or with all beneath a folder."""

    path: str
    write: bool = False


def version() -> int:
    """Give the version of Landlock that the kernel has, 0 where there is none."""
    return max(0, int(_syscall(_CREATE, None, 0, 1)))


class Rules:
    """Rules that were read once and hold for many processes.

    Parameters
    ----------
    version: as `version()` gives it, at least 1.
    rules: paths that are not there are left out.
    """

    def __init__(self, version: int, rules: list[Rule]) -> None:
        self._all = _fs_rights(version)
        scopes = [self._all, _TCP if version >= 4 else 0, _SCOPES if version >= 6 else 0]
        known = 3 if version >= 6 else 2 if version >= 4 else 1
        self._attributes = struct.pack(f"={known}Q", *scopes[:known])
        self._opened = self._open_all(rules)

    def restrict(self, own: list[Rule]) -> None:
        """Hold this process, and all it starts, to the rules and to some of its own.

        It must have no_new_privs, or the right to do without.

        Raises
        ------
        OSError: the kernel refuses.
        """
        ruleset = _called(_CREATE, self._attributes, len(self._attributes), 0)
        for each in [*self._opened, *self._open_all(own)]:
            _called(_ADD, ruleset, 1, each, 0)
        _called(_RESTRICT, ruleset, 0)
        os.close(ruleset)

    def _open_all(self, rules: list[Rule]) -> list[bytes]:
        """Give rules as the kernel takes them; the descriptors in them stay open."""
        opened = []
        for rule in rules:
            if os.path.exists(rule.path):
                rights = self._all if rule.write else self._all & _READING
                if not os.path.isdir(rule.path):
                    rights &= _OF_FILES
                fd = os.open(rule.path, os.O_PATH | os.O_CLOEXEC)
                opened.append(struct.pack("=Qi", rights, fd))
        return opened


def _fs_rights(version: int) -> int:
    rights = _REFER - 1
    rights |= _REFER if version >= 2 else 0
    rights |= _TRUNCATE if version >= 3 else 0
    return rights | (_IOCTL if version >= 5 else 0)


def _called(number: int, *arguments: object) -> int:
    result = int(_syscall(number, *arguments))
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, f"Landlock: {os.strerror(error)}")
    return result
