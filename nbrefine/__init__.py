"""Agents that live in a notebook.

A controller keeps a live Jupyter kernel as shared memory, runs generated code in it, feeds
outputs and tracebacks back to the model, and records each episode as a replayable notebook::

    import nbrefine

    episode = nbrefine.refine(
        "Write median(xs) for a non-empty list of numbers.",
        tests="assert median([3, 1, 2]) == 2",
        record="median.ipynb",
    )
    print(episode.verdict, episode.best.code)
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from nbrefine._version import __version__

if TYPE_CHECKING:
    from nbrefine.budget import Budget
    from nbrefine.config import load_task
    from nbrefine.env import IterativeEnvironment, IterativeTask, NotebookEnvironment
    from nbrefine.errors import NbrefineError
    from nbrefine.examples import example
    from nbrefine.handbook import iterative_refine
    from nbrefine.kernel import Kernel
    from nbrefine.loop import EpisodeRun, refine, start
    from nbrefine.notebook import load, save
    from nbrefine.prompts import build_repair_prompt
    from nbrefine.rerun import replay
    from nbrefine.rewards.grader import Grader
    from nbrefine.runner import TrajectoryRunner
    from nbrefine.sampling import sample
    from nbrefine.solving import solve
    from nbrefine.state import Action, State, StepResult
    from nbrefine.stopping import detect_cycle, track_regression
    from nbrefine.values import Episode, Sampling, Signal, SignalBundle, Task
    from nbrefine.views import show
    from nbrefine.views.diff import diff

__all__ = [
    "Action",
    "Budget",
    "Episode",
    "EpisodeRun",
    "Grader",
    "IterativeEnvironment",
    "IterativeTask",
    "Kernel",
    "NbrefineError",
    "NotebookEnvironment",
    "Sampling",
    "Signal",
    "SignalBundle",
    "State",
    "StepResult",
    "Task",
    "TrajectoryRunner",
    "__version__",
    "build_repair_prompt",
    "detect_cycle",
    "diff",
    "example",
    "iterative_refine",
    "load",
    "load_task",
    "refine",
    "replay",
    "sample",
    "save",
    "show",
    "solve",
    "start",
    "track_regression",
]

_HOMES = {
    "Action": "state",
    "Budget": "budget",
    "Episode": "values",
    "EpisodeRun": "loop",
    "Grader": "rewards.grader",
    "IterativeEnvironment": "env",
    "IterativeTask": "env",
    "Kernel": "kernel",
    "NbrefineError": "errors",
    "NotebookEnvironment": "env",
    "Sampling": "values",
    "Signal": "values",
    "SignalBundle": "values",
    "State": "state",
    "StepResult": "state",
    "Task": "values",
    "TrajectoryRunner": "runner",
    "build_repair_prompt": "prompts",
    "detect_cycle": "stopping",
    "diff": "views.diff",
    "example": "examples",
    "iterative_refine": "handbook",
    "load": "notebook",
    "load_task": "config",
    "refine": "loop",
    "replay": "rerun",
    "sample": "sampling",
    "save": "notebook",
    "show": "views",
    "solve": "solving",
    "start": "loop",
    "track_regression": "stopping",
}


def __getattr__(name: str) -> Any:
    """Load a public name when it is first used, so that the import itself stays light."""
    if name not in _HOMES:
        raise AttributeError(f"module 'nbrefine' has no attribute {name!r}")
    value = getattr(import_module(f"nbrefine.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__


def load_ipython_extension(shell: Any) -> None:
    """Register the magics; IPython calls it at `%load_ext nbrefine`."""
    from nbrefine.magics import load_ipython_extension as load

    load(shell)


def unload_ipython_extension(shell: Any) -> None:
    """Take the magics back; IPython calls it at `%unload_ext nbrefine`."""
    from nbrefine.magics import unload_ipython_extension as unload

    unload(shell)
