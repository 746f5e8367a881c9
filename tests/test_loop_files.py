"""What a record must cut lies whole beside it."""

from __future__ import annotations

import hashlib
import io
import json
import time
from pathlib import Path

import pytest
from rich.console import Console

import nbrefine
from nbrefine.loop import refine, start
from nbrefine.views.terminal import show

WIDE = "for n in range(200_000):\n    print(f'{n:09}')"  # 2 MB
PRINTED = "".join(f"{n:09}\n" for n in range(200_000))
NAME = f"episode.files/{hashlib.sha256(PRINTED.encode()).hexdigest()}.txt"


def fenced(code: str) -> str:
    return f"```python\n{code}\n```"


def test_a_recorded_run_leaves_the_whole_output_beside_the_notebook(tmp_path: Path) -> None:
    path = tmp_path / "episode.ipynb"
    episode = refine(
        "Print a lot, and set x.",
        tests="assert x == 1",
        model=[fenced(WIDE), fenced(f"x = 1\n{WIDE}")],
        record=path,
    )
    assert episode.solved
    assert nbrefine.load(path) == episode
    for turn in episode.turns:
        assert turn.result is not None
        (cut,) = turn.result.cut
        assert (cut.files, cut.gap) == ((NAME,), "")
    assert (tmp_path / NAME).read_text() == PRINTED
    assert sorted(file.name for file in tmp_path.iterdir()) == ["episode.files", "episode.ipynb"]
    assert [file.name for file in (tmp_path / "episode.files").iterdir()] == [Path(NAME).name]


def test_the_notebook_and_the_terminal_name_the_file_of_every_attempt(tmp_path: Path) -> None:
    path = tmp_path / "episode.ipynb"
    refine(
        "Print a lot, and set x.",
        tests="assert x == 1",
        model=[fenced(WIDE), fenced(f"x = 1\n{WIDE}")],
        record=path,
    )
    told = f"Left out: 1,000,000 of stdout, 1,000,000 kept; all of it in {NAME}"
    cells = {cell["id"]: "".join(cell["source"]) for cell in json.loads(path.read_text())["cells"]}
    assert told in cells["s01-a01"]  # rejected, and told in words
    assert told in cells["s01-plan"]  # accepted: a code cell, with this above it
    out = io.StringIO()
    show(path, console=Console(file=out, width=300))
    assert out.getvalue().count(told) == 2


def test_a_run_whose_outputs_fit_makes_no_folder(tmp_path: Path) -> None:
    refine("Set x.", model=[fenced("x = 1")], record=tmp_path / "episode.ipynb")
    assert [file.name for file in tmp_path.iterdir()] == ["episode.ipynb"]


def test_an_attempt_that_is_stopped_takes_its_file_along(tmp_path: Path) -> None:
    """The reply is kept, unjudged, and what its cell had put out is not."""
    path = tmp_path / "episode.ipynb"
    endless = fenced("n = 0\nwhile True:\n    print(f'{n:099}')\n    n += 1")
    run = start("t", tests="assert False", model=[endless], record=path, timeout=None)
    deadline = time.monotonic() + 60
    while not (tmp_path / "episode.files").exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    run.stop()
    (turn,) = run.result(60).turns
    assert (turn.verdict, turn.result) == ("infra-error", None)
    assert [file.name for file in tmp_path.iterdir()] == ["episode.ipynb"]


@pytest.mark.parametrize("record", [None, "episode.ipynb"])
def test_a_kernel_that_is_handed_in_writes_where_its_own_limits_say(
    tmp_path: Path, record: str | None
) -> None:
    limits = nbrefine.kernel.OutputLimits(cell=1000, folder=tmp_path / "mine")
    with nbrefine.Kernel.start(limits=limits) as kernel:
        episode = refine(
            "Print.",
            model=[fenced("print('x' * 5000)")],
            kernel=kernel,
            record=tmp_path / record if record else None,
        )
    result = episode.turns[0].result
    assert result is not None
    (name,) = result.cut[0].files
    assert name.startswith("mine/")
    assert (tmp_path / name).read_text() == "x" * 5000 + "\n"
