"""Whose kernel the steps run on, what it is lent, and what is left of it."""

from __future__ import annotations

import asyncio
import errno
import gc
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from jupyter_client.manager import KernelManager

from nbrefine.env import MultiStepEnvironment, track
from nbrefine.errors import BranchRefused, InvalidTaskError, KernelError, UsageError
from nbrefine.kernel import Kernel
from nbrefine.kernel.branching import Copy
from nbrefine.kernel.core import Core
from nbrefine.notebook.wording import changed
from nbrefine.postconditions import file_written, holds
from nbrefine.state import Action
from nbrefine.values import AnswerForm, Subtask, Task
from tests.multistep import cell, driven, episode_of, newest

TWO = (
    Subtask("Add", postconditions=(holds("len(items) == 3"),)),
    Subtask("Sum", needs=(1,), postconditions=(holds("total == sum(items)"),)),
)


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true"
        time.sleep(0.02)


def processes() -> int:
    """Count the processes that this one has started, directly or not."""
    alive = psutil.Process().children(recursive=True)
    return sum(each.is_running() and each.status() != psutil.STATUS_ZOMBIE for each in alive)


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[str]:
    """The connection file of a kernel that somebody else has started."""
    manager = KernelManager(kernel_name="python3")
    # Threads of BLAS would be a user's, who must not be forked.
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    with (tmp_path.parent / f"{tmp_path.name}.log").open("w") as log:
        manager.start_kernel(stdout=log, stderr=log, env=environment, cwd=str(tmp_path))
    try:
        yield manager.connection_file
    finally:
        manager.shutdown_kernel(now=True)


@pytest.fixture
def attached(connection: str) -> Iterator[Kernel]:
    """That kernel, with a state of theirs."""
    with Kernel.connect(connection) as kernel:
        assert kernel.run("items = [1, 2]").result().ok
        yield kernel


def test_accepted_cells_run_once_in_a_kernel_that_is_not_ours(
    attached: Kernel, tmp_path: Path
) -> None:
    with MultiStepEnvironment(Task("Sum up", subtasks=TWO), kernel=attached) as env:
        state = driven(
            env,
            "items.append(3); open('out.txt', 'a').write('x'); raise ValueError",
            "items.append(3); open('out.txt', 'a').write('x')",
            "total = sum(items)",
        )
    episode = episode_of(state)
    assert [turn.accepted for turn in episode.turns] == [False, True, True]
    assert [turn.isolation for turn in episode.turns] == ["fork"] * 3
    assert episode.handed_in == ("items",)
    assert episode.solved
    assert (tmp_path / "out.txt").read_text() == "x"
    assert [(artifact.path, artifact.size) for artifact in episode.artifacts] == [("out.txt", 1)]
    assert attached.run("items, total").result().text == "([1, 2, 3], 6)\n"


def test_what_its_owner_runs_meanwhile_is_told_and_no_answer_of_a_cell_s(
    attached: Kernel, connection: str
) -> None:
    task = Task("Count", answer=AnswerForm("value"))
    with (
        Kernel.connect(connection) as owner,
        MultiStepEnvironment(task, kernel=attached) as env,
    ):
        state = driven(env, "n = 1")
        assert owner.run("items.append(3)\nanswer = 8").result().ok
        state = env.step(state, cell("m = len(items)")).next_state
        turn = newest(state)
        assert turn.result is not None
        assert turn.accepted
        assert "others changed the session: " in turn.isolation_reason
        assert "answer should not be there" in turn.isolation_reason
        assert turn.change is not None
        assert list(turn.change.new) == ["m"]
        assert not turn.change.changed
        assert episode_of(state).answer is None
        state = env.step(state, cell("answer = m")).next_state
    assert "others" not in newest(state).isolation_reason
    found = episode_of(state).answer
    assert found is not None
    assert found.value == 3


def test_a_look_that_ends_a_branch_leaves_a_kernel_that_is_not_ours_alone(attached: Kernel) -> None:
    trap = """\
class Trap:
    def __repr__(self):
        __import__("os")._exit(1)
import pandas
trap = pandas.DataFrame({"a": [0] * 5 + [Trap()]})  # a listing shows the first rows alone
"""
    look = Action.from_text('{"name": "inspect_variable", "arguments": {"name": "trap"}}')
    with MultiStepEnvironment(Task("t"), kernel=attached) as env:
        state = env.step(driven(env, trap), look).next_state
        assert "too long or ended the kernel" in newest(state).feedback
    assert attached.run("items").result().text == "[1, 2]\n"


def test_an_older_state_of_a_kernel_that_is_not_ours_is_not_looked_at(attached: Kernel) -> None:
    look = Action.from_text('{"name": "inspect_variable", "arguments": {"name": "items"}}')
    with MultiStepEnvironment(Task("t"), kernel=attached) as env:
        start = driven(env)
        later = env.step(start, cell("items.append(3)")).next_state
        assert "[2] 3" in newest(env.step(later, look).next_state).feedback
        with pytest.raises(KernelError, match="cannot go back"):
            env.step(start, look)


def test_variables_are_lent_by_value_and_the_lender_s_stay_as_they_are() -> None:
    with Kernel.start() as own:
        assert own.run("items = [1, 2]\nnumbers = (n for n in items)").result().ok
        task = Task("Sum up", subtasks=TWO, setup="first = items[0]")
        with MultiStepEnvironment(task, lend=(own, ("items",))) as env:
            state = driven(env, "items.append(3)\nassert first == 1", "total = sum(items)")
        assert "items: list of length 3" in (state.observation.state or "")
        assert episode_of(state).solved
        assert episode_of(state).handed_in == ("items",)
        assert own.run("items").result().text == "[1, 2]\n"
        with (
            MultiStepEnvironment(Task("t"), lend=(own, ("numbers",))) as env,
            pytest.raises(UsageError, match="numbers cannot be lent"),
        ):
            env.reset()
        with pytest.raises(UsageError, match="lend"):
            MultiStepEnvironment(Task("t"), kernel=own, lend=(own, ()))


def test_released_states_and_closed_environments_leave_no_process_and_no_descriptor() -> None:
    with MultiStepEnvironment(Task("t", setup="items = []")) as env:
        driven(env, "items.append(1)")  # what is made once for all kernels is there
    before, opened = processes(), psutil.Process().num_fds()
    for _ in range(2):
        with MultiStepEnvironment(Task("t", setup="items = []"), style="tools") as env:
            start = driven(env)
            held = processes()
            states = [start]
            for code in ("items.append(1)", "1 / 0", "items.append(2)"):
                states.append(env.step(states[-1], cell(code)).next_state)
            states.append(env.step(start, cell("items.append(3)")).next_state)
            states.append(env.step(start, Action.from_code("")).next_state)
            for state in states:
                env.release(state)
            until(lambda held=held: processes() <= held)  # type: ignore[misc]
            with pytest.raises(UsageError, match="released"):
                env.step(start, cell("x = 1"))
    until(lambda: processes() <= before)
    until(lambda: psutil.Process().num_fds() <= opened)


def test_the_copy_for_the_next_attempt_is_made_while_the_model_is_asked() -> None:
    with MultiStepEnvironment(Task("t", setup="items = []")) as env:
        state = driven(env, "items.append(1)")
        point = state.hidden.point
        until(lambda: point.copy is not None)
        made = point.copy
        state = env.step(state, cell("items.append(2); print(items)")).next_state
        result = newest(state).result
        assert result is not None
        assert (newest(state).isolation, result.text) == ("fork", "[1, 2]\n")
        assert point.copy is made
        assert not made.closed
    until(lambda: made.closed)


def test_what_stands_against_a_copy_ahead_is_no_matter_until_an_attempt_needs_one(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    tried: list[Core] = []

    async def fails(core: Core) -> Copy:
        tried.append(core)
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    with MultiStepEnvironment(Task("t", setup="items = []")) as env:
        start = driven(env)
        with monkeypatch.context() as patch:
            patch.setattr(track, "copy", fails)
            state = env.step(start, cell("items.append(1)")).next_state
            until(lambda: tried)
        state = env.step(state, cell("print(items)")).next_state
        result = newest(state).result
        assert result is not None
        assert (newest(state).isolation, result.text) == ("fork", "[1]\n")
    gc.collect()
    assert not [record for record in caplog.records if "never retrieved" in record.getMessage()]


@pytest.mark.parametrize(
    "starts",
    [
        "import threading\nthreading.Timer(1, seen.append, ['done']).start()",
        "import asyncio\nasyncio.get_running_loop().call_later(1, seen.append, 'done')",
    ],
    ids=["thread", "callback"],
)
def test_the_next_attempt_sees_what_went_on_while_the_model_was_asked(starts: str) -> None:
    with MultiStepEnvironment(Task("t", setup="seen = []")) as env:
        state = driven(env, f"{starts};")
        time.sleep(2)
        state = env.step(state, cell("print(seen)")).next_state
        result = newest(state).result
    assert result is not None
    assert result.text == "['done']\n"


def test_a_step_that_is_given_up_leaves_the_session_as_it_was() -> None:
    with MultiStepEnvironment(Task("t", setup="items = []")) as env:
        start = driven(env)
        held = processes()

        async def given_up() -> None:
            step = asyncio.ensure_future(
                env.astep(start, cell("items.append(1)\nimport time; time.sleep(600)"))._wait()
            )
            await asyncio.sleep(1)
            step.cancel()
            with pytest.raises(asyncio.CancelledError):
                await step

        asyncio.run(given_up())
        until(lambda: processes() <= held)
        state = env.step(start, cell("print(items)")).next_state
        result = newest(state).result
        assert result is not None
        assert result.text == "[]\n"


def test_a_kernel_that_cannot_branch_is_rebuilt_and_looked_at_all_the_same(tmp_path: Path) -> None:
    task = Task("Sum up", subtasks=TWO, setup="items = [1, 2]")
    with MultiStepEnvironment(task, isolation="rebuild", cwd=tmp_path) as env:
        state = driven(env, "items.append(9); items.clear()")
        assert newest(state).isolation == "rebuild"
        state = env.step(
            state, Action.from_text('{"name": "inspect_variable", "arguments": {"name": "items"}}')
        ).next_state
        assert (newest(state).kind, "[1] 2" in newest(state).feedback) == ("inspection", True)
        for code in ("items.append(3)", "total = 6"):
            state = env.step(state, cell(code)).next_state
    assert episode_of(state).solved
    assert not env.spec.pure_step


def test_nothing_is_tested_unasked_in_a_kernel_that_was_handed_in_and_cannot_branch() -> None:
    task = Task("t", tests="precious.clear()\nassert True", answer=AnswerForm())
    look = '{"name": "inspect_variable", "arguments": {"name": "precious"}}'
    answer = Action.from_text("ANSWER: done")
    with Kernel.start(plain=True) as kernel:
        assert kernel.run("precious = [41]").result().ok
        with MultiStepEnvironment(task, kernel=kernel) as env:
            state = env.step(env.reset()[0], Action.from_text(look)).next_state
            assert "[0] 41" in newest(state).feedback
            with pytest.raises(BranchRefused, match="handed in"):
                env.step(state, answer)
            assert kernel.run("precious").result().text == "[41]\n"
        with MultiStepEnvironment(task, kernel=kernel, confirm=lambda why: True) as env:
            state = env.step(env.reset()[0], answer).next_state
        assert episode_of(state).solved
        assert kernel.run("precious").result().text == "[]\n"


def test_a_kernel_of_another_language_works_in_steps_without_checks(bash_kernel: str) -> None:
    with MultiStepEnvironment(Task("Say it"), kernel=bash_kernel) as env:
        state, _ = env.reset()
        state = env.step(state, Action.from_text("```bash\nx=hello\n```")).next_state
        assert newest(state).accepted
        state = env.step(state, Action.from_text("```bash\necho ANSWER: $x\n```")).next_state
        answer = episode_of(state).answer
        assert answer is not None
        assert answer.text == "hello"
    with (
        MultiStepEnvironment(Task("t", subtasks=TWO), kernel=bash_kernel) as env,
        pytest.raises(InvalidTaskError, match="bash"),
    ):
        env.reset()


def test_a_kernel_that_dies_in_an_attempt_does_not_take_the_session_with_it() -> None:
    task = Task("Sum up", subtasks=TWO, setup="items = [1, 2]")
    with MultiStepEnvironment(task) as env:
        state = driven(env, "items.append(3)", "import os; os._exit(7)", "total = sum(items)")
    assert [turn.verdict for turn in episode_of(state).turns] == ["solved", "crashed", "solved"]
    assert episode_of(state).solved


def test_files_that_a_rejected_attempt_left_without_a_branch_are_told(tmp_path: Path) -> None:
    checks = (file_written("out.txt"), holds("x == 1"))
    task = Task("Write", subtasks=(Subtask("Write", postconditions=checks), Subtask("Go on")))
    with MultiStepEnvironment(task, isolation="rebuild", cwd=tmp_path) as env:
        state = driven(env, "n = open('out.txt', 'w').write('x')", "x = 1")
        turn = newest(state)
        assert not turn.accepted  # the file is none that this attempt has written
        told = "Files that rejected attempts wrote are there still: out.txt."
        assert told in turn.isolation_reason
        state = env.step(state, cell("x = open('out.txt', 'w').write('y')")).next_state
    first, _, last = episode_of(state).turns
    assert "are there still" not in first.isolation_reason
    assert "What it did to files stays: it wrote out.txt (1 B)." in first.feedback
    assert "files: wrote out.txt (1 B), which stays so" in changed(first)
    assert (last.accepted, [each.path for each in last.artifacts]) == (True, ["out.txt"])
