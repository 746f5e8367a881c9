"""Records that are damaged or cannot be reached: each is refused for what it is."""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from nbrefine import notebook
from nbrefine.cli import call
from nbrefine.errors import RecordError
from nbrefine.values import Episode
from tests.notebook.awkward import COMMANDS, LOOKS, Change, ask, changed, looked_at, refusal

BROKEN: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "truncated": (lambda data: data[: len(data) // 2], "is not JSON to its end: it breaks off in"),
    "without its last brace": (lambda data: data.rstrip()[:-1], "breaks off in line"),
    "empty": (lambda _: b"", "is empty"),
    "zeros": (lambda data: bytes(len(data)), "holds zero bytes alone"),
    "merged": (
        lambda data: b"<<<<<<< HEAD\n" + data + b"=======\n" + data + b">>>>>>> other\n",
        "holds both sides of a merge, first in line 1,",
    ),
    "merged within": (
        lambda data: data.replace(
            b' "metadata"', b'\n<<<<<<< ours\n "metadata"\n=======\n>>>>>>> theirs\n "metadata"'
        ),
        "git checkout --ours",
    ),
    "latin-1": (
        lambda data: data.replace(b"Compute", b"Comp\xfcte"),
        "is not UTF-8 text from byte",
    ),
    "packed": (gzip.compress, "is packed"),
    "a pointer": (
        lambda _: b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n",
        "git lfs pull",
    ),
    "a page": (lambda _: b"<!DOCTYPE html><p>404", "is not JSON: Expecting value, line 1,"),
    "two in one": (lambda data: data + data, "is not JSON: Extra data"),
    "too deep": (lambda _: b"[" * 100_000, "is not JSON that can be read"),
    "of a huge number": (
        lambda data: data.replace(b'"attempt": 2', b'"attempt": ' + b"9" * 5_000),
        "is not JSON that can be read",
    ),
}


@pytest.mark.parametrize("way", BROKEN)
def test_a_broken_record_is_refused_for_what_it_is(
    record: Path, way: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spoil, words = BROKEN[way]
    record.write_bytes(spoil(record.read_bytes()))
    before = looked_at(record.parent)
    for told in ask(record):
        assert words in told
        assert str(record) in told
    for each in COMMANDS:
        told = refusal(each, record, tmp_path / "elsewhere", capsys)
        assert words in told or "Choose another name: only an episode is ever replaced" in told
        assert str(record) in told
    assert looked_at(record.parent) == before


def test_a_damaged_value_is_told_by_the_place_or_the_kind(record: Path) -> None:
    whole = record.read_bytes()
    deep: Any = 0
    for _ in range(700):
        deep = [deep]

    def put(*keys: Any, value: Any) -> Change:
        def change(made: dict[str, Any]) -> None:
            inner = made["metadata"]["nbrefine"]
            for key in keys[:-1]:
                inner = inner[key]
            inner[keys[-1]] = value

        return change

    for change, words in (
        (lambda made: made["metadata"]["nbrefine"].pop("turns"), "it lacks 'turns'"),
        (put("turns", value=5), r"it is not built as nbrefine builds it \(TypeError"),
        (put("turns", 0, "verdict", value="splendid"), "verdict: Input should be"),
        (put("episode", "settings", value=deep), "RecursionError"),
        (put("episode", "seed", value={"$int": "x" * 10**6}), "is damaged: invalid literal"),
        (put("episode", "seed", value={"$float": "x" * 10**6}), "is damaged: could not convert"),
        (put("schema", value="nbrefine.episode/2"), "Install a newer nbrefine"),
        (put("schema", value=["nbrefine.episode/1"]), "is a plain notebook of 9 cells"),
    ):
        record.write_bytes(whole)
        changed(record, change)
        with pytest.raises(RecordError, match=words) as raised:
            notebook.load(record)
        assert len(str(raised.value)) < 500


@pytest.fixture
def not_files(record: Path) -> dict[Path, str]:
    """Names behind which there is no file to read, and what is said of them."""
    folder = record.parent
    (folder / "folder.ipynb").mkdir()
    os.mkfifo(folder / "pipe.ipynb")
    (folder / "nowhere.ipynb").symlink_to(folder / "gone")
    (folder / "round.ipynb").symlink_to(folder / "round.ipynb")
    (folder / "null.ipynb").symlink_to("/dev/null")
    return {
        folder / "folder.ipynb": "is a folder",
        folder / "pipe.ipynb": "is a pipe, not a file",
        folder / "nowhere.ipynb": "cannot be read: No such file",
        folder / "round.ipynb": "cannot be read: Too many levels of symbolic links",
        folder / "null.ipynb": "is a device, not a file",
        Path("/dev/null"): "is a device, not a file",
        Path("/dev/zero"): "is a device, not a file",
        Path("/dev/zero.ipynb"): "cannot be read",
        folder / "missing.ipynb": "cannot be read: No such file",
        record / "below.ipynb": "cannot be read: Not a directory",
        folder / f"{'long' * 80}.ipynb": "cannot be read: File name too long",
        folder / f"{'l' * 245}.ipynb": "cannot be read: File name too long",
    }


def test_what_is_no_file_is_refused_and_never_waited_for(
    not_files: dict[Path, str], record: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = looked_at(record.parent)
    for path, words in not_files.items():
        for told in ask(path):
            assert words in told
        for each in (COMMANDS[2], COMMANDS[4], COMMANDS[8]):
            told = refusal(each, path, tmp_path / "elsewhere", capsys)
            assert words in told or f"There is no episode notebook in {path}" in told
    for told in ask(record.with_name("zero\0.ipynb")):
        assert "is no name of a file" in told
    # Looking through a folder waits for no pipe either.
    assert call(["show", str(record.parent)]) == 0
    assert capsys.readouterr().out == f"{record}  Solved after 2 turns: 2/2 tests passed.\n"
    assert looked_at(record.parent) == before


def test_a_pipe_in_the_place_of_a_journal_is_not_waited_for(
    record: Path, repaired: Episode
) -> None:
    os.mkfifo(record.with_name("episode.nbrefine.jsonl"))
    assert notebook.load(record) == repaired
    record.unlink()
    with pytest.raises(RecordError, match="is a pipe"):
        notebook.load(record)


def test_what_nobody_may_read_or_write_is_told_and_read(repaired: Episode, capfd: Any) -> None:
    with tempfile.TemporaryDirectory() as name:  # pytest's own folder is closed to nobody
        folder = Path(name)
        path, closed = folder / "episode.ipynb", folder / "closed.ipynb"
        for each in (path, closed):
            notebook.save(repaired, each)
        path.chmod(0o444)
        closed.chmod(0o000)
        folder.chmod(0o555)
        before = looked_at(folder)
        with nobody():
            assert notebook.load(path) == repaired
            assert call(["show", str(path)]) == 0
            assert capfd.readouterr().out.count("KeyError: 'Price'") > 0
            for told in ask(closed):
                assert told.startswith(f"{closed} cannot be read: Permission denied")
            for words in LOOKS[2:]:
                assert call([word.format(file=path) for word in words]) == 2
                told = capfd.readouterr().err
                assert "cannot be written: Permission denied" in told
                assert told.count("\n") == 1
        assert looked_at(folder) == before
        folder.chmod(0o755)


@contextmanager
def nobody() -> Iterator[None]:
    """Take the powers of root away, before which nothing is closed."""
    was = os.geteuid()
    if was == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(was)


def test_a_name_that_has_no_sign_is_shown_as_far_as_it_can_be(record: Path) -> None:
    """A program is asked, as a terminal's own encoding matters."""
    odd = record.with_name("caf\udce9.ipynb")
    record.rename(odd)
    for words, there in (
        ((str(odd), "--html"), "caf\\udce9.html\n"),
        ((str(odd.parent),), "caf\\udce9.ipynb  Solved after 2 turns"),
    ):
        ran = subprocess.run(
            [sys.executable, "-c", "from nbrefine.cli import main; main()", "show", *words],
            check=True,
            capture_output=True,
            env={**os.environ, "PYTHONIOENCODING": "utf-8:strict"},
        )
        assert there in ran.stdout.decode()
        assert ran.stderr == b""
