"""`solve` with a kernel that is there already: worked in, or the lender of variables."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from jupyter_client.manager import KernelManager

from nbrefine.env.approval import Decision, Proposal
from nbrefine.errors import UsageError
from nbrefine.kernel import Kernel
from nbrefine.solving import solve

ROWS = 13_000_000
"""Of two columns of eight bytes: 208 MB."""


@pytest.fixture
def theirs(tmp_path: Path) -> Iterator[Kernel]:
    """A kernel that somebody else has started."""
    manager = KernelManager(kernel_name="python3")
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    manager.start_kernel(env=environment, cwd=str(tmp_path), **quiet)
    try:
        with Kernel.connect(manager.connection_file) as kernel:
            yield kernel
    finally:
        manager.shutdown_kernel(now=True)


def test_a_large_frame_is_lent_and_the_lender_s_stays_as_it_is(
    theirs: Kernel, tmp_path: Path
) -> None:
    make = (
        "import numpy as np, pandas as pd\n"
        f"df = pd.DataFrame({{'a': np.arange({ROWS}), 'b': np.ones({ROWS})}})"
    )
    assert theirs.run(make).result().ok
    episode = solve(
        "Say the sum of b where a is even, then drop a.",
        subtasks=[
            {"goal": "Sum.", "check": f"total == {ROWS // 2}"},
            {"goal": "Drop a.", "check": "list(df) == ['b']"},
        ],
        model=[
            "```python\ntotal = df.b[df.a % 2 == 0].sum()\n```",
            "```python\ndf.drop(columns='a', inplace=True); 1 / 0\n```",
            "```python\ndf.drop(columns='a', inplace=True)\n```",
        ],
        lend=(theirs, ["df"]),
        record=tmp_path / "e.ipynb",
    )
    assert episode.solved
    assert [turn.accepted for turn in episode.turns] == [True, False, True]
    assert episode.handed_in == ("df",)
    assert (tmp_path / "e.ipynb").stat().st_size < 1_000_000  # what is lent is not written down
    assert theirs.run("print(list(df), len(df))").result().text == f"['a', 'b'] {ROWS}\n"


def test_accepted_cells_run_once_in_a_kernel_of_somebody_else(
    theirs: Kernel, tmp_path: Path
) -> None:
    assert theirs.run("items = [1]").result().ok
    write = "open('log.txt', 'a').write('x')"
    proposed: list[Proposal] = []

    def approve(proposal: Proposal) -> Decision | bool:
        proposed.append(proposal)
        if "edit me" in proposal.code:
            return Decision("edit", code=f"items.append(3); {write}")
        return "refuse me" not in proposal.code

    episode = solve(
        "Go on.",
        subtasks=[{"goal": "Two.", "check": "items == [1, 2]"}, {"goal": "Three."}],
        model=[
            f"```python\nitems.append(9); {write}\n```",
            f"```python\nitems.append(2)  # refuse me\n{write}\n```",
            f"```python\nitems.append(2); {write}\n```",
            "```python\npass  # edit me\n```",
        ],
        kernel=theirs,
        approve=approve,
        cwd=tmp_path,
    )
    assert episode.solved
    assert [turn.accepted for turn in episode.turns] == [False, False, True, True]
    assert [(each.step, each.attempt, each.goal) for each in proposed] == [
        (1, 1, "Two."),
        (1, 2, "Two."),
        (1, 3, "Two."),
        (2, 1, "Three."),
    ]
    assert theirs.run("print(items)").result().text == "[1, 2, 3]\n"
    assert (tmp_path / "log.txt").read_text() == "xx"


def test_what_cannot_be_lent_is_named(tmp_path: Path) -> None:
    with Kernel.start() as own:
        assert own.run("numbers = (n for n in range(3))").result().ok
        for name in ("numbers", "gone"):
            with pytest.raises(UsageError, match=f"{name} cannot be lent"):
                solve("Sum.", lend=(own, [name]), model=["x"], record=tmp_path / "e.ipynb")
        with pytest.raises(UsageError, match="Give kernel= or lend="):
            solve("Sum.", lend=(own, ["numbers"]), kernel=own, model=["x"])
    assert list(tmp_path.iterdir()) == []
