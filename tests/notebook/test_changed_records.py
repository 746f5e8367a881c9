"""Records that other tools have changed, and that are read all the same."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import nbformat
import pytest

from nbrefine import notebook
from nbrefine.cli import call
from nbrefine.notebook import document
from nbrefine.values import Episode
from nbrefine.views import page
from tests.notebook.awkward import LOOKS, Change, changed, looked_at


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
