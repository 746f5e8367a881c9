"""Namespaces: processes, files, network and shared memory that a candidate has to itself.

A nursery enters a user namespace and a root of its own once; each candidate then gets process
numbers, a folder and shared memory of its own, which takes a third of a millisecond.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
from typing import NoReturn

from . import prctl
from .folders import live_in

_NEW_MOUNTS, _NEW_IPC = 0x00020000, 0x08000000
_NEW_USER, _NEW_PROCESSES, _NEW_NETWORK = 0x10000000, 0x20000000, 0x40000000

_NO_WRITING, _NO_SUID, _NO_DEVICES = 1, 2, 4  # MS_RDONLY, MS_NOSUID, MS_NODEV
_BIND, _SLAVES = 0x5000, 0x4000 | 1 << 19  # MS_BIND | MS_REC, MS_SLAVE | MS_REC
_DETACH = 2  # MNT_DETACH
_SET_ATTRIBUTES = 442  # mount_setattr(2), the same on every architecture
_RECURSIVE, _READ_ONLY = 0x8000, 3  # AT_RECURSIVE, MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID

FOLDER = "/scratch"
"""The folder that a candidate is in, and may write to."""

MOST_PROCESSES = 301
"""Processes and threads of one candidate: the least that Linux, from 6.14 on, can be told."""

_SWEEP = 20  # milliseconds

_FILES = f"size={256 << 20},nr_inodes={1 << 16},mode=700"
"""Bytes and number of the files in a candidate's folder: both take memory."""

_libc = ctypes.CDLL(None, use_errno=True)


def enter() -> None:
    """Enter the namespaces that all candidates of a nursery have in common.

    What this process forks next is the first process of a process namespace: with it ends
    all that was started in it.  It must have one thread.

    Raises
    ------
    OSError: namespaces are forbidden.
    """
    user, group = os.geteuid(), os.getegid()
    _unshare(_NEW_USER | _NEW_PROCESSES | _NEW_NETWORK)
    _write("/proc/self/setgroups", "deny")
    _write("/proc/self/uid_map", f"{user} {user} 1")
    _write("/proc/self/gid_map", f"{group} {group} 1")


def make_root(readable: list[str]) -> None:
    """Leave the host's files for a root that holds some of them, and nothing to write to.

    Parameters
    ----------
    readable: absolute paths of files and folders; those that are not there are left out.

    Raises
    ------
    OSError: the kernel refuses.
    """
    _unshare(_NEW_MOUNTS)
    _mount(None, "/", None, _SLAVES)
    real = {path: os.path.realpath(path) for path in readable if os.path.exists(path)}
    _mount("nbrefine", "/tmp", "tmpfs", _NO_SUID)  # any folder does: it is the root in a moment
    os.mkdir("/tmp/.host")
    _checked(_libc.pivot_root(b"/tmp", b"/tmp/.host"), "pivot_root")
    os.chdir("/")
    for path in ("/proc", "/dev/shm", FOLDER):
        os.makedirs(path)
    _mount("proc", "/proc", "proc", _NO_SUID | _NO_DEVICES)  # allowed while the host's is there
    for path in sorted({*real, *real.values()}):
        _show(f"/.host{real.get(path, path)}", path)
    _checked(_libc.umount2(b"/.host", _DETACH), "umount2")
    os.rmdir("/.host")
    _set_attributes("/", _RECURSIVE, on=_READ_ONLY)
    _set_attributes("/proc", 0, off=_READ_ONLY)  # for what is set of a room
    _write_sysctl("user/max_user_namespaces", 0)  # in one of its own it had privileges again


class Rooms:
    """Forks processes into rooms, of which each is one process's own at a time."""

    def __init__(self) -> None:
        live_in(FOLDER)  # once for all, as it is where each is
        self._own = _open_own("pid")
        self._idle = [_Room(self._own)]
        self._taken: dict[int, _Room] = {}
        self._closed: list[_Room] = []
        self.bounded = self._idle[0].bounded
        """Whether a process can have but so many descendants."""

    def fork(self) -> int:
        """Fork: the child's number, and 0 in the child, which is to call `furnish`."""
        room = self._idle.pop() if self._idle else _Room(self._own)
        try:
            room.enter()
            pid = os.fork()
        except OSError:
            room.close()
            self._closed.append(room)
            raise
        self._taken[pid] = room
        return pid

    def furnish(self) -> list[str]:
        """Enter an empty folder; give the paths that are this process's own."""
        _unshare(_NEW_MOUNTS | _NEW_IPC)
        for path in (FOLDER, "/dev/shm"):
            _mount("nbrefine", path, "tmpfs", _NO_SUID | _NO_DEVICES, _FILES)
        # As the superuser it could set what holds for the whole machine, were it not for Landlock.
        _mount("proc", "/proc", "proc", _NO_WRITING | _NO_SUID | _NO_DEVICES)
        os.chdir(FOLDER)
        return [FOLDER, "/dev/shm", "/proc"]

    def kill(self, pid: int) -> None:
        """End a child with all that it has started."""
        if pid in self._taken:
            self._taken[pid].close()

    def free(self, pid: int) -> None:
        """End what a child that has ended has left and may hold it, before it is waited for."""
        self.kill(pid)

    def let_go(self, pid: int) -> None:
        """End what a child that has ended has left; nothing happens for another process."""
        if pid not in self._taken:
            return
        reusable = self._taken[pid].is_empty() and not self._reap_strays()
        room = self._taken.pop(pid)
        if reusable:
            self._idle.append(room)
        else:
            room.close()
            self._closed.append(room)

    def sweep(self) -> int | None:
        """Reap what has ended of closed rooms; give the milliseconds until more may have."""
        if not self._closed:
            return None
        self._reap_strays()  # as a room ends only after them
        self._closed = [each for each in self._closed if not each.is_gone()]
        return _SWEEP if self._closed else None

    def _reap_strays(self) -> bool:
        """Reap what candidates have made children of this process; tell whether there were any.

        They do so by CLONE_PARENT, and nobody knows which room such a child is in.  One that has
        ended counts, as it may have made another meanwhile.
        """
        rooms = (*self._idle, *self._taken.values(), *self._closed)
        own = {*self._taken, *(each.keeper for each in rooms)}
        try:
            strays = set(prctl.children(os.getpid())) - own
        except OSError:
            return True
        for each in strays:
            os.waitpid(each, os.WNOHANG)
        return bool(strays)


class _Room:
    """A process namespace, whose first process does nothing but reap.

    The candidate beside it is a child of the nursery, so that its exit status is the true one and
    signals do to it what they do anywhere.
    """

    def __init__(self, own: int) -> None:
        _checked(_libc.setns(own, _NEW_PROCESSES), "setns")
        _unshare(_NEW_PROCESSES)
        said, say = os.pipe()
        try:
            self.keeper = os.fork()
            if self.keeper == 0:
                _keep(say)
            self.bounded = os.read(said, 1) == b"+"
        finally:
            os.close(said)
            os.close(say)
        self._numbers = _open_own("pid_for_children")

    def enter(self) -> None:
        """Have what is forked next be in it."""
        _checked(_libc.setns(self._numbers, _NEW_PROCESSES), "setns")

    def is_empty(self) -> bool:
        """Tell whether it is there, and nobody in it; the candidate must have ended."""
        if self._numbers < 0:
            return False
        with contextlib.suppress(OSError):
            return not prctl.children(self.keeper)
        return False

    def is_gone(self) -> bool:
        """Tell whether it has ended with all that was in it, once it is closed."""
        return os.waitpid(self.keeper, os.WNOHANG)[0] != 0

    def close(self) -> None:
        """End all that is in it; a second call does nothing."""
        if self._numbers >= 0:
            os.close(self._numbers)
            self._numbers = -1
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.keeper, signal.SIGKILL)


def _keep(say: int) -> NoReturn:
    """Be the first process of a room until that is closed."""
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # what has lost its parents is reaped
        prctl.name("nb-room")
        try:
            _write_sysctl("kernel/pid_max", MOST_PROCESSES)
            os.write(say, b"+")
        except OSError:
            os.write(say, b"-")
        os.closerange(0, 1 << 16)
        while True:
            signal.pause()
    finally:
        os._exit(1)


def _show(source: str, place: str) -> None:
    if os.path.lexists(place):
        return  # as part of a folder
    folder = place if os.path.isdir(source) else os.path.dirname(place)
    os.makedirs(folder, exist_ok=True)
    if folder != place:
        os.close(os.open(place, os.O_CREAT | os.O_CLOEXEC, 0o600))
    _mount(source, place, None, _BIND)


def _open_own(namespace: str) -> int:
    return os.open(f"/proc/self/ns/{namespace}", os.O_RDONLY | os.O_CLOEXEC)


def _unshare(what: int) -> None:
    _checked(_libc.unshare(what), "unshare")


def _mount(source: str | None, place: str, kind: str | None, flags: int, more: str = "") -> None:
    words = [None if each is None else os.fsencode(each) for each in (source, place, kind)]
    _checked(_libc.mount(*words, ctypes.c_ulong(flags), more.encode()), f"mount {place}")


def _set_attributes(place: str, scope: int, *, on: int = 0, off: int = 0) -> None:
    attributes = (ctypes.c_uint64 * 4)(on, off)
    result = _libc.syscall(_SET_ATTRIBUTES, -1, os.fsencode(place), scope, attributes, 32)
    _checked(result, "mount_setattr")


def _checked(result: int, what: str) -> None:
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, f"{what}: {os.strerror(error)}")


def _write_sysctl(name: str, value: int) -> None:
    _write(f"/proc/sys/{name}", str(value))


def _write(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)
