"""What the pages of docs/ show is true: what is to be copied runs, in order, and says so."""

from __future__ import annotations

import itertools
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from PIL import Image

from nbrefine import Kernel
from nbrefine.cli import call

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.glob("*.md"))
RUNS = ("sh", "python", "ipython")
"""What is run: in a shell, as a program, in a notebook. `console` is only parsed."""


class Block(NamedTuple):
    language: str
    source: str
    said: list[str]
    """Lines of what the page shows of its output."""


def blocks(page: Path) -> Iterator[Block]:
    found = re.findall(r"^(```+)(\w+)\n(.*?)^\1$", page.read_text(), re.MULTILINE | re.DOTALL)
    shown = [(language, source) for _, language, source in found] + [("", "")]
    for (language, source), (after, text) in itertools.pairwise(shown):
        if language != "text":
            yield Block(language, source, text.splitlines() if after == "text" else [])


def test_there_are_pages_and_the_readme_names_each() -> None:
    readme = (ROOT / "README.md").read_text()
    assert len(PAGES) == 4
    assert all(f"](docs/{page.name})" in readme for page in PAGES)


@pytest.mark.timeout(400)  # each begins many programs and kernels
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_what_a_page_shows_runs_in_order_and_says_so(page: Path, tmp_path: Path) -> None:
    folder = str(Path(sys.executable).parent)
    env = {**os.environ, "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}", "COLUMNS": "100"}
    ran = 0
    with Kernel.start("python3", cwd=tmp_path) as kernel:
        for block in blocks(page):
            if block.language not in RUNS:
                continue
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


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_commands_that_are_not_run_parse(page: Path) -> None:
    lines = "".join(block.source for block in blocks(page) if block.language == "console")
    for line in re.findall(r"^\$ nbrefine (.*?)(?:  +#.*)?$", lines, re.MULTILINE):
        # Options are parsed before --help acts, so a wrong one still fails.
        assert call([*shlex.split(line), "--help"]) == 0
        assert call([*shlex.split(line), "--no-such-option", "--help"]) == 2


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_links_lead_somewhere(page: Path) -> None:
    text = page.read_text()
    links = [link.partition("#") for link in re.findall(r"\]\(([^)]+)\)", text)]
    assert all((DOCS / path).exists() for path, _, _ in links)
    readme = (ROOT / "README.md").read_text()
    headings = {
        re.sub(r"\W+", "-", h.lower()) for h in re.findall(r"^#+ (.+)$", readme, re.MULTILINE)
    }
    assert {anchor for _, _, anchor in links if anchor} <= headings


def test_pictures_are_small_and_all_are_shown() -> None:
    there = set((DOCS / "pictures").glob("*.png"))
    shown = {
        DOCS / path
        for page in PAGES
        for path in re.findall(r"!\[[^]]{20,}\]\((pictures/\w+\.png)\)", page.read_text())
    }
    assert there == shown
    for path in there:
        assert path.stat().st_size < 80_000
        with Image.open(path) as picture:
            assert picture.width <= 1000
