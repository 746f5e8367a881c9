"""What is copied from a guide runs and says so; on all pages commands parse and links lead on."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

from nbrefine import Kernel
from nbrefine.cli import call
from tests.shown import DOCS, GUIDES, PAGES, README, ROOT, Block, anchors, blocks, commands, prose

RUNS = ("sh", "python", "ipython")
"""What is run: in a shell, as a program, in a notebook. `console` is only parsed."""
KNOWN = {*RUNS, "console", "yaml"}

COMMANDS = [
    pytest.param(line, id=f"{page.stem}-{line.partition(' ')[2]}")
    for page in PAGES
    for line in commands(page)
    if line.startswith("nbrefine ")
]


def test_the_readme_names_every_page() -> None:
    readme = README.read_text()
    assert {*PAGES} == {README, *DOCS.glob("*.md")}
    assert all(f"](docs/{page.name})" in readme for page in PAGES if page != README)


def test_no_page_shows_what_no_test_looks_at() -> None:
    assert {block.language for page in PAGES for block in blocks(page)} == KNOWN


@pytest.mark.timeout(400)  # each begins many programs and kernels
@pytest.mark.parametrize("page", GUIDES, ids=lambda page: page.stem)
def test_what_a_guide_shows_runs_in_order_and_says_so(page: Path, tmp_path: Path) -> None:
    folder = str(Path(sys.executable).parent)
    env = {**os.environ, "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}", "COLUMNS": "100"}
    ran = 0
    with Kernel.start("python3", cwd=tmp_path) as kernel:
        for block in blocks(page, *RUNS):
            ran += 1
            if block.language == "ipython":
                result = kernel.run(block.source, timeout=200).result()
                assert result.ok, result.text
                told = result.text
            else:
                told = run(block, tmp_path, env)
            missing = [line for line in block.said if line not in told]
            assert not missing, f"{block.source}\nsaid:\n{told}"
    assert ran > 3


def run(block: Block, folder: Path, env: dict[str, str]) -> str:
    """Run a block of commands or a program and give what it said.

    Some commands end with 1, which says that records differ.
    """
    argv = ["bash", "-euc"] if block.language == "sh" else [sys.executable, "-c"]
    done = subprocess.run(
        [*argv, block.source],
        check=False,
        cwd=folder,
        env=env,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    assert done.returncode in (0, 1), done.stdout
    assert "Traceback" not in done.stdout, done.stdout
    return done.stdout


@pytest.mark.parametrize("line", COMMANDS)
def test_a_command_that_is_not_run_parses(line: str) -> None:
    # Options are parsed before --help acts, so a wrong one still fails.
    assert call([*shlex.split(line)[1:], "--no-such-option", "--help"]) == 2
    assert call([*shlex.split(line)[1:], "--help"]) == 0


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_links_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)]+)\)", prose(page))
    assert links
    for path, _, anchor in (link.partition("#") for link in links):
        assert ":" not in path  # a host would have to be asked
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), path
        assert target.is_relative_to(ROOT)
        assert not anchor or anchor in anchors(target), f"{path}#{anchor}"


def test_pictures_are_small_and_all_are_shown() -> None:
    shown = {
        (page.parent / path).resolve()
        for page in PAGES
        for path in re.findall(r"!\[[^]]{20,}\]\(([\w/]+\.png)\)", page.read_text())
    }
    assert {*(DOCS / "pictures").glob("*.png")} == shown
    for path in shown:
        assert path.stat().st_size < 80_000
        with Image.open(path) as picture:
            assert picture.width <= 1000
