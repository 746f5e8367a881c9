"""What models, their data and their checks may do to an episode in steps, and what is left."""

from __future__ import annotations

from pathlib import Path

import pytest

from nbrefine.env import MultiStepEnvironment
from nbrefine.errors import InvalidTaskError
from nbrefine.kernel import Kernel
from nbrefine.postconditions import holds
from nbrefine.state import Action
from nbrefine.values import AnswerForm, Reply, Subtask, Task, ToolCall
from tests.multistep import called, cell, driven, episode_of, newest, prompt, text

ENDS_WHEN_SHOWN = """\
class Trap:
    shown = 0
    def __repr__(self):
        Trap.shown += 1
        if Trap.shown > 1:
            import os
            os._exit(1)
        return "trap"
trap = Trap()
"""


def test_a_variable_that_ends_the_process_when_it_is_looked_at_ends_a_branch_alone(
    kernel: Kernel,
) -> None:
    with MultiStepEnvironment(Task("Go on"), kernel=kernel) as env:
        state = driven(env, cell(ENDS_WHEN_SHOWN), called("inspect_variable", name="trap"))
        looked = newest(state)
        assert (looked.kind, looked.verdict) == ("inspection", "failed")
        assert "Looking at trap took too long or ended the kernel" in looked.feedback
        state = env.step(state, cell("n = 1")).next_state
        unkept = newest(state)
        assert (unkept.accepted, unkept.result is not None and unkept.result.ok) == (False, True)
        assert "It was not kept, because the session did not answer afterwards" in unkept.feedback
        state = env.step(state, cell("del trap\nn = 2")).next_state
        assert newest(state).accepted


VALUE = Task("Count", answer=AnswerForm("value"))


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ("None", "is None, which is no answer"),
        ("float('nan')", "is nan, which is no answer"),
        ("__import__('numpy').float64('inf')", "which is no answer"),
        ("10**5_000", "is too long to write"),
        ("object()", "a value of type object is not plain data"),
        (
            "type('A', (), {'isoformat': lambda self: __import__('os')._exit(1)})()",
            "Reading the variable answer took too long or ended the kernel",
        ),
    ],
)
def test_a_value_that_is_none_is_fed_back(kernel: Kernel, value: str, told: str) -> None:
    with MultiStepEnvironment(VALUE, kernel=kernel) as env:
        state = driven(env, cell(f"answer = {value}"))
        assert told in newest(state).feedback
        assert newest(state).accepted
        state = env.step(state, cell("answer = 3")).next_state
    found = episode_of(state).answer
    assert (episode_of(state).solved, found and found.value) == (True, 3)


def test_files_that_lie_elsewhere_or_are_none_are_no_answer(kernel: Kernel, folder: Path) -> None:
    (folder.parent / "elsewhere.txt").write_text("x")
    task = Task("Write", answer=AnswerForm("files", files=("./sub//out.txt",)))
    said = text("```answer\nIt is there.\n```")
    with MultiStepEnvironment(task, kernel=kernel, max_turns=20) as env:
        state = driven(
            env, cell("import os\nos.mkdir('sub')\nopen('sub/out.txt', 'w').write('x')\nx = 1")
        )
        for code in (
            "os.remove('sub/out.txt')\nos.symlink('../../elsewhere.txt', 'sub/out.txt')",
            "os.remove('sub/out.txt')\nos.mkfifo('sub/out.txt')",
            "os.remove('sub/out.txt')\nos.mkdir('sub/out.txt')",
        ):
            state = env.step(state, cell(code)).next_state
            assert newest(state).accepted
            state = env.step(state, said).next_state
            assert "sub/out.txt is not there" in newest(state).feedback
        again = "os.rmdir('sub/out.txt')\nopen('sub/out.txt', 'w').write('y')\nx = 2"
        state = env.step(env.step(state, cell(again)).next_state, said).next_state
    found = episode_of(state).answer
    assert found is not None
    assert [each.path for each in found.files] == ["sub/out.txt"]


@pytest.mark.parametrize("path", ["/tmp/out.txt", "../out.txt", "a/../../out.txt", "."])
def test_an_answer_in_a_file_that_lies_elsewhere_is_refused_at_once(
    kernel: Kernel, path: str
) -> None:
    task = Task("Write", answer=AnswerForm("files", files=(path,)))
    with (
        MultiStepEnvironment(task, kernel=kernel) as env,
        pytest.raises(InvalidTaskError, match="no file of the working folder"),
    ):
        env.reset(seed=0)


def test_a_data_file_that_became_a_pipe_does_not_keep_the_next_prompt_waiting(
    kernel: Kernel, folder: Path
) -> None:
    (folder / "data.csv").write_text("a,b\n")
    with MultiStepEnvironment(Task("Go on", files=("data.csv",)), kernel=kernel) as env:
        state = driven(env, cell("import os\nos.remove('data.csv')\nos.mkfifo('data.csv')"))
        assert newest(state).accepted
        assert "data.csv (0 B)" in prompt(state)


@pytest.mark.parametrize(
    "check",
    [
        "globals().__setitem__('y', 2) is None and items.append(1) is None and x == 1",
        "setattr(__import__('builtins'), 'y', 2) is None and x == 1",
        "__import__('os').remove('keep.txt') is None and x == 1",
        "__import__('os').chdir('/') is None and x == 1",
        "__import__('os').environ.update(RED='1') is None and x == 1",
        "__import__('os').fork() >= 0 and x == 1",
        "__import__('random').seed(1) is None and x == 1",
    ],
)
def test_what_a_check_does_besides_is_not_seen_by_the_next_cell(
    kernel: Kernel, folder: Path, check: str
) -> None:
    (folder / "keep.txt").write_text("k")
    task = Task(
        "Go on", subtasks=(Subtask("Begin", postconditions=(holds(check),)), Subtask("End"))
    )
    show = (
        "import os, random, builtins\n"
        "print(items, 'y' in globals(), hasattr(builtins, 'y'), os.listdir(),\n"
        "      os.getcwd() == here, os.environ.get('RED'), random.random() == drawn)"
    )
    begin = (
        "import os, random\nrandom.seed(0)\ndrawn = random.random()\nrandom.seed(0)\n"
        "x = 1\nitems = []\nhere = os.getcwd()"
    )
    with MultiStepEnvironment(task, kernel=kernel) as env:
        state = driven(env, cell(begin), cell(show))
    first, last = episode_of(state).turns
    assert first.accepted
    assert last.result is not None
    assert last.result.text == "[] False False ['keep.txt'] True None True\n"
    assert (folder / "keep.txt").read_text() == "k"


@pytest.mark.parametrize(
    "check",
    [
        "1 / 0 == x",
        "exit() or x",
        "__import__('os')._exit(0) or x",
        "__import__('os').kill(__import__('os').getpid(), 9) or x",
        "__import__('ctypes').string_at(0) and x",
        "__import__('time').sleep(100) is None and x",
        "[1 for _ in iter(int, 1)] or x",
    ],
)
def test_a_check_that_fails_in_any_way_leaves_the_step_undone(kernel: Kernel, check: str) -> None:
    task = Task("Go on", subtasks=(Subtask("Begin", postconditions=(holds(check),)),))
    with MultiStepEnvironment(task, kernel=kernel, test_timeout=1.0) as env:
        state = driven(env, cell("x = 1"))
        turn = newest(state)
        assert (turn.accepted, turn.tests is not None and turn.tests.passed) == (False, 0)
        assert kernel.run("'x' in globals()").result().text == "False\n"


def test_who_looks_in_place_of_planning_is_asked_to_go_on_in_the_end(kernel: Kernel) -> None:
    task = Task("Go on", subtasks=(Subtask("Begin", postconditions=(holds("x == 1"),)),))
    looks = [called("read_file", path=f"{n}.txt") for n in range(6)]
    with MultiStepEnvironment(task, kernel=kernel, planning="ask") as env:
        state = driven(env, *[cell(f"y = {n}") for n in range(4)])
        assert state.hidden.wants == "plan"
        for look in looks:
            assert episode_of(state).stop is None
            state = env.step(state, look).next_state
    stop = episode_of(state).stop
    assert stop is not None
    assert stop.reason == "gave-up"


@pytest.mark.parametrize(
    "action",
    [
        called("make_plan", subtasks=[{"goal": "a", "k" * 30_000: "b"}]),
        called("nope" * 100_000),
        Action.from_reply(
            Reply("", "tool-calls", tool_calls=(ToolCall("run_cell", {"code": "x = 1"}),) * 10_000)
        ),
        called("inspect_variable", name="x" * 100_000),
        called("read_file", path="x/" * 100_000),
    ],
)
def test_what_is_told_of_a_reply_is_not_as_long_as_the_reply(
    kernel: Kernel, action: Action
) -> None:
    with MultiStepEnvironment(Task("Go on"), kernel=kernel) as env:
        state = driven(env, action)
        assert 0 < len(newest(state).feedback) < 3_000
        assert len(prompt(state)) < 4_000
