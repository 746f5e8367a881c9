"""`replay`: which kind is asked for, and whether it can be had."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import get_args

from nbrefine._portal import Run
from nbrefine.errors import UsageError
from nbrefine.notebook import load
from nbrefine.rerun import cells
from nbrefine.rerun.comparing import RTOL, Level, Ruler
from nbrefine.rerun.model import run_loop
from nbrefine.rerun.results import How, Replay, StepReplay
from nbrefine.rerun.session import Place, run_cells
from nbrefine.values import Episode


def replay(
    source: Episode | str | Path,
    *,
    how: How = "clean",
    compare: Level = "tolerant",
    rtol: float = RTOL,
    kernel: str | None = None,
    cwd: str | Path | None = None,
    timeout: float | None = None,
    on_cell: Callable[[str], object] | None = None,
    on_step: Callable[[StepReplay], object] | None = None,
) -> Replay:
    """Run a recorded episode again in fresh kernels and compare it with its record.

    Parameters
    ----------
    source: an episode, or the path of its notebook or journal.
    how: "clean" runs setup and accepted cells, as Run All does; "faithful" runs, in order, all
        that ran in the session itself, rejected attempts too; "model" runs the whole loop with the
        recorded replies, and names the first prompt, verdict or stop that is another one.
    compare: "tolerant" excuses what the named rules of `nbrefine.rerun.rules` are about, and tells
        which it took; "exact" excuses nothing but time; "lax" compares how cells end and whether
        tests pass, but no outputs and no state.
    rtol: how far floats may be apart in proportion, where that is tolerant.
    kernel: kernelspec name; by default the recorded one's.
    cwd: working folder; by default the one that a record names, or else the notebook's, or the
        current one for an episode.
    timeout: seconds that a cell may run, `math.inf` for no limit; by default as long as in the
        episode, where the setup had no limit.
    on_cell: called in a worker thread with each cell's id before it runs, or, of a model replay,
        once its turn has ended.
    on_step: called in a worker thread with what came of each cell, except checks that are still
        under way beside the next one; never of a model replay.

    Raises
    ------
    RecordError: the path holds no episode.
    UsageError: there is no such kernelspec or folder, an argument is out of range, or the record
        does not hold what this kind of replay needs.
    KernelStartError: the kernel did not come up.
    KernelError: it did not answer when it was asked for its state.
    """
    _check(how, compare, rtol, timeout)
    if isinstance(source, Episode):
        episode = source
    else:
        episode = load(source)
        cwd = _folder(episode, Path(source)) if cwd is None else cwd
    ruler, place = Ruler(compare, rtol), Place(kernel, cwd, timeout, on_cell, on_step)
    if how == "model":
        return run_loop(episode, ruler, place)
    chosen = tuple(cells.clean(episode) if how == "clean" else cells.faithful(episode))
    replayed = Run(run_cells(episode, chosen, how, ruler, place)).result()
    return replace(replayed, notes=_notes(episode, how))


def _check(how: str, compare: str, rtol: float, timeout: float | None) -> None:
    for name, given, known in (("how", how, get_args(How)), ("compare", compare, get_args(Level))):
        if given not in known:
            raise UsageError(f"{name} is {given!r}", hint=f"Use one of: {', '.join(known)}")
    if not (0 <= rtol < 1):
        raise UsageError(f"rtol is {rtol:g}", hint="Give 0, or a small number such as 1e-6")
    if timeout is not None and not timeout > 0:
        raise UsageError(f"A cell cannot run {timeout:g} s", hint="Give more than 0 seconds")


def _folder(episode: Episode, notebook: Path) -> Path:
    """Give the folder where an episode worked, which may be another than its notebook's."""
    named = episode.settings.get("folder", ".")
    folder = notebook.parent / (named if isinstance(named, str) else ".")
    return folder if folder.is_dir() else notebook.parent


def _notes(episode: Episode, how: How) -> tuple[str, ...]:
    """Say what a faithful replay did not run, and where it was a clean one after all."""
    if how != "faithful":
        return ()
    left = cells.apart(episode)
    many = f"{left} rejected attempt{'' if left == 1 else 's'}"
    told = [f"{many} ran beside the session and did not touch it"] if left else []
    within = any(t.isolation == "none" and t.result and not t.accepted for t in episode.turns)
    if not within:
        told.append("no rejected attempt ran in the session, so this is what a clean replay runs")
    return tuple(told)
