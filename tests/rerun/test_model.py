"""Model replay: the loop on its recorded replies, and the first thing that it does otherwise."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nbrefine import history, refine, save
from nbrefine.errors import UsageError
from nbrefine.notebook.document import RERUN
from nbrefine.postconditions import holds
from nbrefine.rerun import Divergence, replay
from nbrefine.rerun.comparing import Ruler
from nbrefine.rerun.diverging import compared
from nbrefine.rerun.telling import told
from nbrefine.solving import solve
from nbrefine.values import Episode, Message, Stop, Subtask, Turn


def fenced(code: str) -> str:
    return f"```python\n{code}\n```"


WRONG = fenced("import time\nprint(object(), time.time())\nmean = 3")
RIGHT = fenced("mean = 4\nmean")


@pytest.fixture(scope="module")
def refined() -> Episode:
    episode = refine(
        "Compute `mean`.", model=[WRONG, RIGHT], tests="assert mean == 4", setup="rows = [4]"
    )
    assert episode.solved
    return episode


def other(episode: Episode, place: int, **fields: Any) -> Episode:
    turns: list[Turn] = list(episode.turns)
    turns[place] = replace(turns[place], **fields)
    return replace(episode, turns=tuple(turns))


def asked(episode: Episode, place: int, was: str, now: str) -> Episode:
    """Let a recorded prompt say something else."""
    messages = episode.turns[place].messages
    assert any(was in message.content for message in messages)
    changed = (replace(m, content=m.content.replace(was, now)) for m in messages)
    return other(episode, place, messages=tuple(changed))


def test_the_loop_does_again_what_is_recorded(refined: Episode) -> None:
    heard: list[str] = []
    replayed = replay(refined, how="model", on_cell=heard.append)
    assert (replayed.ok, replayed.divergence, heard) == (True, None, ["s01-a01", "s01-a02"])
    first, second = replayed.steps
    assert (first.verdict, first.after) == ("same after", ("address", "float"))
    assert second.after == first.after  # of the output that the prompt tells
    assert second.state == "same"
    assert replayed.episode is not None
    assert replayed.episode.stop == refined.stop
    assert list(told(replayed))[-1] == (
        "The loop gives the recorded prompts, verdicts and stop, but for address, float."
    )


def test_what_the_loop_does_otherwise_is_named_by_turn_and_part(refined: Episode) -> None:
    """All that differs is found in one run; the first of it is the divergence."""
    changed = asked(refined, 1, "1 test", "2 tests") if "1 test" in prompt(refined, 1) else refined
    changed = asked(changed, 1, "0/1", "1/1") if "0/1" in prompt(changed, 1) else changed
    assert changed is not refined
    found = replay(changed, how="model")
    assert found.divergence is not None
    assert (found.divergence.turn, found.divergence.part) == (2, "feedback")
    assert found.divergence.diff.startswith("--- recorded")
    assert [step.verdict for step in found.steps] == ["same after", "differs"]
    assert found.steps[1].details[0].startswith("prompt, feedback: line ")
    assert not found.ok


def prompt(episode: Episode, place: int) -> str:
    return "\n".join(message.content for message in episode.turns[place].messages)


def test_a_task_a_verdict_and_a_stop_that_are_others_are_told(refined: Episode) -> None:
    changed = asked(refined, 0, "Compute `mean`.", "Compute `median`.")
    changed = other(changed, 0, verdict="timeout")
    found = replay(changed, how="model")
    assert found.divergence is not None
    assert (found.divergence.turn, found.divergence.part) == (1, "task")
    assert "'Compute `mean`.', not 'Compute `median`.'" in found.divergence.told
    assert "verdict: failed, not timeout" in found.steps[0].details
    lax = replay(replace(refined, stop=Stop("cycle")), how="model", compare="lax")
    assert lax.divergence == Divergence(2, "stop", "it ends as solved, not as cycle")
    assert list(told(lax))[-2] == "First divergence: turn 2, stop: it ends as solved, not as cycle"


@pytest.mark.parametrize(("reason", "ok"), [("budget", True), ("max-turns", False)])
def test_a_loop_that_was_ended_from_outside_may_ask_for_more(
    refined: Episode, reason: Any, ok: bool
) -> None:
    cut = replace(refined, turns=refined.turns[:1], stop=Stop(reason))
    found = replay(cut, how="model")
    assert found.ok is ok
    if not ok:
        assert found.divergence is not None
        assert (found.divergence.turn, found.divergence.part) == (2, "stop")


def test_a_past_that_was_shown_in_full_is_inferred(tmp_path: Path) -> None:
    replies = [WRONG, fenced("mean = 5"), RIGHT]
    episode = refine("Mean.", model=replies, tests="assert mean == 4", history=history.full())
    save(episode, tmp_path / "episode.ipynb")
    replayed = replay(tmp_path / "episode.ipynb", how="model")
    assert replayed.ok
    assert replayed.notes[-1] == "which past its prompts showed is inferred from them"


def test_a_past_that_the_record_names_is_that_one() -> None:
    """A window that cuts the feedback gives prompts that no other history gives."""
    replies = [fenced("mean = 3"), fenced("mean = 5"), RIGHT]
    episode = refine("Mean.", model=replies, tests="assert mean == 4", history="window:120")
    assert "left out" in episode.turns[1].messages[-1].content
    replayed = replay(episode, how="model")
    assert replayed.ok, list(told(replayed))
    assert not any("inferred" in note for note in replayed.notes)


def test_steps_on_data_run_again_in_a_folder_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "rows.csv").write_text("1\n2\n")
    cells = (
        fenced("rows = [int(n) for n in open('data/rows.csv')]"),
        fenced("with open('sum.txt', 'w') as file:\n    file.write(str(sum(rows)))"),
    )
    episode = solve(
        "Sum the rows.",
        data=tmp_path / "data" / "rows.csv",
        subtasks=[
            Subtask("Read them", (), (holds("len(rows) == 2"),)),
            Subtask("Write the sum", (1,), (holds("open('sum.txt').read() == '3'"),)),
        ],
        model=list(cells),
        record=tmp_path / "episode.ipynb",
    )
    assert episode.solved, episode.stop
    (tmp_path / "sum.txt").write_text("a later one")
    replayed = replay(tmp_path / "episode.ipynb", how="model")
    assert replayed.ok, list(told(replayed))
    assert [step.state for step in replayed.steps] == ["same", "same"]
    assert (tmp_path / "sum.txt").read_text() == "a later one"
    (tmp_path / "data" / "rows.csv").unlink()
    with pytest.raises(UsageError, match="There is no data file"):
        replay(tmp_path / "episode.ipynb", how="model")


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"handed_in": ("df",)}, "variables of another session"),
        ({"settings": {}}, "does not say how its loop was set up"),
        ({"settings": {"kind": "solve", "branched_from": {}}}, "taken over from another episode"),
        ({"turns": ()}, "holds no model's reply"),
    ],
)
def test_an_episode_whose_loop_cannot_be_run_again_is_refused(
    refined: Episode, change: dict[str, Any], why: str
) -> None:
    with pytest.raises(UsageError, match=why):
        replay(replace(refined, **change), how="model")


def test_code_that_a_caller_gave_later_on_is_no_reply(refined: Episode) -> None:
    with pytest.raises(UsageError, match="given by the caller"):
        replay(other(refined, 1, reply=None), how="model")


def test_code_to_begin_with_is_given_again() -> None:
    episode = refine("Mean.", model=[RIGHT], tests="assert mean == 4", initial_code="mean = 1")
    assert [turn.messages == () for turn in episode.turns] == [True, False]
    assert Message("user", "x") not in episode.turns[1].messages
    assert replay(episode, how="model").ok


def differing(was: Episode, now: Episode) -> Divergence | None:
    return compared(was, now, Ruler(), exhausted=False)[1]


def test_one_character_of_a_prompt_is_quoted_wherever_it_stands(refined: Episode) -> None:
    opening = refined.turns[0].messages[-1].content
    long = other(refined, 0, messages=(Message("user", "x" * 5_000 + "a"),))
    longer = other(refined, 0, messages=(Message("user", "x" * 5_000 + "b"),))
    found = differing(long, longer)
    assert found is not None
    assert found.told == f"line 1 is '…{'x' * 40}b', not '…{'x' * 40}a'"
    for added, told_ in (
        ("\n", "its lines end otherwise"),
        ("\n\n", f"line {len(opening.splitlines()) + 1} is gone: ''"),
    ):
        last = replace(refined.turns[0].messages[-1], content=opening.rstrip("\n") + added)
        bare = replace(last, content=opening.rstrip("\n"))
        found = differing(other(refined, 0, messages=(last,)), other(refined, 0, messages=(bare,)))
        assert found is not None
        assert found.told == told_


def test_results_feedback_and_which_tests_passed_are_compared(refined: Episode) -> None:
    report = refined.turns[1].tests
    assert report is not None
    renamed = replace(report, cases=tuple(replace(c, expression="x == 1") for c in report.cases))
    for fields, part, words in (
        ({"result": None}, "cell", "a cell was run, and none had been"),
        ({"feedback": "All is well."}, "feedback", "its feedback is another one"),
        ({"tests": renamed}, "verdict", "other tests passed"),
    ):
        found = differing(other(refined, 1, **fields), refined)
        assert found is not None
        assert (found.turn, found.part, found.told) == (2, part, words)


def test_a_clean_replay_says_which_outputs_it_could_not_compare(refined: Episode) -> None:
    """Nor does a record's timeout that is none keep it from running."""
    result = refined.turns[1].result
    assert result is not None
    changed = other(refined, 1, result=replace(result, notes=(RERUN,)))
    replayed = replay(replace(changed, settings={"timeout": "soon"}))
    assert replayed.ok
    assert [step.told for step in replayed.steps] == ["same", "same after lost output", "same"]
    none = replace(refined, turns=tuple(replace(turn, accepted=False) for turn in refined.turns))
    assert list(told(replay(none)))[-1] == "No attempt was accepted; the setup went as recorded."


def test_settings_that_no_loop_has_are_refused(refined: Episode) -> None:
    settings = {**refined.settings, "rules": {"patience": 1, "charm": 2}}
    with pytest.raises(UsageError, match="its settings are none that refine or solve has"):
        replay(replace(refined, settings=settings), how="model")
