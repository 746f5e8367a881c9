"""Episodes whose code no session ran: judged by rewards, recorded like all others."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from io import StringIO
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient
from rich.console import Console

import nbrefine
from nbrefine.env.iterative import IterativeEnvironment, IterativeTask
from nbrefine.env.single import Problem, SingleTurnEnvironment
from nbrefine.executors import SubprocessCodeExecutor
from nbrefine.extractors import CodeBlockExtractor, Extractor
from nbrefine.notebook import from_notebook, to_notebook
from nbrefine.rewards.code import CodeExecutionReward
from nbrefine.rewards.format import AnswerReward
from nbrefine.runner import TrajectoryRunner
from nbrefine.state import Action, State
from nbrefine.stopping import StopRule, sightings
from nbrefine.values import (
    CaseResult,
    Episode,
    Extraction,
    Reply,
    RewardType,
    Signal,
    SignalBundle,
    Stop,
    Task,
    TestReport,
    Turn,
)

TESTS = "def check(candidate):\n    assert candidate(1, 2) == 3"
TASK = Task("Write add(a, b).", "add", setup="import math", tests=TESTS, entry_point="add")
RIGHT = "```python\ndef add(a, b):\n    return a + b\n```"
BLOCK = CodeBlockExtractor("python")
WRONG = "```python\ndef add(a, b):\n    return a - b\n```"


class Tested:
    """Tells of tests as the reward of code does that ran them in processes of its own."""

    name = "code_execution"
    reward_type = RewardType.OUTCOME

    def compute(self, state: State, action: Action, next_state: State) -> Signal:
        text = action.text or ""
        if "def add" not in text:
            told = {"extraction_failed": True, "verdict": "no-code"}
            return Signal(self.name, self.reward_type, 0.0, "No code block found.", told)
        right = "a + b" in text
        case = {"name": "check[1]", "expression": "candidate(1, 2) == 3", "expected": "3"}
        case |= {"status": "passed", "got": "3"} if right else {"status": "failed", "got": "-1"}
        facts = {"cases": [case], "tier": "grade", "verdict": "solved" if right else "failed"}
        said = f"{int(right)}/1 tests passed."
        return Signal(self.name, self.reward_type, float(right), said, facts)


def recorded(
    path: Path,
    replies: Iterable[str | Reply],
    *,
    task: Task = TASK,
    extractor: Extractor | None = BLOCK,
    reward: Any = None,
    **settings: Any,
) -> Episode:
    """Run a real episode that is recorded at `path`."""
    rewards = (reward or Tested(),)
    env = IterativeEnvironment(
        SingleTurnEnvironment([Problem(task, expected_answer="42")], rewards=rewards),
        submission_extractor=extractor,
        **settings,
    )
    episode = TrajectoryRunner(env, replies, record=path.parent).run_trajectory().episode
    (path.parent / "task-0000.ipynb").rename(path)
    return episode


def cells_of(path: Path) -> dict[str, Any]:
    notebook = nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]
    return {cell["id"]: cell for cell in notebook["cells"]}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "episode.ipynb"


def test_such_a_record_is_valid_and_gives_the_episode_back(path: Path) -> None:
    episode = recorded(path, [WRONG, "I cannot.", RIGHT])
    assert episode.solved
    assert nbrefine.load(path) == episode
    nbformat.validate(nbformat.read(path, as_version=4))  # type: ignore[no-untyped-call]
    assert from_notebook(json.loads(json.dumps(to_notebook(episode)))) == episode


def test_run_all_defines_what_was_accepted_and_passes_its_tests(path: Path) -> None:
    """Here the code has really run, in processes of the executor."""
    with CodeExecutionReward(SubprocessCodeExecutor(workers=1)) as reward:
        episode = recorded(path, [WRONG, RIGHT], reward=reward)
    assert [turn.verdict for turn in episode.turns] == ["failed", "solved"]
    assert nbrefine.load(path) == episode
    assert "candidate(1, 2) == 3; got -1; expected 3" in shown(path)
    notebook = nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]
    probe = nbformat.v4.new_code_cell("print(add(20, 22), math.pi > 3)")  # type: ignore[no-untyped-call]
    notebook["cells"].append(probe)
    NotebookClient(notebook).execute()
    assert notebook["cells"][-1]["outputs"][0]["text"] == "42 True\n"


def test_a_replay_runs_setup_and_accepted_program_and_says_that_no_state_is_recorded(
    path: Path,
) -> None:
    recorded(path, [WRONG, RIGHT])
    replayed = nbrefine.replay(path)
    assert [(step.cell, step.verdict) for step in replayed.steps] == [
        ("ep-setup", "ran"),
        ("s01-a02", "ran"),
    ]
    assert (replayed.ok, replayed.compared) == (True, 0)


def test_an_accepted_program_is_a_code_cell_without_outputs(path: Path) -> None:
    recorded(path, [WRONG, RIGHT])
    cells = cells_of(path)
    kinds = [(cell_id, cell["cell_type"]) for cell_id, cell in cells.items()]
    assert kinds == [
        ("ep-summary", "markdown"),
        ("ep-params", "code"),
        ("ep-setup", "code"),
        ("s01-plan", "markdown"),
        ("s01-a01", "markdown"),
        ("s01-diff", "markdown"),
        ("s01-a02", "code"),
        ("ep-tests", "code"),
        ("ep-final", "markdown"),
    ]
    accepted = cells["s01-a02"]
    assert accepted["source"] == "def add(a, b):\n    return a + b"
    assert (accepted["outputs"], accepted["execution_count"]) == ([], None)
    assert accepted["metadata"]["tags"] == ["nbrefine-accepted"]


def test_a_rejected_program_tells_its_code_and_feedback_and_where_it_ran(path: Path) -> None:
    recorded(path, [WRONG, RIGHT])
    source = cells_of(path)["s01-a01"]["source"]
    assert "was rejected (failed)" in source
    assert "0/1 tests passed" in source
    assert "return a - b" in source
    assert "ran in processes of their own" in source
    assert "Nothing was run" not in source


def test_a_reply_without_code_is_told_as_one(path: Path) -> None:
    recorded(path, ["I cannot.", RIGHT])
    source = cells_of(path)["s01-a01"]["source"]
    assert "was rejected (no-code)" in source
    assert "I cannot." in source
    assert "Nothing was run." in source


def test_a_whole_reply_that_was_handed_in_gives_its_block_to_run_all(path: Path) -> None:
    """Without an extractor the submission is all of the reply, prose and fence included."""
    episode = recorded(path, [f"Here it is:\n{RIGHT}"], extractor=None)
    assert episode.turns[0].code.startswith("Here it is")
    accepted = cells_of(path)["s01-a01"]
    assert accepted["cell_type"] == "code"
    assert accepted["source"] == "def add(a, b):\n    return a + b"
    assert nbrefine.load(path) == episode


@pytest.mark.parametrize(
    ("language", "tests", "source"),
    [
        ("python", None, "x = 1"),
        ("", TestReport((CaseResult("test_1", "passed"),)), "x = 1"),
        ("", None, None),  # "42" and "yes" parse too, and are answers
        ("bash", None, None),
    ],
)
def test_only_what_is_known_to_be_python_is_run_again(
    language: str, tests: TestReport | None, source: str | None
) -> None:
    turn = Turn(
        1,
        reply=Reply("x = 1"),
        extraction=Extraction("found", "x = 1", language),
        tests=tests,
        signals=SignalBundle((Signal("code", RewardType.OUTCOME, 1.0),)),
        verdict="solved",
        accepted=True,
    )
    made = to_notebook(Episode(Task("t"), "e", turns=(turn,), stop=Stop("solved")))
    cell = next(cell for cell in made["cells"] if cell["id"] == "s01-a01")
    if source is None:
        assert cell["cell_type"] == "markdown"
        assert "x = 1" in cell["source"]
    else:
        assert (cell["cell_type"], cell["source"]) == ("code", source)


ANSWER = Task("What is six times seven?", "product")


def test_an_accepted_text_is_markdown_and_run_all_says_so(path: Path) -> None:
    settings: dict[str, Any] = {"task": ANSWER, "extractor": None, "reward": AnswerReward()}
    episode = recorded(path, ["41", "42"], **settings)
    assert episode.solved
    assert nbrefine.load(path) == episode
    cells = cells_of(path)
    assert [cell_id for cell_id, cell in cells.items() if cell["cell_type"] == "code"] == [
        "ep-params"
    ]
    assert "```text\n42\n```" in cells["s01-a02"]["source"]
    assert cells["s01-a02"]["metadata"]["tags"] == ["nbrefine-accepted"]
    assert "The accepted answer is text" in cells["ep-summary"]["source"]
    assert "its best outcome reward is 0" in cells["s01-a01"]["source"]
    assert "Answer:\n\n```text\n41\n```" in cells["s01-a01"]["source"]
    assert "no session ran it" in cells["s01-a01"]["source"]


def test_tests_that_a_low_threshold_lets_fail_are_no_code_cell(path: Path) -> None:
    """Run All would stop at them."""
    episode = recorded(path, [WRONG], solved_threshold=0.0)
    assert episode.solved
    tests = cells_of(path)["ep-tests"]
    assert tests["cell_type"] == "markdown"
    assert "no accepted attempt passes them all" in tests["source"]


def test_an_episode_without_a_kernel_names_none(path: Path, repaired: Episode) -> None:
    recorded(path, [RIGHT])
    assert "Kernel" not in cells_of(path)["ep-summary"]["source"]
    summary = to_notebook(repaired)["cells"][0]["source"]
    assert "| Kernel | Python 3" in summary


def test_the_best_attempt_of_an_unsolved_episode_is_named_and_shown(path: Path) -> None:
    episode = recorded(path, [WRONG, "I cannot.", WRONG])
    assert episode.best is episode.turns[0]
    assert episode.last is episode.turns[2]
    final = cells_of(path)["ep-final"]["source"]
    assert "the best was attempt 1, 0/1 tests passed" in final
    assert "```python\ndef add(a, b):\n    return a - b\n```" in final


def shown(source: Episode | Path) -> str:
    console = Console(file=StringIO(), width=100)
    nbrefine.show(source, console=console)
    output = console.file
    assert isinstance(output, StringIO)
    return output.getvalue()


def test_the_terminal_tells_code_failed_tests_and_feedback(path: Path) -> None:
    recorded(path, [WRONG, RIGHT])
    text = shown(path)
    assert "Attempt 1 of 2: rejected (failed), 0/1 tests passed" in text
    assert "check[1] fail: candidate(1, 2) == 3; got -1; expected 3" in text
    assert "Feedback to the model" in text
    assert "It and its tests ran in processes of their own, not in a live kernel." in text
    assert "Nothing was run" not in text
    assert "Kernel" not in text


def test_the_terminal_tells_an_answer_that_was_not_the_one(path: Path) -> None:
    settings: dict[str, Any] = {"task": ANSWER, "extractor": None, "reward": AnswerReward()}
    recorded(path, ["41", "42"], **settings)
    text = shown(path)
    assert "its best outcome reward is 0" in text
    assert "no session ran it" in text


def test_code_that_did_not_run_names_the_error() -> None:
    facts = {"compilation_error": "NameError: name 'y' is not defined", "verdict": "failed"}
    turn = Turn(
        1,
        reply=Reply("x = y"),
        extraction=Extraction("found", "x = y", "python"),
        tests=TestReport((CaseResult("test_1", "not-run"),)),
        signals=SignalBundle((Signal("code", RewardType.OUTCOME, 0.0, metadata=facts),)),
    )
    episode = Episode(Task("t"), "e", turns=(turn,), stop=Stop("max-turns"))
    assert "NameError: name 'y' is not defined" in shown(episode)


def test_what_nothing_has_judged_is_said_to_be_so() -> None:
    turn = Turn(1, reply=Reply("x"), extraction=Extraction("found", "x"), verdict="invalid-task")
    episode = Episode(Task("t"), "e", turns=(turn,), stop=Stop("max-turns"))
    assert "nothing has judged it" in shown(episode)


def test_repeats_are_counted_with_their_tests_though_no_cell_ran() -> None:
    def turn(number: int, status: Any) -> Turn:
        return Turn(
            number,
            extraction=Extraction("found", "x = 1"),
            tests=TestReport((CaseResult("test_1", status),)),
        )

    assert sightings([turn(1, "failed"), turn(2, "failed")]) == 2
    assert sightings([turn(1, "timeout"), turn(2, "failed")]) == 1


def test_stagnation_is_seen_though_no_cell_ran() -> None:
    def turn(number: int) -> Turn:
        return Turn(number, extraction=Extraction("found", f"x = {number}"))

    rule = StopRule(patience=2)
    assert rule.decide([turn(1), turn(2)]) is None
    stop = rule.decide([turn(1), turn(2), turn(3)])
    assert stop is not None
    assert stop.reason == "stagnation"


@pytest.mark.parametrize(
    "make", [lambda: IterativeTask("Write add(a, b)."), lambda: IterativeTask("t", "42")]
)
def test_a_record_of_a_task_without_tests_shows_none(
    path: Path, make: Callable[[], IterativeTask]
) -> None:
    env = IterativeEnvironment(tasks=[make()], extra_rewards=(AnswerReward(),))
    runner = TrajectoryRunner(env, ["42", "43", "44"], record=path.parent)
    episode = runner.run_trajectory().episode
    assert "ep-tests" not in cells_of(path.parent / "task-0000.ipynb")
    assert nbrefine.load(path.parent / "task-0000.ipynb") == episode
