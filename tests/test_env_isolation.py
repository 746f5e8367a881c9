"""Where attempts run, what states keep, and what becomes of both when something goes wrong."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from jupyter_client.manager import KernelManager

from nbrefine.env import NotebookEnvironment
from nbrefine.env.session import Session
from nbrefine.errors import BranchRefused, KernelDeadError, KernelError, RunStopped
from nbrefine.kernel import Kernel, interrupt
from nbrefine.outputs import Stream
from nbrefine.state import Action, State, StepResult
from nbrefine.values import Task, Turn

COUNT = Task("t", setup="items = [1, 2]")

POLARS = "import polars\npolars.DataFrame({'a': [1, 2]}).lazy().sum().collect()\nitems = [1, 2]"
"""After it there is no fork: polars' threads would be gone in the branch."""


def newest(result: StepResult) -> Turn:
    turn: Turn = result.next_state.hidden.episode.turns[-1]
    return turn


def code(text: str) -> Action:
    return Action.from_code(text)


def going_on(state: State, tests: str = "") -> State:
    """Ask for another step, as a plan of several does."""
    episode = state.hidden.episode
    episode = replace(episode, stop=None, task=replace(episode.task, tests=tests))
    return replace(state, hidden=replace(state.hidden, episode=episode))


def session(env: NotebookEnvironment) -> Session:
    assert env._session is not None
    return env._session


def value(env: NotebookEnvironment, expression: str) -> str:
    return session(env).kernel.run(expression).result().text.strip()


@pytest.fixture
def env() -> Iterator[NotebookEnvironment]:
    with NotebookEnvironment(COUNT) as made:
        yield made


def running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true"
        time.sleep(0.01)


def checkpoint_of(state: State) -> int:
    """Give the process in which a state's copy sleeps."""
    copy = state.hidden.point.copy
    assert copy is not None
    pid: int = copy.pid
    return pid


def test_several_steps_from_one_state_run_at_once_and_one_goes_on(
    env: NotebookEnvironment,
) -> None:
    start = env.reset()[0]

    async def all_of_them() -> list[StepResult]:
        texts = [f"items.append({n}); mine = {n}" for n in range(4)]
        return await asyncio.gather(*(env.astep(start, code(text)) for text in texts))

    results = asyncio.run(all_of_them())
    assert [newest(result).accepted for result in results] == [True] * 4
    assert [newest(result).isolation for result in results] == ["fork"] * 4
    for n, result in enumerate(results):
        env.settle(result.next_state)
        assert value(env, "items, mine") == f"([1, 2, {n}], {n})"


def test_two_futures_of_one_state_can_both_be_continued(env: NotebookEnvironment) -> None:
    start = env.reset()[0]
    one = env.step(start, code("items.append('one')")).next_state
    other = env.step(start, code("items.append('other')")).next_state
    more = env.step(going_on(one), code("items.append('more')"))
    assert newest(more).isolation == "fork"
    assert value(env, "items") == "[1, 2, 'one', 'more']"
    last = env.step(going_on(other), code("items.append('last')"))
    assert newest(last).isolation == "fork"
    assert value(env, "items") == "[1, 2, 'other', 'last']"
    env.settle(more.next_state)
    assert value(env, "items") == "[1, 2, 'one', 'more']"
    again = env.step(start, code("n = len(items)"))
    assert newest(again).accepted
    assert value(env, "n") == "2"


def test_a_state_is_kept_for_as_long_as_somebody_holds_it(env: NotebookEnvironment) -> None:
    start = env.reset()[0]
    one = env.step(start, code("items.append(1)")).next_state
    two = env.step(going_on(one), code("items.append(2)")).next_state
    first, second = checkpoint_of(start), checkpoint_of(one)
    assert running(first)
    assert running(second)
    del start
    gc.collect()
    until(lambda: not running(first))
    assert running(second)
    env.step(going_on(one), code("items.append(3)"))
    assert running(second)
    del one, two
    gc.collect()
    until(lambda: not running(second))


def test_tests_and_rejected_attempts_leave_the_session_as_it_was(env: NotebookEnvironment) -> None:
    start = env.reset()[0]
    dirty = "items.clear()\nimport os\nos.environ['DIRTY'] = '1'\nassert True"
    first = env.step(going_on(start, dirty), code("items.append(3)"))
    assert newest(first).accepted
    assert value(env, "import os\nitems, os.environ.get('DIRTY')") == "([1, 2, 3], None)"
    rejected = env.step(going_on(first.next_state, "assert False"), code("items.append(4)"))
    assert not newest(rejected).accepted
    assert value(env, "items") == "[1, 2, 3]"


def test_a_handed_in_kernel_is_the_accepted_state_and_stays_open() -> None:
    with Kernel.start() as kernel:
        kernel.run("precious = [1]").result()
        with NotebookEnvironment(Task("t"), kernel=kernel) as env:
            start = env.reset()[0]
            bad = env.step(start, code("precious.clear(); 1 / 0"))
            good = env.step(bad.next_state, code("precious.append(2)"))
            assert [newest(bad).isolation, newest(good).isolation] == ["fork", "fork"]
        assert kernel.run("precious").result().text == "[1, 2]\n"


def test_an_attempt_that_ends_its_process_is_rejected_and_the_session_lives(
    env: NotebookEnvironment,
) -> None:
    state = env.reset()[0]
    for text, death in (
        ("items.clear()\nimport os; os._exit(0)", "exit code 0"),
        ("import os; os.kill(os.getpid(), 11)", "SIGSEGV"),
        ("import os, signal; os.killpg(0, signal.SIGKILL)", "SIGKILL"),
        ("import os, signal; os.kill(os.getppid(), signal.SIGKILL); os._exit(1)", "exit code 1"),
    ):
        result = env.step(state, code(text))
        turn, state = newest(result), result.next_state
        assert turn.result is not None
        assert (turn.verdict, turn.isolation) == ("crashed", "fork")
        assert death in str(turn.result.death)
    after = env.step(going_on(state), code("n = len(items)"))
    assert newest(after).accepted
    assert newest(after).isolation == "fork"
    assert value(env, "n") == "2"


def test_the_session_s_process_may_end_while_an_attempt_runs(
    env: NotebookEnvironment, tmp_path: Path
) -> None:
    start = env.reset()[0]
    pid = session(env).kernel.info.pid
    assert pid is not None
    begun, ended = tmp_path / "begun", tmp_path / "ended"
    cell = f"""
import pathlib, time
pathlib.Path({str(begun)!r}).touch()
while not pathlib.Path({str(ended)!r}).exists(): time.sleep(0.01)
items.append(3)"""

    async def meanwhile() -> StepResult:
        step = env.astep(start, code(cell))
        await asyncio.to_thread(until, begun.exists)
        os.kill(pid, signal.SIGKILL)
        ended.touch()
        return await step

    result = asyncio.run(meanwhile())
    assert newest(result).accepted
    assert value(env, "items") == "[1, 2, 3]"
    again = env.step(start, code("items.append(4)"))
    assert newest(again).isolation == "fork"
    assert value(env, "items") == "[1, 2, 4]"


IMMORTAL = """\
import signal
signal.signal(signal.SIGINT, signal.SIG_IGN)
while True: pass"""


@pytest.mark.parametrize("ending", [IMMORTAL, "import os; os._exit(3)"])
def test_after_a_killed_kernel_the_session_is_built_again_whatever_was_asked_for(
    ending: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(interrupt, "PATIENCE", 0.6)
    task = Task("t", setup="df = [1]", tests="assert done")
    # By the limit the cell must have begun to ignore interrupts, on a busy host too.
    with NotebookEnvironment(task, isolation="none", rebuild_limit=0, timeout=3.0) as env:
        first = env.step(env.reset()[0], code(f"leak = 1\n{ending}"))
        second = env.step(first.next_state, code("n, done = len(df), False"))
        third = env.step(second.next_state, code("done = n == 1 and 'leak' not in globals()"))
    assert newest(first).change is None
    assert (newest(second).isolation, newest(second).isolation_reason) == (
        "rebuild",
        "an earlier cell had ended the kernel",
    )
    assert (newest(third).isolation, newest(third).accepted) == ("none", True)
    assert "`n`" in newest(third).isolation_reason  # which the second attempt left


def test_a_session_that_is_not_what_it_was_when_rebuilt_is_the_host_s_trouble(
    tmp_path: Path,
) -> None:
    with NotebookEnvironment(Task("t"), isolation="rebuild", cwd=tmp_path) as env:
        first = env.step(env.reset()[0], code("import os; os.mkdir('d'); x = 1"))
        assert newest(first).accepted
        second = env.step(going_on(first.next_state), code("1 / 0"))
        with pytest.raises(KernelError, match=r"accepted cell 1, run again, .*FileExistsError"):
            env.step(second.next_state, code("print(x)"))
        (tmp_path / "d").rmdir()
        third = env.step(second.next_state, code("y = x"))
        assert newest(third).accepted


def test_a_kernel_that_tests_have_ended_is_built_again_and_the_turn_says_so() -> None:
    task = Task("t", setup="n = 1", tests="import os; os._exit(0)\nassert n")
    with NotebookEnvironment(task, isolation="none") as env:
        first = env.step(env.reset()[0], code("n += 1"))
        second = env.step(going_on(first.next_state), code("n += 1"))
        assert value(env, "n") == "2"
    assert not newest(first).accepted
    assert "ended when the attempt was tested" in newest(first).isolation_reason
    assert newest(second).isolation == "rebuild"


def test_a_handed_in_kernel_that_an_attempt_ended_is_not_used_empty(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(interrupt, "PATIENCE", 0.6)
    with Kernel.start() as kernel:
        kernel.run("precious = 1").result()
        with NotebookEnvironment(Task("t"), kernel=kernel, isolation="none", timeout=3.0) as env:
            first = env.step(env.reset()[0], code(IMMORTAL))
            with pytest.raises(KernelDeadError, match="handed in has ended"):
                env.step(first.next_state, code("x = 1"))


def test_a_copy_whose_process_has_gone_is_made_anew(env: NotebookEnvironment) -> None:
    start = env.reset()[0]
    first = env.step(start, code("1 / 0"))
    os.kill(checkpoint_of(start), signal.SIGKILL)
    second = env.step(first.next_state, code("items.append(3)"))
    assert newest(second).accepted
    assert newest(second).isolation == "fork"
    assert value(env, "items") == "[1, 2, 3]"


def test_a_step_that_is_given_up_leaves_no_branch_and_the_next_one_runs(
    env: NotebookEnvironment,
) -> None:
    start = env.reset()[0]
    env.step(start, code("1 / 0"))

    async def given_up(seconds: float) -> None:
        step = asyncio.ensure_future(waiting())
        await asyncio.sleep(seconds)
        step.cancel()
        await asyncio.wait({step})

    async def waiting() -> None:
        await env.astep(start, code("items.clear()\nwhile True: pass"))

    lineage = session(env).kernel.core.lineage
    for seconds in (0.01, 0.03, 0.05, 0.3):
        asyncio.run(given_up(seconds))
        until(lambda: not lineage.branches)
    assert newest(env.step(start, code("n = len(items)"))).accepted
    assert value(env, "n") == "2"


def test_a_refused_fork_is_rebuilt_with_its_reason() -> None:
    with NotebookEnvironment(Task("t", setup=POLARS), rebuild_limit=60) as env:
        first = env.step(env.reset()[0], code("items.append(3); 1 / 0"))
        second = env.step(first.next_state, code("n = len(items)"))
        assert value(env, "n") == "2"
    for result in (first, second):
        assert newest(result).isolation == "rebuild"
        assert "polars" in newest(result).isolation_reason


def test_a_refused_fork_that_cannot_be_rebuilt_is_asked_for_with_its_reason() -> None:
    asked: list[str] = []

    def confirm(why: str) -> bool:
        asked.append(why)
        return len(asked) == 1

    task = Task("t", setup=POLARS)
    with NotebookEnvironment(task, rebuild_limit=0.0, confirm=confirm) as env:
        start = env.reset()[0]
        turn = newest(env.step(start, code("items.append(3); 1 / 0")))
        assert (turn.isolation, turn.isolation_reason) == ("none", asked[0])
        with pytest.raises(RunStopped):
            env.step(start, code("items.append(4)"))
        assert value(env, "items") == "[1, 2, 3]"
    assert "polars" in asked[0]
    assert "There is no copy of that state" in asked[1]  # as the first attempt has changed it
    assert all("over 0 s" in why for why in asked)


def test_where_only_forks_are_allowed_a_refused_one_is_an_error_and_harms_nothing() -> None:
    with NotebookEnvironment(Task("t", setup=POLARS), isolation="fork") as env:
        start = env.reset()[0]
        with pytest.raises(BranchRefused, match="polars") as refused:
            env.step(start, code("items.append(3)"))
        assert "polars" in " ".join(str(hazard) for hazard in refused.value.hazards)
        assert value(env, "items") == "[1, 2]"


def test_an_attempt_that_cannot_be_branched_is_tested_in_itself_and_says_so() -> None:
    task = Task("t", tests="assert items")
    with NotebookEnvironment(task, rebuild_limit=60) as env:
        turn = newest(env.step(env.reset()[0], code(POLARS)))
    assert turn.accepted
    assert turn.isolation == "fork"
    assert "its tests ran in the attempt itself" in turn.isolation_reason
    assert "polars" in turn.isolation_reason


def test_a_kernel_of_another_language_is_rebuilt_and_says_why(bash_kernel: str) -> None:
    with NotebookEnvironment(Task("t", setup="n=1"), kernel=bash_kernel) as env:
        first = env.step(env.reset(seed=None)[0], code("n=2; false"))
        turn = newest(first)
        assert turn.isolation == "rebuild"
        assert turn.isolation_reason
    with (
        NotebookEnvironment(Task("t"), kernel=bash_kernel, isolation="fork") as env,
        pytest.raises(BranchRefused),
    ):
        env.step(env.reset(seed=None)[0], code("true"))


def test_late_output_of_the_session_is_not_put_into_a_rejected_branch(tmp_path: Path) -> None:
    go, done = tmp_path / "go", tmp_path / "done"
    setup = f"""
import pathlib, threading, time
def work():
    while not pathlib.Path({str(go)!r}).exists(): time.sleep(0.01)
    print('late')
    pathlib.Path({str(done)!r}).touch()
threading.Thread(target=work).start()"""
    with (
        Kernel.start() as kernel,
        NotebookEnvironment(Task("t", setup=setup), kernel=kernel) as env,
    ):
        first = env.step(env.reset()[0], code("1 / 0"))
        go.touch()
        until(done.exists)
        kernel.variables().result()  # what was printed before has arrived with its answer
        episode = env.step(first.next_state, code("y = 1")).next_state.hidden.episode
    assert newest(first).isolation == "fork"
    assert episode.setup.outputs == (Stream("stdout", "late\n", late=True),)
    assert not any("late" in turn.result.text for turn in episode.turns)


def test_an_episode_in_a_kernel_that_was_handed_in_records_what_that_held() -> None:
    with Kernel.start() as kernel:
        kernel.run("df, n = [1], 2").result()
        with NotebookEnvironment(Task("t", setup="mine = 1"), kernel=kernel) as env:
            assert env.reset()[0].hidden.episode.handed_in == ("df", "n")
    with NotebookEnvironment(Task("t", setup="mine = 1")) as env:
        assert env.reset()[0].hidden.episode.handed_in is None


def test_a_kernel_that_was_handed_in_keeps_no_copy_when_the_environment_has_ended() -> None:
    with Kernel.start() as kernel:
        with NotebookEnvironment(Task("t"), kernel=kernel) as env:
            start = env.reset()[0]
            env.step(start, code("1 / 0"))
            pid = checkpoint_of(start)
            assert running(pid)
        until(lambda: not running(pid))


def test_what_tests_write_without_an_overlay_is_not_taken_for_the_attempt_s(
    tmp_path: Path,
) -> None:
    tests = "open('of_tests.txt', 'w').close()\nassert True"
    task = Task("t", tests=tests)
    with NotebookEnvironment(task, workspace="report", cwd=tmp_path) as env:
        turn = newest(env.step(env.reset()[0], code("open('mine.txt', 'w').close()")))
    assert turn.files is not None
    assert [change.path for change in turn.files.changes] == ["mine.txt"]


def test_a_database_that_a_branch_shares_is_recorded(tmp_path: Path) -> None:
    setup = f"import sqlite3\ndb = sqlite3.connect({str(tmp_path / 'a.db')!r})"
    with NotebookEnvironment(Task("t", setup=setup)) as env:
        turn = newest(env.step(env.reset()[0], code("1 / 0")))
    assert any("a.db" in each for each in turn.shared)


@pytest.fixture
def attached(tmp_path: Path) -> Iterator[Kernel]:
    """A kernel that somebody else has started."""
    manager = KernelManager(kernel_name="python3", connection_file=str(tmp_path / "kernel.json"))
    # Threads of BLAS would be a user's, who must not be forked.
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    with (tmp_path / "log").open("w") as log:
        manager.start_kernel(stdout=log, stderr=log, env=environment, cwd=str(tmp_path))
    try:
        client = manager.blocking_client()
        client.start_channels()
        client.wait_for_ready(timeout=60)
        client.stop_channels()
        with Kernel.connect(manager.connection_file) as kernel:
            kernel.run("items = [1, 2]").result()
            yield kernel
    finally:
        manager.shutdown_kernel(now=True)


def test_a_cell_that_fails_in_a_kernel_that_is_not_ours_is_not_accepted(attached: Kernel) -> None:
    pid = attached.run("import os; os.getpid()").result().text.strip()
    only_here = f"items.append(3)\nassert os.getpid() != {pid}, 'no'"
    with NotebookEnvironment(Task("t", tests="assert items"), kernel=attached) as env:
        first = env.step(env.reset()[0], code(only_here))
        turn = newest(first)
        assert (turn.accepted, turn.verdict, turn.isolation) == (False, "failed", "none")
        assert "had run without an error in a branch" in turn.isolation_reason
        assert "AssertionError: no" in turn.feedback
        assert not first.terminated
        with pytest.raises(BranchRefused, match="cannot go back"):  # what it did is there
            env.step(first.next_state, code("n = 1"))
    assert attached.run("items").result().text == "[1, 2, 3]\n"


def test_no_second_step_from_one_state_is_committed_to_a_kernel_that_is_not_ours(
    attached: Kernel,
) -> None:
    with NotebookEnvironment(Task("t"), kernel=attached) as env:
        start = env.reset()[0]

        async def both() -> list[StepResult | BaseException]:
            texts = (f"items.append({n})" for n in (3, 3))
            steps = (env.astep(start, code(text)) for text in texts)
            return await asyncio.gather(*steps, return_exceptions=True)

        results = asyncio.run(both())
        refused = [result for result in results if isinstance(result, BaseException)]
        assert len(refused) == 1
        assert isinstance(refused[0], KernelError)
        assert "cannot go back" in str(refused[0])
        assert value(env, "items") == "[1, 2, 3]"
        with pytest.raises(BranchRefused, match="cannot go back"):
            env.step(start, code("items.append(4)"))
        with pytest.raises(KernelError, match="somebody else's, and cannot go back"):
            env.settle(start)
        assert value(env, "items") == "[1, 2, 3]"


def test_an_accepted_branch_that_its_tests_dirtied_is_built_again() -> None:
    tests = "assert items == [1, 2]\nitems.append('of a test')"
    with NotebookEnvironment(Task("t", tests=tests), rebuild_limit=60) as env:
        first = env.step(env.reset()[0], code(POLARS))
        assert newest(first).isolation == "fork"
        assert newest(first).accepted
        second = env.step(going_on(first.next_state), code("n = len(items)"))
        assert newest(second).isolation == "rebuild"
        assert value(env, "n") == "2"


def test_a_handed_in_kernel_that_has_died_is_the_host_s_trouble() -> None:
    with Kernel.start() as kernel, NotebookEnvironment(Task("t"), kernel=kernel) as env:
        start = env.reset()[0]
        kernel.run("import os; os._exit(1)").result()
        with pytest.raises(KernelDeadError, match="handed in"):
            env.step(start, code("x = 1"))


def test_a_state_that_is_neither_kept_nor_buildable_is_refused() -> None:
    """Of a handed-in kernel whose copies were refused nobody can give an old state back."""
    with Kernel.start() as kernel:
        kernel.run(POLARS).result()
        with NotebookEnvironment(Task("t"), kernel=kernel, isolation="none") as env:
            start = env.reset()[0]
            env.step(start, code("items.append(3)"))
            with pytest.raises(KernelError, match="not kept any more"):
                env.settle(start)
        assert kernel.run("items").result().text == "[1, 2, 3]\n"
