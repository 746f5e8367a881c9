"""Every lesson runs from top to bottom, offline, as a class would run it from a checkout."""

from __future__ import annotations

import re
import shutil
import warnings
from collections.abc import Iterator
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
    to_be_filled_in = [cell for cell in code_cells(notebook) if cell.id.startswith("your-")]
    assert all(cell.outputs or cell in to_be_filled_in for cell in code_cells(notebook))
    assert not re.search(r"(?<![\w.])/(home|root|tmp|work|usr)/", str(notebook))


@pytest.mark.timeout(400)  # a lesson begins many sessions
@pytest.mark.parametrize("lesson", LESSONS, ids=lambda path: path.stem)
def test_a_lesson_runs_offline_and_still_tells_what_it_told(
    lesson: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Nothing listens there, so whatever would use the network fails at once.
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    for lent in ("nbrefine/examples", "benchmarks/demo"):
        shutil.copytree(ROOT / lent, tmp_path / lent)
    # The checkout has settings for pytest that ask for plugins which a class does not have.
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = --no-such-option\n")
    folder = tmp_path / "notebooks"
    folder.mkdir()
    notebook = read(lesson)
    stored = [printed(cell) for cell in code_cells(notebook)]
    solved = list(solutions(notebook))
    notebook.cells += [cell for pair in solved for cell in pair]
    NotebookClient(
        notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": str(folder)}}
    ).execute()
    assert [printed(cell) for cell in code_cells(notebook)][: len(stored)] == stored
    for _, check in solved:
        assert printed(check).splitlines()[-1] == "Right."


def solutions(lesson: Any) -> Iterator[tuple[Any, Any]]:
    """Give the solution of each exercise that is checked, as a cell, and the check once more."""
    sources = {cell.id: cell.source for cell in lesson.cells}
    form: Any = nbformat.v4
    for check in (name for name in sources if name.startswith("check-")):
        told = sources[check.replace("check", "solution")]
        (code,) = re.findall(r"```python\n(.*?)```", told, re.DOTALL)
        yield form.new_code_cell(code), form.new_code_cell(sources[check])


def printed(cell: Any) -> str:
    """Give what a cell printed, without what changes with the versions of libraries.

    That is what stands between marks: tracebacks and the types of columns.
    """
    text = "".join(output.text for output in cell.outputs if output.output_type == "stream")
    return re.sub(r"<(\w+) (\w+)>.*</\1 \2>", "", text, flags=re.DOTALL)
