"""What runs in the processes of a check is Python 3.9 and the standard library."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

from nbrefine.executors import inside

FILES = sorted(Path(inside.__file__).parent.glob("*.py"))
ALLOWED = sys.stdlib_module_names | {"numpy", "_nbrefine_inside"}  # only if it is there; by path


def imported(file: Path) -> set[str]:
    roots: set[str] = set()
    skipped: set[ast.AST] = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            skipped.update(node.body)
        if node in skipped:
            continue
        if isinstance(node, ast.Import):
            roots.update(alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            roots.add(str(node.module).split(".")[0])
    return roots


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_it_is_written_in_the_grammar_of_python_3_9(file: Path) -> None:
    tree = ast.parse(file.read_text(), feature_version=(3, 9))
    assert not [node for node in ast.walk(tree) if isinstance(node, ast.Match)]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_it_imports_the_standard_library_only(file: Path) -> None:
    assert imported(file) <= ALLOWED
