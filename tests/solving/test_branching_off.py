"""Another episode shares a recorded one up to a step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import nbrefine
from nbrefine.solving import branch_off, solve
from nbrefine.values import Message
from tests.solving.leaving import BEGIN, ON, STEPS, WRITE, WRONG, codes


def test_another_instruction_begins_a_new_episode_at_a_step(
    tmp_path: Path, two_done: Callable[[Path], Path]
) -> None:
    record = two_done(tmp_path)
    before = record.read_bytes()
    seen: list[str] = []

    def model(messages: Sequence[Message]) -> str:
        seen.append(messages[-1].content)
        return ON if len(seen) == 1 else WRITE

    episode = branch_off(
        record, 2, record=tmp_path / "new.ipynb", instruction="Take care.", model=model, max_turns=9
    )
    assert record.read_bytes() == before
    assert episode.solved
    assert [step for step, _, _ in codes(episode)] == [1, 2, 3]
    assert episode.turns[0] == nbrefine.load(record).turns[0]
    assert episode.id != nbrefine.load(record).id
    assert "From step 2 on: Take care." in seen[0]
    assert "Do step 2 now, but in another way than planned: Take care." in seen[0]
    assert nbrefine.load(tmp_path / "new.ipynb").task.metadata["amended"] == [[2, "Take care."]]
    assert episode.settings["branched_from"] == {
        "episode": nbrefine.load(record).id,
        "step": 2,
        "instruction": "Take care.",
    }
    # The task's own steps stay, whatever the instruction.
    assert episode.plan is not None
    assert [each.goal for each in episode.plan.subtasks] == [step["goal"] for step in STEPS]


def test_an_instruction_replaces_what_the_model_had_planned_from_there_on(tmp_path: Path) -> None:
    record = tmp_path / "e.ipynb"
    plan = "```plan\n1. Begin a list.\n2. Draw it.\n3. Print it.\n```"
    solve("List.", planning="ask", model=[plan, BEGIN, WRONG], max_turns=3, record=record)
    answer = "```python\nprint('ANSWER:', *items)\n```"
    episode = branch_off(
        record, 2, record=tmp_path / "new.ipynb", instruction="Say it.", model=[answer], max_turns=9
    )
    assert episode.solved
    assert episode.answer is not None
    assert episode.answer.text == "a"
    assert episode.plan is not None
    assert [each.goal for each in episode.plan.subtasks] == ["Begin a list.", "Say it."]
    assert episode.plan.reason == "another instruction was given"


def test_a_step_of_the_task_that_was_given_up_is_still_to_be_done_after_an_instruction(
    tmp_path: Path,
) -> None:
    steps: list[Any] = ["a", {"goal": "b", "check": "b == 1"}, "c"]
    record = tmp_path / "e.ipynb"
    cells = [f"```python\n{code}\n```" for code in ("a = 1", "b = 2", "c = 3")]
    settings: dict[str, Any] = {"max_attempts": 1, "max_replans": 0}
    left = solve("Do it.", subtasks=steps, model=cells, record=record, **settings)
    assert left.stop is not None
    assert left.stop.reason == "gave-up"
    for code, solved in (("b = 2", False), ("b = 1", True)):
        episode = branch_off(
            record,
            3,
            record=tmp_path / "new.ipynb",
            instruction="Take care.",
            model=[f"```python\n{code}\n```", cells[2]],
            overwrite=True,
        )
        assert episode.plan is not None
        assert [each.goal for each in episode.plan.subtasks] == ["a", "b", "b", "c"]
        assert episode.solved == solved
        assert codes(episode)[2:] == [(3, code, solved), (4, "c = 3", True)]


def test_an_instruction_after_another_plan_leaves_all_steps_of_the_task(tmp_path: Path) -> None:
    """That plan has given them other numbers, and their needs with them; its own are not done."""
    record = tmp_path / "e.ipynb"
    plan = "```plan\n- Another way.\n- And on.\n```"
    seen: list[str] = []

    def model(messages: Sequence[Message]) -> str:
        seen.append(messages[-1].content)
        replies = (WRONG, "```plan\n- Once more.\n```", "```python\npass\n```", ON, WRITE)
        return replies[len(seen) - 1]

    solve(
        "Make a list.",
        subtasks=STEPS,
        model=[BEGIN, WRONG, plan, "```python\npass\n```", "```python\npass\n```", WRONG],
        record=record,
        max_turns=6,
        max_attempts=1,
    )
    new = tmp_path / "new.ipynb"
    episode = branch_off(
        record, 5, record=new, instruction="Take care.", model=model, max_turns=19, max_replans=2
    )
    assert episode.solved
    assert episode.plan is not None
    # The instruction's plan has used up none of the two that the model may make.
    assert [(each.goal, each.needs) for each in episode.plan.subtasks] == [
        ("Begin a list.", ()),
        ("Go on with it.", (1,)),
        ("Another way.", ()),
        ("And on.", ()),
        ("Go on with it.", (1,)),
        ("Once more.", ()),
        ("Go on with it.", (1,)),
        ("Write it down.", (7,)),
    ]


def test_a_model_is_not_shown_the_record_from_which_its_episode_branches_off(
    tmp_path: Path, two_done: Callable[[Path], Path]
) -> None:
    record = two_done(tmp_path)
    seen: list[str] = []

    def model(messages: Sequence[Message]) -> Any:
        seen.append("\n".join(message.content for message in messages))
        return ON

    branch_off(record, 2, record=tmp_path / "new.ipynb", model=model, max_turns=2)
    assert "log.txt (" in seen[0]
    assert "ipynb" not in seen[0]
