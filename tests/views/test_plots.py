"""The curve of solved tasks and the table of pass@k, against figures counted by hand."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from IPython.core.formatters import DisplayFormatter

from nbrefine.errors import UsageError
from nbrefine.evaluation.results import ResultsFile, Row, create_evaluation_result
from nbrefine.metrics import Outcome
from nbrefine.values import Episode
from nbrefine.views.plots import pass_at_k_table, plot_solved_by_attempt, solved_by_attempt_table


def solved_at(task: str, turn: int | None, turns: int) -> Outcome:
    verdict = "solved" if turn else "failed"
    return Outcome(task, verdict, solved_at=turn, turns=turns)  # type: ignore[arg-type]


FOUR = [
    solved_at("a", 1, 1),
    solved_at("b", 2, 2),
    solved_at("c", 2, 2),
    solved_at("d", None, 4),
]
"""Within 1, 2, 3 and 4 attempts 1, 3, 3 and 3 of 4 are solved."""


def floats(values: Any) -> list[float]:
    return [float(value) for value in values]


def test_the_curve_rises_with_every_attempt_that_solves_a_task() -> None:
    figure = plot_solved_by_attempt(FOUR)
    (axes,) = figure.axes
    (curve,) = axes.lines
    assert floats(curve.get_xdata()) == [1, 2, 3, 4]
    assert floats(curve.get_ydata()) == [0.25, 0.75, 0.75, 0.75]
    assert axes.get_xlabel() == "attempts"
    assert axes.get_ylabel() == "share of tasks solved"
    assert [text.get_text() for text in axes.texts] == ["75%"]
    assert all(tick == int(tick) for tick in axes.get_xticks())
    drawn = BytesIO()
    figure.savefig(drawn, format="png")
    assert drawn.getvalue().startswith(b"\x89PNG")


def test_a_notebook_shows_the_curve_without_pyplot() -> None:
    form: Any = DisplayFormatter()
    shown = form.format(plot_solved_by_attempt(FOUR))[0]
    assert shown["image/png"].startswith(b"\x89PNG")


def test_what_an_evaluation_writes_is_taken_as_it_is(tmp_path: Path) -> None:
    graded = [*FOUR[:3], replace(FOUR[0], task="e", graded=False), FOUR[3]]
    rows = [
        Row(at, 0, replace(outcome, task=at), task=str(outcome.task))
        for at, outcome in enumerate(graded)
    ]
    result = create_evaluation_result({"sums": rows})
    result.save(tmp_path / "summary.json")
    summary = json.loads((tmp_path / "summary.json").read_text())
    alone = solved_by_attempt_table(graded)
    assert solved_by_attempt_table(summary["results"]["sums"]) == alone
    assert solved_by_attempt_table(rows) == alone
    named = solved_by_attempt_table({"sums": graded})
    assert solved_by_attempt_table(summary) == named
    assert solved_by_attempt_table(summary["results"]) == named
    with pytest.raises(UsageError, match="no results by name"):
        solved_by_attempt_table({**summary, "results": [1]})
    with closing(ResultsFile(tmp_path / "sums", {})) as file:
        for row in rows:
            file.append(row)
    lines = (tmp_path / "sums" / "results.jsonl").read_text().splitlines()
    assert solved_by_attempt_table(map(json.loads, lines)) == alone


def test_several_sets_share_a_picture_with_a_curve_each() -> None:
    figure = plot_solved_by_attempt({"mine": FOUR, "yours": FOUR[:1]}, attempts=2)
    (axes,) = figure.axes
    assert [floats(curve.get_ydata()) for curve in axes.lines] == [[0.25, 0.75], [1.0, 1.0]]
    legend = axes.get_legend()
    assert legend is not None
    told = [text.get_text() for text in legend.get_texts()]
    assert told == ["mine (4 tasks)", "yours (1 task)"]


def test_a_figure_can_be_drawn_into() -> None:
    from matplotlib.figure import Figure

    figure = Figure()
    left, right = figure.subplots(1, 2)
    assert plot_solved_by_attempt(FOUR, axes=right) is figure
    assert not left.lines
    assert len(right.lines) == 1


def test_drawing_leaves_no_figure_with_pyplot() -> None:
    script = (
        "import sys\n"
        "from nbrefine.metrics import Outcome\n"
        "from nbrefine.views.plots import plot_solved_by_attempt\n"
        "assert 'matplotlib' not in sys.modules\n"
        "plot_solved_by_attempt([Outcome('a', 'solved', solved_at=1, turns=1)])\n"
        "assert 'matplotlib.pyplot' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


def test_without_matplotlib_the_error_names_the_extra_and_the_table(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(UsageError, match=r"nbrefine\[data\].*solved_by_attempt_table"):
        plot_solved_by_attempt(FOUR)


def test_the_table_has_the_same_figures() -> None:
    assert solved_by_attempt_table({"mine": FOUR, "your|s": FOUR[:1]}) == (
        "| attempts | mine (4 tasks) | your\\|s (1 task) |\n"
        "| ---: | ---: | ---: |\n"
        "| 1 | 25.0% | 100.0% |\n"
        "| 2 | 75.0% | 100.0% |\n"
        "| 3 | 75.0% | 100.0% |\n"
        "| 4 | 75.0% | 100.0% |"
    )


def test_episodes_are_counted_as_they_are(repaired: Episode) -> None:
    unsolved = replace(repaired, turns=repaired.turns[:1], stop=None)
    other = replace(unsolved, task=replace(unsolved.task, id="other"))
    assert solved_by_attempt_table([repaired, other]).splitlines()[2:] == [
        "| 1 | 0.0% |",
        "| 2 | 50.0% |",
    ]


@pytest.mark.parametrize("attempts", [0, -1])
def test_a_curve_of_no_attempts_is_refused(attempts: int) -> None:
    outcomes = [Outcome(0, verdict="solved", solved_at=1, turns=1)]
    for show in (plot_solved_by_attempt, solved_by_attempt_table):
        with pytest.raises(UsageError, match=f"attempts is {attempts}"):
            show(outcomes, attempts=attempts)


def test_pass_at_k_is_averaged_over_tasks_for_every_k() -> None:
    easy = [Outcome("easy", "solved", sample=n) for n in range(2)]
    hard = [Outcome("hard", "solved" if n == 0 else "failed", sample=n) for n in range(2)]
    # easy: 1 and 1; hard: 1 - C(1,1)/C(2,1) = 0.5, and 1 - C(1,2)/C(2,2) = 1.
    table = pass_at_k_table({"both": easy + hard, "one": hard[1:]}, ks=[1, 2])
    assert table.splitlines()[2:] == ["| 1 | 75.0% | 0.0% |", "| 2 | 100.0% | n/a |"]


@pytest.mark.parametrize("results", [[], {}, {"none": []}, [Outcome("a", "invalid-task")]])
def test_nothing_to_show_is_told(results: list[Outcome]) -> None:
    for show in (solved_by_attempt_table, pass_at_k_table, plot_solved_by_attempt):
        with pytest.raises(UsageError, match="no episode"):
            show(results)


@pytest.mark.parametrize(
    ("given", "what"),
    [
        ("runs", "'runs' is no list of episodes"),
        (Path("runs"), "is no list of episodes"),
        (None, "None is no list of episodes"),
        (["a.ipynb"], "'a.ipynb' is no episode"),
        ([{"task": "a"}], r"{'task': 'a'} is no episode"),
        ({"mine": "runs"}, "'runs' is no list of episodes"),
    ],
)
def test_what_holds_no_episodes_is_refused_with_the_way_to_load_them(given: Any, what: str) -> None:
    for make in (solved_by_attempt_table, pass_at_k_table, plot_solved_by_attempt):
        with pytest.raises(UsageError, match=what) as caught:
            make(given)
        assert "nbrefine.load(path)" in caught.value.hint


def test_episodes_may_come_one_by_one() -> None:
    assert solved_by_attempt_table(iter(FOUR)) == solved_by_attempt_table(FOUR)
