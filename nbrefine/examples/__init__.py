"""Recorded episodes that come with the package: each shows one thing that refinement loops do.

Their tasks are our own and their replies those of a small local model, unedited; which one, and
with which settings, each record says itself.  They need no key, no network and no model.
"""

from __future__ import annotations

import difflib
from pathlib import Path

from nbrefine.errors import UsageError
from nbrefine.notebook import load
from nbrefine.values import Episode

EXAMPLES = {
    "cycle": "The model repeats a program that has failed, and the loop sees it and stops.",
    "regression": "An attempt fails tests that an earlier one had passed; the best so far is kept.",
    "saturation": "The past outgrows a small context window, and the oldest of it is left out.",
    "passing-but-wrong": "All tests that the model is shown pass, and hidden ones fail.",
    "multi-step": "A goal on a table in steps, each checked before the next one begins.",
}
"""Name -> what it shows, in one sentence."""


def example(name: str) -> Episode:
    """Give a recorded episode that comes with the package.

    Parameters
    ----------
    name: one of `EXAMPLES`.

    Raises
    ------
    UsageError: there is no example of that name.
    """
    return load(path_of(name))


def path_of(name: str) -> Path:
    """Give the notebook of an example; what it reads lies where its cells look for it.

    Raises
    ------
    UsageError: there is no example of that name.
    """
    if name not in EXAMPLES:
        near = difflib.get_close_matches(name, EXAMPLES, n=1)
        hint = f"Did you mean {near[0]!r}? There are" if near else "There are"
        raise UsageError(f"There is no example {name!r}", hint=f"{hint} {', '.join(EXAMPLES)}")
    return Path(__file__).with_name("episodes") / f"{name}.ipynb"
