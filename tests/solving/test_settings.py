"""Each setting of `solve` takes effect, and stands in the record."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import nbrefine
from nbrefine.errors import UsageError
from nbrefine.models.scripted import ScriptedModel
from nbrefine.planning import StepLimits
from nbrefine.solving import DEFAULTS, Options, Settings, solve
from nbrefine.solving.options import parted
from nbrefine.solving.settings import complete, sampling_of, step_limits
from nbrefine.values import AnswerForm, Episode, Message, Reply, Sampling, Usage

GOOD = "```python\nx = 1\n```"
BAD = "```python\nx = 2\n```"
STEPS = [{"goal": "Set x.", "check": "x == 1"}]


def solved(*replies: Any, **options: Any) -> Episode:
    return solve("Set x.", **{"subtasks": STEPS, "model": list(replies), **options})


def reason(episode: Episode) -> str:
    assert episode.stop is not None
    return episode.stop.reason


def test_what_is_not_given_is_as_an_earlier_run_had_it_or_the_default() -> None:
    assert complete({}) == DEFAULTS
    found = complete({"max_turns": 3}, recorded={"max_turns": 9, "timeout": 1.5, "kind": "solve"})
    assert found == {**DEFAULTS, "max_turns": 3, "timeout": 1.5}
    with pytest.raises(UsageError, match=r"no setting 'turns'.*planning.*approve"):
        parted({"turns": 3})  # type: ignore[typeddict-unknown-key]
    with pytest.raises(
        UsageError, match=r"'max_turn'\. Did you mean \"max_turns\"\? Use one of: p"
    ):
        parted({"max_turn": 3})  # type: ignore[typeddict-unknown-key]
    with pytest.raises(UsageError, match=r"'subtask'\. Did you mean \"subtasks\"\? Use one of: p"):
        solved(subtask=[])
    assert json.loads(json.dumps(DEFAULTS)) == DEFAULTS


@pytest.mark.parametrize("kind", [Options, Settings])
def test_help_has_a_sentence_for_every_option(kind: type) -> None:
    told = inspect.getdoc(kind) or ""
    assert len(kind.__annotations__) >= len(DEFAULTS)
    for name in kind.__annotations__:
        assert re.search(rf"^{name}: .{{10}}", told, re.MULTILINE), name


@pytest.mark.parametrize("name", ["approve", "confirm", "progress"])
def test_what_is_to_be_called_can_be(name: str) -> None:
    with pytest.raises(UsageError, match=f"{name} is True, but a function is expected"):
        parted({name: True})  # type: ignore[misc]
    assert parted({name: None})[0] == {name: None}  # type: ignore[misc]


def test_settings_are_put_into_the_terms_of_the_parts() -> None:
    settings = complete(
        {
            "max_attempts": 2,
            "max_step_tokens": 50,
            "max_step_seconds": 1.5,
            "temperature": 0.5,
            "top_p": 0.9,
            "max_tokens": 7,
        }
    )
    assert step_limits(settings) == StepLimits(2, 50, 1.5)
    assert sampling_of(settings) == Sampling(temperature=0.5, top_p=0.9, max_tokens=7)


def test_settings_stand_in_the_record_and_are_what_the_model_is_drawn_with(tmp_path: Path) -> None:
    given = {"temperature": 0.25, "top_p": 0.5, "max_tokens": 99, "timeout": 9.0}
    solved(GOOD, record=tmp_path / "e.ipynb", seed=3, **given)
    episode = nbrefine.load(tmp_path / "e.ipynb")
    kept = {name: episode.settings[name] for name in DEFAULTS}
    assert kept == {**DEFAULTS, **given}
    assert episode.settings["kind"] == "solve"
    assert episode.settings["folder"] == "."
    assert episode.seed == 3
    reply = episode.turns[0].reply
    assert reply is not None
    assert reply.sampling == Sampling(temperature=0.25, top_p=0.5, max_tokens=99, seed=3001)


def test_turns_attempts_and_plans_are_limited() -> None:
    assert reason(solved(BAD, BAD, max_turns=2)) == "max-turns"
    episode = solved(BAD, "```python\nx = 3\n```", GOOD, max_attempts=2, max_replans=0)
    assert (reason(episode), len(episode.turns)) == ("gave-up", 2)
    plan = "```plan\n1. Set x to 1.\n```"
    episode = solved(BAD, plan, GOOD, GOOD, max_attempts=1, max_replans=1)
    assert [turn.kind for turn in episode.turns] == ["attempt", "plan", "attempt", "attempt"]
    assert episode.solved


def test_tokens_and_seconds_of_a_step_are_limited() -> None:
    costly = [Reply(BAD, usage=Usage(50, 10)), Reply("```python\nx = 3\n```", usage=Usage(50, 10))]
    episode = solved(*costly, GOOD, max_step_tokens=100, max_replans=0)
    assert (reason(episode), len(episode.turns)) == ("gave-up", 2)
    episode = solved(BAD, GOOD, max_step_seconds=1e-6, max_replans=0)
    assert (reason(episode), len(episode.turns)) == ("gave-up", 1)


def test_the_best_attempt_is_kept_where_that_is_asked_for() -> None:
    episode = solved(BAD, "```python\n1 / 0\n```", max_attempts=2, max_replans=0, accept_best=True)
    assert [turn.accepted for turn in episode.turns] == [True, False]
    assert reason(episode) == "gave-up"
    assert not episode.solved


def test_planning_is_asked_for_allowed_or_out_of_the_question() -> None:
    plan = "```plan\n1. Set x.\n```"
    told = "```python\nprint('ANSWER: 1')\n```"
    episode = solve("Set x.", planning="ask", model=[plan, told])
    assert [turn.kind for turn in episode.turns] == ["plan", "attempt"]
    assert "```plan" in episode.turns[0].messages[0].content
    episode = solve("Set x.", planning="none", model=[plan, told])
    assert (episode.plans, episode.solved) == ((), True)


def test_the_style_decides_between_tools_and_fenced_text() -> None:
    model = ScriptedModel([{"tool": "run_cell", "arguments": {"code": "x = 1"}}])
    assert solved(model=model, style="tools").solved
    assert "run_cell" in [tool.name for tool in model.offers[0]]
    model = ScriptedModel([GOOD])
    assert solved(model=model).solved
    assert model.offers == [()]


def test_pictures_go_to_a_model_that_takes_them_where_that_is_asked_for() -> None:
    draw = (
        "```python\nimport base64\nfrom IPython.display import Image, display\n"
        "pixel = base64.b64decode('iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk"
        "YPhfDwAChwGA60e6kgAAAABJRU5ErkJggg==')\ndisplay(Image(pixel))\n```"
    )
    for images in (True, False):
        model = ScriptedModel([draw, GOOD], takes_images=True)
        assert solved(model=model, subtasks=["Draw.", *STEPS], images=images).solved
        assert [len(request[-1].images) for request in model.requests] == [0, int(images)]


def test_time_limits_hold_for_cells_and_for_checks() -> None:
    hang = "```python\nx = 1\nimport time; time.sleep(600)\n```"
    episode = solved(hang, GOOD, timeout=1.0)
    assert [turn.verdict for turn in episode.turns] == ["timeout", "solved"]
    slow = [{"goal": "Set x.", "check": {"assert": "import time; time.sleep(x); assert x"}}]
    episode = solved(
        "```python\nx = 600\n```", "```python\nx = 0.01\n```", subtasks=slow, test_timeout=1.0
    )
    assert [turn.accepted for turn in episode.turns] == [False, True]


def test_isolation_and_workspace_are_chosen(tmp_path: Path) -> None:
    write = "```python\nopen('out.txt', 'w').write('x'); x = 2\n```"
    episode = solved(write, GOOD, isolation="rebuild", workspace="report", cwd=tmp_path)
    assert [turn.isolation for turn in episode.turns] == ["rebuild", "rebuild"]
    assert (tmp_path / "out.txt").exists()  # reported, and not held back
    (tmp_path / "out.txt").unlink()
    episode = solved(write, GOOD, isolation="fork", workspace="overlay", cwd=tmp_path)
    assert [turn.isolation for turn in episode.turns] == ["fork", "fork"]
    assert not (tmp_path / "out.txt").exists()


def test_the_form_of_an_answer_is_given_as_a_value_a_mapping_or_in_short() -> None:
    told = "```python\nmean = 2.5\nprint(f'@mean[{mean}]')\n```"
    for form in (
        AnswerForm("fields", fields=("mean",)),
        {"fields": ["mean"], "check": "mean > 2"},
        "fields:mean",
    ):
        episode = solve("Say the mean.", answer=form, model=[told])
        assert episode.answer is not None
        assert episode.answer.value == {"mean": "2.5"}
    episode = solve(
        "Say the mean.", answer={"fields": ["mean"], "check": "mean > 3"}, model=[told], max_turns=1
    )
    assert (episode.answer, reason(episode)) == (None, "max-turns")
    with pytest.raises(UsageError, match="form of an answer"):
        solve("Say the mean.", answer=3, model=[told])  # type: ignore[arg-type]


def test_the_prompt_names_data_files_from_the_kernel_s_folder(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "out").mkdir()
    (tmp_path / "in" / "a.csv").write_text("a\n1\n")
    seen: list[str] = []

    def model(messages: Sequence[Message]) -> str:
        seen.append(messages[-1].content)
        return "```python\nx = int(open('../in/a.csv').read().split()[1])\n```"

    record = tmp_path / "out" / "e.ipynb"
    assert solved(model=model, data=tmp_path / "in" / "a.csv", record=record).solved
    assert "../in/a.csv" in seen[0]
    with pytest.raises(UsageError, match=r"gone\.csv"):
        solved(GOOD, data=tmp_path / "gone.csv")
