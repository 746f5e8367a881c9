"""The loop: from a task to an ended, recorded episode, with a scripted model on a real kernel."""

from __future__ import annotations

import asyncio
import itertools
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

import nbrefine
from nbrefine.budget import Budget
from nbrefine.errors import (
    InvalidTaskError,
    ModelUnavailableError,
    RecordError,
    RunStopped,
    UsageError,
)
from nbrefine.history import full
from nbrefine.loop import EpisodeRun, refine, start
from nbrefine.models.scripted import ScriptedModel
from nbrefine.values import Message, Reply, Sampling, Task, Usage

TESTS = "assert add(1, 2) == 3"
RIGHT = "```python\ndef add(a, b):\n    return a + b\n```"
WRONG = "```python\ndef add(a, b):\n    return a - b\n```"


def other(number: int) -> str:
    return f"```python\ndef add(a, b):\n    return {number}\n```"


def wait_until(run: EpisodeRun, doing: str) -> None:
    deadline = time.monotonic() + 60
    while run.activity.doing != doing:
        assert time.monotonic() < deadline, f"still {run.activity}"
        time.sleep(0.01)


def test_a_wrong_attempt_then_a_right_one_solves_the_task() -> None:
    episode = refine("Write add(a, b).", tests=TESTS, model=[WRONG, RIGHT])
    assert episode.solved
    assert [turn.verdict for turn in episode.turns] == ["failed", "solved"]
    assert episode.stop is not None
    assert episode.stop.detail == "1/1 tests passed"
    assert episode.best is episode.turns[1]
    assert episode.model == "scripted"


def test_a_person_who_refuses_an_attempt_ends_the_episode_without_a_fault() -> None:
    pools = "import polars\npolars.DataFrame({'a': [1]}).lazy().sum().collect()"
    episode = refine(
        "t", model=[WRONG], setup=pools, tests=TESTS, rebuild_limit=0, confirm=lambda why: False
    )
    assert episode.stop is not None
    assert episode.stop.reason == "stopped"
    assert "polars" in episode.stop.detail
    refused = episode.turns[-1]
    assert refused.reply is not None
    assert refused.reply.text == WRONG  # it was paid for
    assert (refused.tried, episode.verdict) == (False, "infra-error")  # not the model's failure


def test_workspace_and_rebuild_limit_are_set_and_recorded(tmp_path: Path) -> None:
    write = "```python\n_ = open('made.txt', 'w').write('1')\n1 / 0\n```"
    settings: dict[str, Any] = {"workspace": "report", "rebuild_limit": 1.5}
    episode = refine("t", model=[write], max_turns=1, cwd=tmp_path, **settings)
    assert (tmp_path / "made.txt").exists()
    assert episode.settings["workspace"] == "report"
    assert episode.settings["rebuild_limit"] == 1.5


def test_the_model_is_told_what_failed_and_sees_its_own_code() -> None:
    model = ScriptedModel([WRONG, RIGHT])
    refine("Write add(a, b).", tests=TESTS, model=model)
    first, second = model.requests
    assert "Write add(a, b)." in first[-1].content
    assert TESTS in first[-1].content
    assert "return a - b" in second[-1].content
    assert "got: -1" in second[-1].content


def test_initial_code_is_the_first_turn_and_asks_no_model() -> None:
    model = ScriptedModel([RIGHT])
    episode = refine(
        "Write add(a, b).", tests=TESTS, model=model, initial_code="def add(a, b): return None"
    )
    assert [turn.reply is None for turn in episode.turns] == [True, False]
    assert len(model.requests) == 1
    assert "return None" in model.requests[0][-1].content


def test_the_same_program_stops_the_episode_at_its_third_sighting() -> None:
    model = ScriptedModel(itertools.repeat(WRONG))
    episode = refine("t", tests=TESTS, model=model, max_turns=10)
    assert episode.stop is not None
    assert (episode.stop.reason, len(episode.turns)) == ("cycle", 3)
    assert [turn.escalated for turn in episode.turns] == [False, False, True]


def test_a_repeat_raises_the_temperature_and_every_turn_has_its_own_seed() -> None:
    model = ScriptedModel([WRONG, WRONG, RIGHT])
    episode = refine("t", tests=TESTS, model=model, seed=2)
    drawn = [turn.reply.sampling for turn in episode.turns if turn.reply]
    assert [sampling.seed for sampling in drawn] == [2001, 2002, 2003]
    assert [sampling.temperature for sampling in drawn] == [0.0, 0.0, 0.8]


def test_the_last_turn_ends_the_episode_and_the_best_attempt_is_named() -> None:
    tests = "assert add(1, 2) == 3\nassert add(0, 0) == 0"
    episode = refine("t", tests=tests, model=[other(9), other(3), other(8)], max_turns=3)
    assert episode.stop is not None
    assert episode.stop.reason == "max-turns"
    assert episode.best is episode.turns[1]
    assert episode.last is episode.turns[2]


def test_a_budget_stops_before_the_call_that_would_pass_it() -> None:
    model = ScriptedModel([WRONG, RIGHT])
    episode = refine("t", tests=TESTS, model=model, budget=Budget(calls=1))
    assert episode.stop is not None
    assert (episode.stop.reason, len(model.requests)) == ("budget", 1)
    assert "calls" in episode.stop.detail


def test_tokens_are_counted_as_the_model_says() -> None:
    replies = [Reply(WRONG, usage=Usage(100, 20)), Reply(RIGHT, usage=Usage(150, 30))]
    episode = refine("t", tests=TESTS, model=ScriptedModel(replies))
    assert episode.usage == Usage(250, 50)


def test_a_model_may_be_a_function_of_the_messages() -> None:
    def answer(messages: Sequence[Message]) -> str:
        return RIGHT if "got: -1" in messages[-1].content else WRONG

    assert refine("t", tests=TESTS, model=answer).solved


def test_the_history_strategy_decides_what_the_model_sees() -> None:
    model = ScriptedModel([other(1), other(2), RIGHT])
    refine("t", tests=TESTS, model=model, history=full())
    assert [m.role for m in model.requests[2]] == [
        "system", "user", "assistant", "user", "assistant", "user",
    ]  # fmt: skip


def test_a_history_can_be_named_and_the_record_keeps_the_name() -> None:
    model = ScriptedModel([WRONG, RIGHT])
    episode = refine("t", tests=TESTS, model=model, history="full")
    assert [message.role for message in episode.turns[1].messages][-2:] == ["assistant", "user"]
    assert episode.settings["history"] == "full"
    with pytest.raises(UsageError, match="no history 'sideways'"):
        refine("t", model=model, history="sideways")


def test_replies_without_code_are_turns_too() -> None:
    episode = refine("t", tests=TESTS, model=["Sorry.", "```python\ndef add(", RIGHT])
    assert [turn.verdict for turn in episode.turns] == ["no-code", "incomplete-reply", "solved"]
    assert [turn.number for turn in episode.attempts] == [3]


def test_the_record_holds_what_the_episode_holds(tmp_path: Path) -> None:
    path = tmp_path / "episode.ipynb"
    episode = refine("Write add.", tests=TESTS, model=[WRONG, RIGHT], record=path)
    assert nbrefine.load(path) == episode
    assert sorted(p.name for p in tmp_path.iterdir()) == ["episode.ipynb"]


SHOWING = """\
import sys
from IPython.display import JSON, Image, display
png = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010806000000"
    "1f15c4890000000d49444154789c6360000000020001e221bc330000000049454e44ae426082"
)
display(Image(png, width=50), JSON({"a": [1, None]}, expanded=True))
def double(x):
    print("doubling", x)
    print("aside", file=sys.stderr)
    return 2 * x
print(double(1))
double"""


@pytest.mark.parametrize(
    "tests",
    [
        "assert double(2) == 4\nfor i in range(3):\n    assert double(i) == 2 * i\nprint('done')",
        "def check(candidate):\n    return candidate(2) == 4",
        "def test_double():\n    print('in a test')\n    assert double(2) == 4\n    return 1",
        "display(double(3))\nassert double(2) == 4\ndouble(4)",
    ],
)
def test_running_the_record_again_gives_the_recorded_outputs(tmp_path: Path, tests: str) -> None:
    """`jupyter nbconvert --execute` on a recorded run, tests included."""
    path = tmp_path / "episode.ipynb"
    reply = f"```python\n{SHOWING}\n```"
    assert refine("Double it.", tests=tests, model=[WRONG, reply], record=path).solved
    before, made = (nbformat.read(path, as_version=4) for _ in range(2))  # type: ignore[no-untyped-call]
    NotebookClient(made, store_widget_state=False).execute()
    assert _outputs(made) == _outputs(before)


def _outputs(made: Any) -> dict[str, Any]:
    """Give each code cell's outputs, without the counts that a new run gives anew."""
    return {
        cell["id"]: [
            {key: value for key, value in output.items() if key != "execution_count"}
            for output in cell["outputs"]
        ]
        for cell in made["cells"]
        if cell["cell_type"] == "code"
    }


def test_data_files_are_named_relative_to_the_notebook(tmp_path: Path) -> None:
    table = tmp_path / "data" / "table.csv"
    table.parent.mkdir()
    table.write_text("a,b\n1,2\n")
    model = ScriptedModel(["```python\ntext = open('../data/table.csv').read()\n```"])
    episode = refine(
        "Read the table.",
        tests="assert text.startswith('a,b')",
        model=model,
        data=[table],
        record=_folder(tmp_path / "out") / "episode.ipynb",
    )
    assert episode.task.files == ("../data/table.csv",)
    assert "../data/table.csv" in model.requests[0][-1].content
    assert episode.solved


def _folder(path: Path) -> Path:
    path.mkdir()
    return path


def test_lone_surrogates_of_a_task_are_the_same_in_episode_and_record(tmp_path: Path) -> None:
    path = tmp_path / "episode.ipynb"
    task = Task("Set x\ud800.", setup="y = '\ud800'", tests="assert x == 1, '\ud800'")
    reply = "```python\nx = 1\n```"
    episode = refine(task, initial_code="x = '\ud800'", model=[reply], record=path)
    assert [turn.accepted for turn in episode.turns] == [False, True]
    assert episode.task.prompt == "Set x\ufffd."
    assert nbrefine.load(path) == episode


def test_bad_input_is_refused_before_anything_starts(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no data file"):
        start("t", model=[RIGHT], data=[tmp_path / "missing.csv"])
    with pytest.raises(UsageError, match=r"no data file missing.csv"):
        start("t", model=[RIGHT], data="missing.csv")
    unnamable = tmp_path / os.fsdecode(b"\xff.csv")
    unnamable.touch()
    with pytest.raises(UsageError, match=r"no UTF-8. Rename it"):
        start("t", model=[RIGHT], data=unnamable)
    with pytest.raises(UsageError, match="tests of its own"):
        start(Task("t", tests="assert 1"), tests="assert 2", model=[RIGHT])
    with pytest.raises(UsageError, match="names no model"):
        start("t", model="nonsense")
    with pytest.raises(UsageError):
        start("t", model=[RIGHT], record=tmp_path / "no" / "folder" / "episode.ipynb")
    foreign = tmp_path / "notes.ipynb"
    foreign.write_text('{"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}')
    with pytest.raises(UsageError):
        start("t", model=[RIGHT], record=foreign)


def test_tests_that_do_not_parse_are_refused_before_the_model_is_asked() -> None:
    model = ScriptedModel([RIGHT])
    with pytest.raises(InvalidTaskError):
        refine("t", tests="assert add(1, 2", model=model)
    assert model.requests == []


def test_a_host_s_trouble_is_raised_with_the_turns_so_far_and_recorded(tmp_path: Path) -> None:
    def answer(messages: Sequence[Message]) -> str:
        if "got: -1" in messages[-1].content:
            raise ModelUnavailableError("The server is gone", hint="Start it")
        return WRONG

    path = tmp_path / "episode.ipynb"
    with pytest.raises(ModelUnavailableError) as caught:
        refine("t", tests=TESTS, model=answer, record=path)
    episode = caught.value.episode
    assert isinstance(episode, nbrefine.Episode)
    assert [turn.verdict for turn in episode.turns] == ["failed"]
    assert episode.verdict == "infra-error"
    assert nbrefine.load(path) == episode


def test_a_record_that_can_no_longer_be_written_still_gives_the_episode(tmp_path: Path) -> None:
    folder = _folder(tmp_path / "gone")
    reply = f"```python\nimport os, shutil\nshutil.rmtree(os.getcwd())\n{RIGHT[10:]}"
    with pytest.raises(RecordError) as caught:
        refine("t", tests=TESTS, model=[reply], record=folder / "episode.ipynb", workspace="report")
    episode = caught.value.episode
    assert isinstance(episode, nbrefine.Episode)
    assert [turn.verdict for turn in episode.turns] == ["solved"]


def test_an_error_of_the_user_s_own_function_closes_the_record_and_comes_through(
    tmp_path: Path,
) -> None:
    def answer(messages: Sequence[Message]) -> str:
        raise ZeroDivisionError("mine")

    path = tmp_path / "episode.ipynb"
    with pytest.raises(ZeroDivisionError, match="mine"):
        refine("t", tests=TESTS, model=answer, record=path)
    assert nbrefine.load(path).verdict == "infra-error"


def test_stop_ends_a_running_cell_and_keeps_the_turns_and_the_reply_that_was_paid_for(
    tmp_path: Path,
) -> None:
    path = tmp_path / "episode.ipynb"
    endless = "```python\nwhile True:\n    pass\n```"
    run = start("t", tests=TESTS, model=[WRONG, endless], record=path, timeout=None)
    deadline = time.monotonic() + 60
    while ((now := run.activity).doing, now.turn) != ("running", 2):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert run.episode is not None
    assert len(run.episode.turns) == 1
    run.stop()
    episode = run.result(60)
    assert episode.stop is not None
    assert (episode.stop.reason, len(episode.turns)) == ("stopped", 2)
    stopped = episode.turns[-1]
    assert stopped.reply is not None
    assert (stopped.reply.text, stopped.verdict, stopped.tried) == (endless, "infra-error", False)
    assert stopped.extraction.reason == "It was not judged: stopped by a person"
    assert nbrefine.load(path) == episode
    assert "Attempt 2 of 2 was not judged" in path.read_text(encoding="utf-8")


def test_stop_ends_a_model_call_that_hangs() -> None:
    async def hang(messages: Sequence[Message]) -> str:
        await asyncio.sleep(3600)
        return RIGHT

    run = start("t", tests=TESTS, model=hang)
    wait_until(run, "asking")
    run.stop()
    stop = run.result(60).stop
    assert stop is not None
    assert stop.reason == "stopped"


def test_stop_before_the_kernel_is_ready_leaves_nothing() -> None:
    run = start("t", tests=TESTS, model=[RIGHT])
    run.stop()
    with pytest.raises(RunStopped):
        run.result(60)


def test_the_handle_can_be_awaited_on_a_loop_of_the_caller() -> None:
    async def main() -> bool:
        episode = await start("t", tests=TESTS, model=[RIGHT])
        return episode.solved

    assert asyncio.run(main())


def test_two_episodes_run_side_by_side_without_mixing() -> None:
    runs = [
        start("t", tests=f"assert n == {i}", model=[f"```python\nn = {i}\n```"]) for i in (1, 2)
    ]
    assert [run.result(60).solved for run in runs] == [True, True]


def test_settings_of_a_task_object_are_kept_and_sampling_is_recorded() -> None:
    task = Task("t", id="T-1", tests=TESTS, entry_point="add")
    sampling = Sampling(temperature=0.7, top_p=0.95, max_tokens=200)
    episode = refine(task, model=[RIGHT], sampling=sampling)
    assert (episode.task.id, episode.task.entry_point) == ("T-1", "add")
    assert episode.settings["temperature"] == 0.7
    assert episode.settings["rules"]["max_sightings"] == 3
    reply = episode.turns[0].reply
    assert reply is not None
    assert (reply.sampling.top_p, reply.sampling.max_tokens) == (0.95, 200)


def test_another_language_s_kernel_runs_and_records(tmp_path: Path, bash_kernel: str) -> None:
    path = tmp_path / "episode.ipynb"
    model = ScriptedModel(["```bash\nls /no/such/file\n```", "```bash\necho $((6 * 7))\n```"])
    episode = refine("Print 42.", kernel=bash_kernel, model=model, record=path)
    assert episode.solved
    assert [turn.verdict for turn in episode.turns] == ["failed", "solved"]
    assert "Bash" in model.requests[0][0].content
    assert "```bash" in model.requests[1][-1].content
    assert episode.accepted[0].result is not None
    assert episode.accepted[0].result.text == "42\n"
    assert nbrefine.load(path) == episode


def test_tests_for_a_kernel_of_another_language_are_refused(bash_kernel: str) -> None:
    with pytest.raises(InvalidTaskError, match="speaks bash"):
        refine("t", kernel=bash_kernel, tests="assert True", model=[RIGHT])


def test_without_a_seed_neither_session_nor_sampling_is_seeded() -> None:
    episode = refine("t", tests=TESTS, model=[RIGHT], seed=None)
    reply = episode.turns[0].reply
    assert reply is not None
    assert (episode.seed, episode.setup, reply.sampling.seed) == (None, None, None)


def test_a_task_that_is_none_is_refused_in_words() -> None:
    with pytest.raises(UsageError, match="None is no task"):
        start(None, model=[RIGHT])  # type: ignore[arg-type]
