"""Notebooks of other people, and records that other tools or accidents have changed.

Each is read, or refused in one line that says what the file is; no file is ever changed, and
nothing is left beside it.
"""

from __future__ import annotations

import gzip
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import nbformat
import pytest
from IPython.core.error import UsageError as Refusal

import nbrefine
from nbrefine import notebook
from nbrefine.cli import call
from nbrefine.errors import RecordError
from nbrefine.magics.refine import Refinement
from nbrefine.notebook import document
from nbrefine.values import Episode
from nbrefine.views import handout, page
from nbrefine.views.player import Player

LOOKS = (
    ("show", "{file}"),
    ("show", "{file}", "--step"),
    ("show", "{file}", "--html"),
    ("show", "{file}", "--handout"),
)
COMMANDS = (
    *LOOKS,
    ("replay", "{file}"),
    ("diff", "{file}", "{file}"),
    ("run", "x", "--model", "recorded:{file}", "-o", "{elsewhere}/new.ipynb"),
    ("run", "x", "--model", "scripted:{replies}", "-o", "{file}", "--overwrite"),
    ("solve", "--resume", "{file}", "--model", "scripted:{replies}"),
    (
        *("solve", "--branch", "{file}", "--from-step", "1"),
        *("-o", "{elsewhere}/new.ipynb", "--model", "scripted:{replies}"),
    ),
)
"""Whatever takes a record."""

Seen = dict[str, tuple[int, int, bytes]]


def looked_at(folder: Path) -> Seen:
    """Give what a folder holds: names, modes, times and bytes."""
    return {
        each.name: (
            each.lstat().st_mode,
            each.lstat().st_mtime_ns,
            each.read_bytes() if each.is_file() else b"",
        )
        for each in folder.iterdir()
    }


def ask(path: Path) -> list[str]:
    """Ask whatever takes a record in Python or in a notebook, and give what each says of it."""
    # A shell without a kernel: what shows an episode there prints it.
    magics: Any = Refinement(SimpleNamespace(user_ns={}))
    asked: list[Callable[[], object]] = [
        lambda: notebook.load(path),
        lambda: nbrefine.show(path),
        lambda: nbrefine.replay(path),
        lambda: nbrefine.diff(path, path),
        lambda: Player(path),
        lambda: page.to_html(path),
        lambda: handout.to_notebook(path),
        lambda: magics.refine_view(str(path)),
        lambda: magics.refine_replay(str(path)),
    ]
    told = []
    for each in asked:
        with pytest.raises((RecordError, Refusal)) as raised:
            each()
        told.append(str(raised.value))
    return told


def command(words: tuple[str, ...], path: Path, elsewhere: Path) -> list[str]:
    elsewhere.mkdir(exist_ok=True)
    replies = elsewhere / "replies.yaml"
    replies.write_text("- x = 1\n")
    places = {"file": str(path), "elsewhere": str(elsewhere), "replies": str(replies)}
    return [word.format(**places) for word in words]


def refusal(
    words: tuple[str, ...], path: Path, elsewhere: Path, capsys: pytest.CaptureFixture[str]
) -> str:
    """Call a command that must refuse a file, and give its one line."""
    assert call(command(words, path, elsewhere)) == 2, words
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.startswith("nbrefine: ")
    assert told.err.count("\n") == 1, told.err
    assert [each.name for each in elsewhere.iterdir()] == ["replies.yaml"]
    return told.err


@pytest.fixture
def others(shared_data: Path, tmp_path: Path) -> Path:
    """A copy of the awkward notebooks."""
    folder = tmp_path / "others"
    shutil.copytree(shared_data / "notebooks", folder)
    return folder


def test_whatever_takes_a_record_refuses_the_notebooks_of_others(
    others: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = looked_at(others)
    found = sorted(others.glob("*.ipynb"))
    assert len(found) == 105
    formats = set()
    for path in found:
        made = json.loads(path.read_bytes())
        old = made["nbformat"] < 4
        kind = "a notebook of the old format 3" if old else "a plain notebook of "
        for told in ask(path):
            assert f"{path} is {kind}" in told
            assert told.endswith("not an episode. Give a file that nbrefine recorded")
        if (form := (made["nbformat"], made.get("nbformat_minor"))) in formats:
            continue
        formats.add(form)  # the commands do the same and take their time
        for words in COMMANDS:
            told = refusal(words, path, tmp_path / "elsewhere", capsys)
            assert f"{path} is {kind}" in told
    assert len(formats) == 7
    assert call(["show", str(others)]) == 2
    assert capsys.readouterr().err.startswith("nbrefine: There is no episode notebook in")
    assert looked_at(others) == before


def test_no_episode_is_saved_over_a_notebook_of_others(others: Path, repaired: Episode) -> None:
    before = looked_at(others)
    for path in sorted(others.glob("*.ipynb")):
        with pytest.raises(RecordError, match="not an episode"):
            notebook.save(repaired, path)
        with pytest.raises(RecordError, match="not an episode"):
            notebook.Recorder(path, overwrite=True)
        with pytest.raises(RecordError, match="is there already"):
            handout.write(repaired, path)
        with pytest.raises(RecordError, match="is a notebook's name"):
            page.write(repaired, path, overwrite=True)
    assert looked_at(others) == before


Change = Callable[[dict[str, Any]], Any]
"""Changes a notebook's JSON, or gives another in its place."""


def _of_code(made: dict[str, Any], **fields: Any) -> None:
    for cell in made["cells"]:
        if cell["cell_type"] == "code":
            cell.update(fields)


def _downgraded(made: dict[str, Any]) -> Any:
    """As a program of 2020 saves it, or Google's Colab."""
    made["nbformat_minor"] = 4
    for cell in made["cells"]:
        del cell["id"]


def _saved_by_jupyter(made: dict[str, Any]) -> Any:
    read: Any = nbformat
    return json.loads(read.writes(read.reads(json.dumps(made), as_version=4)))


def _saved_as_3(made: dict[str, Any]) -> Any:
    convert: Any = nbformat.convert
    return convert(nbformat.from_dict(made), 3)  # type: ignore[no-untyped-call]  # has no types


HARMLESS: dict[str, Change] = {
    "saved by Jupyter": _saved_by_jupyter,
    "of a minor that has no ids": _downgraded,
    "of a minor to come": lambda made: made.update(nbformat_minor=9),
    "with new ids": lambda made: [
        cell.update(id=f"new{number}") for number, cell in enumerate(made["cells"])
    ],
    "with ids that are none": lambda made: [cell.update(id=[1]) for cell in made["cells"]],
    "with the state of widgets": lambda made: made["metadata"].update(
        widgets={"application/vnd.jupyter.widget-state+json": {"state": {"a": {"state": {}}}}}
    ),
    "with widgets that lack a state": lambda made: made["metadata"].update(
        widgets={"application/vnd.jupyter.widget-state+json": {"a": {}}}
    ),
    "with NaN in its metadata": lambda made: made["metadata"].update(loss=math.nan),
    "with cells twice": lambda made: made["cells"].extend(json.loads(json.dumps(made["cells"]))),
    "with a copied cell that was edited": lambda made: made["cells"].append(
        {**next(each for each in made["cells"] if each["id"] == "s01-a02"), "source": "mean = 5"}
    ),
    "with lone surrogates": lambda made: made["cells"].append(
        {"cell_type": "code", "id": "mine", "metadata": {}, "source": "a\ud800", "outputs": []}
    ),
    "without its text": lambda made: made.update(
        cells=[cell for cell in made["cells"] if cell["cell_type"] == "code"]
    ),
    "with what are no cells": lambda made: made["cells"].extend(["x", 3, None, [], {}]),
    "with outputs that are none": lambda made: _of_code(made, outputs=None),
    "with an output of 20 MB": lambda made: made["cells"].append(
        {
            "cell_type": "code",
            "id": "mine",
            "metadata": {},
            "execution_count": 1,
            "source": "print(text)",
            "outputs": [{"output_type": "stream", "name": "stdout", "text": "x" * 20_000_000}],
        }
    ),
}
"""Changes that are nothing to the record."""

EDITS: dict[str, Change] = {
    "with its accepted cell edited": lambda made: [
        cell.update(source="mean = 4") for cell in made["cells"] if cell["id"] == "s01-a02"
    ],
    "without its accepted cell": lambda made: made.update(
        cells=[cell for cell in made["cells"] if cell["id"] != "s01-a02"]
    ),
    "with an accepted cell of odd text": lambda made: _of_code(made, source=["x", None, 3]),
    "without cells": lambda made: made.update(cells=[]),
    "with cells that are none": lambda made: made.update(cells=None),
    "without a place for cells": lambda made: made.pop("cells"),
    "with odd outputs": lambda made: _of_code(
        made,
        outputs=[
            "x",
            None,
            {"output_type": "stream", "name": "stdout", "text": None},
            {"output_type": "display_data", "data": None, "metadata": {}},
            {"output_type": "display_data", "data": {"text/plain": [None, "x"]}, "metadata": {}},
            {"output_type": "error", "ename": "E", "evalue": None, "traceback": None},
            {"output_type": "error", "ename": "E", "evalue": "", "traceback": "line"},
        ],
    ),
    "of an old format": _saved_as_3,
}
"""Changes that the record notes on its accepted attempt."""

ENCODINGS: dict[str, Callable[[str], bytes]] = {
    "with a byte order mark": lambda text: text.encode("utf-8-sig"),
    "with Windows' ends of lines": lambda text: text.replace("\n", "\r\n").encode(),
    "in UTF-16": lambda text: text.encode("utf-16"),
    "with escapes alone": lambda text: json.dumps(json.loads(text)).encode(),
}


def changed(path: Path, change: Change) -> None:
    made = json.loads(path.read_bytes())
    other = change(made)
    made = other if isinstance(other, dict) and "nbformat" in other else made
    path.write_bytes(json.dumps(made, ensure_ascii=False).encode("utf-8", "surrogatepass"))


@pytest.fixture
def record(tmp_path: Path, repaired: Episode) -> Path:
    folder = tmp_path / "records"
    folder.mkdir()
    notebook.save(repaired, folder / "episode.ipynb")
    return folder / "episode.ipynb"


def shown(path: Path, elsewhere: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """See that every view of a record is there, and that its file stays as it was."""
    before = looked_at(path.parent)
    elsewhere.mkdir()
    for words in LOOKS:
        place = ("-o", str(elsewhere / f"made{words[-1]}"))
        kind = {"--html": ".html", "--handout": ".ipynb"}.get(words[-1], "")
        more = [place[0], place[1] + kind] if kind else []
        assert call([*(word.format(file=path) for word in words), *more]) == 0
        told = capsys.readouterr()
        assert told.err == ""
        text = Path(more[1]).read_text(encoding="utf-8") if more else told.out
        assert "mean-price" in text
        assert "KeyError" in text or "--handout" in words
    assert looked_at(path.parent) == before


@pytest.mark.parametrize("change", HARMLESS)
def test_a_record_that_was_changed_where_it_does_not_matter_is_the_same(
    record: Path,
    repaired: Episode,
    change: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    changed(record, HARMLESS[change])
    assert notebook.load(record) == repaired
    shown(record, tmp_path / "elsewhere", capsys)


@pytest.mark.parametrize("change", EDITS)
def test_a_record_with_other_cells_tells_what_was_recorded_and_that_they_are_others(
    record: Path,
    repaired: Episode,
    change: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    changed(record, EDITS[change])
    found = notebook.load(record)
    first, second = found.turns
    assert second.result is not None
    note = document.OTHERS if change == "with odd outputs" else document.EDITED
    assert second.result.notes == (note,)
    noted = replace(second, result=replace(second.result, notes=()))
    assert replace(found, turns=(first, noted)) == repaired
    shown(record, tmp_path / "elsewhere", capsys)


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_a_record_is_read_however_its_text_is_written(
    record: Path,
    repaired: Episode,
    encoding: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    record.write_bytes(ENCODINGS[encoding](record.read_text(encoding="utf-8")))
    assert notebook.load(record) == repaired
    shown(record, tmp_path / "elsewhere", capsys)


def test_surrogates_and_nan_in_the_record_itself_are_read_as_what_can_be_told(
    record: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = record.read_text(encoding="utf-8")
    assert '"seconds": 1.25' in text
    odd = text.replace('"seconds": 1.25', '"seconds": NaN').replace("KeyError", "Key\\ud800Error")
    record.write_text(odd, encoding="utf-8")
    second = notebook.load(record).turns[1]
    assert math.isnan(second.seconds)
    before = looked_at(record.parent)
    assert call(["show", str(record)]) == 0
    assert "Key\ufffdError" in capsys.readouterr().out
    assert page.write(record, tmp_path / "page.html").stat().st_size
    assert looked_at(record.parent) == before


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


def test_a_folder_is_listed_with_what_cannot_be_read_in_it(
    others: Path, repaired: Episode, capsys: pytest.CaptureFixture[str]
) -> None:
    notebook.save(repaired, others / "episode.ipynb")
    torn = others / "torn.ipynb"
    torn.write_bytes((others / "episode.ipynb").read_bytes()[:500])
    assert call(["show", str(others)]) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first == f"{others / 'episode.ipynb'}  Solved after 2 turns: 2/2 tests passed."
    assert second.startswith(f"{torn} is not JSON to its end: it breaks off in line ")


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
