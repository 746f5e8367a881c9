"""Where candidates begin in a live kernel or in fresh ones, and what is left of them there."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest

from nbrefine.errors import BranchRefused, RunStopped, UsageError
from nbrefine.kernel import Kernel
from nbrefine.notebook import load
from nbrefine.sampling import sample, start_sampling
from nbrefine.values import Episode, Message, Task
from tests.sampling.doubling import DOUBLE, RIGHT, SQUARE, WRONG, reasons, replies, solved, value


def test_candidates_begin_from_the_state_of_a_live_kernel_and_only_the_chosen_one_changes_it(
    live: Kernel,
) -> None:
    live.run("items = [1]").result()
    code = "items.append({0}); assert {1}; mine = {0}"
    model = replies(code.format(7, False), code.format(8, True), code.format(9, True))
    samples = sample("Append a number.", model, 3, kernel=live, workers=1)
    assert samples.chosen_index == 1
    assert [turn.isolation for e in samples.episodes for turn in e.turns] == ["fork", "fork"]
    assert value(live, "items, mine") == "([1, 8], 8)"
    assert live.alive


def test_the_best_of_several_that_passed_side_by_side_becomes_the_session(live: Kernel) -> None:
    live.run("seen = []").result()
    codes = [f"seen.append({n}); who = {n}" for n in range(4)]
    samples = sample("Say who.", replies(*codes), 4, kernel=live, select="best", workers=4)
    assert all(solved(samples))
    assert samples.chosen_index == 0  # all are as good
    assert value(live, "seen, who") == f"([{value(live, 'who')}], {value(live, 'who')})"
    assert samples.code == f"seen.append({value(live, 'who')}); who = {value(live, 'who')}"


WRITES = "from pathlib import Path\nPath('{0}.txt').write_text('{0}')\nassert {1}"


@pytest.mark.parametrize("where", ["branches", "fresh", "a live kernel", "somebody else's"])
def test_files_of_the_chosen_one_reach_the_folder_and_those_of_no_other(
    where: str, tmp_path: Path
) -> None:
    work = tmp_path / "work"
    work.mkdir()
    codes = replies(*(WRITES.format(name, name != "bad") for name in ("bad", "one", "two")))
    with ExitStack() as stack:
        kernel: Kernel | str = "python3"
        if where in ("a live kernel", "somebody else's"):
            kernel = stack.enter_context(Kernel.start(cwd=work))
        if where == "somebody else's":
            assert isinstance(kernel, Kernel)
            kernel = stack.enter_context(Kernel.connect(kernel.connection_file))
        samples = sample(
            "Write.",
            codes,
            3,
            select="best",
            workers=1,
            kernel=kernel,
            fresh=where == "fresh",
            cwd=None if isinstance(kernel, Kernel) else work,
            record=tmp_path,
        )
    assert solved(samples) == [False, True, True]
    assert samples.chosen_index == 1
    assert [path.name for path in work.iterdir()] == ["one.txt"]
    if where != "somebody else's":  # where the cell runs again, and nobody watches the folder
        told = [episode.turns[0].files for episode in samples.episodes]
        assert [files.isolated for files in told if files] == [True, False, True]
        assert load(tmp_path / "sample-01.ipynb") == samples.chosen


def test_those_that_passed_and_are_not_the_best_do_not_wait_for_the_end(live: Kernel) -> None:
    living: list[int] = []

    def model(_messages: Sequence[Message]) -> str:
        living.append(len(live.core.lineage.branches))
        return replies(RIGHT)[0]

    samples = sample(DOUBLE, model, 6, select="best", workers=1, kernel=live)
    assert all(solved(samples))
    assert max(living) <= 3  # the best so far, and what may be parting still


def test_nothing_is_left_of_the_candidates(live: Kernel) -> None:
    before = descendants()
    for select in ("first", "best"):
        sample(DOUBLE, replies(WRONG, RIGHT, SQUARE, RIGHT), 4, kernel=live, select=select)
    sample(DOUBLE, replies(WRONG, RIGHT), 2)
    # The kernel may keep one dormant copy of its present state, for the next branch.
    until(lambda: not live.core.lineage.branches and len(live.core.lineage.copies) <= 1)
    until(lambda: len(descendants()) <= len(before) + 1)


def descendants() -> list[psutil.Process]:
    return psutil.Process().children(recursive=True)


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true"
        time.sleep(0.01)


def test_a_live_kernel_stays_as_it_was_where_nothing_passes(live: Kernel) -> None:
    live.run("kept = [1]").result()
    bad = replies("kept.append(2); 1 / 0", "kept.clear(); 1 / 0")
    samples = sample("Break it.", bad, 2, kernel=live, select="best")
    assert samples.chosen_index == 0
    assert value(live, "kept") == "[1]"


def test_a_live_kernel_stays_as_it_was_where_the_model_breaks_off(live: Kernel) -> None:
    live.run("kept = [1]").result()
    with pytest.raises(UsageError, match="has given all its replies") as caught:
        sample(DOUBLE, replies(WRONG), 1, kernel=live, max_turns=2)
    assert isinstance(caught.value.episode, Episode)
    assert [turn.code for turn in caught.value.episode.turns] == [WRONG]
    assert value(live, "kept") == "[1]"


def test_a_kernel_that_somebody_else_owns_gets_the_chosen_code_as_a_cell() -> None:
    with (
        Kernel.start() as theirs,
        Kernel.connect(theirs.connection_file) as attached,
    ):
        theirs.run("items = [1]").result()
        task = Task("Append.", setup="step = 5", tests="assert items[-1] == 6")
        codes = replies("items.append(9)", "items.append(step + 1)", "items.append(6)")
        samples = sample(task, codes, 3, kernel=attached, workers=1)
        assert samples.chosen_index == 1
        assert samples.note == ""
        assert value(theirs, "items, step") == "([1, 6], 5)"


def test_fresh_candidates_have_kernels_of_their_own() -> None:
    code = "import os\npid = os.getpid()\nprint(pid)"
    samples = sample("Print.", replies(*[code] * 2), 2, fresh=True, select="best")
    assert all(solved(samples))
    pids = {e.turns[0].result.text.strip() for e in samples.episodes if e.turns[0].result}
    assert len(pids) == 2
    assert len({episode.id for episode in samples.episodes}) == 2


def test_stopped_it_gives_what_there_is_and_leaves_no_candidate_behind(live: Kernel) -> None:
    asked = threading.Event()
    answers = iter(replies(SQUARE))

    def model(_messages: Sequence[Message]) -> str:
        answer = next(answers, None)
        if answer is not None:
            return answer
        asked.set()
        threading.Event().wait(30)
        return ""

    run = start_sampling(DOUBLE, model, 3, select="best", workers=1, kernel=live)
    assert asked.wait(60)
    run.stop()
    samples = run.result(60)
    assert reasons(samples) == ["max-turns", "stopped", "stopped"]
    assert samples.chosen_index == 0
    assert samples.n == 1


def test_stopped_before_anything_began_it_has_no_result() -> None:
    run = start_sampling(DOUBLE, replies(RIGHT), 1)
    run.stop()
    with pytest.raises(RunStopped):
        run.result(60)


def test_a_success_stops_the_others_in_the_middle_of_their_work(live: Kernel) -> None:
    begun = threading.Event()
    codes = iter(replies("import time\ntime.sleep(60)", RIGHT))
    lock = threading.Lock()

    def model(_messages: Sequence[Message]) -> str:
        with lock:
            code = next(codes)
        if RIGHT in code:
            assert begun.wait(60)
        else:
            begun.set()
        return code

    samples = sample(DOUBLE, model, 2, workers=2, kernel=live)
    assert sorted(reasons(samples)) == ["solved", "stopped"]
    assert samples.code == RIGHT
    left = next(e for e in samples.episodes if not e.solved)
    assert left.stop is not None
    assert left.stop.detail == "another candidate had passed"


def test_a_kernel_that_cannot_branch_is_refused_and_fresh_ones_are_named() -> None:
    with Kernel.start(plain=True) as plain, pytest.raises(BranchRefused, match="fresh=True"):
        sample(DOUBLE, replies(RIGHT), 1, kernel=plain)


def test_a_live_kernel_and_fresh_ones_exclude_each_other(live: Kernel) -> None:
    with pytest.raises(UsageError, match="not fresh"):
        sample(DOUBLE, [], 1, kernel=live, fresh=True)
