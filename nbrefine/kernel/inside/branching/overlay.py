"""An overlay of the working folder for one branch, mounted by the branch itself.

A branch sees the folder through an overlay in a mount namespace of its own: what it writes,
changes or deletes goes to its upper layer, and nobody else sees it.  Layers lie flat: the lower
layers are the uppers of the branch's ancestors, newest first, and the folder itself; an overlay
never lies on an overlay.

An ordinary user needs a user namespace for that.  The first branch of a line enters one and its
descendants share it, so namespaces do not nest.  In it, programs that change the user (`sudo`,
`ping` on some systems) do not work, and files of other users and groups show as nobody's and
cannot be changed (EOVERFLOW).  The capabilities that it gives are kept out of effect while cells
run, so a cell may do there no more than anywhere.

What else differs from the folder itself:

- an overlay does not freeze what lies under it: what somebody writes to the folder later shows
  in the branch, except where the branch has its own version;
- `os.rename` of a folder that was there before the branch raises EXDEV (`shutil.move` copies);
- a file opened for reading before the branch first changes it goes on showing the old content;
- hard links are parted when one of their names is changed.

Runs in kernels of any Python 3.10 or newer, and by path as a program that tries it all out.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
import re
import shutil
import stat
import struct
import sys
import tempfile
import time
from typing import Any, NamedTuple

NAME = "nbrefine"
"""The source by which a mount of ours is known in /proc/self/mountinfo."""

COPIED = "copied"
"""The file beside the layer that tells when the last of the files that were open was copied."""

Hazard = dict[str, str]
"""A thing that an overlay does not cover, as the scan before a fork tells it."""

_NEW_MOUNTS = 0x00020000  # CLONE_NEWNS
_NEW_USER = 0x10000000  # CLONE_NEWUSER
_SLAVES = 0x4000 | 1 << 19  # MS_REC | MS_SLAVE: what the host unmounts goes away here too
_DETACH = 2  # MNT_DETACH
_SYS_ADMIN = 21  # CAP_SYS_ADMIN
_CAPABILITIES = 0x20080522  # _LINUX_CAPABILITY_VERSION_3

_MODES = os.O_ACCMODE | os.O_APPEND | os.O_NONBLOCK | getattr(os, "O_DIRECT", 0) | os.O_DSYNC

_ESCAPED = re.compile(rb"\\([0-7]{3})")  # a blank or backslash in a path, in octal

_libc = ctypes.CDLL(None, use_errno=True)
_in_session = False  # forked along: whether this process is in a user namespace of ours


def enter(settings: dict[str, Any]) -> list[Hazard]:
    """Mount the overlay over the folder and go on in it; the process must have one thread.

    Files and folders below it that are open are reopened through the overlay, at the same
    offset; standard streams are left alone.

    Parameters
    ----------
    settings: `folder`, its real path; `upper` and `work`, empty folders on one file system;
        `lowers`, the uppers of the ancestors, newest first. The layers have plain names below
        one folder.

    Gives the open files that still reach the folder itself.  So would one that is mapped into
    memory for writing, because of which the process would not have been forked.

    Raises
    ------
    OSError: where namespaces or the mount are refused; the process should then end.
    """
    folder = settings["folder"]
    here, open_files = _whereabouts(folder), _open_files(folder)
    enter_session()
    with _privileged():
        _check(_libc.unshare(_NEW_MOUNTS), "a mount namespace")
        _check(_libc.mount(None, b"/", None, _SLAVES, None), "separate mounts")
        _unmount(folder)
        _mount(folder, settings["lowers"], settings["upper"], settings["work"])
    if here is not None:
        os.chdir(here)
    kept = _reopen(open_files)
    _note_copies(open_files, settings["work"])
    return kept


def leave(settings: dict[str, Any]) -> list[Hazard]:
    """Unmount the overlay and go on in the folder itself, to which the upper was committed.

    It may have threads. Gives what goes on writing to the upper layer, which is about to be
    removed.

    Raises
    ------
    OSError: where the mount cannot be detached.
    """
    folder = settings["folder"]
    here, open_files = _whereabouts(folder), _open_files(folder)
    others = _mapped(folder) + _programs(folder)
    with _privileged():
        _unmount(folder)
    if here is not None:
        os.chdir(here if os.path.isdir(here) else folder)
    return _reopen(open_files) + others


def enter_session() -> None:
    """Enter a user namespace that allows mounts, unless that is allowed already.

    The process must have one thread.

    Raises
    ------
    OSError: where user namespaces are forbidden, as by AppArmor or a sysctl.
    """
    global _in_session  # noqa: PLW0603 - a process enters once, and its forks are in it with it
    if _in_session or _may_mount():
        return
    user, group = os.geteuid(), os.getegid()
    _check(_libc.unshare(_NEW_USER), "a user namespace")
    _write("/proc/self/setgroups", "deny")
    _write("/proc/self/uid_map", f"{user} {user} 1")
    _write("/proc/self/gid_map", f"{group} {group} 1")
    _in_session = True
    _set_effective(on=False)


def remove(folder: str) -> None:
    """Remove a folder with all that is in it, also what a cell or the system closed to us.

    Nothing happens to a link in its place, or to what that leads to.
    """
    if os.path.islink(folder):
        return
    shutil.rmtree(folder, ignore_errors=True)
    if os.path.lexists(folder):
        for path, names, _ in os.walk(folder):  # top down, so that it may enter what it opens
            for name in names:
                inner = os.path.join(path, name)
                if not os.path.islink(inner):
                    with contextlib.suppress(OSError):
                        os.chmod(inner, 0o700)
        shutil.rmtree(folder, ignore_errors=True)


class Mount(NamedTuple):
    """One mounted file system."""

    place: str
    kind: str
    source: str


def mounts() -> list[Mount]:
    """Give the mounts that this process sees."""
    found = []
    with open("/proc/self/mountinfo", "rb") as lines:
        for line in lines:
            fields = [_plain(field) for field in line.split()]
            kind, source = fields[fields.index("-", 6) + 1 :][:2]
            found.append(Mount(fields[4], kind, source))
    return found


def _plain(field: bytes) -> str:
    if b"\\" in field:
        field = _ESCAPED.sub(lambda octal: bytes([int(octal[1], 8)]), field)
    return os.fsdecode(field)


def _mount(folder: str, lowers: list[str], upper: str, work: str) -> None:
    # The options of a mount must fit into one page, and a path may hold what separates them: so
    # layers have names relative to where all of them lie, and the folder that of a descriptor.
    base = os.path.commonpath([*lowers, upper, work])
    above, beside, *below = (os.path.relpath(path, base) for path in (upper, work, *lowers))
    descriptor = os.open(folder, os.O_PATH | os.O_CLOEXEC)
    before = os.open(".", os.O_PATH | os.O_CLOEXEC)
    try:
        os.chdir(base)
        options = (
            f"lowerdir={':'.join([*below, f'/proc/self/fd/{descriptor}'])}"
            f",upperdir={above},workdir={beside},index=off,metacopy=off,redirect_dir=nofollow"
            f"{',userxattr' if _in_session else ''}"
        )
        what = f"an overlay of {len(below) + 1} folders"
        target = os.fsencode(folder)
        _check(_libc.mount(NAME.encode(), target, b"overlay", 0, options.encode()), what)
    finally:
        os.fchdir(before)
        os.close(before)
        os.close(descriptor)
    with contextlib.suppress(OSError):  # made with mode 0, which only root could remove
        os.chmod(os.path.join(work, "work"), 0o700)


def _unmount(folder: str) -> None:
    """Detach our overlay from the folder, also one that came along with a fork."""
    for mount in mounts():
        if mount == Mount(folder, "overlay", NAME):
            _check(_libc.umount2(os.fsencode(folder), _DETACH), "the end of the overlay")


def _whereabouts(folder: str) -> str | None:
    """Give the current folder if it is the working folder or below, as a path to go back to."""
    try:
        here = os.getcwd()
    except FileNotFoundError:
        # It was deleted, or lies in an overlay that has been detached since: then its path
        # begins at the overlay's root.
        link = os.readlink("/proc/self/cwd")
        here = folder + link.rstrip("/")
        return here if os.path.isdir(here) and not link.endswith(" (deleted)") else None
    return here if _is_below(here, folder) else None


def _is_below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def _open_files(folder: str, process: str = "self") -> dict[int, str]:
    """Give what a process has open in the folder, standard streams left out."""
    found = {}
    for name in os.listdir(f"/proc/{process}/fd"):
        with contextlib.suppress(OSError):  # the descriptor of this very list
            path = os.readlink(f"/proc/{process}/fd/{name}")
            if int(name) > 2 and _is_below(path, folder):
                found[int(name)] = path
    return found


def _reopen(files: dict[int, str]) -> list[Hazard]:
    kept = []
    for descriptor, path in files.items():
        try:
            _reopen_one(descriptor, path)
        except OSError as error:
            if error.errno != errno.EBADF:  # closed meanwhile by a thread
                kept.append(_hazard("open-file", f"{path} stays open as it was: {error.strerror}"))
    return kept


def _note_copies(files: dict[int, str], work: str) -> None:
    """Note until when files changed in the upper layer only because they were reopened here."""
    copied = 0
    for descriptor in files:
        with contextlib.suppress(OSError):
            if fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE != os.O_RDONLY:
                copied = max(copied, os.fstat(descriptor).st_ctime_ns)
    note = os.path.join(work, COPIED)
    _write(note, str(copied))
    # What a cell changes must be later, and the clock of a file system moves in steps.
    while os.stat(note).st_ctime_ns <= copied:
        time.sleep(0.001)
        os.utime(note)


def _reopen_one(descriptor: int, path: str) -> None:
    facts = os.fstat(descriptor)
    if not (stat.S_ISREG(facts.st_mode) or stat.S_ISDIR(facts.st_mode)):
        return
    flags = fcntl.fcntl(descriptor, fcntl.F_GETFL)
    flags = flags & _MODES | flags & getattr(os, "O_PATH", 0) | os.O_CLOEXEC
    fresh = os.open(path, flags | (os.O_DIRECTORY if stat.S_ISDIR(facts.st_mode) else 0))
    try:
        if stat.S_ISREG(facts.st_mode) and not flags & os.O_PATH:
            os.lseek(fresh, os.lseek(descriptor, 0, os.SEEK_CUR), os.SEEK_SET)
        os.dup2(fresh, descriptor, inheritable=os.get_inheritable(descriptor))
    finally:
        os.close(fresh)


def _mapped(folder: str) -> list[Hazard]:
    """Name the files that are mapped for writing: a mapping cannot be moved."""
    paths = set()
    with open(
        "/proc/self/maps", encoding=sys.getfilesystemencoding(), errors="surrogateescape"
    ) as lines:
        for line in lines:
            fields = line.rstrip("\n").split(maxsplit=5)
            if len(fields) == 6 and fields[1][1::2] == "ws" and _is_below(fields[5], folder):
                paths.add(fields[5])
    told = "is mapped into memory: writes to the mapping go to the file as it was"
    return [_hazard("mapped-file", f"{path} {told}") for path in sorted(paths)]


def _programs(folder: str) -> list[Hazard]:
    """Name the programs that cells have started and that have files or are in the overlay."""
    ours, command = os.readlink("/proc/self/ns/mnt"), _command("self")
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):  # it has ended, or is somebody else's
            if os.readlink(f"/proc/{name}/ns/mnt") != ours or int(name) == os.getpid():
                continue
            here = os.readlink(f"/proc/{name}/cwd")
            within = _is_below(here, folder) or bool(_open_files(folder, name))
            # A fork of this process, such as its checkpoint, looks like it, and one that is
            # ending has no command any more.
            if within and (other := _command(name)) not in (command, b""):
                text = other.replace(b"\0", b" ").decode(errors="replace").strip()
                told = f"process {name} ({text[:60]}) goes on in the overlay that ends"
                found.append(_hazard("process", told))
    return found


def _command(process: str) -> bytes:
    with open(f"/proc/{process}/cmdline", "rb") as file:
        return file.read()


def _hazard(kind: str, detail: str) -> Hazard:
    return {"kind": kind, "verdict": "shared", "detail": detail}


def _may_mount() -> bool:
    """Tell whether this process may mount file systems without a user namespace."""
    return bool(_capabilities()[0] >> _SYS_ADMIN & 1)


@contextlib.contextmanager
def _privileged() -> Any:
    """Put the session's capabilities into effect, for this thread."""
    if not _in_session:
        yield
        return
    _set_effective(on=True)
    try:
        yield
    finally:
        _set_effective(on=False)


def _set_effective(*, on: bool) -> None:
    _, low, inherit, _, high, inherit_high = _capabilities()
    wanted = (low if on else 0, low, inherit, high if on else 0, high, inherit_high)
    header = ctypes.create_string_buffer(struct.pack("Ii", _CAPABILITIES, 0))
    data = ctypes.create_string_buffer(struct.pack("6I", *wanted))
    _check(_libc.capset(header, data), "a change of capabilities")


def _capabilities() -> tuple[int, ...]:
    """Give effective, permitted and inheritable capabilities, the low words and then the high."""
    header = ctypes.create_string_buffer(struct.pack("Ii", _CAPABILITIES, 0))
    data = ctypes.create_string_buffer(24)
    _check(_libc.capget(header, data), "the capabilities")
    return struct.unpack("6I", data.raw[:24])


def _write(path: str, text: str) -> None:
    with open(path, "w", encoding="ascii") as file:
        file.write(text)


def _check(result: int, what: str) -> None:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what} was refused: {os.strerror(number)}")


def _try_out(folder: str, private: str) -> None:
    """Do in an overlay what a branch may do, and raise an OSError where that does not work."""
    trial = tempfile.mkdtemp(dir=private)
    try:
        for name in ("below/old", "upper", "work"):
            os.makedirs(os.path.join(trial, name))
        below, upper, work = (os.path.join(trial, name) for name in ("below", "upper", "work"))
        old, new = os.path.basename(trial), os.path.basename(trial) + "-new"
        os.rename(os.path.join(below, "old"), os.path.join(below, old))
        enter({"folder": folder, "upper": upper, "work": work, "lowers": [below]})
        inside = os.path.join(folder, old)
        os.rmdir(inside)
        os.mkdir(inside)  # needs extended attributes, to hide what was there
        _write(os.path.join(folder, new), "new")
        os.unlink(os.path.join(folder, new))
        leave({"folder": folder})
        if os.path.lexists(inside):
            raise OSError("what was written in the overlay went to the folder itself")
    finally:
        remove(trial)


if __name__ == "__main__":
    try:
        _try_out(*sys.argv[1:])
    except OSError as failure:
        sys.stdout.write(str(failure.strerror or failure))
