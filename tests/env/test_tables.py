"""What a table tells of itself in a listing of files."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from nbrefine.env.tables import HEAD, TABLE, told


def of(name: str, content: bytes) -> tuple[str, ...]:
    return told(name, io.BytesIO(content), len(content))


@pytest.mark.parametrize(
    ("name", "content", "lines"),
    [
        ("a.csv", b"region,n\r\nNorth,10\r\nSouth,5\r\n", ("region,n", "first row: North,10")),
        ("a.CSV", b"\xef\xbb\xbfregion\n", ("region",)),
        ("a.tsv", b"a\tb\n1\t2", ("a\tb", "first row: 1\t2")),
        ("a.csv", b"", ()),
        ("a.csv", b"\0\1", ()),
        ("a.jsonl", b'{"a": 1, "b": 2}\n[]', ("columns: a, b", 'first row: {"a": 1, "b": 2}')),
        ("a.ndjson", b"[1]\n", ()),
        ("a.json", b' [ {"a": 1, "b": 2}, 3', ("columns: a, b", 'first row: {"a": 1, "b": 2}')),
        ("a.json", b'{"a": {"0": 1}, "b": {"0": 2}}', ("columns: a, b",)),
        ("a.json", b'{"a": 1, "b": [2]}', ()),
        ("a.json", b"[1, 2]", ()),
        ("a.json", b"[", ()),
        ("a.json", b"[" * 60_000, ()),
        ("a.txt", b"a,b\n", ()),
        ("csv", b"a,b\n", ("a,b",)),
        ("a.parquet", b"PAR1 no such thing PAR1", ()),
    ],
)  # fmt: skip
def test_columns_and_the_first_row_are_told(
    name: str, content: bytes, lines: tuple[str, ...]
) -> None:
    assert of(name, content) == lines


@pytest.mark.parametrize("opens", ["[", '{"b": '])
def test_a_row_of_any_depth_is_told_or_is_none(opens: str) -> None:
    """One that can just be read cannot always be written."""
    closes = "]" if opens == "[" else "}"
    for depth in range(800, 1_100):
        lines = of("a.json", f'[{{"a": {opens * depth}1{closes * depth}}}]'.encode())
        assert lines[:1] in (("columns: a",), ())


def test_long_lines_are_cut_and_large_files_not_read_on() -> None:
    head, row = of("a.csv", b"x" * 5_000 + b"\n" + b"y" * 5_000 + b"\n")
    assert (head, row) == ("x" * TABLE + "…", f"first row: {'y' * (TABLE - 11)}…")
    rows = json.dumps([{"a": n} for n in range(100_000)]).encode()
    assert of("a.json", rows) == ("columns: a", 'first row: {"a": 0}')
    file = io.BytesIO(rows)
    told("a.json", file, len(rows))
    assert file.tell() == HEAD


def test_of_parquet_the_metadata_is_told(tmp_path: Path) -> None:
    pq = pytest.importorskip("pyarrow.parquet")
    pa = pytest.importorskip("pyarrow")
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"region": ["N", "S"], "amount": [1, 2]}), path)
    assert of("a.parquet", path.read_bytes()) == ("2 rows; columns: region, amount",)
    whole = path.read_bytes()
    footer = int.from_bytes(whole[-8:-4], "little")
    damaged = whole[: -8 - footer] + b"\xff" * footer + whole[-8:]
    assert of("a.parquet", damaged) == ()
