"""What a failed attempt looked up in vain, and which name it may have meant.

Small models copy their last attempt, wrong names included, even where the right ones stand
beside it; a line that puts the two side by side is what they act on.
"""

from __future__ import annotations

import ast
import difflib
import re
from collections.abc import Iterator, Mapping, Sequence

from nbrefine.outputs import Failure
from nbrefine.source import parse

SHOWN = 40
"""Names listed where none comes near."""


def did_you_mean(code: str, failure: Failure, keys: Mapping[str, Sequence[str]]) -> str:
    """Name each text that the code used as a key in vain, with the key it comes near to.

    Texts that the error names are compared by likeness, all others only by their letters and
    digits: `body_mass_g` is `Body Mass (g)`.  "" where the error is of another kind.

    Parameters
    ----------
    code: the attempt.
    failure: the error it ended with.
    keys: the columns or keys of each table or dict in the session, by its name.
    """
    tree = parse(code)
    if tree is None or not keys:
        return ""
    present = {key for names in keys.values() for key in names}
    absent = [text for text in dict.fromkeys(_texts(tree)) if text not in present]
    blamed = {text for text in absent if _names(failure, text)}
    lines = []
    for text in absent if blamed else ():
        found = _nearest(text, keys, loosely=text in blamed)
        if found:
            lines.append(f"There is no {text!r}. Use {found[1]!r}, as it stands in {found[0]}.")
        elif text in blamed:
            lines.append(f"There is no {text!r}. {_listed(keys)}")
    return "\n".join(lines)


def _names(failure: Failure, text: str) -> bool:
    """Tell whether an error says that this text was looked up in vain."""
    said = failure.evalue
    if failure.ename == "AttributeError":
        said = said.rpartition("attribute ")[2]
    elif failure.ename not in ("KeyError", "ColumnNotFoundError"):
        return False
    return re.search(rf"(?<!\w){re.escape(text)}(?!\w)", said) is not None


def _texts(tree: ast.AST) -> Iterator[str]:
    """Give the texts and attribute names of a program, in the order they stand in it."""
    nodes = [node for node in ast.walk(tree) if isinstance(node, ast.Constant | ast.Attribute)]
    for node in sorted(nodes, key=lambda n: (n.lineno, n.end_col_offset or 0)):
        if isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node.value, str):
            yield node.value


def _nearest(
    text: str, keys: Mapping[str, Sequence[str]], *, loosely: bool
) -> tuple[str, str] | None:
    """Give the holder and the key that a text comes nearest to."""
    plain = _plain(text)
    for holder, names in keys.items():
        for name in names:
            if plain and _plain(name) == plain:
                return holder, name
    if not loosely:
        return None
    homes = {_plain(name): (holder, name) for holder, names in keys.items() for name in names}
    near = difflib.get_close_matches(plain, homes, n=1)
    return homes[near[0]] if near else None


def _plain(text: str) -> str:
    return "".join(char for char in text.casefold() if char.isalnum())


def _listed(keys: Mapping[str, Sequence[str]]) -> str:
    parts = []
    for holder, names in keys.items():
        shown = ", ".join(map(repr, names[:SHOWN]))
        more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
        parts.append(f"{holder} has {shown}{more}.")
    return " ".join(parts)
