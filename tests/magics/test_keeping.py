"""What `%keep` makes of a tried cell, and what it says when that is not what was tried."""

from __future__ import annotations

import pytest

from nbrefine.kernel import Kernel
from tests.magics.kernels import run, value


def test_a_kept_cell_that_awaits_runs_on_the_kernels_own_loop(kernel: Kernel) -> None:
    source = (
        "import asyncio\nloop = asyncio.get_running_loop()\nawait asyncio.sleep(0)\nprint('slept')"
    )
    assert run(kernel, f"%%try\n{source}").text.startswith("slept\n")
    assert run(kernel, "%keep").text.startswith("Kept: the cell has run here")
    assert value(kernel, "import asyncio; loop is asyncio.get_running_loop()") == "True"


@pytest.mark.parametrize("keep", ["%keep  # now", "if True:\n    %keep", "%keep\nafter = 1"])
def test_a_cell_that_awaits_is_kept_wherever_the_magic_stands_alone(
    kernel: Kernel, keep: str
) -> None:
    run(kernel, "slept = 0")
    run(kernel, "%%try\nimport asyncio\nawait asyncio.sleep(0); slept += 1")
    assert run(kernel, keep).text == "Kept: the cell has run here.\n"
    assert value(kernel, "slept") == "1"


@pytest.mark.parametrize(
    ("keep", "said"),
    [
        ("keep", "only where it stands alone on its line"),
        ("none = %keep", "only where it stands alone on its line"),
        ("%keep now", "%keep takes no arguments, and got: now"),
    ],
)
def test_a_cell_that_awaits_waits_on_where_it_cannot_be_kept(
    kernel: Kernel, keep: str, said: str
) -> None:
    run(kernel, "slept = 0")
    run(kernel, "%%try\nimport asyncio\nawait asyncio.sleep(0); slept += 1")
    refused = run(kernel, keep)
    assert refused.status == "error"
    assert said in refused.text
    assert "failed here" not in refused.text
    assert value(kernel, "slept") == "0"
    assert run(kernel, "%keep").text.startswith("Kept: the cell has run here")
    assert value(kernel, "slept") == "1"


def test_a_cell_that_does_not_begin_here_waits_on(kernel: Kernel) -> None:
    """It is turned down before it runs: here by what a person put before every cell since."""
    run(kernel, "%%try\nbegun = 1")
    run(
        kernel,
        "import ast\n"
        "from IPython.core.error import InputRejected\n"
        "class Refuse(ast.NodeTransformer):\n"
        "    def visit_Name(self, node):\n"
        "        if node.id == 'begun': raise InputRejected('not today')\n"
        "        return node\n"
        "refuse = Refuse(); get_ipython().ast_transformers.append(refuse)",
    )
    refused = run(kernel, "%keep")
    run(kernel, "get_ipython().ast_transformers.remove(refuse)")
    assert refused.status == "error"
    assert "did not begin here, and waits" in refused.text
    assert "Kept: the cell has run here" in run(kernel, "%keep").text
    assert value(kernel, "begun") == "1"


def test_outputs_of_a_kept_cell_are_shown_where_they_differ(kernel: Kernel) -> None:
    run(kernel, "import os")
    tried = run(kernel, "%%try\nnumber = os.getpid(); print(number)")
    kept = run(kernel, "%keep")
    assert kept.text == (
        f"{value(kernel, 'os.getpid()')}\n"
        "Kept: the cell has run here; its outputs, above, are other ones than in the branch.\n"
        "The state is not the branch's: number has another value.\n"
    )
    assert kept.text.splitlines()[0] != tried.text.splitlines()[0]


def test_what_has_changed_since_the_try_is_said(kernel: Kernel) -> None:
    run(kernel, "basis = 1")
    run(kernel, "%%try\nderived = basis + 1")
    run(kernel, "basis = 10")
    kept = run(kernel, "%keep").text
    assert kept == (
        "Since the attempt this has changed here: basis has another value.\n"
        "Kept: the cell has run here.\n"
        "The state is not the branch's: basis has another value; derived has another value.\n"
    )


def test_names_that_came_and_went_since_the_try_are_told_once(kernel: Kernel) -> None:
    run(kernel, "old = 1")
    run(kernel, "%%try\nlater = 2")
    run(kernel, "import fractions; del old")
    assert run(kernel, "%keep").text == (
        "Since the attempt this has changed here: fractions is new; old is gone.\n"
        "Kept: the cell has run here.\n"
        "The state is not the branch's: old is gone.\n"
    )
    run(kernel, "del fractions, later")


def test_a_cell_that_fails_only_here_says_so(kernel: Kernel) -> None:
    run(kernel, "open_door = True")
    run(kernel, "%%try\nassert open_door; inside = 1")
    run(kernel, "open_door = False")
    kept = run(kernel, "%keep")
    assert kept.status == "error"
    assert "AssertionError" in kept.text
    assert "the cell failed here, though it had run in the branch" in kept.text


def test_random_numbers_of_a_kept_cell_are_the_branches(kernel: Kernel) -> None:
    run(kernel, "import random; random.seed(5)")
    run(kernel, "%%try\ndrawn = random.random()")
    assert run(kernel, "%keep").text == "Kept: the cell has run here.\n"
    assert value(kernel, "import random; random.seed(5); drawn == random.random()") == "True"


def test_a_cell_that_would_end_the_kernel_is_not_kept(kernel: Kernel) -> None:
    tried = run(kernel, "%%try\nkept = 1\nquit()")
    assert tried.text == (
        "In a branch, so nothing here has changed. "
        "The cell calls exit() or quit(), which would end this kernel.\n"
    )
    refused = run(kernel, "%keep")
    assert refused.error is not None
    assert "there is nothing to keep" in refused.error.evalue
    assert value(kernel, "'kept' in globals()") == "False"
