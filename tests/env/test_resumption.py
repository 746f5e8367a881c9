"""An episode that is gone on with: its session is made again, and its files stay as they are."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nbrefine.env import MultiStepEnvironment
from nbrefine.errors import KernelError, UsageError
from nbrefine.kernel import Kernel
from nbrefine.kernel.workspace.overlays import WorkspaceMode
from nbrefine.postconditions import file_written, holds
from nbrefine.state import Action, State
from nbrefine.values import Episode, Plan, Stop, Subtask, Task

TASK = Task(
    "Write rows and their sum",
    setup="open('set.txt', 'a').write('s')",
    subtasks=(
        Subtask("Load", postconditions=(holds("len(rows) == 3"),)),
        Subtask("Write", postconditions=(file_written("out/rows.txt"),)),
        Subtask("Sum", needs=(1,), postconditions=(holds("total == 6"),)),
    ),
)

CELLS = (
    "rows = [1, 2, 3]\ngrows = (n for n in rows)\nnext(grows)",
    """\
import os
os.makedirs('out', exist_ok=True)
open('out/rows.txt', 'a').write('x')
open('log.txt', 'a').write('l')""",
)


def cell(code: str) -> Action:
    return Action.from_text(f"```python\n{code}\n```")


def episode_of(state: State) -> Episode:
    episode: Episode = state.hidden.episode
    return episode


def begun(folder: Path, *more: str, workspace: WorkspaceMode = "auto") -> Episode:
    """Give an episode that was left after two steps of three."""
    with MultiStepEnvironment(TASK, cwd=folder, workspace=workspace) as env:
        state, _ = env.reset(seed=3)
        for code in (*CELLS, *more):
            state = env.step(state, cell(code)).next_state
    return episode_of(state)


def content(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.rglob("*.txt")}


@pytest.mark.parametrize("workspace", ["auto", "report"])
def test_the_session_is_made_again_and_no_file_is_touched(
    tmp_path: Path, workspace: WorkspaceMode
) -> None:
    earlier = begun(tmp_path, workspace=workspace)
    (tmp_path / "out" / "rows.txt").write_text("changed by hand")
    before = content(tmp_path)
    assert before == {"set.txt": "s", "rows.txt": "changed by hand", "log.txt": "l"}
    with MultiStepEnvironment(TASK, cwd=tmp_path, workspace=workspace) as env:
        state, info = env.reset(options={"episode": earlier})
        assert (tmp_path / "out" / "rows.txt").read_text() == "changed by hand"
        assert (tmp_path / "log.txt").read_text() == "l"
        assert "the file out/rows.txt has other content" in info["differences"]
        assert state.hidden.now.step == 3
        assert "rows: list of length 3" in (state.observation.state or "")
        state = env.step(state, cell("total = 1 + sum(grows)\nprint(total)")).next_state
    episode = episode_of(state)
    assert episode.solved
    assert episode.turns[:2] == earlier.turns
    assert (episode.id, episode.created, episode.seed) == (earlier.id, earlier.created, 3)
    result = episode.turns[-1].result
    assert result is not None
    assert result.text == "6\n"  # the generator stood where it had stood


def test_files_of_a_turn_that_was_stopped_before_they_were_listed_stay_too(tmp_path: Path) -> None:
    earlier = begun(tmp_path, workspace="report")
    turns = tuple(replace(turn, artifacts=()) for turn in earlier.turns)
    with MultiStepEnvironment(TASK, cwd=tmp_path, workspace="report") as env:
        env.reset(options={"episode": replace(earlier, turns=turns)})
    found = content(tmp_path)
    assert (found["rows.txt"], found["log.txt"]) == ("x", "l")


def test_an_unchanged_folder_and_session_have_no_differences(tmp_path: Path) -> None:
    earlier = begun(tmp_path, "1 / 0")
    before = content(tmp_path)
    with MultiStepEnvironment(TASK, cwd=tmp_path) as env:
        state, info = env.reset(options={"episode": earlier})
    assert info["differences"] == ()
    assert content(tmp_path) == before
    assert (state.hidden.now.step, len(state.hidden.now.turns)) == (3, 1)
    assert "ZeroDivisionError" in state.observation.messages[-1].content


def test_what_became_other_than_it_was_is_told(tmp_path: Path) -> None:
    task = replace(TASK, setup="")
    (tmp_path / "n.txt").write_text("3")
    with MultiStepEnvironment(task, cwd=tmp_path) as env:
        state, _ = env.reset()
        state = env.step(state, cell("rows = [0] * int(open('n.txt').read())")).next_state
    (tmp_path / "n.txt").write_text("4")
    with MultiStepEnvironment(task, cwd=tmp_path) as env:
        _, info = env.reset(options={"episode": episode_of(state)})
    assert info["differences"] == (
        "rows is list of length 4, not list of length 3",
        "a check of step 1 no longer holds: len(rows) == 3",
    )


def test_checks_are_asked_again_where_their_cell_ran_and_leave_nothing(tmp_path: Path) -> None:
    check = "int(open('n.txt').read()) == 3 and rows.pop() == 0 and total == 0"
    task = Task(
        "Sum",
        subtasks=(
            Subtask("Begin", postconditions=(holds("total == 0"),)),
            Subtask("Go on", postconditions=(holds("total == 1"),)),
            Subtask("Rows", postconditions=(holds(check.replace("total == 0", "total == 2")),)),
            Subtask("End", postconditions=(holds("total == 3"),)),
        ),
    )
    (tmp_path / "n.txt").write_text("3")
    with MultiStepEnvironment(task, cwd=tmp_path) as env:
        state, _ = env.reset()
        for code in ("total = 0", "total = 1", "total = 2; rows = [0]"):
            state = env.step(state, cell(code)).next_state
    earlier = episode_of(state)
    assert len(earlier.accepted) == 3
    with MultiStepEnvironment(task, cwd=tmp_path) as env:
        _, info = env.reset(options={"episode": earlier})
    assert info["differences"] == ()  # rows has its item still
    (tmp_path / "n.txt").write_text("4")  # nothing of the state tells it
    with MultiStepEnvironment(task, cwd=tmp_path) as env:
        state, info = env.reset(options={"episode": earlier})
        assert len(info["differences"]) == 1
        assert "a check of step 3 no longer holds: int(open(" in info["differences"][0]
        state = env.step(state, cell("total = 3")).next_state
    stop = episode_of(state).stop
    assert stop is not None
    assert stop.detail == (
        "4 steps done, 3 checks held; the checks of step 3 no longer hold since it was gone on with"
    )
    (tmp_path / "n.txt").write_text("3")
    unfinished = replace(episode_of(state), turns=episode_of(state).turns[:3], stop=None)
    assert unfinished.settings["lost_checks"] == [3]
    with MultiStepEnvironment(task, cwd=tmp_path) as env:
        state, _ = env.reset(options={"episode": unfinished})
    assert episode_of(state).settings["lost_checks"] == []


def test_a_cell_that_fails_now_is_the_host_s_trouble(tmp_path: Path) -> None:
    task = replace(TASK, setup="")
    (tmp_path / "n.txt").write_text("3")
    with MultiStepEnvironment(task, cwd=tmp_path) as env:
        state, _ = env.reset()
        state = env.step(state, cell("rows = [0] * int(open('n.txt').read())")).next_state
    (tmp_path / "n.txt").unlink()
    with (
        MultiStepEnvironment(task, cwd=tmp_path) as env,
        pytest.raises(KernelError, match=r"accepted cell 1, run again.*FileNotFoundError"),
    ):
        env.reset(options={"episode": episode_of(state)})


def test_a_kernel_that_was_handed_in_goes_on_if_it_is_where_the_episode_was(
    tmp_path: Path,
) -> None:
    task = replace(TASK, setup="")
    with Kernel.start(cwd=tmp_path) as kernel:
        with MultiStepEnvironment(task, kernel=kernel) as env:
            state, _ = env.reset()
            state = env.step(state, cell("rows = [1, 2, 3]")).next_state
        earlier = episode_of(state)
        with MultiStepEnvironment(task, kernel=kernel) as env:
            state, _ = env.reset(options={"episode": earlier})
            step = env.step(state, cell("open('x', 'w').write(repr(rows))"))
            assert step.next_state.hidden.now.step == 2
        assert kernel.run("rows.clear()").result().ok
        with (
            MultiStepEnvironment(task, kernel=kernel) as env,
            pytest.raises(UsageError, match="not where the episode was left"),
        ):
            env.reset(options={"episode": earlier})


def test_a_plan_that_lacks_a_step_of_the_task_does_not_end_well(tmp_path: Path) -> None:
    """As one may in a record whose plans were not made here."""
    subtasks = (Subtask("a"), Subtask("b", postconditions=(holds("b == 1"),)), Subtask("c"))
    with MultiStepEnvironment(Task("Do", subtasks=subtasks), cwd=tmp_path) as env:
        state, _ = env.reset()
        for code in ("a = 1", "b = 2"):
            state = env.step(state, cell(code)).next_state
        lacking = Plan((*subtasks[:2], Subtask("c")), since=3)
        left = replace(episode_of(state), plans=(*episode_of(state).plans, lacking))
        state, _ = env.reset(options={"episode": left})
        ended = episode_of(env.step(state, cell("c = 3")).next_state)
    assert ended.stop == Stop("gave-up", "step 2 (b) was not done")


def test_a_step_that_was_used_up_goes_on_with_higher_limits(tmp_path: Path) -> None:
    from nbrefine.planning import StepLimits

    limits = StepLimits(attempts=1)
    with MultiStepEnvironment(TASK, cwd=tmp_path, limits_per_step=limits, max_replans=0) as env:
        state, _ = env.reset()
        for code in ("rows = [1]", *CELLS[1:]):
            state = env.step(state, cell(code)).next_state
    left = episode_of(state)
    assert left.stop is not None
    assert left.stop.reason == "gave-up"
    with MultiStepEnvironment(TASK, cwd=tmp_path, limits_per_step=StepLimits(attempts=2)) as env:
        state, _ = env.reset(options={"episode": left})
        assert state.hidden.now.step == 1
        assert episode_of(state).stop is None


def test_the_best_attempt_is_not_adopted_behind_cells_that_ran_after_it(tmp_path: Path) -> None:
    from nbrefine.planning import StepLimits

    options: dict[str, Any] = {"limits_per_step": StepLimits(attempts=1), "max_replans": 0}
    with MultiStepEnvironment(TASK, cwd=tmp_path, **options) as env:
        state, _ = env.reset()
        for code in ("rows = [1]", *CELLS[1:]):
            state = env.step(state, cell(code)).next_state
    left = episode_of(state)
    with (
        MultiStepEnvironment(TASK, cwd=tmp_path, accept_best=True, **options) as env,
        pytest.raises(UsageError, match=r"Nothing is left to do: step 1 \(Load\) was given up"),
    ):
        env.reset(options={"episode": left})
