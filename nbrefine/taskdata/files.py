"""Files of rows on this machine: which hold a split, and what JSON and CSV say, to the letter.

Parquet and the files' places in a folder are left to `datasets`.
"""

from __future__ import annotations

import csv
import gzip
import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from nbrefine.errors import UsageError

Row = Mapping[str, Any]
Paths = str | Path | Sequence[str | Path]
DataFiles = Paths | Mapping[str, Paths]
"""Files of the split that is asked for, or those of each split."""

_KINDS = {".jsonl": "lines", ".json": "json", ".csv": "csv", ".parquet": "parquet"}
_FORMATS = ".jsonl, .json, .csv (also .gz) or .parquet"


def local_files(name: str, split: str, data_files: DataFiles | None) -> list[str] | None:
    """Give the files on this machine that hold a split; None where it is elsewhere."""
    path = Path(name).expanduser()
    if data_files is None:
        if path.is_file():
            return [str(path)]
        if path.is_dir():
            return _in_folder(path, split)
        if _is_hub_name(name):
            return None
        raise UsageError(
            f"There is no file or folder {name}",
            hint=f"Give a folder, a {_FORMATS} file, or a name on the hub such as OWNER/NAME",
        )
    if isinstance(data_files, Mapping):
        data_files = _of_split(data_files, split)
    files = _listed(data_files)
    missing = [file for file in files if not Path(file).is_file()]
    if not missing:
        return files
    if Path(missing[0]).is_absolute() or not _is_hub_name(name):
        raise UsageError(f"There is no file {missing[0]}", hint="Check the path")
    return None


def _in_folder(folder: Path, split: str) -> list[str]:
    """Give the files of a split, which `datasets` tells by the names of files and folders."""
    from datasets import load_dataset_builder

    try:
        found = load_dataset_builder(str(folder)).config.data_files
    except (OSError, ValueError) as error:
        raise UsageError(
            f"{folder} holds no rows: {error}", hint=f"Put {_FORMATS} files into it"
        ) from error
    return _listed(_of_split({str(part): list(paths) for part, paths in found.items()}, split))


def _of_split(files: Mapping[str, Paths], split: str) -> Paths:
    base = base_of(split)
    if base not in files:
        raise UsageError(
            f"There are no files for the split {base!r}", hint=f"The splits are {', '.join(files)}"
        )
    return files[base]


def _listed(paths: Paths) -> list[str]:
    several = [paths] if isinstance(paths, str | Path) else paths
    return [str(Path(path).expanduser()) for path in several]


def _is_hub_name(name: str) -> bool:
    looks_local = name.startswith((".", "/", "~")) or _suffix(name) in _KINDS
    return not looks_local and re.fullmatch(r"[\w.-]+(/[\w.-]+)?", name) is not None


def fingerprint(files: Sequence[str]) -> str:
    """Give what changes with the content of files or their order, but not with their places."""
    digest = hashlib.sha256()
    for file in files:
        with Path(file).open("rb") as content:
            digest.update(hashlib.file_digest(content, "sha256").digest())
    return digest.hexdigest()[:16]


def base_of(split: str) -> str:
    """Give the split of which "test[:10]" is a part."""
    return re.split(r"[\[+]", split, maxsplit=1)[0]


def _suffix(path: str) -> str:
    return Path(path.removesuffix(".gz")).suffix.lower()


def kind_of(files: Sequence[str]) -> str:
    """Tell how files are read: "lines", "json", "csv" or "parquet"."""
    kinds = {_KINDS.get(_suffix(file), "") for file in files}
    kind = kinds.pop()
    if kinds or not kind:
        raise UsageError(
            f"Rows cannot be read from {', '.join(files)}",
            hint=f"Give {_FORMATS} files of one kind",
        )
    return kind


def read_files(kind: str, files: Sequence[str]) -> list[Row]:
    """Read the rows of files of one kind, but for Parquet.

    Raises
    ------
    UsageError: a file cannot be read, with the line where it is broken.
    """
    try:
        return [row for path in files for row in _READERS[kind](path)]
    except (OSError, EOFError, UnicodeDecodeError, csv.Error) as error:
        raise UsageError(f"{', '.join(files)} cannot be read: {error}") from error


def _text(path: str) -> IO[str]:
    return (
        gzip.open(path, "rt", encoding="utf-8-sig", newline="")
        if path.endswith(".gz")
        else Path(path).open(encoding="utf-8-sig", newline="")
    )


def _json_lines(path: str) -> Iterator[Row]:
    with _text(path) as file:
        for number, line in enumerate(file, 1):
            if line.strip():
                yield _row(path, number, _parsed(path, number, line.strip()))


def _json(path: str) -> Iterator[Row]:
    with _text(path) as file:
        text = file.read()
    if not text.lstrip().startswith("["):
        yield from _json_lines(path)  # a common habit
        return
    for number, value in enumerate(_parsed(path, 1, text), 1):
        yield _row(path, number, value)


def _csv(path: str) -> Iterator[Row]:
    with _text(path) as file:
        lines = csv.reader(file)
        names = next(lines, [])
        for values in lines:
            if values and len(values) != len(names):
                why = f"it has {len(values)} values, and the first line {len(names)} names"
                raise _unreadable(path, lines.line_num, why)
            if values:
                yield dict(zip(names, values, strict=True))


_READERS: Mapping[str, Callable[[str], Iterator[Row]]] = {
    "lines": _json_lines,
    "json": _json,
    "csv": _csv,
}


def _parsed(path: str, number: int, text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise _unreadable(path, number + error.lineno - 1, error.msg) from error


def _row(path: str, number: int, value: Any) -> Row:
    if not isinstance(value, dict):
        raise _unreadable(path, number, f"a row is an object, and this is {type(value).__name__}")
    return value


def _unreadable(path: str, number: int, why: object) -> UsageError:
    return UsageError(f"{path} cannot be read: line {number}: {why}", hint="Mend the file")


def part_of(rows: list[Row], split: str) -> list[Row]:
    """Take the part of the rows that a split such as "test[:10]" or "test[50%:]" names."""
    base = base_of(split)
    if split == base:
        return rows
    from datasets import ReadInstruction

    try:
        parts = ReadInstruction.from_spec(split).to_absolute({base: len(rows)})
    except (ValueError, AssertionError) as error:
        raise UsageError(f"{split!r} names no part of a split: {error}") from error
    return [row for part in parts for row in rows[part.from_ : part.to]]
