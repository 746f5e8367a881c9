"""The house rules that no linter knows."""

from __future__ import annotations

import ast
import importlib.util
import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib import import_module
from importlib.metadata import packages_distributions
from itertools import chain
from pathlib import Path

import pytest

import nbrefine

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "nbrefine"

HEAVY = {
    "datasets",
    "ipywidgets",
    "jupyter_client",
    "nbformat",
    "numpy",
    "openai",
    "pandas",
    "pydantic",
    "rich",
    "xllamacpp",
}
"""What a light import must leave alone."""


def modules() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def loaded_after(statement: str) -> set[str]:
    """Run one statement in a fresh interpreter and give the top-level modules it loaded."""
    script = f"{statement}\nimport json, sys\nprint(json.dumps(sorted(sys.modules)))"
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True, text=True)
    return {name.partition(".")[0] for name in json.loads(ran.stdout)}


def tracked() -> Iterator[tuple[str, str]]:
    """Give every tracked text file as path and text."""
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True, text=True
    )
    for name in filter(None, listed.stdout.split("\0")):
        path = ROOT / name
        if path.is_file() and b"\0" not in (raw := path.read_bytes()):
            yield name, raw.decode(errors="replace")


def test_the_root_exports_exactly_what_all_says() -> None:
    assert {*nbrefine._HOMES, "__version__"} == set(nbrefine.__all__)
    assert list(nbrefine.__all__) == sorted(nbrefine.__all__)


def test_every_root_name_is_what_its_home_calls_so() -> None:
    for name in nbrefine.__all__:
        assert getattr(nbrefine, name) is not None
    for name, home in nbrefine._HOMES.items():
        assert getattr(nbrefine, name) is getattr(import_module(f"nbrefine.{home}"), name)


def test_importing_the_package_loads_nothing_heavy() -> None:
    assert loaded_after("import nbrefine") & HEAVY == set()


def test_the_command_line_loads_no_kernel_and_no_model_before_it_needs_one() -> None:
    # typer brings pydantic and rich itself.
    assert loaded_after("import nbrefine.cli") & (HEAVY - {"pydantic", "rich"}) == set()


def test_no_module_imports_a_name_from_the_root() -> None:
    """The layers' linter cannot see an upward import that goes through the root."""
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno}: {alias.name}"
        for path in modules()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom) and node.module == "nbrefine"
        for alias in node.names
        if importlib.util.find_spec(f"nbrefine.{alias.name}") is None
    ]
    assert found == []


def test_every_package_that_is_imported_is_declared() -> None:
    """What comes along with another package today may stay away tomorrow."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = [*project["dependencies"], *chain(*project["optional-dependencies"].values())]
    declared = {normal(re.split(r"[<>=\[ ]", requirement)[0]) for requirement in wanted}
    homes = packages_distributions()
    found = {name for path in modules() for name in imported(path)}
    # `_nbrefine_inside` is what modules of ours are called where they are loaded by path.
    foreign = found - sys.stdlib_module_names - {"nbrefine", "_nbrefine_inside"}
    assert {name for name in foreign if not declared & set(map(normal, homes[name]))} == set()


def normal(distribution: str) -> str:
    """Spell a distribution's name as the package index compares it (PEP 503)."""
    return re.sub(r"[-_.]+", "-", distribution).lower()


def imported(path: Path) -> Iterator[str]:
    """Give the top-level names that a module imports, anywhere in it."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.partition(".")[0]


def test_every_module_has_fewer_than_500_lines() -> None:
    sizes = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in modules()}
    assert {str(path): lines for path, lines in sizes.items() if lines >= 500} == {}


def test_no_tracked_file_names_a_machine_or_a_registry() -> None:
    """A path or host of one machine works nowhere else."""
    words = re.compile(
        "|".join(
            (
                "/" + r"work/(?:main|shared)",
                "/" + r"farm/",
                "/" + r"tmp/nbenv",
                "/" + r"opt/pypi",
                r"pypi\." + "org",
                r"files\.python" + "hosted",
                r"registry\.npm" + "js",
                r"deb\.debian" + r"\.org",
            )
        )
    )
    found = [f"{name}: {match[0]}" for name, text in tracked() for match in words.finditer(text)]
    assert found == []


def test_the_changelog_tells_of_this_version() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert f"## {nbrefine.__version__}" in changelog


@pytest.mark.parametrize(
    ("python", "said"),
    [("", "needs Python 3.11 or newer"), ("false", "cannot make virtual environments")],
)
def test_make_says_what_a_bare_machine_lacks(tmp_path: Path, python: str, said: str) -> None:
    (tmp_path / "Makefile").write_text((ROOT / "Makefile").read_text())
    (tmp_path / "pyproject.toml").touch()
    command = ["make", "--no-print-directory", f"PYTHON={python}", "test"]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ran.returncode != 0
    told = ran.stderr.splitlines()[0]
    assert said in told
    assert "apt-get install" in told
    assert not (tmp_path / ".venv").exists()
