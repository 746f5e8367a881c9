"""The words of the live panel: where the work stands, what it has spent, and what stays of it."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from nbrefine.budget import Budget
from nbrefine.driver import Activity
from nbrefine.notebook import wording
from nbrefine.outputs import CellResult
from nbrefine.values import Episode, Extraction, Reply, Stop, Task, Turn, Usage
from nbrefine.views.panel.pace import Pace
from nbrefine.views.panel.status import sentence, spending
from nbrefine.views.panel.told import TURNS, told
from nbrefine.views.player import tabs
from nbrefine.views.story import story
from tests.steps import answered

if TYPE_CHECKING:
    import pytest

RECORD = Path("episode.ipynb")


def running(episode: Episode | None, doing: str, turn: int) -> Any:
    return SimpleNamespace(episode=episode, activity=Activity(doing, turn, time.monotonic() - 12.2))


def attempt(number: int, code: str = "x = 1") -> Turn:
    return Turn(
        number, attempt=number, extraction=Extraction("found", code), result=CellResult(code, "ok")
    )


def test_that_a_person_stopped_an_attempt_is_said_once() -> None:
    unjudged = Extraction("no-code", reason="It was not judged: stopped by a person")
    turn = Turn(
        1,
        reply=Reply("```python\nx = 1\n```"),
        extraction=unjudged,
        verdict="infra-error",
        stopped=True,
    )
    episode = Episode(Task("Set x."), turns=(turn,), stop=Stop("stopped", "stopped by a person"))
    text = told(episode, record=RECORD, name="episode")["text/plain"]
    assert "- Attempt 1 of 1: not judged (stopped by a person)\n" in text
    (act,) = story(episode).acts
    shown = "".join(tabs.TABS["Code"](act, act.scenes[0]))
    assert "It was not judged: stopped by a person." in shown
    assert "No code was found" not in shown


def test_the_attempt_and_the_time_are_told() -> None:
    assert sentence(running(None, "starting", 0), 5) == "Getting the kernel ready, 12 s"
    one = Episode(Task("x"), turns=(attempt(1),))
    assert sentence(running(one, "testing", 2), 5) == "Attempt 2 of 5, running the tests, 12 s"
    # It has ended, and the next one has not begun.
    assert sentence(running(one, "running", 1), 5) == "Attempt 1 of 5, running the code, 12 s"
    assert sentence(running(one, "ended", 2), 5) == "Closing the record, 12 s"


def test_the_step_is_told_where_there_are_steps() -> None:
    whole = replace(answered(), stop=None, answer=None)
    said = []
    for count in range(1, len(whole.turns)):
        so_far = replace(whole, turns=whole.turns[:count])
        said.append(sentence(running(so_far, "asking", count + 1), 30))
    places = [each.partition(", asking")[0] for each in said]
    assert places[0].startswith("Step ")
    assert all(" of 3, attempt " in place for place in places if place.startswith("Step "))
    assert len(set(places)) > 2


def test_attempts_are_counted_as_in_the_record() -> None:
    """Looks and plans are none, and one that a person has stopped gives its number away."""
    whole = replace(answered(), stop=None, answer=None)
    tried = [turn for turn in whole.turns if wording.is_attempt(whole, turn)]
    for turn in tried:
        ended = replace(whole, turns=whole.turns[: turn.number])
        said = sentence(running(ended, "running", turn.number), 30).partition(", running")[0]
        assert said.replace(" of 3", "").lower() == wording.place(whole, turn)
    first = tried[0]
    stopped = replace(first, stopped=True, accepted=False, verdict="infra-error")
    gone_on = replace(whole, turns=(*whole.turns[: first.number - 1], stopped))
    said = sentence(running(gone_on, "running", stopped.number), 30)
    then = sentence(running(gone_on, "asking", stopped.number + 1), 30)
    assert said.partition(", running")[0] == then.partition(", asking")[0]


def test_what_is_spent_is_told_with_its_limits() -> None:
    assert spending(Budget()) == "0 tokens, 0 calls, 0 s"
    budget = Budget(tokens=10_000, seconds=60)
    budget.add_call(Usage(2_000, 841))
    assert spending(budget).startswith("2,841 of 10,000 tokens, 1 call, ")
    assert spending(budget).endswith(" of 60 s")


def test_text_of_models_and_programs_stays_text() -> None:
    episode = Episode(
        Task("<b>bold</b>"), turns=(replace(attempt(1, "s = '</pre><script>'"), accepted=True),)
    )
    html = told(episode, record=RECORD, name="episode")["text/html"]
    assert "<b>" not in html
    assert "<script" not in html
    assert "&lt;/pre&gt;&lt;script&gt;" in html


def test_many_turns_are_told_by_the_first_and_the_last() -> None:
    episode = Episode(Task("x"), turns=tuple(attempt(number) for number in range(1, 101)))
    lines = told(episode, record=RECORD, name="episode")["text/plain"].splitlines()
    rows = [line for line in lines if line.startswith("- ")]
    assert len(rows) == TURNS + 1
    assert rows[0].startswith("- Attempt 1 of 100: ")
    assert rows[TURNS // 2] == f"- ({100 - TURNS} more)"
    assert rows[-1].startswith("- Attempt 100 of 100: ")


def test_what_takes_long_to_draw_is_drawn_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    now = SimpleNamespace(wall=1.0, cpu=0.0)
    monkeypatch.setattr(time, "monotonic", lambda: now.wall)
    monkeypatch.setattr(time, "thread_time", lambda: now.cpu)
    pace = Pace()
    for taken, rest in ((0.5, 0.0), (0.01, 0.3), (5.0, 3.0)):  # the first one has loaded modules
        assert pace.due
        with pace.drawing():
            now.cpu += taken
        now.wall += rest - 0.001
        assert pace.due is (rest == 0)
        now.wall += 0.002
