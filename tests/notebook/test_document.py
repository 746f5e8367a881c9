"""The notebook among other tools: validated, run, exported, edited, and told from others."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbconvert import HTMLExporter, MarkdownExporter, PythonExporter

from nbrefine import notebook
from nbrefine.errors import RecordError
from nbrefine.notebook import document
from nbrefine.outputs import Stream
from nbrefine.values import Episode


def _long(repaired: Episode, text: str) -> Episode:
    """Let the accepted cell have one long output."""
    first, second = repaired.turns
    assert second.result is not None
    result = replace(second.result, outputs=(Stream("stdout", text),))
    return replace(repaired, turns=(first, replace(second, result=result)))


def _nbconvert(path: Path, *arguments: str) -> None:
    """Run nbconvert with folders of its own."""
    home = {name: str(path.parent / name) for name in ("IPYTHONDIR", "JUPYTER_CONFIG_DIR")}
    subprocess.run(
        [sys.executable, "-m", "nbconvert", "--log-level=ERROR", *arguments, str(path)],
        check=True,
        capture_output=True,
        env=os.environ | home,
    )


def _export(episode: Episode, exporter: Any) -> str:
    text, _ = exporter().from_notebook_node(notebook.to_notebook(episode))
    return str(text)


def _outputs(made: dict[str, Any]) -> dict[str, Any]:
    """Give the outputs of every code cell, without the counts that a new run gives anew."""
    return {
        cell["id"]: [
            {k: v for k, v in o.items() if k != "execution_count"} for o in cell["outputs"]
        ]
        for cell in made["cells"]
        if cell["cell_type"] == "code"
    }


@pytest.mark.parametrize("turns", [0, 1, 2])
def test_the_file_is_valid_and_nothing_has_to_be_mended(
    tmp_path: Path, repaired: Episode, turns: int
) -> None:
    path = tmp_path / "episode.ipynb"
    stop = repaired.stop if turns == 2 else None
    notebook.save(replace(repaired, turns=repaired.turns[:turns], stop=stop), path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        made = nbformat.read(path, as_version=nbformat.NO_CONVERT)  # type: ignore[no-untyped-call]
        nbformat.validate(made)
    assert (made.nbformat, made.nbformat_minor) == (4, 5)
    assert made.metadata.title == "mean-price"
    text = path.read_text(encoding="utf-8")
    assert nbformat.writes(made) + "\n" == text  # type: ignore[no-untyped-call]


def test_a_notebook_that_would_be_invalid_is_not_written(repaired: Episode) -> None:
    made = notebook.to_notebook(repaired)
    made["cells"][0]["id"] = "not an id"
    with pytest.raises(RecordError, match="would not be valid"):
        document.dumps(made)


def test_run_all_gives_the_recorded_outputs(tmp_path: Path, repaired: Episode) -> None:
    """Accepted cells alone, in order, in a fresh kernel, and the tests pass after them."""
    path = tmp_path / "episode.ipynb"
    notebook.save(repaired, path)
    before = json.loads(path.read_bytes())
    _nbconvert(path, "--to", "notebook", "--execute", "--inplace")
    after = json.loads(path.read_bytes())
    assert _outputs(after) == _outputs(before)
    assert "execution" in next(c for c in after["cells"] if c["id"] == "ep-tests")["metadata"]
    assert notebook.load(path) == repaired


def test_run_all_of_an_unsolved_episode_ends_without_an_error(
    tmp_path: Path, repaired: Episode
) -> None:
    path = tmp_path / "episode.ipynb"
    notebook.save(replace(repaired, turns=repaired.turns[:1]), path)
    _nbconvert(path, "--to", "notebook", "--execute", "--inplace")
    ran = [cell for cell in json.loads(path.read_bytes())["cells"] if cell["cell_type"] == "code"]
    assert [cell["id"] for cell in ran] == ["ep-params", "ep-setup"]
    assert all(cell["execution_count"] for cell in ran)


def test_the_script_export_is_the_solution(repaired: Episode) -> None:
    script = _export(repaired, PythonExporter)
    ran = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    assert ran.stdout == "mean 4.0\n"


@pytest.mark.parametrize("exporter", [MarkdownExporter, HTMLExporter])
def test_an_export_tells_the_whole_story(repaired: Episode, exporter: Any) -> None:
    told = _export(repaired, exporter)
    assert "Attempt 1 of 2 was rejected (failed)" in told
    assert "KeyError" in told
    assert "<summary>Code, output and feedback</summary>" in told
    assert told.count("</details>") == 1
    assert ("<title>mean-price</title>" in told) is (exporter is HTMLExporter)
    assert "\x1b" not in told


def test_an_edited_cell_is_noticed_and_the_recorded_source_stays(repaired: Episode) -> None:
    made = notebook.to_notebook(repaired)
    cell = next(cell for cell in made["cells"] if cell["id"] == "s01-a02")
    cell["source"] = "mean = 4"
    turn = notebook.from_notebook(made).turns[1]
    assert turn.result is not None
    assert turn.code == repaired.turns[1].code
    assert turn.result.notes == (document.EDITED,)


def test_other_outputs_are_noticed_and_the_recorded_ones_stay(repaired: Episode) -> None:
    made = notebook.to_notebook(repaired)
    cell = next(cell for cell in made["cells"] if cell["id"] == "s01-a02")
    printed, *more = cell["outputs"]
    assert printed["text"] == "mean 4.0\n"
    halves = [{**printed, "text": part} for part in ("mean ", "4.0\n")]
    cell["outputs"], cell["execution_count"] = [*halves, *more], 7  # as another tool may save them
    assert notebook.from_notebook(made) == repaired
    cell["outputs"] = [{**printed, "text": "mean 5.0\n"}, *more]
    turn = notebook.from_notebook(made).turns[1]
    assert turn.result is not None
    assert turn.result.text.startswith("mean 4.0\n")
    assert turn.result.notes == (document.OTHERS,)


def test_a_removed_cell_is_noticed_and_cells_of_a_persons_own_are_not_minded(
    repaired: Episode,
) -> None:
    made = notebook.to_notebook(repaired)
    mine = {"cell_type": "code", "id": "mine", "source": ["1 +\n", "1"], "outputs": []}
    made["cells"] = [mine, *(cell for cell in made["cells"] if cell["id"] != "s01-a01")]
    assert notebook.from_notebook(made) == repaired
    made["cells"] = [cell for cell in made["cells"] if cell["id"] != "s01-a02"]
    turn = notebook.from_notebook(made).turns[1]
    assert turn.result is not None
    assert turn.result.notes == (document.EDITED,)


def test_a_cleared_long_output_is_said_to_be_lost_and_a_short_one_is_not_lost(
    repaired: Episode,
) -> None:
    for text, notes in (("short\n", ()), ("long " * 1_000, (document.RERUN,))):
        made = notebook.to_notebook(_long(repaired, text))
        for cell in made["cells"]:
            if cell["cell_type"] == "code":
                cell["outputs"] = []
        turn = notebook.from_notebook(made).turns[1]
        assert turn.result is not None
        assert turn.result.notes == notes
        assert (turn.result.text == text) is not bool(notes)


def test_what_is_no_episode_is_named_for_what_it_is(tmp_path: Path) -> None:
    plain = {"cells": [{"cell_type": "code"}], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    newer = plain | {"metadata": {"nbrefine": {"schema": "nbrefine.episode/2"}}}
    for text, words in {
        "": "is empty",
        "{": "breaks off",
        "nothing": "is not JSON",
        "[1]": "not a notebook",
        '{"a": 1}': "not a notebook",
        json.dumps(plain): "a plain notebook of 1 cell, not an episode",
        json.dumps(plain | {"nbformat": 3}): "old format 3",
        json.dumps(newer): "episode/2",
    }.items():
        path = tmp_path / "file.ipynb"
        path.write_text(text, errors="surrogateescape")
        with pytest.raises(RecordError, match=words) as raised:
            notebook.load(path)
        assert raised.value.hint
    for path in (tmp_path / "missing.ipynb", tmp_path / "missing.nbrefine.jsonl"):
        with pytest.raises(RecordError, match="cannot be read"):
            notebook.load(path)


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("turns", 0), {}),
        (("turns", 0, "verdict"), "splendid"),
        (("turns", 1, "messages"), [[0, 99]]),
        (("turns",), None),
        (("blobs",), []),
        (("messages",), [{"role": "user"}]),
        (("episode",), {"task": 3}),
        (("episode", "settings"), {"$nonsense": 1}),
        (("episode", "task", "hidden_tests"), {"$veiled": "AAAA"}),
    ],
)
def test_a_damaged_record_is_one_clear_error(
    repaired: Episode, place: tuple[Any, ...], value: Any
) -> None:
    made = notebook.to_notebook(repaired)
    inner = made["metadata"]["nbrefine"]
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = value
    with pytest.raises(RecordError, match="The notebook is damaged"):
        notebook.from_notebook(made)
