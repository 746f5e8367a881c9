"""Cells that run once more: what they do to a session stays, what they do to files does not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from nbrefine._portal import Run
from nbrefine.env.again import numbered, run_without_files
from nbrefine.errors import KernelError
from nbrefine.kernel import Kernel
from nbrefine.kernel.workspace.overlays import WorkspaceMode

CELLS = (
    "import os\nos.makedirs('fresh/deep')\nos.chdir('fresh')\nopen('new.txt', 'w').write('new')",
    "os.chdir('..')\nos.remove('kept.txt')\nlog = open('log.txt', 'a')\nn = log.write('more')",
    "open('other.txt', 'a').write('more')\nwords = open('other.txt').read()",
)


@pytest.fixture(params=["overlay", "report"])
def kernel(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Kernel]:
    for name in ("kept", "log", "other"):
        (tmp_path / f"{name}.txt").write_text(name)
    mode: WorkspaceMode = request.param
    with Kernel.start(cwd=tmp_path, workspace=mode) as kernel:
        yield kernel


def files(folder: Path) -> dict[str, str]:
    return {str(p.relative_to(folder)): p.read_text() for p in folder.rglob("*.txt")}


def again(kernel: Kernel, *cells: str, keep: tuple[str, ...] = ()) -> tuple[str, ...]:
    return Run(run_without_files(kernel, numbered(cells), 1.0, keep)).result()


def test_files_stay_as_they_are_and_what_does_not_is_told(kernel: Kernel, tmp_path: Path) -> None:
    before = files(tmp_path)
    told = again(kernel, *CELLS, keep=("kept.txt", "log.txt", "nowhere.txt"))
    assert kernel.run("print(n, words, os.getcwd())").result().text == f"4 othermore {tmp_path}\n"
    assert kernel.run("log.close()").result().ok  # what it had in memory was thrown away too
    after = files(tmp_path)
    assert {name: after[name] for name in ("kept.txt", "log.txt")} == {
        "kept.txt": "kept",
        "log.txt": "log",
    }
    if kernel.core.lineage.reason or told:
        assert "fresh was created when the cells ran again" in told
        assert "other.txt was changed when the cells ran again" in told
    else:
        assert after == before
        assert not (tmp_path / "fresh").exists()


def test_a_cell_that_fails_leaves_files_and_session_alone(kernel: Kernel, tmp_path: Path) -> None:
    with pytest.raises(KernelError, match=r"accepted cell 2, run again.*ZeroDivisionError"):
        again(kernel, "open('kept.txt', 'w').write('half')", "1 / 0", keep=("kept.txt",))
    assert (tmp_path / "kept.txt").read_text() == "kept"
    assert kernel.run("print(1)").result().text == "1\n"


def test_a_session_goes_on_and_its_later_branches_write_as_ever(
    kernel: Kernel, tmp_path: Path
) -> None:
    again(kernel, "x = 1", keep=("kept.txt",))
    with kernel.branch() as branch:
        assert branch.run("open('later.txt', 'w').write(str(x))").result().ok
        kernel.adopt(branch).result()
    assert (tmp_path / "later.txt").read_text() == "1"
