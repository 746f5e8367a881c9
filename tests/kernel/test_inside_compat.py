"""What runs inside kernels is Python 3.9 and imports nothing that may be missing there."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

from nbrefine.kernel import inside

FILES = sorted(Path(inside.__file__).parent.glob("*.py"))
ALLOWED = sys.stdlib_module_names | {
    "IPython",
    "ipykernel",
    "jupyter_client",
    "zmq",
}  # what ipykernel brings


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_it_is_written_in_the_grammar_of_python_3_9(file: Path) -> None:
    tree = ast.parse(file.read_text(), feature_version=(3, 9))
    assert not [node for node in ast.walk(tree) if isinstance(node, ast.Match)]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_it_imports_the_standard_library_and_ipykernel_only(file: Path) -> None:
    roots: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            roots.update(alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            roots.add(str(node.module).split(".")[0])
    assert roots <= ALLOWED
