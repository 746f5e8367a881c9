"""How a kernel of ours differs from a stock one, on a real ipykernel."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from nbrefine.kernel import Kernel

_PADDING = "# padding\n" * 1500

_WATCH = """
import ast, sys
sys.path.insert(0, {folder!r})
parsed, parse = [], ast.parse
def watched(*given, **named):
    parsed.append(str(named.get("filename")))
    return parse(*given, **named)
ast.parse = watched
import long_module
"""


@pytest.fixture
def beside_long_module(kernel: Kernel, tmp_path: Path) -> Kernel:
    (tmp_path / "long_module.py").write_text(
        "def fails():\n    value = {}\n    return value['price']\n\n"
        f"def recurs(n):\n    return recurs(n + 1)\n{_PADDING}"
    )
    assert kernel.run(_WATCH.format(folder=str(tmp_path))).result().ok
    return kernel


def test_a_traceback_shows_code_of_a_long_file_that_is_not_parsed(
    beside_long_module: Kernel,
) -> None:
    error = beside_long_module.run("long_module.fails()").result().error
    assert error is not None
    text = re.sub(r"\x1b\[[\d;]*m", "", "\n".join(error.traceback))
    assert "long_module.py:3" in text
    assert re.search(r"^ +2 +value = \{\}\n-+> 3 +return value\['price'\]$", text, re.MULTILINE)
    assert text.endswith("KeyError: 'price'")
    parsed = beside_long_module.run("[each for each in parsed if 'long' in each]").result()
    assert parsed.text.strip() == "[]"


def test_a_deep_traceback_is_collapsed_whatever_the_file(beside_long_module: Kernel) -> None:
    error = beside_long_module.run("long_module.recurs(0)").result().error
    assert error is not None
    assert error.ename == "RecursionError"
    assert len("\n".join(error.traceback)) < 5000  # 1,000 frames would be 200,000
