"""What is seen of a working folder without a cell."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import os
import struct
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

import pytest

from nbrefine.env.looking import (
    LINES,
    LISTED,
    Folder,
    Listing,
    Seen,
    pictures,
    told_pictures,
)
from nbrefine.files import FileChange, FileChanges
from nbrefine.outputs import CellResult, Display, Stream

T = TypeVar("T")


def run(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(work)


def listed(folder: Folder, *written: str) -> str:
    return run(folder.described(written)).folder


def read(folder: Folder, path: str, start: int = 1) -> Seen:
    return run(folder.read(path, start))


def test_lines_of_a_text_file_are_given_from_a_line_on(tmp_path: Path) -> None:
    (tmp_path / "long.txt").write_text("".join(f"line {n}\n" for n in range(1, 101)))
    first = read(Folder(tmp_path), "long.txt")
    assert first.title == f"long.txt (792 B), lines 1 to {LINES} of 100"
    assert first.text.splitlines()[0::59] == ["line 1", "line 60"]
    rest = read(Folder(tmp_path), "./long.txt", 99)
    assert rest.title == "./long.txt (792 B), lines 99 to 100 of 100"
    assert rest.text == "line 99\nline 100"
    assert read(Folder(tmp_path), "long.txt", 200).title == "long.txt (792 B) has no line 200"


def test_long_lines_are_cut_and_binary_files_are_described(tmp_path: Path) -> None:
    (tmp_path / "wide.txt").write_text("a" * 1000)
    assert read(Folder(tmp_path), "wide.txt").text == "a" * 300 + "…"
    (tmp_path / "x.png").write_bytes(PNG)
    told = read(Folder(tmp_path), "x.png").title
    assert told == f"x.png is a binary file of {len(PNG)} B 640x480; it has no lines"
    (tmp_path / "latin.txt").write_bytes(b"caf\xe9\n")
    assert read(Folder(tmp_path), "latin.txt").text == "caf\ufffd"


def test_only_the_folder_and_the_data_files_can_be_read(tmp_path: Path) -> None:
    inside, outside = tmp_path / "in", tmp_path / "out"
    for place in (inside, outside):
        place.mkdir()
        (place / "data.txt").write_text(place.name)
    (inside / "way").symlink_to(outside / "data.txt")
    folder = Folder(inside, data=["../out/data.txt"])
    assert read(folder, "../out/data.txt").text == "out"
    assert read(folder, str(outside / "data.txt")).text == "out"
    assert read(folder, "way").text == "out"
    closed = Folder(inside)
    for path in ("../out/data.txt", "way", "/etc/hostname", "", "a\0b"):
        seen = read(closed, path)
        assert (seen.found, "outside" in seen.title) == (False, True)
    assert read(closed, "nothing.txt") == Seen("There is no file nothing.txt", "", found=False)
    assert "data.txt" in read(closed, ".").text


def test_what_is_ignored_is_not_read_by_any_name_of_it(tmp_path: Path) -> None:
    (tmp_path / "e.ipynb").write_text("hidden tests")
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "old.txt").write_text("hidden tests")
    (tmp_path / "link.txt").symlink_to("e.ipynb")
    (tmp_path / "free.txt").write_text("free")
    folder = Folder(tmp_path, data=("e.ipynb",), ignore=("e.ipynb", "kept"))
    names = ("e.ipynb", "./kept/../e.ipynb", "link.txt", "kept/old.txt", "kept", f"{tmp_path}/kept")
    for name in names:
        seen = read(folder, name)
        assert not seen.found
        assert "hidden" not in seen.text
    assert read(folder, ".").text == "free.txt"
    assert read(folder, "free.txt").text == "free"


def test_a_file_is_read_as_far_as_that_costs_little(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nbrefine.env.looking.READ", 5_000)
    (tmp_path / "one.json").write_text("x" * 200_000)
    seen = read(Folder(tmp_path), "one.json")
    assert seen.title == "one.json (200.0 kB), lines 1 to 1 of more than 1"
    assert seen.text == "x" * 300 + "…"
    with (tmp_path / "holes.txt").open("w") as file:
        file.write("ab\n" * 2_000)
        file.truncate(10_000_000_000)
    title = read(Folder(tmp_path), "holes.txt").title
    assert title.startswith("holes.txt (10000.0 MB), lines 1 to 60 of more than ")
    title = read(Folder(tmp_path), "holes.txt", 1_000_000_000).title
    assert title == "holes.txt (10000.0 MB) has no line 1000000000 in its first 5.0 kB"
    (tmp_path / "three.txt").write_bytes(b"a\r\n\r\nc")
    seen = read(Folder(tmp_path), "three.txt", 1)
    assert (seen.title, seen.text) == ("three.txt (6 B), lines 1 to 3 of 3", "a\n\nc")


def test_what_is_no_file_of_the_folder_is_neither_waited_for_nor_followed(tmp_path: Path) -> None:
    folder, secret = tmp_path / "in", tmp_path / "secret.csv"
    folder.mkdir()
    secret.write_text("key\n")
    os.mkfifo(folder / "pipe.csv")
    (folder / "self.csv").symlink_to("self.csv")
    (folder / "away.csv").symlink_to(secret)
    data = Folder(folder, data=["pipe.csv", "self.csv"])
    assert listed(data).splitlines() == ["pipe.csv (0 B)", "self.csv (not there)"]
    names = ["pipe.csv", "self.csv", "x" * 5_000, "/".join(["x" * 200] * 50), "self.csv/x"]
    assert [read(data, name).found for name in names] == [False] * 5
    assert max(len(read(data, name).title) for name in names) < 400
    assert run(data.there(["pipe.csv", "self.csv", "away.csv", "../secret.csv"])) == ()


def test_a_name_stays_in_its_line(tmp_path: Path) -> None:
    (tmp_path / "a\nb.csv").write_text("h\n")
    (tmp_path / "c\x1b[31m").write_text("red")
    folder = Folder(tmp_path)
    assert listed(folder).splitlines() == ["a\\nb.csv (2 B): h", "c\\x1b[31m (3 B)"]
    assert read(folder, "a\nb.csv").title == "a\\nb.csv (2 B), lines 1 to 1 of 1"
    assert read(folder, ".").text == "a\\nb.csv\nc\\x1b[31m"


def test_many_data_files_are_counted(tmp_path: Path) -> None:
    folder = Folder(tmp_path, data=[f"{n}.csv" for n in range(LISTED + 3)])
    assert listed(folder).splitlines()[-1] == "… and 3 more data files"


def test_secrets_in_files_are_not_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOP_API_KEY", "violets-and-roses")
    (tmp_path / "log.txt").write_text("key violets-and-roses was used")
    (tmp_path / "t.csv").write_text("violets-and-roses,b\n")
    folder = Folder(tmp_path)
    assert read(folder, "log.txt").text == "key [redacted:SHOP_API_KEY] was used"
    assert "violets" not in listed(folder)


def test_the_folder_is_listed_data_files_first_and_tables_with_their_columns(
    tmp_path: Path,
) -> None:
    (tmp_path / "z.csv").write_text("a;b\n1;2\n")
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "notes.txt").write_text("n" * 2500)
    (tmp_path / "record.ipynb").write_text("{}")
    folder = Folder(tmp_path, data=["z.csv", "gone.csv"], ignore=["record.ipynb"])
    assert listed(folder).splitlines() == [
        "z.csv (8 B): a;b",
        "  first row: 1;2",
        "gone.csv (not there)",
        "sub/notes.txt (2.5 kB)",
    ]
    for n in range(LISTED + 5):
        (tmp_path / f"f{n:02}").touch()
    assert listed(folder).splitlines()[-1] == "… and 6 more files"
    assert run(Folder(None, data=["z.csv"]).described()) == Listing(elsewhere="z.csv")


def test_of_what_is_no_data_a_row_is_shown_only_where_a_cell_wrote_it(tmp_path: Path) -> None:
    (tmp_path / "orders.csv").write_text("a,b\n1,2\n")
    (tmp_path / "pay.csv").write_text("c,d\n3,4\n")
    (tmp_path / "pay.jsonl").write_text('{"c": 3}\n')
    data = Folder(tmp_path, data=["./orders.csv"])
    assert listed(data).splitlines() == [
        "./orders.csv (8 B): a,b",
        "  first row: 1,2",
        "pay.csv (8 B)",
        "pay.jsonl (9 B)",
    ]
    assert "pay.csv (8 B): c,d\n  first row: 3,4\n" in listed(data, "pay.csv")
    assert listed(Folder(tmp_path), "pay.csv").splitlines() == [
        "orders.csv (8 B): a,b",
        "pay.csv (8 B): c,d",
        "  first row: 3,4",
        "pay.jsonl (9 B): columns: c",
    ]


def test_data_files_that_lie_elsewhere_are_told_apart(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    (tmp_path / "z.csv").write_text("a,b\n1,2\n")
    (folder / "way.csv").symlink_to(tmp_path / "z.csv")
    (folder / "x.csv").write_text("c\n")
    names = ["../z.csv", "way.csv", str(folder / "x.csv")]
    assert run(Folder(folder, data=names).described()) == Listing(
        folder=f"way.csv (8 B): a,b\n  first row: 1,2\n{folder}/x.csv (2 B): c",
        elsewhere="../z.csv (8 B): a,b\n  first row: 1,2",
    )


def test_artifacts_are_the_files_that_were_written_as_they_are_now(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("abc")
    changes = FileChanges(
        (
            FileChange("a.txt", "created", size=3),
            FileChange("gone.txt", "created", size=3),
            FileChange("old.txt", "deleted", size=3),
            FileChange("sub", "created", "folder"),
        )
    )
    found = run(Folder(tmp_path).artifacts(changes))
    digest = hashlib.sha256(b"abc").hexdigest()
    assert [(each.path, each.size, each.sha256) for each in found] == [("a.txt", 3, digest)]
    assert run(Folder(tmp_path).artifacts(None)) == ()


PNG = b"\x89PNG\r\n\x1a\n" + struct.pack(">I4sII", 13, b"IHDR", 640, 480) + b"\0" * 76


@pytest.mark.parametrize(
    ("mime", "data", "told"),
    [
        ("image/png", PNG, "image/png 640x480, 100 B"),
        ("image/gif", b"GIF89a" + struct.pack("<HH", 3, 2), "image/gif 3x2, 10 B"),
        ("image/jpeg", b"\xff\xd8" + b"x" * 22_998, "image/jpeg, 23.0 kB"),
    ],
)
def test_pictures_are_told_by_kind_extents_and_size(mime: str, data: bytes, told: str) -> None:
    shown = Display({mime: base64.b64encode(data).decode(), "text/plain": "<Figure>"})
    result = CellResult("draw()", "ok", (Stream("stdout", "x"), shown))
    assert told_pictures(result) == f"Picture 1: {told}"
    assert [image.mime for image in pictures(result)] == [mime]


def test_the_last_few_pictures_go_with_a_prompt_and_a_cut_one_is_told() -> None:
    shown = tuple(Display({"image/png": f"AAA{n}"}) for n in range(6))
    assert [each.data for each in pictures(CellResult("", "ok", shown))] == [
        f"AAA{n}" for n in range(2, 6)
    ]
    cut = CellResult("", "ok", (Display({"image/png": "AAAAA"}),))
    assert told_pictures(cut) == "Picture 1: image/png, not complete"
    assert (pictures(None), told_pictures(None)) == ((), "")
