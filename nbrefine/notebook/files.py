"""Files that are whole or untouched: where a record may go, and how it gets there."""

from __future__ import annotations

import contextlib
import errno
import glob
import os
import re
import secrets
import stat
from pathlib import Path

from nbrefine.errors import RecordError
from nbrefine.notebook.reading import real as real_file


def target(path: str | Path) -> Path:
    """Give the real file behind a path for an episode notebook, which need not exist.

    Raises
    ------
    RecordError: no notebook can be written there, and why.
    """
    real = real_file(path)
    if Path(path).suffix != ".ipynb":
        raise RecordError(
            f"{path} is not a notebook's name", hint="Give a file name that ends in .ipynb"
        )
    if not real.parent.is_dir():
        raise RecordError(
            f"The folder {real.parent} does not exist", hint="Create it or choose another place"
        )
    if real.exists() and not real.is_file():
        raise RecordError(f"{path} is not a file", hint="Choose another name")
    if real.exists() and not os.access(real, os.W_OK):
        raise RecordError(f"{path} is write-protected", hint="Choose another name or allow writing")
    return real


def check_writable(path: Path) -> None:
    """Try that a file can be made beside `path`; a folder's mode does not tell for sure.

    Raises
    ------
    RecordError: it cannot.
    """
    probe = temporary(path)
    try:
        probe.touch(exist_ok=False)
        probe.unlink()
    except OSError as error:
        raise unwritable(path, error) from None


def replace_file(path: Path, text: str) -> None:
    """Put a text at a path at once: whoever looks sees the old file or the new one, whole.

    Raises
    ------
    RecordError: it cannot be written; the old file is untouched then.
    """
    new = temporary(path)
    try:
        with new.open("x", encoding="utf-8", newline="\n") as file:
            _like_the_old(path, file.fileno())
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)
        sync_folder(path)
    except OSError as error:
        raise unwritable(path, error) from None
    finally:
        new.unlink(missing_ok=True)


def sync_folder(path: Path) -> None:
    """Make a rename or removal beside `path` survive a power cut."""
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def temporary(path: Path) -> Path:
    """Give a free name beside `path` for what shall take its place; `sweep` knows it."""
    return path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")


def sweep(path: Path) -> None:
    """Remove what a killed writer of this very file left behind."""
    for left in path.parent.glob(f".{glob.escape(path.name)}.*.tmp"):
        left.unlink(missing_ok=True)


def folder_of(notebook: Path) -> Path:
    """Give the folder beside a notebook that holds all of an output that the notebook cuts."""
    return notebook.with_suffix(".files")


def whole_outputs(folder: Path) -> set[str]:
    """Name the files of outputs in a folder, those of a killed run included."""
    found = folder.iterdir() if folder.is_dir() else ()
    return {file.name for file in found if _WHOLE_OUTPUT.fullmatch(file.name)}


_WHOLE_OUTPUT = re.compile(r"[0-9a-f]{64}\.[a-z0-9]+|\.[0-9a-f]{16}\.tmp")


def tidy(folder: Path, keep: set[str]) -> None:
    """Remove the files of outputs that nothing refers to, and the folder if it is empty then."""
    with contextlib.suppress(OSError):  # a file too many is no trouble
        for name in whole_outputs(folder) - keep:
            (folder / name).unlink(missing_ok=True)
        folder.rmdir()


def unwritable(path: Path, error: OSError) -> RecordError:
    """Make the error for a file that cannot be written."""
    hint = "Choose another place"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        hint = "Free some space or choose another place; the old file is untouched"
    return RecordError(f"{path} cannot be written: {error.strerror or error}", hint=hint)


def _like_the_old(path: Path, descriptor: int) -> None:
    """Keep mode and owner of the file that is replaced; a new one has the umask's."""
    with contextlib.suppress(FileNotFoundError):
        old = path.stat()
        with contextlib.suppress(PermissionError):
            os.fchown(descriptor, old.st_uid, old.st_gid)
        os.fchmod(descriptor, stat.S_IMODE(old.st_mode))
