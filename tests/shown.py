"""What the README and the pages of docs/ show: programs, cells, commands, files and output."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from nbrefine.models.scripted import ScriptedModel

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
DOCS = ROOT / "docs"
GUIDES = [DOCS / f"{name}.md" for name in ("data-scientist", "replaying", "researcher", "teacher")]
"""Ten minutes each: they bring their own replies, and run as they are copied."""
REFERENCE = [README, *sorted({*DOCS.glob("*.md")} - {*GUIDES})]
"""Their programs ask the model of this machine, in whose place `offline` answers."""
PAGES = [*REFERENCE, *GUIDES]

FILES = {"refining": "task.yaml", "solving": "sales.yaml", "evaluation": "eval.yaml"}
"""What the file is called that a page shows as YAML."""

FENCE = re.compile(r"^(```+)(\w+)\n(.*?)^\1$", re.MULTILINE | re.DOTALL)

REPLIES = {
    "Take the shop that sold least": "```python\nbest = totals.idxmin()\n```",
    "Do step 1 now: Put the sum": (
        "```python\nimport pandas as pd\n"
        "totals = pd.read_csv('sales.csv').groupby('shop')['sum'].sum()\n```"
    ),
    "Do step 2 now: Put the best": "```python\nbest = totals.idxmax()\n```",
    "Do step 1 now": "```python\nimport pandas as pd\ndf = pd.read_csv('sales.csv')\n```",
    "Do step 2 now": "```python\ntotals = df.groupby('shop')['sum'].sum()\n```",
    "Do step 3 now": "```python\nbest = totals.idxmax()\n```",
    "Which shop": "```python\nprint('@shop[North] @sum[160]')\n```",
    "median of its line": (
        "```python\n"
        "df['fare'] = df['fare'].fillna(df.groupby('line')['fare'].transform('median'))\n```"
    ),
    "slug": (
        "```python\nimport re\ndef slug(text):\n"
        '    return "-".join(re.findall("[a-z0-9]+", text.lower()))\n```'
    ),
    "double": "```python\ndef double(x):\n    return x + x\n```",
    "last": "```python\ndef last(xs):\n    return xs[-1]\n```",  # passes, and is wrong
    "x": "```python\nx = 1 + 2 + 3\n```",
}
"""What the model of the pages' programs answers, by a word of the task."""


def offline(_name: str | None, **_settings: float) -> ScriptedModel:
    """Stand in for the model on this machine."""
    return ScriptedModel(
        lambda messages: next(r for word, r in REPLIES.items() if word in messages[-1].content)
    )


class Block(NamedTuple):
    language: str
    source: str
    said: list[str]
    """Lines of what the page shows of its output, without the mark of one that goes on."""


def blocks(page: Path, *languages: str) -> Iterator[Block]:
    """Give what a page shows in these languages, all but output if there are none.

    A block of `text` is output of the one before it in the same section.
    """
    text = page.read_text(encoding="utf-8")
    found = list(FENCE.finditer(text))
    for at, block in enumerate(found):
        if block[2] == "text" or (languages and block[2] not in languages):
            continue
        after = found[at + 1] if at + 1 < len(found) else None
        follows = after and after[2] == "text" and "\n#" not in text[block.end() : after.start()]
        said = after[3].splitlines() if after and follows else []
        yield Block(block[2], block[3], [line.removesuffix(" …") for line in said])


def commands(page: Path) -> list[str]:
    """Give the lines of a page's `console`, without what a remark says of them."""
    lines = "".join(block.source for block in blocks(page, "console")).splitlines()
    return [line.removeprefix("$ ").partition("  #")[0].rstrip() for line in lines]


def prose(page: Path) -> str:
    """Give a page without its blocks."""
    return FENCE.sub("", page.read_text(encoding="utf-8"))


def anchors(page: Path) -> set[str]:
    """Give what its headings are called in links."""
    headings = re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", each.lower()).replace(" ", "-") for each in headings}
