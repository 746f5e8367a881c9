"""What notebooks of agents have been broken by elsewhere, and a record is not."""

from __future__ import annotations

import copy
import json
import re
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbconvert import HTMLExporter, MarkdownExporter, SlidesExporter

from nbrefine import notebook
from nbrefine.errors import RecordError
from nbrefine.notebook import document
from nbrefine.notebook.cells import turn_ids
from nbrefine.outputs import CellResult, Display, Failure, Stream
from nbrefine.values import Episode, KernelInfo, Task, Turn
from nbrefine.views import page

LINK = "\x1b]8;;https://example.org/a\x1b\\the page\x1b]8;;\x1b\\"
"""A hyperlink as terminals know it (OSC 8)."""


def first_code(made: dict[str, Any]) -> Any:
    return next(cell for cell in made["cells"] if cell["id"] == "s01-a02")


def _with_an_error(made: dict[str, Any], **fields: Any) -> None:
    error = {"output_type": "error", "ename": "E", "evalue": "", "traceback": []}
    first_code(made)["outputs"] = [error | fields]


INVALID: dict[str, Callable[[dict[str, Any]], object]] = {
    "an id with a blank": lambda made: first_code(made).update(id="a b"),
    "no id": lambda made: first_code(made).pop("id"),
    "an id twice": lambda made: made["cells"].append(first_code(made)),
    "an id in format 4.4": lambda made: made.update(nbformat_minor=4),
    "no source": lambda made: first_code(made).update(source=None),
    "an error without a value": lambda made: _with_an_error(made, evalue=None),
    "a traceback of one text": lambda made: _with_an_error(made, traceback="line"),
    "a kernel's own key in an output": lambda made: first_code(made)["outputs"][0].update(
        transient={"display_id": "x"}
    ),
    "a tag with a comma": lambda made: first_code(made)["metadata"].update(tags=["a,b"]),
    "a tag twice": lambda made: first_code(made)["metadata"].update(tags=["a", "a"]),
    "a kernel without a name to show": lambda made: made["metadata"]["kernelspec"].pop(
        "display_name"
    ),
    "a time that is a number": lambda made: first_code(made)["metadata"].update(
        execution={"iopub.status.busy": 1.5}
    ),
}
"""What `nbformat.write` writes without a word."""


@pytest.mark.parametrize("change", INVALID)
def test_nothing_is_written_that_a_strict_reader_refuses(repaired: Episode, change: str) -> None:
    made = copy.deepcopy(document.build(repaired, name="e.ipynb"))
    document.dumps(made)
    INVALID[change](made)
    with pytest.raises(RecordError, match="would not be valid"):
        document.dumps(made)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_no_number_gets_into_a_file_that_json_has_not(
    tmp_path: Path, repaired: Episode, value: float
) -> None:
    """JupyterLab opens no file with `NaN` in it, wherever it stands."""
    made = document.build(repaired, name="e.ipynb")
    made["metadata"]["loss"] = value
    with pytest.raises(ValueError, match="not JSON compliant"):
        document.dumps(made)
    shown = Display({"application/json": {"loss": value}, "text/plain": "x"}, {"scale": value}, 1)
    turn = replace(repaired.turns[1], result=CellResult("x", "ok", (shown,)), seconds=value)
    episode = replace(repaired, turns=(turn,), settings={"best": [value]})
    notebook.save(episode, tmp_path / "e.ipynb")

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    text = (tmp_path / "e.ipynb").read_text(encoding="utf-8")
    json.loads(text, parse_constant=refuse)
    (found,) = notebook.load(tmp_path / "e.ipynb").turns
    assert found.result is not None
    assert repr(found.result.outputs) == repr((shown,))
    assert repr(found.seconds) == repr(value)


def test_lone_surrogates_anywhere_leave_a_whole_file_and_the_old_one_until_then(
    tmp_path: Path, repaired: Episode
) -> None:
    path = tmp_path / "e.ipynb"
    notebook.save(repaired, path)
    odd = "\udce9\ud800"
    error = Failure(odd, odd, (odd,))
    outputs = (Stream("stdout", odd), Display({"text/html": odd, "a/b+json": {odd: odd}}), error)
    first, second = repaired.turns
    episode = replace(
        repaired,
        id=odd,
        turns=(
            replace(first, result=CellResult(odd, "error", (error,), error), feedback=odd),
            replace(second, result=CellResult(odd, "ok", outputs, notes=(odd,))),
        ),
        kernel=KernelInfo(odd, odd, "python", odd),
        task=Task(odd, odd, setup=odd, tests=odd, files=(odd,), metadata={odd: odd}),
        settings={odd: [odd]},
    )
    notebook.save(episode, path)
    nbformat.validate(json.loads(path.read_text(encoding="utf-8")))
    assert notebook.load(path).id == "\ufffd\ufffd"
    assert page.write(path, tmp_path / "page.html").read_text(encoding="utf-8")


def test_a_record_that_another_program_saves_meanwhile_loses_nothing(
    tmp_path: Path, repaired: Episode
) -> None:
    """An editor that has the notebook open saves it late, halfway, empty, or takes it away."""
    path = tmp_path / "e.ipynb"
    start = replace(repaired, turns=(), stop=None)
    spoils: list[Callable[[], object]] = [
        lambda: path.write_text("{", encoding="utf-8"),
        lambda: path.write_text('{"cells": [], "metadata": {}, "nbformat": 4}', encoding="utf-8"),
        lambda: path.write_bytes(b""),
        path.unlink,
    ]
    for spoil in spoils:
        recorder = notebook.Recorder(path, overwrite=True)
        recorder.begin(start)
        recorder.turn(replace(start, turns=repaired.turns[:1]))
        spoil()
        assert notebook.load(path).turns == repaired.turns[:1]
        recorder.turn(replace(start, turns=repaired.turns))
        if path.exists():
            spoil()
        recorder.end(repaired)
        assert notebook.load(path) == repaired
        assert [each.name for each in tmp_path.iterdir()] == ["e.ipynb"]


def test_links_and_colours_of_terminals_are_text_in_all_that_is_read(repaired: Episode) -> None:
    line = f"\x1b[31mKeyError\x1b[0m: see {LINK} or https://example.org/\x1b[0m"
    error = Failure("KeyError", line, (line,))
    first, second = repaired.turns
    result = CellResult(first.code, "error", (Stream("stdout", line), error), error)
    episode = replace(repaired, turns=(replace(first, result=result, feedback=result.text), second))
    made: Any = notebook.to_notebook(episode)
    markdown, _ = MarkdownExporter().from_notebook_node(made)  # type: ignore[no-untyped-call]
    html, _ = HTMLExporter().from_notebook_node(made)  # type: ignore[no-untyped-call]
    for told in (markdown, html, page.to_html(episode), result.text):
        assert "KeyError" in told
        assert "see the page or" in re.sub("<[^>]+>", "", told)
        assert not re.search("\x1b|]8;;", told)
    assert notebook.from_notebook(made) == episode


def test_a_strict_page_of_nbconvert_still_tells_everything(repaired: Episode) -> None:
    exporter: Any = HTMLExporter()  # type: ignore[no-untyped-call]
    exporter.sanitize_html = True
    made: Any = notebook.to_notebook(repaired)
    html, _ = exporter.from_notebook_node(made)
    words = " ".join(re.sub("<[^>]+>", "", html).split())
    for each in ("Attempt 1 of 2 was rejected", "KeyError", "0/2 tests passed", "mean 4.0"):
        assert each in words


def test_slides_are_made_of_the_parts_that_are_told(repaired: Episode) -> None:
    made: Any = notebook.to_notebook(repaired)
    slides, _ = SlidesExporter().from_notebook_node(made)  # type: ignore[no-untyped-call]
    assert slides.count("<section") >= 5
    assert "Attempt 1 of 2 was rejected" in slides


def test_words_are_used_and_no_signs_that_a_browser_may_lack(repaired: Episode) -> None:
    text = document.dumps(notebook.to_notebook(repaired)) + page.to_html(repaired)
    assert {each for each in text if ord(each) >= 0x2190} == set()


def test_ids_are_valid_and_told_apart_however_many_there_are(repaired: Episode) -> None:
    turn = repaired.turns[0]
    numbers = [(step, attempt) for step in (1, 99, 100, 12_345) for attempt in (1, 99, 1_000)]
    turns: list[Turn] = [
        replace(turn, number=number, step=step, attempt=attempt)
        for number, (step, attempt) in enumerate(numbers * 3, 1)
    ]
    ids = turn_ids(replace(repaired, turns=tuple(turns)))
    assert len(set(ids)) == len(turns)
    assert all(re.fullmatch("[a-zA-Z0-9_-]{1,64}", each) for each in ids)


def test_a_notebook_that_grew_by_another_tool_is_one_that_other_tools_read(
    tmp_path: Path, repaired: Episode
) -> None:
    path = tmp_path / "e.ipynb"
    notebook.save(repaired, path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        made: Any = nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]
        made.cells.append(nbformat.v4.new_code_cell("1 + 1"))  # type: ignore[no-untyped-call]
        nbformat.validate(made)
    assert notebook.from_notebook(made) == repaired
    del made.cells[-1]["id"]
    assert notebook.from_notebook(made) == repaired
