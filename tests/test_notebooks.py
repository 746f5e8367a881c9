"""Every lesson runs from top to bottom, offline, as a class would run it from a checkout."""

from __future__ import annotations

import re
import shutil
import warnings
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

ROOT = Path(__file__).parents[1]
LESSONS = sorted((ROOT / "notebooks").glob("*.ipynb"))


def read(lesson: Path) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # nbformat warns where it mends ids
        notebook = nbformat.read(lesson, as_version=4)  # type: ignore[no-untyped-call]  # has no types
        nbformat.validate(notebook)
    return notebook


def code_cells(notebook: Any) -> list[Any]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def test_there_is_a_lesson() -> None:
    assert LESSONS


@pytest.mark.parametrize("lesson", LESSONS, ids=lambda path: path.stem)
def test_a_lesson_is_stored_with_its_outputs_and_without_a_path_of_the_machine(
    lesson: Path,
) -> None:
    notebook = read(lesson)
    assert (notebook.nbformat, notebook.nbformat_minor) == (4, 5)
    assert all(cell.outputs for cell in code_cells(notebook))
    assert not re.search(r"(?<![\w.])/(home|root|tmp|work|usr)/", str(notebook))


@pytest.mark.timeout(400)  # a lesson begins many sessions
@pytest.mark.parametrize("lesson", LESSONS, ids=lambda path: path.stem)
def test_a_lesson_runs_offline_and_still_tells_what_it_told(
    lesson: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Nothing listens there, so whatever would use the network fails at once.
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    shutil.copytree(ROOT / "nbrefine" / "examples", tmp_path / "nbrefine" / "examples")
    folder = tmp_path / "notebooks"
    folder.mkdir()
    notebook = read(lesson)
    stored = [printed(cell) for cell in code_cells(notebook)]
    NotebookClient(
        notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": str(folder)}}
    ).execute()
    assert [printed(cell) for cell in code_cells(notebook)] == stored


def printed(cell: Any) -> str:
    """Give what a cell printed, without what changes with the versions of libraries.

    That is what stands between marks: tracebacks and the types of columns.
    """
    text = "".join(output.text for output in cell.outputs if output.output_type == "stream")
    return re.sub(r"<(\w+) (\w+)>.*</\1 \2>", "", text, flags=re.DOTALL)
