"""A task or goal file as the arguments of the function that does it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from nbrefine.config.reading import read_yaml
from nbrefine.config.run import RunConfig


def load_task(path: str | Path, **options: Any) -> dict[str, Any]:
    """Read a YAML file as `nbrefine run` and `nbrefine solve` take it, to do the same in Python.

    A task file gives the arguments of `refine` and `start`, a goal file, which has the key `goal`,
    those of `solve` and `start_solving`::

        episode = nbrefine.refine(**nbrefine.load_task("penguins.yaml", max_turns=3))

    Parameters
    ----------
    path: the file; what it names is looked for in its folder.
    options: keys that win over the file's; what they name is looked for in the current folder.
        `output` says where the episode is recorded, and so in which folder code runs.

    Raises
    ------
    UsageError: the file is missing or is no YAML, or a key is unknown, missing or wrong; the
        message names the key and its line.
    InvalidTaskError: the tests do not parse, or there is none in them.
    """
    path = Path(path)
    keys = read_yaml(path, what="task file", see=RunConfig.see).values.keys()
    if "goal" in keys and "task" not in keys:
        from nbrefine.config.solving import SolveConfig  # which brings every part of an agent

        return SolveConfig.load(path, options=options).to_arguments()
    return RunConfig.load(path, options=options).to_arguments()
