"""Several candidates for one task: where they begin, which is taken, what is left of the others."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from nbrefine.budget import Budget
from nbrefine.env import (
    IterativeEnvironment,
    IterativeTask,
    NotebookEnvironment,
    Problem,
    SingleTurnEnvironment,
)
from nbrefine.errors import (
    BranchRefused,
    InvalidTaskError,
    ModelTimeoutError,
    RunStopped,
    UsageError,
)
from nbrefine.executors import SubprocessCodeExecutor
from nbrefine.kernel import Kernel
from nbrefine.metrics import pass_at_k
from nbrefine.models.scripted import ScriptedModel
from nbrefine.notebook import load
from nbrefine.rewards.code import CodeExecutionReward
from nbrefine.rewards.grader import Grader
from nbrefine.sampling import Samples, sample, start_sampling
from nbrefine.source import fenced
from nbrefine.state import Action
from nbrefine.values import Episode, GradeNote, Message, Reply, Sampling, Task

DOUBLE = Task(
    "Write double(x).",
    "double",
    tests="assert double(2) == 4\nassert double(-3) == -6",
    hidden_tests="assert double(10) == 20",
)
RIGHT = "def double(x):\n    return 2 * x"
SQUARE = "def double(x):\n    return x * x"  # passes the first test alone
WRONG = "def double(x):\n    return x"
OVERFITTED = "def double(x):\n    return {2: 4, -3: -6}.get(x)"


def replies(*codes: str) -> list[str]:
    return [fenced(code, "python") for code in codes]


def solved(samples: Samples) -> list[bool]:
    return [episode.solved for episode in samples.episodes]


def reasons(samples: Samples) -> list[str]:
    return [episode.stop.reason if episode.stop else "" for episode in samples.episodes]


@pytest.fixture(scope="module")
def live() -> Iterator[Kernel]:
    with Kernel.start() as kernel:
        yield kernel


def value(kernel: Kernel, expression: str) -> str:
    return kernel.run(expression).result().text.strip()


def test_the_first_that_passes_is_taken_and_the_rest_never_begins() -> None:
    model = ScriptedModel(replies(WRONG, RIGHT, RIGHT, RIGHT))
    samples = sample(DOUBLE, model, 4, workers=1)
    assert samples.chosen_index == 1
    assert samples.code == RIGHT
    assert solved(samples) == [False, True, False, False]
    assert reasons(samples) == ["max-turns", "solved", "stopped", "stopped"]
    assert len(model.requests) == 2
    assert (samples.n, samples.passed) == (2, 1)


def test_the_best_of_all_is_taken_and_ties_go_to_the_earliest(live: Kernel) -> None:
    samples = sample(
        DOUBLE, replies(WRONG, SQUARE, SQUARE + "\n", WRONG), 4, select="best", kernel=live
    )
    assert not any(solved(samples))
    assert samples.chosen_index is not None
    assert samples.code.strip() == SQUARE
    # The replies may be handed out in any order; the earliest of the two best is taken.
    best = [i for i, e in enumerate(samples.episodes) if e.best and e.best.score == (0.5, 1)]
    assert len(best) == 2
    assert samples.chosen_index == best[0]
    assert samples.n == 4


def test_pass_at_k_is_the_unbiased_estimate_over_all_candidates(live: Kernel) -> None:
    samples = sample(DOUBLE, replies(RIGHT, WRONG, RIGHT, WRONG), 4, select="best", kernel=live)
    # 1 - C(2, k) / C(4, k) by hand: 1 - 2/4, 1 - 1/6, 1 - 0.
    assert samples.pass_at_k(1) == pytest.approx(0.5)
    assert samples.pass_at_k(2) == pytest.approx(5 / 6)
    assert samples.pass_at_k(3) == 1.0
    assert math.isnan(samples.pass_at_k(5))
    assert samples.pass_at_k(2) == pass_at_k(4, 2, 2)


def test_draws_that_ended_with_a_success_give_no_pass_at_k(live: Kernel) -> None:
    samples = sample(DOUBLE, replies(RIGHT, WRONG), 2, workers=1, kernel=live)
    assert reasons(samples) == ["solved", "stopped"]
    assert math.isnan(samples.pass_at_k(1))
    nobody = sample(DOUBLE, replies(WRONG, WRONG), 2, workers=1, kernel=live)
    assert nobody.pass_at_k(2) == 0.0
    assert nobody.chosen is None
    assert nobody.code == ""


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


def test_what_came_before_the_model_broke_off_is_judged(live: Kernel, tmp_path: Path) -> None:
    samples = sample(
        DOUBLE,
        replies(WRONG, RIGHT),
        4,
        kernel=live,
        select="best",
        workers=1,
        record=tmp_path,
    )
    assert solved(samples) == [False, True, False, False]
    assert reasons(samples) == ["max-turns", "solved", "infra-error", "infra-error"]
    assert samples.chosen_index == 1
    assert (samples.n, samples.passed) == (2, 1)
    assert samples.pass_at_k(1) == 0.5  # of the two that count
    assert "candidate 2 ended in trouble" in samples.note
    assert "has given all its replies (2)" in samples.note
    assert [turn.code for turn in load(tmp_path / "sample-01.ipynb").turns] == [RIGHT]
    assert load(tmp_path / "sample-02.ipynb").verdict == "infra-error"


def test_a_call_that_fails_is_that_candidate_s_trouble_alone(live: Kernel) -> None:
    answers = iter(replies(WRONG, "", RIGHT))

    def answer(messages: Sequence[Message]) -> str:
        if "double" not in (reply := next(answers)):
            raise ModelTimeoutError("No answer within 60 s")
        return reply

    samples = sample(DOUBLE, answer, 3, kernel=live, select="best", workers=1)
    assert reasons(samples) == ["max-turns", "infra-error", "solved"]
    assert (samples.chosen_index, samples.n, samples.passed) == (2, 2, 1)
    assert samples.note == (
        "candidate 1 ended in trouble and counts for nothing: No answer within 60 s"
    )


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


def test_every_candidate_is_an_episode_of_its_own_with_a_seed_of_its_own(live: Kernel) -> None:
    drawn: list[Sampling] = []

    class Model(ScriptedModel):
        def complete(self, messages, *, sampling=Sampling(), **rest):  # type: ignore[no-untyped-def]
            drawn.append(sampling)
            return super().complete(messages, sampling=sampling, **rest)

    samples = sample(
        DOUBLE, Model(replies(*[WRONG] * 3)), 3, select="best", workers=1, seed=7, kernel=live
    )
    assert [sampling.seed for sampling in drawn] == [7001, 8001, 9001]
    assert {sampling.temperature for sampling in drawn} == {0.8}
    assert len({episode.id for episode in samples.episodes}) == 3
    assert [episode.settings["sample"] for episode in samples.episodes] == [0, 1, 2]
    assert {episode.task.id for episode in samples.episodes} == {"double"}
    drawn.clear()
    sample(
        DOUBLE, Model(replies(WRONG, WRONG)), 2, select="best", workers=1, seed=None, kernel=live
    )
    assert [sampling.seed for sampling in drawn] == [None, None]


def test_all_candidates_are_asked_the_same_and_see_nothing_of_each_other(live: Kernel) -> None:
    model = ScriptedModel(replies(WRONG, SQUARE, WRONG))
    sample(DOUBLE, model, 3, select="best", workers=1, kernel=live)
    assert len(set(model.requests)) == 1


def test_hidden_tests_count_but_never_choose(live: Kernel) -> None:
    with Grader() as grader:
        samples = sample(
            DOUBLE,
            replies(OVERFITTED, RIGHT, WRONG),
            3,
            select="best",
            workers=1,
            grader=grader,
            kernel=live,
        )
    assert samples.chosen_index == 0  # by the visible tests it is as good as the right one
    assert [grade.solved if grade else None for grade in samples.grades] == [False, True, None]
    assert samples.grades[0] is not None
    assert samples.grades[0].passing_but_wrong
    assert samples.passed == 1
    assert samples.pass_at_k(1) == pytest.approx(1 / 3)
    assert [outcome.passing_but_wrong for outcome in samples.outcomes] == [True, False, False]


def test_hidden_tests_count_without_a_grader_of_the_caller_s_too(
    live: Kernel, tmp_path: Path
) -> None:
    codes = replies(OVERFITTED, RIGHT, WRONG)
    samples = sample(DOUBLE, codes, 3, select="best", workers=1, kernel=live, record=tmp_path)
    assert samples.chosen_index == 0
    assert [grade.solved if grade else None for grade in samples.grades] == [False, True, None]
    assert samples.passed == 1
    assert samples.pass_at_k(1) == pytest.approx(1 / 3)
    assert "candidate 0 was taken because it passed the visible tests" in samples.note
    assert samples.note.endswith("the grade of 1 is solved")
    grades = [GradeNote("failed", 2, 3), GradeNote("solved", 3, 3), None]
    assert [episode.grade for episode in samples.episodes] == grades
    recorded = sorted(tmp_path.glob("*.ipynb"))
    assert [load(path).grade for path in recorded] == grades


def test_the_first_that_passes_what_is_visible_is_taken_and_a_note_tells_of_its_grade(
    live: Kernel,
) -> None:
    samples = sample(DOUBLE, replies(OVERFITTED, RIGHT), 2, workers=1, kernel=live)
    assert samples.chosen_index == 0
    assert (samples.n, samples.passed) == (1, 0)
    assert math.isnan(samples.pass_at_k(1))
    assert "its grade is failed" in samples.note
    assert "no further one was drawn, which select='best' does" in samples.note


def test_a_right_candidate_needs_no_note(live: Kernel) -> None:
    samples = sample(DOUBLE, replies(RIGHT), 1, kernel=live)
    assert [grade.solved for grade in samples.grades if grade] == [True]
    assert samples.note == ""


def test_a_task_whose_hidden_tests_cannot_be_run_counts_for_nothing(live: Kernel) -> None:
    broken = replace(DOUBLE, hidden_tests="assert double(")
    samples = sample(broken, replies(RIGHT), 1, kernel=live)
    assert [grade.verdict for grade in samples.grades if grade] == ["invalid-task"]
    assert samples.n == 0


def test_a_task_that_cannot_be_graded_here_is_refused_before_the_model_is_asked(
    live: Kernel,
) -> None:
    model = ScriptedModel(replies(RIGHT))
    broken = replace(DOUBLE, reference=WRONG)
    with Grader() as grader, pytest.raises(InvalidTaskError, match="the reference fails"):
        sample(broken, model, 1, kernel=live, grader=grader)
    assert model.requests == []


def test_with_more_turns_each_candidate_is_refined_by_itself(live: Kernel) -> None:
    model = ScriptedModel(replies(WRONG, SQUARE, WRONG, RIGHT))
    samples = sample(DOUBLE, model, 2, select="best", max_turns=2, workers=1, kernel=live)
    assert [len(episode.turns) for episode in samples.episodes] == [2, 2]
    assert solved(samples) == [False, True]
    assert samples.chosen_index == 1
    # The second turn of each tells of its own first attempt and no other.
    asked = [messages[-1].content for messages in model.requests]
    assert ["0/2 tests" in text for text in asked] == [False, True, False, True]
    assert asked[1] == asked[3]


def test_each_candidate_is_recorded_as_a_notebook(tmp_path: Path) -> None:
    samples = sample(
        DOUBLE, replies(WRONG, RIGHT), 2, select="best", workers=1, record=tmp_path, cwd=tmp_path
    )
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "sample-00.ipynb",
        "sample-01.ipynb",
    ]
    assert load(tmp_path / "sample-01.ipynb") == samples.episodes[1]
    # The records themselves are nobody's work.
    told = [turn.files for episode in samples.episodes for turn in episode.turns]
    assert [files.changes for files in told if files] == [(), ()]
    with pytest.raises(UsageError):
        sample(DOUBLE, replies(WRONG), 1, record=tmp_path)


def test_a_budget_is_the_sampling_s_own_and_ends_it(live: Kernel) -> None:
    budget = Budget(calls=2)
    samples = sample(
        DOUBLE, replies(*[WRONG] * 4), 4, select="best", workers=1, budget=budget, kernel=live
    )
    assert reasons(samples) == ["max-turns", "max-turns", "budget", "budget"]
    assert budget.spent.calls == 2
    assert samples.n == 2
    assert math.isnan(samples.pass_at_k(3))


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


@pytest.fixture
def tested() -> Iterator[IterativeEnvironment]:
    rewards = (CodeExecutionReward(SubprocessCodeExecutor(workers=2)),)
    inner = SingleTurnEnvironment([Problem(DOUBLE)], rewards=rewards, name="one", adapter="one")
    with IterativeEnvironment(inner, max_turns=3) as env:
        yield env


def test_candidates_are_steps_from_any_state_of_a_pure_environment(
    tested: IterativeEnvironment,
) -> None:
    start = tested.reset()[0]
    second = tested.step(start, Action.from_text(replies(WRONG)[0])).next_state
    samples = sample(None, replies(SQUARE, RIGHT), 2, environment=tested, state=second, workers=1)
    assert samples.task == DOUBLE
    assert samples.chosen_index == 1
    assert [len(episode.turns) for episode in samples.episodes] == [2, 2]
    assert samples.episodes[0].turns[0] == samples.episodes[1].turns[0]
    # What was sent for a turn stays with that turn.
    first, last = samples.episodes[1].turns
    assert first.messages == ()
    assert "0/2 tests passed" in last.messages[-1].content
    assert reasons(samples) == ["max-turns", "solved"]  # one step each, of the three there are
    assert samples.state is not None
    assert samples.state.metadata.is_terminal
    # The state can be stepped as before.
    again = tested.step(second, Action.from_text(replies(RIGHT)[0]))
    assert again.terminated


def test_a_notebook_environment_goes_on_from_the_chosen_state() -> None:
    with NotebookEnvironment(Task("Go.", setup="items = []")) as env:
        start = env.reset()[0]
        codes = replies("items.append(1); 1 / 0", "items.append(2)", "items.append(3)")
        samples = sample(None, codes, 3, environment=env, state=start, select="best", workers=1)
        assert samples.chosen_index == 1
        assert samples.state is not None
        assert env._session is not None
        assert value(env._session.kernel, "items") == "[2]"
        assert env.step(start, Action.from_code("assert items == []")).terminated


def test_the_best_that_has_not_passed_can_be_gone_on_from() -> None:
    with NotebookEnvironment(DOUBLE, max_turns=3) as env:
        start = env.reset()[0]
        codes = replies(WRONG, SQUARE)
        samples = sample(None, codes, 2, environment=env, state=start, select="best", workers=1)
        assert samples.chosen_index == 1
        assert samples.state is not None
        after = env.step(samples.state, Action.from_code(RIGHT))
        assert after.terminated
        assert [turn.code for turn in after.next_state.hidden.episode.turns] == [SQUARE, RIGHT]
        assert env._session is not None
        assert value(env._session.kernel, "double(5)") == "10"  # accepted for good


def test_a_state_that_cannot_be_stepped_twice_is_refused() -> None:
    with NotebookEnvironment(DOUBLE, isolation="none") as env:
        start = env.reset()[0]
        with pytest.raises(UsageError, match="attempts do not run in branches"):
            sample(None, replies(RIGHT), 1, environment=env, state=start)


def test_a_kernel_that_cannot_branch_is_refused_and_fresh_ones_are_named() -> None:
    with Kernel.start(plain=True) as plain, pytest.raises(BranchRefused, match="fresh=True"):
        sample(DOUBLE, replies(RIGHT), 1, kernel=plain)


_KNOWN = IterativeTask("2 + 2?", test_code="assert True")

SETTINGS: dict[str, Callable[[], object]] = {
    "n is 0": lambda: sample(DOUBLE, [], 0),
    "max_turns is 0": lambda: sample(DOUBLE, [], 1, max_turns=0),
    "workers is 0": lambda: sample(DOUBLE, [], 1, workers=0),
    "no select": lambda: sample(DOUBLE, [], 1, select="worst"),  # type: ignore[arg-type]
    "temperature 0": lambda: sample(DOUBLE, [], 2, sampling=Sampling(temperature=0.0)),
    "is no task": lambda: sample(None, [], 1),
    "tests of its own": lambda: sample(DOUBLE, [], 1, tests="assert True"),
    "go together": lambda: sample(None, [], 1, environment=IterativeEnvironment(tasks=_KNOWN)),
    "the name of one notebook": lambda: sample(DOUBLE, [], 1, record="runs.ipynb"),
    "nothing runs in no time": lambda: sample(DOUBLE, [], 1, timeout=0),
}


@pytest.mark.parametrize("told", SETTINGS)
def test_what_makes_no_sense_is_refused_before_anything_starts(told: str) -> None:
    with pytest.raises(UsageError, match=told):
        SETTINGS[told]()


def test_a_live_kernel_and_fresh_ones_exclude_each_other(live: Kernel) -> None:
    with pytest.raises(UsageError, match="not fresh"):
        sample(DOUBLE, [], 1, kernel=live, fresh=True)


def test_one_candidate_may_be_drawn_at_temperature_0(live: Kernel) -> None:
    samples = sample(DOUBLE, replies(RIGHT), 1, sampling=Sampling(temperature=0.0), kernel=live)
    assert samples.chosen_index == 0


def test_rows_tell_the_candidate_and_whether_it_was_taken(live: Kernel) -> None:
    samples = sample(DOUBLE, replies(WRONG, RIGHT, RIGHT), 3, select="best", workers=1, kernel=live)
    told = [(row["sample"], row["chosen"], row["verdict"]) for row in samples.to_rows()]
    assert told == [(0, False, "failed"), (1, True, "solved"), (2, False, "solved")]


def test_replies_without_code_are_candidates_too(live: Kernel) -> None:
    model: list[str | Reply] = ["I cannot.", *replies(RIGHT)]
    samples = sample(DOUBLE, model, 2, select="best", workers=1, kernel=live)
    assert samples.chosen_index == 1
    assert (samples.n, samples.passed) == (2, 1)
    nothing = sample(DOUBLE, ["I cannot."], 1, select="best", kernel=live)
    assert nothing.chosen is None
    assert isinstance(nothing.episodes[0], Episode)
