"""Files that a cell may have meant where it named one that is not there.

A small model writes `penguin.csv` again and again where `penguins.csv` lies beside it.
"""

from __future__ import annotations

import re

from nbrefine.env.looking import Folder
from nbrefine.outputs import CellResult
from nbrefine.redaction import clean_text

LONGEST = 255
"""Characters of a name: no file system that is in use has longer ones."""

_QUOTED = re.compile(r"(['\"])(.+?)\1")
_AT_THE_END = re.compile(r"\(os error 2\): (.+)")
_AT_THE_BEGINNING = re.compile(r"(.+) not found\.?$")


async def misnamed(folder: Folder, result: CellResult) -> str:
    """Name the files of the working folder that come near to one that a cell did not find.

    "" where it failed in another way, or none comes near.
    """
    error = result.error
    if error is None or error.ename != "FileNotFoundError":
        return ""
    name = _named(error.evalue)
    near = await folder.near(name) if name else ()
    if not near:
        return ""
    there = ", ".join(repr(clean_text(path)) for path in near)
    return f"There is no {clean_text(name)!r}. The working folder has {there}."


def _named(told: str) -> str:
    """Find the name of the file in what an error says; "" where there is none."""
    line = told.partition("\n")[0]
    if found := _QUOTED.search(line):
        return found[2][-LONGEST:]
    if found := _AT_THE_END.search(line) or _AT_THE_BEGINNING.match(line):
        return found[1][-LONGEST:]
    return ""
