"""The demo that the package carries: its data, its figures and its recorded replies."""

from __future__ import annotations

import csv
import hashlib
import shutil
from pathlib import Path

from nbrefine import refine
from nbrefine.config import RunConfig
from nbrefine.models.scripted import ScriptedModel

EXAMPLES = Path(__file__).parents[2] / "nbrefine" / "examples"


def test_the_table_is_the_published_one_that_the_licence_note_names() -> None:
    digest = hashlib.sha256((EXAMPLES / "penguins.csv").read_bytes()).hexdigest()
    assert digest in (EXAMPLES / "LICENSE.md").read_text(encoding="utf-8")


def test_the_figures_in_the_tests_are_those_of_the_table() -> None:
    heaviest: dict[str, int] = {}
    with (EXAMPLES / "penguins.csv").open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if row["Body Mass (g)"] != "NA":
                known = heaviest.get(row["Island"], 0)
                heaviest[row["Island"]] = max(known, int(row["Body Mass (g)"]))
    session = {"heaviest": heaviest}
    exec(RunConfig.load(EXAMPLES / "penguins.yaml").tests, session)
    assert heaviest == {"Biscoe": 6300, "Dream": 4800, "Torgersen": 4700}


def test_the_recorded_replies_solve_the_task_after_a_rejected_attempt(tmp_path: Path) -> None:
    shutil.copytree(EXAMPLES, tmp_path / "nbrefine" / "examples")  # as they lie in a checkout
    config = RunConfig.load(
        tmp_path / "nbrefine" / "examples" / "penguins.yaml",
        options={"output": str(tmp_path / "demo.ipynb")},
    )
    episode = refine(
        config.to_task(),
        model=ScriptedModel.from_file(EXAMPLES / "penguins-replies.yaml"),
        data=config.data,
        record=config.output,
    )
    assert episode.solved
    assert [turn.accepted for turn in episode.turns] == [False, True]
    assert episode.to_rows()[0]["error"] == "KeyError"
    assert "Use 'Island', as it stands in df." in episode.turns[0].feedback
