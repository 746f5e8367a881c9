"""Many episodes at a glance: how many attempts, and how many samples, it takes to solve tasks.

Every picture has the same figures as a Markdown table beside it, which needs no further package.
"""

from __future__ import annotations

import math
import reprlib
from collections.abc import Iterable, Mapping, Sequence
from io import BytesIO
from typing import TYPE_CHECKING, Any, cast

from nbrefine.errors import UsageError
from nbrefine.metrics import (
    Counted,
    Outcome,
    Recorded,
    compute_accuracy,
    outcomes_of,
    solved_by_attempt,
)
from nbrefine.values import Episode

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Results = Iterable[Outcome | Counted | Episode | Recorded | Mapping[str, Any]]
"""Outcomes, episodes, trajectories or rows of one set of tasks; a row also as an evaluation writes
it into `results.jsonl` and `summary.json`."""

Sets = Results | Mapping[str, Results] | Mapping[str, Any]
"""One set of results, or several by name, as the whole of a `summary.json` has them."""


def plot_solved_by_attempt(
    results: Sets, *, attempts: int | None = None, axes: Axes | None = None
) -> Figure:
    """Draw the share of tasks solved within 1, 2 … attempts: the handbook's cumulative curve.

    Parameters
    ----------
    results: of one set of tasks, or of several by name, a curve for each.
    attempts: how far the curves go; by default to the longest episode.
    axes: where to draw; by default in a figure of its own.

    Raises
    ------
    UsageError: matplotlib is not installed, nothing counts, something given is no episode and no
        row of one, or `attempts` is below 1.
    """
    sets = _by_name(results)
    longest = _reach(sets, attempts)
    axes = axes if axes is not None else _new_axes()
    for name, outcomes in sets.items():
        curve = solved_by_attempt(outcomes, attempts=longest)
        numbers = range(1, len(curve) + 1)
        counted = _tasks(outcomes)
        label = f"{name} ({counted})" if name else counted
        axes.plot(numbers, curve, marker="o", drawstyle="steps-post", label=label)
        axes.annotate(
            f"{curve[-1]:.0%}",
            (numbers[-1], curve[-1]),
            textcoords="offset points",
            xytext=(0, 6),
            ha="center",
        )
    axes.set_title("Solved within so many attempts")
    axes.set_xlabel("attempts")
    axes.set_ylabel("share of tasks solved")
    axes.set_xlim(0.5, longest + 0.5)
    axes.set_ylim(0.0, 1.05)
    axes.locator_params(axis="x", integer=True)
    axes.yaxis.set_major_formatter(lambda share, _position: f"{share:.0%}")
    axes.grid(visible=True, alpha=0.3)
    axes.legend(loc="lower right")
    return axes.get_figure(root=True)  # type: ignore[return-value] # of axes that are in one


def solved_by_attempt_table(results: Sets, *, attempts: int | None = None) -> str:
    """Write the same curve as a Markdown table, a column for each set.

    Raises
    ------
    UsageError: nothing counts, or `attempts` is below 1.
    """
    sets = _by_name(results)
    longest = _reach(sets, attempts)
    curves = [solved_by_attempt(outcomes, attempts=longest) for outcomes in sets.values()]
    rows = [[str(n + 1), *(_percent(curve[n]) for curve in curves)] for n in range(longest)]
    return _table("attempts", sets, "solved within", rows)


def pass_at_k_table(results: Sets, *, ks: Sequence[int] | None = None) -> str:
    """Write pass@k as a Markdown table, a row for each k and a column for each set.

    Parameters
    ----------
    results: of one set of tasks, or of several by name; each with several samples per task.
    ks: the rows; by default the usual k that some task has as many samples for.  n/a stands
        where a task has fewer samples than k.

    Raises
    ------
    UsageError: nothing counts.
    """
    sets = _by_name(results)
    shares = [compute_accuracy(outcomes, ks=ks).pass_at_k for outcomes in sets.values()]
    rows = [
        [str(k), *(_percent(share.get(k, math.nan)) for share in shares)]
        for k in sorted({k for share in shares for k in share})
    ]
    return _table("k", sets, "pass@k", rows)


def _by_name(results: Sets) -> dict[str, list[Outcome]]:
    """Give the outcomes that count, by the name of their set; one set has the name ""."""
    sets: Mapping[str, Any] = results if isinstance(results, Mapping) else {"": results}
    if _written(sets):
        sets = sets.get("results", {})
        if not isinstance(sets, Mapping):
            raise UsageError(
                "This summary.json has no results by name",
                hint="Give one as `nbrefine eval` wrote it",
            )
    counted = {
        name: [outcome for outcome in outcomes_of(_results(each)) if outcome.counts]
        for name, each in sets.items()
    }
    if not counted or not all(counted.values()):
        empty = next((name for name, outcomes in counted.items() if not outcomes), "")
        where = f" of {empty}" if empty else ""
        raise UsageError(
            f"There is no episode{where} that says something of the model",
            hint="Give episodes that did not end in an invalid task or the host's trouble",
        )
    return counted


def _written(given: Mapping[str, Any]) -> bool:
    """Tell whether this is a whole `summary.json`, or the line of settings in `results.jsonl`."""
    return str(given.get("schema", "")).startswith("nbrefine.results/")


def _results(given: object) -> list[Outcome | Episode | Recorded]:
    """Read rows as an evaluation writes them, and refuse what says nothing of episodes."""
    one = isinstance(given, str | bytes | Mapping) or not isinstance(given, Iterable)
    results: list[Any] = [given] if one else list(cast("Iterable[Any]", given))
    found: list[Any] = []
    for result in results:
        row = not one and isinstance(result, Mapping)
        if row and _written(result):
            continue
        known = _row(result) if row else result
        own = isinstance(known, Outcome | Episode)
        if one or not (own or hasattr(known, "outcome") or hasattr(known, "episode")):
            raise UsageError(
                f"{reprlib.repr(result)} is no {'list of episodes' if one else 'episode'}",
                hint="Give episodes, such as [nbrefine.load(path) for path in paths], or the rows "
                "of an evaluation",
            )
        found.append(known)
    return found


def _row(written: Mapping[str, Any]) -> Outcome | None:
    """Read as much of an episode's row as is drawn; None where it is none."""
    try:
        return Outcome(
            task=written["task_index"],
            verdict="solved" if written["passing_but_wrong"] else written["verdict"],
            sample=written["sample"],
            solved_at=written["passed_at"],
            graded=written["graded"],
            turns=written["turns"],
        )
    except KeyError:
        return None


def _reach(sets: Mapping[str, Sequence[Outcome]], attempts: int | None) -> int:
    """Tell how far curves go: as far as is asked for, or to the longest episode."""
    if attempts is None:
        return max(1, *(outcome.turns for outcomes in sets.values() for outcome in outcomes))
    if attempts < 1:
        raise UsageError(f"attempts is {attempts}, but 1 is the least")
    return attempts


def _tasks(outcomes: Iterable[Outcome]) -> str:
    count = len({outcome.task for outcome in outcomes})
    return f"{count} task" if count == 1 else f"{count:,} tasks"


def _new_axes() -> Axes:
    try:
        # Not pyplot: a figure of its own needs no display and is forgotten with its last reader.
        from matplotlib.figure import Figure
    except ImportError as error:
        raise UsageError(
            f"A plot needs matplotlib, which cannot be imported ({error})",
            hint="Run pip install 'nbrefine[data]', or print solved_by_attempt_table(…)",
        ) from None

    class Picture(Figure):
        """A figure that a notebook shows, without pyplot and its `%matplotlib inline`, too."""

        def _repr_png_(self) -> bytes:
            drawn = BytesIO()
            self.savefig(drawn, format="png")
            return drawn.getvalue()

    return Picture(figsize=(6.4, 4.0), layout="constrained").add_subplot()


def _table(
    first: str, sets: Mapping[str, Sequence[Outcome]], figure: str, rows: Sequence[Sequence[str]]
) -> str:
    heads = [
        f"{name or figure} ({_tasks(outcomes)})".replace("|", "\\|")
        for name, outcomes in sets.items()
    ]
    lines = [[first, *heads], ["---:"] * (1 + len(heads)), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _percent(share: float) -> str:
    return "n/a" if math.isnan(share) else f"{share:.1%}"
