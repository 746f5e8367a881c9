"""Applying the upper layer of an overlay to the folder below it."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import shutil
import stat
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from nbrefine.kernel.workspace.folders import Entry, Pairs, printable
from nbrefine.kernel.workspace.layers import FAMILIES, is_opaque, is_whiteout, same_content

_NO_RANGES = {errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP}


@dataclass(slots=True)
class Commit:
    """Gives a folder what a branch's upper layer says.

    Each file appears at once and as a whole.  What cannot be applied is told, and the rest is
    applied.  A file that somebody else has changed since the branch began is not lost: it is
    kept beside the branch's version under its name with `.kept`; and one that the branch had
    deleted stays.

    A second run applies what came late.
    """

    upper: Path
    folder: Path
    started: int
    """When the branch began, in nanoseconds, by the clock of the file system."""
    applied: int
    """Until when the folder has what the layer says, or 0; by the clock of the file system."""
    move: bool
    """Whether files may leave the layer, because no other branch stands on it."""
    own: dict[tuple[int, int], int] = field(default_factory=dict)
    """Device and inode -> last change of what was committed before: that is nobody else's."""
    ignore: Collection[str] = ()
    """Paths relative to the folder that are not applied."""
    pairs: Pairs = field(default_factory=dict)
    """Path -> what the folder had there before all commits, and what it has there now."""
    problems: list[str] = field(default_factory=list)
    failed: bool = False
    """Whether something could not be applied; it is still in the layer."""

    def run(self) -> None:
        """Apply everything."""
        self._attempt(self._apply_folder, self.upper, self.folder, "")

    def _attempt(
        self, action: Callable[[Path, Path, str], None], source: Path, target: Path, path: str
    ) -> None:
        if path in self.ignore:
            return
        try:
            action(source, target, path)
        except OSError as error:
            told = f"{printable(path or '.')} was not committed: {error.strerror or error}"
            self.problems.append(told)
            self.failed = True

    def _apply_folder(self, source: Path, target: Path, path: str) -> None:
        facts, before = source.lstat(), target.lstat()
        with _open_to_owner(source), _open_to_owner(target):
            names = _names(source)
            if facts.st_ctime_ns > self.applied and is_opaque(source):
                for name in _names(target) - names:
                    self._attempt(self._delete, source, target / name, _join(path, name))
                if self.move:  # or a second run would delete what this one moves
                    _strip(source)
            for name in sorted(names):
                inner = _join(path, name)
                self._attempt(self._apply, source / name, target / name, inner)
        if self.move:  # what left it has changed its time
            os.utime(source, ns=(facts.st_atime_ns, facts.st_mtime_ns))
        self._dress(target, facts, before)

    def _apply(self, source: Path, target: Path, path: str) -> None:
        facts, there = source.lstat(), _look(target)
        folder = stat.S_ISDIR(facts.st_mode)
        if not folder and facts.st_ctime_ns <= self.applied:
            return
        if is_whiteout(facts):
            self._delete(source, target, path)
            if self.move:
                source.unlink()
        elif folder:
            old = Entry.of(there) if there else None
            if there is None or not stat.S_ISDIR(there.st_mode):
                self._clear(source, target, path)
                target.mkdir(0o700)
                self._own(target)
            self._apply_folder(source, target, path)
            self._note(path, old, target)
        elif not (there and Entry.of(there) == Entry.of(facts) and same_content(source, target)):
            self._clear(source, target, path)
            with self._parted(target):
                self._place(source, facts, target)
            self._own(target)
            self._note(path, Entry.of(there) if there else None, target)

    def _clear(self, source: Path, target: Path, path: str) -> None:
        """Make room for what the branch has under a name, and keep what is somebody else's."""
        there = _look(target)
        if there is None:
            return
        if stat.S_ISDIR(there.st_mode):
            self._delete(source, target, path)
        elif not self._is_foreign(there) or same_content(source, target):
            if stat.S_ISDIR(source.lstat().st_mode):
                with self._parted(target):
                    target.unlink()
            return
        if _look(target):
            kept = _free(target.with_name(f"{target.name}.kept"))
            target.rename(kept)
            shown = printable(kept.name)
            self.problems.append(
                f"{printable(path)} was changed by somebody else meanwhile and is kept as {shown}"
            )

    def _delete(self, source: Path, target: Path, path: str) -> None:
        there = _look(target)
        if there is None:
            return
        if stat.S_ISDIR(there.st_mode):
            with _open_to_owner(target):
                for name in _names(target):
                    self._attempt(self._delete, source, target / name, _join(path, name))
            with contextlib.suppress(OSError):  # what is still in it has been told
                target.rmdir()
                self._note(path, Entry.of(there), target)
        elif self._is_foreign(there):
            told = "was changed by somebody else meanwhile and is not deleted"
            self.problems.append(f"{printable(path)} {told}")
        else:
            with self._parted(target):
                target.unlink()
            self._note(path, Entry.of(there), target)

    def _place(self, source: Path, facts: os.stat_result, target: Path) -> None:
        """Move or copy what is no folder."""
        mode = stat.S_IMODE(facts.st_mode)
        closed = not stat.S_ISLNK(facts.st_mode) and mode & 0o600 != 0o600
        if closed:  # its owner must read it and remove attributes
            source.chmod(mode | 0o600)
        try:
            if self.move:
                _strip(source)
            if not (self.move and _moved(source, target)):
                _copy(source, facts, target)
            if closed:
                target.chmod(mode)
        finally:
            if closed and _look(source):
                source.chmod(mode)

    def _dress(self, target: Path, facts: os.stat_result, before: os.stat_result) -> None:
        """Give a folder the mode, owner and times that it has in the layer."""
        if os.geteuid() not in (0, target.lstat().st_uid):
            return  # only its owner may, and so the branch could not either
        changed = facts.st_mtime_ns
        if self._is_foreign(before):
            changed = max(changed, before.st_mtime_ns)
        _chown(target, facts)
        target.chmod(stat.S_IMODE(facts.st_mode))
        os.utime(target, ns=(facts.st_atime_ns, changed))
        self._own(target)

    def _is_foreign(self, there: os.stat_result) -> bool:
        mine = self.own.get((there.st_dev, there.st_ino))
        return there.st_ctime_ns > self.started and mine != there.st_ctime_ns

    def _own(self, target: Path) -> None:
        facts = target.lstat()
        self.own[facts.st_dev, facts.st_ino] = facts.st_ctime_ns

    @contextlib.contextmanager
    def _parted(self, target: Path) -> Iterator[None]:
        """Take a name from a file; that changes the file, which may have other names."""
        there = _look(target)
        if there is None or there.st_nlink == 1 or self._is_foreign(there):
            yield
            return
        file = os.open(target, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            yield
            facts = os.fstat(file)
            self.own[facts.st_dev, facts.st_ino] = facts.st_ctime_ns
        finally:
            os.close(file)

    def _note(self, path: str, old: Entry | None, target: Path) -> None:
        there = _look(target)
        first = self.pairs[path][0] if path in self.pairs else old
        new = Entry.of(there) if there else None
        if there and new and new == old and new.kind == "file":
            new = new._replace(changed=there.st_ctime_ns)  # its time was set back
        self.pairs[path] = first, new


@contextlib.contextmanager
def _open_to_owner(folder: Path) -> Iterator[None]:
    """Let the owner read and write a folder for a while."""
    mode = stat.S_IMODE(folder.lstat().st_mode)
    if mode & 0o700 == 0o700:
        yield
        return
    folder.chmod(mode | 0o700)
    try:
        yield
    finally:
        folder.chmod(mode)


def _strip(path: Path) -> None:
    """Remove the overlay's own attributes."""
    with contextlib.suppress(OSError):  # a file system that has none
        for name in os.listxattr(path, follow_symlinks=False):
            if name.startswith(FAMILIES):
                os.removexattr(path, name, follow_symlinks=False)


def _moved(source: Path, target: Path) -> bool:
    try:
        source.rename(target)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        return False
    return True


def _copy(source: Path, facts: os.stat_result, target: Path) -> None:
    fresh = target.with_name(f".nbrefine-{secrets.token_hex(4)}")
    try:
        if stat.S_ISLNK(facts.st_mode):
            fresh.symlink_to(source.readlink())
        elif stat.S_ISREG(facts.st_mode):
            _copy_content(source, fresh, facts.st_size)
        elif stat.S_ISFIFO(facts.st_mode):
            os.mkfifo(fresh)
        else:
            os.mknod(fresh, facts.st_mode, facts.st_rdev)
        _chown(fresh, facts)
        shutil.copystat(source, fresh, follow_symlinks=False)
        _strip(fresh)
        fresh.rename(target)
    except BaseException:
        fresh.unlink(missing_ok=True)
        raise


def _chown(path: Path, facts: os.stat_result) -> None:
    there = path.lstat()
    if (facts.st_uid, facts.st_gid) != (there.st_uid, there.st_gid):
        with contextlib.suppress(PermissionError):  # a group that the user is not in
            os.chown(path, facts.st_uid, facts.st_gid, follow_symlinks=False)


def _copy_content(source: Path, target: Path, size: int) -> None:
    """Copy data and leave holes holes; file systems that can will share the data."""
    with source.open("rb", 0) as reader, target.open("xb", 0) as writer:
        os.truncate(writer.fileno(), size)
        end = 0
        while end < size:
            try:
                start = os.lseek(reader.fileno(), end, os.SEEK_DATA)
            except OSError as error:
                if error.errno == errno.ENXIO:  # the rest is a hole
                    return
                raise
            end = min(os.lseek(reader.fileno(), start, os.SEEK_HOLE), size)
            _copy_range(reader.fileno(), writer.fileno(), start, end)


def _copy_range(reader: int, writer: int, start: int, end: int) -> None:
    while start < end:
        try:
            count = os.copy_file_range(reader, writer, end - start, start, start)
        except OSError as error:
            if error.errno not in _NO_RANGES:
                raise
            count = os.pwrite(writer, os.pread(reader, min(end - start, 1 << 20), start), start)
        if count == 0:  # it has been cut meanwhile
            return
        start += count


def _names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def _look(path: Path) -> os.stat_result | None:
    try:
        return path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return None


def _free(path: Path) -> Path:
    found, number = path, 1
    while _look(found):
        number += 1
        found = path.with_name(f"{path.name}-{number}")
    return found


def _join(path: str, name: str) -> str:
    return f"{path}/{name}" if path else name
