"""The recorded episodes of the package: whole, true to their names, and the same again."""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient
from nbconvert import PythonExporter
from rich.console import Console

import nbrefine
from nbrefine import Grader
from nbrefine.errors import UsageError
from nbrefine.examples import EXAMPLES, path_of
from nbrefine.history import estimate_tokens, full
from nbrefine.notebook import load, save
from nbrefine.notebook.wording import verdict
from nbrefine.values import Message
from nbrefine.views import handout, page
from nbrefine.views.player.still import still
from nbrefine.views.story import story
from nbrefine.views.terminal import show

FOLDER = path_of("cycle").parent
every_example = pytest.mark.parametrize("name", EXAMPLES)
each_kind = pytest.mark.parametrize("name", ["cycle", "passing-but-wrong", "multi-step"])
"""One that was not solved, and what others have accepted."""


@pytest.fixture
def copy(name: str, tmp_path: Path) -> Path:
    """An example with what it reads, in a folder where it may be run."""
    folder = shutil.copytree(FOLDER, tmp_path / "episodes")
    return folder / f"{name}.ipynb"


def read(path: Path) -> Any:
    return nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]  # has no types


def test_there_is_an_episode_for_each_name_and_none_besides() -> None:
    assert {path.stem for path in FOLDER.glob("*.ipynb")} == set(EXAMPLES)
    assert all(told.endswith(".") for told in EXAMPLES.values())


def test_an_unknown_name_is_told_with_the_one_that_may_be_meant() -> None:
    with pytest.raises(UsageError, match="There is no example 'cylce'") as raised:
        nbrefine.example("cylce")
    assert raised.value.hint is not None
    assert raised.value.hint.startswith("Did you mean 'cycle'?")
    with pytest.raises(UsageError) as raised:
        path_of("")
    assert raised.value.hint == f"There are {', '.join(EXAMPLES)}"


@every_example
def test_it_is_a_small_valid_notebook_that_names_no_machine(name: str) -> None:
    text = path_of(name).read_text(encoding="utf-8")
    notebook = json.loads(text)
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    nbformat.validate(notebook, relax_add_props=False)
    assert len(text.encode()) < 70_000
    assert not re.search(r"(?<![\w.<])/(home|root|tmp|work)/", text)


@every_example
def test_reading_it_loses_nothing(name: str, tmp_path: Path) -> None:
    episode, path = nbrefine.example(name), path_of(name)
    again = tmp_path / path.name
    save(episode, again)
    assert load(again) == episode
    assert record_in(again) == record_in(path)


def record_in(path: Path) -> Any:
    """Give what programs read of a record; the words for people may be others in time."""
    return json.loads(path.read_bytes())["metadata"]["nbrefine"]


@every_example
def test_its_replies_are_those_of_the_local_model_with_known_settings(name: str) -> None:
    episode = nbrefine.example(name)
    assert episode.model.startswith("local:")
    assert episode.seed is not None
    assert episode.settings["temperature"] is not None
    for turn in episode.turns:
        assert turn.reply is not None
        assert turn.reply.usage.output_tokens > 0


def test_the_cycle_is_one_program_three_times() -> None:
    episode = nbrefine.example("cycle")
    assert [turn.tests.passed for turn in episode.turns if turn.tests] == [0, 0, 0]
    assert {turn.code for turn in episode.turns} == {"def headline(text):\n    return text.title()"}
    assert [turn.escalated for turn in episode.turns] == [False, False, True]
    assert episode.stop is not None
    assert episode.stop.reason == "cycle"
    assert len(episode.turns) < episode.settings["max_turns"]
    assert episode.accepted == ()


def test_the_regression_passes_less_than_before_and_the_best_is_kept() -> None:
    episode = nbrefine.example("regression")
    passed = [turn.tests.passed for turn in episode.turns if turn.tests]
    assert passed == [4, 4, 0, 0]
    told = [{"iteration": n, "passed": count} for n, count in enumerate(passed, 1)]
    assert nbrefine.track_regression(told) == [(3, 4, 0)]
    assert episode.best is episode.turns[0]
    assert episode.accepted == ()
    assert "the best was attempt 1, 4/5 tests passed" in verdict(episode)


def test_the_saturated_prompt_shows_only_the_newest_of_the_past() -> None:
    episode = nbrefine.example("saturation")
    assert episode.settings["history"] == "window:900"
    *earlier, newest = episode.turns
    opening = earlier[0].messages
    assert newest.messages[: len(opening)] == opening  # the task is never left out
    whole = full()(opening, earlier)
    assert tokens(whole) > 900
    assert tokens(newest.messages) <= 900
    # What it had said three times is not there any more, so it cannot know that it was wrong.
    assert newest.messages[len(opening) :] == whole[-2:]
    gone = {turn.code for turn in earlier[:3]}
    assert len(gone) == 1
    assert "timedelta.strptime" in gone.pop()
    assert "timedelta.strptime" in newest.code


def tokens(messages: Sequence[Message]) -> int:
    return sum(estimate_tokens(message.content) for message in messages)


def test_the_steps_are_reached_one_after_the_other_and_give_the_answer() -> None:
    episode = nbrefine.example("multi-step")
    assert episode.solved
    assert [(turn.step, turn.accepted) for turn in episode.turns] == [
        (1, False),
        (1, True),
        (2, True),
        (3, True),
    ]
    assert episode.answer is not None
    brought = {"radish": 0.0, "lettuce": 0.0, "spinach": 0.0, "peas": 0.0}
    with path_of("multi-step").with_name("harvest.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            if row["kg"] != "?":
                brought[row["crop"]] += float(row["kg"])
    assert brought == {"radish": 4.75, "lettuce": 9.5, "spinach": 5.0, "peas": 10.0}
    assert episode.answer.value == "peas"


def test_what_passes_but_is_wrong_fails_only_tests_that_were_not_shown() -> None:
    episode = nbrefine.example("passing-but-wrong")
    assert episode.solved
    final = episode.turns[-1]
    assert final.tests is not None
    assert (final.tests.passed, final.tests.total) == (3, 3)
    assert episode.grade is not None
    assert (episode.grade.verdict, episode.grade.passed, episode.grade.total) == ("failed", 4, 6)
    sent = "".join(message.content for turn in episode.turns for message in turn.messages)
    assert "Dirty room!" in episode.task.hidden_tests
    assert "Dirty room!" not in sent
    assert "isalnum" not in sent  # nor the reference
    with Grader() as grader:
        again = grader.grade(episode.task, final.code).result()
        reference = grader.grade(episode.task, episode.task.reference).result()
    assert again.passing_but_wrong
    assert (again.passed, again.total) == (4, 6)
    assert reference.solved


@every_example
def test_its_accepted_cells_give_the_recorded_state_again(copy: Path) -> None:
    replayed = nbrefine.replay(copy)
    assert replayed.ok, replayed


@each_kind
def test_run_all_ends_without_an_error_and_with_the_recorded_outputs(copy: Path) -> None:
    notebook, recorded = read(copy), read(copy)
    NotebookClient(
        notebook,
        timeout=120,
        kernel_name="python3",
        resources={"metadata": {"path": str(copy.parent)}},
    ).execute()
    assert [outputs(cell) for cell in notebook.cells] == [outputs(cell) for cell in recorded.cells]


def outputs(cell: Any) -> list[Any]:
    return [
        {key: value for key, value in output.items() if key != "execution_count"}
        for output in cell.get("outputs", ())
    ]


@each_kind
def test_its_script_runs(copy: Path) -> None:
    exporter = PythonExporter()  # type: ignore[no-untyped-call]  # has no types
    script, _ = exporter.from_filename(str(copy))
    place = copy.with_suffix(".py")
    place.write_text(script, encoding="utf-8")
    ran = subprocess.run(
        [sys.executable, place.name], cwd=copy.parent, capture_output=True, text=True, check=False
    )
    assert (ran.returncode, ran.stderr) == (0, "")


@every_example
def test_every_view_draws_it(copy: Path) -> None:
    episode = load(copy)
    told = io.StringIO()
    show(episode, console=Console(file=told, width=100))
    player = "".join(still(story(episode)).values())
    for text in (told.getvalue(), page.to_html(episode), player):
        assert episode.task.id in text
        assert text.count("ttempt ") >= len(episode.attempts)
    students = read(handout.write(copy, copy.with_name("handout.ipynb"), attempts=True))
    nbformat.validate(students)
    assert "nbrefine" not in students.metadata
