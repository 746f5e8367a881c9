"""What keeps a candidate from all that is not its own: namespaces, Landlock, limits.

Each layer holds by itself; one that cannot be had is left out, and what holds is told.  They hold
accidents and attempts to cheat; they are no virtual machine:

- a hole in the Linux kernel is a way out;
- the memory of all of a candidate's processes together has no bound;
- sockets to the host of a virtual machine (vsock) and the keyrings of the Linux kernel are open;
- without namespaces so are UDP, socket files and the modes of files, and what has left the
  candidate's process group ends only with the candidate itself.
"""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Callable
from typing import NamedTuple

from . import landlock, prctl
from .folders import Folders
from .landlock import Rule
from .namespaces import MOST_PROCESSES, Rooms, enter, make_root

_SYSTEM = (
    *("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store", "/gnu/store"),
    *("/etc/ld.so.cache", "/etc/localtime", "/etc/alternatives", "/etc/mime.types", "/etc/ssl"),
    *("/etc/passwd", "/etc/group", "/etc/nsswitch.conf", "/sys/devices/system/cpu"),
    *("/dev/urandom", "/dev/random"),
)
_SINKS = ("/dev/null", "/dev/zero", "/dev/full")
_ABOUT_MACHINE = tuple(f"/proc/{name}" for name in ("cpuinfo", "meminfo", "stat", "version"))


class Limits(NamedTuple):
    """What one candidate may use; None is no limit."""

    memory: int | None = None
    """Bytes of address space, for each of its processes."""
    processes: int | None = None
    """Processes and threads of the user, the superuser excepted, where a room has no bound."""
    file_size: int | None = None
    """Bytes of one file."""


class Shelter:
    """Where the candidates of one nursery run.

    Parameters
    ----------
    base: an empty folder, used where the candidates cannot have files of their own.
    readable: paths that they may read beside Python and the system.
    """

    def __init__(self, base: str, readable: list[str]) -> None:
        prefixes = {sys.prefix, sys.exec_prefix, sys.base_prefix, sys.base_exec_prefix}
        self._readable = [*sorted(prefixes), *readable, *_SYSTEM]
        self._base = base
        self._lacks = ""
        self._lacks = _tried(self)
        if self._lacks and (trouble := _tried(self)):
            raise OSError(f"A candidate cannot be confined: {trouble}")

    def enter(self) -> None:
        """Take the first step, in the process that forks the nursery."""
        if not self._lacks:
            enter()

    def settle(self) -> Folders | Rooms:
        """Take the second step, in the nursery; give what is to fork its candidates."""
        rules = [Rule(path) for path in self._readable]
        rules += [Rule(path, write=True) for path in _SINKS]
        if self._lacks:
            self._homes: Folders | Rooms = Folders(self._base)
            rules += [Rule(path) for path in _ABOUT_MACHINE]
        else:
            make_root([*self._readable, *_SINKS])
            self._homes = Rooms()
        prctl.hide_memory()  # of the candidates too, from each other
        version = landlock.version()
        self._rules = landlock.Rules(version, rules) if version else None
        self.held = self._told(version)
        """What holds the candidates, and what does not, in words."""
        return self._homes

    def confine(self, limits: Limits) -> None:
        """Hold this process, a candidate that was just forked, and leave it in its folder."""
        prctl.end_first()
        own = [Rule(path, write=path != "/proc") for path in self._homes.furnish()]
        limit(limits, bounded=self._homes.bounded)
        prctl.drop_privileges()
        if self._rules is not None:
            self._rules.restrict(own)

    def _told(self, version: int) -> list[str]:
        held = [f"no namespaces ({self._lacks})"]
        if not self._lacks:
            held = ["processes, files, network and shared memory of its own (namespaces)"]
        if self._homes.bounded:
            held.append(f"at most {MOST_PROCESSES} processes")
        if version:
            more = ", no TCP" * (version >= 4) + ", no signals to others" * (version >= 6)
            held.append(f"reads Python and the system, writes its folder{more} (Landlock)")
        else:
            held.append("no Landlock")
        return [*held, "no privileges"]


def _tried(shelter: Shelter) -> str:
    """Go all the way to a confined candidate; tell what is in the way, or ""."""
    said, say = os.pipe()
    os.waitpid(_forked(_rehearse, shelter, say), 0)
    os.close(say)
    with open(said, "rb") as stream:
        words = stream.read().decode(errors="replace")
    return "" if words == _DONE else words or "the process that tried was ended"


_DONE = "done"


def _rehearse(shelter: Shelter, say: int) -> None:
    shelter.enter()
    os.waitpid(_forked(_rehearse_nursery, shelter, say), 0)


def _rehearse_nursery(shelter: Shelter, say: int) -> None:
    homes = shelter.settle()
    pid = _forked(_rehearse_candidate, shelter, say, homes.fork)
    os.waitpid(pid, 0)
    homes.let_go(pid)


def _rehearse_candidate(shelter: Shelter, say: int) -> None:
    shelter.confine(Limits())
    os.write(say, _DONE.encode())


def _forked(
    work: Callable[[Shelter, int], None],
    shelter: Shelter,
    say: int,
    fork: Callable[[], int] = os.fork,
) -> int:
    pid = fork()
    if pid == 0:
        try:
            work(shelter, say)
        except BaseException as error:  # noqa: BLE001 - it is told
            os.write(say, str(error).encode()[:500])
        finally:
            os._exit(0)
    return pid


def limit(limits: Limits, *, bounded: bool = True) -> None:
    """Hold this process to limits.

    Parameters
    ----------
    bounded: whether the number of its processes is bounded already.
    """
    chosen = {
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_AS: limits.memory,
        resource.RLIMIT_FSIZE: limits.file_size,
        resource.RLIMIT_NPROC: None if bounded else limits.processes,
    }
    for which, most in chosen.items():
        if most is not None:
            _, hard = resource.getrlimit(which)
            agreed = most if hard == resource.RLIM_INFINITY else min(most, hard)
            resource.setrlimit(which, (agreed, agreed))
