"""Clean replay: what is compared, what is told, and what counts as the same."""

from __future__ import annotations

import math
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nbrefine import notebook
from nbrefine.env import NotebookEnvironment
from nbrefine.errors import RecordError, UsageError
from nbrefine.kernel import Kernel
from nbrefine.rerun import PackageChange, Replay, replay
from nbrefine.state import Action
from nbrefine.values import Episode, Task, Turn

TASK = Task(
    "t",
    setup="import random\nitems = [1, 2]\nsame = items",
    tests="assert len(items) == 3",
)
REJECTED = "items.append(random.random()); items.append(0)"
ACCEPTED = """\
same.append(random.random())
order = list({"a", "b", "c", "d"})
class Box:
    size = 3
box = Box()"""


def played(task: Task, *cells: str, seed: int | None = 5, **settings: Any) -> Episode:
    """Run cells through the environment and give their episode."""
    with NotebookEnvironment(task, **settings) as env:
        state = env.reset(seed=seed)[0]
        for cell in cells:
            state = env.step(state, Action.from_code(cell)).next_state
    episode: Episode = state.hidden.episode
    return episode


@pytest.fixture(scope="module")
def recorded() -> Episode:
    episode = played(TASK, REJECTED, ACCEPTED)
    assert [turn.accepted for turn in episode.turns] == [False, True]
    return episode


def edited(episode: Episode, **sources: str) -> Episode:
    """Let the setup or the accepted cell of a record say something else than what was run."""
    setup, (first, last) = episode.setup, episode.turns
    assert setup is not None
    assert last.result is not None
    setup = replace(setup, source=sources.get("setup", setup.source))
    last = replace(last, result=replace(last.result, source=sources.get("cell", last.code)))
    return replace(episode, setup=setup, turns=(first, last))


def told(replayed: Replay) -> list[tuple[str, str]]:
    return [(step.cell, step.verdict) for step in replayed.steps]


def test_accepted_cells_give_the_recorded_state_with_seeds_and_the_order_of_sets(
    recorded: Episode, tmp_path: Path
) -> None:
    path = tmp_path / "episode.ipynb"
    notebook.save(recorded, path)
    replayed = replay(path)
    assert told(replayed) == [("ep-setup", "same"), ("s01-a02", "same"), ("ep-tests", "same")]
    assert replayed.ok
    assert replayed.first is None
    assert replayed.packages == ()
    assert replayed.kernel.name == "python3"


def test_another_state_is_told_name_by_name(recorded: Episode) -> None:
    cell = ACCEPTED.replace("size = 3", "size = 4") + "\nitems.append(1); leak = 0; del same"
    replayed = replay(edited(recorded, cell=cell))
    assert told(replayed)[1] == ("s01-a02", "differs")
    assert not replayed.ok
    assert replayed.first is replayed.steps[1]
    details = " | ".join(replayed.steps[1].details)
    for name in ("items", "leak", "same", "Box"):
        assert name in details
    assert "order" not in details


def test_a_draw_more_is_seen_in_the_random_state(recorded: Episode) -> None:
    replayed = replay(edited(recorded, cell=f"{ACCEPTED}\nrandom.random();"))
    assert replayed.steps[1].details == ("the random generators are in another state",)


@pytest.mark.parametrize(
    ("cell", "why"),
    [
        ("nowhere", "NameError: name 'nowhere' is not defined"),
        ("import os; os._exit(4)", "the kernel died (exit code 4)"),
        ("while True: pass", "the cell ran longer than 1 s"),
    ],
)
def test_a_cell_that_does_not_run_to_its_end_has_failed(
    recorded: Episode, cell: str, why: str
) -> None:
    replayed = replay(edited(recorded, cell=cell), timeout=1)
    assert told(replayed)[1] == ("s01-a02", "error differs")
    assert replayed.steps[1].details == (why,)
    assert not replayed.ok


def test_cells_may_run_as_long_as_in_the_episode(recorded: Episode) -> None:
    """The setup had no limit then."""
    slow = "__import__('time').sleep(1.5)\n"
    assert recorded.setup is not None
    quick = replace(recorded, settings={"timeout": 1.0})
    cut = replay(edited(quick, cell=slow + ACCEPTED))
    assert cut.steps[1].details == ("the cell ran longer than 1 s",)
    assert replay(edited(quick, setup=slow + recorded.setup.source)).ok
    assert replay(edited(quick, cell=slow + ACCEPTED), timeout=math.inf).ok
    endless = replace(recorded, settings={"timeout": None})
    assert replay(edited(endless, cell=slow + ACCEPTED)).ok


@pytest.mark.parametrize("timeout", [0, -1, math.nan])
def test_a_limit_that_is_no_time_is_refused(recorded: Episode, timeout: float) -> None:
    with pytest.raises(UsageError, match="more than 0 seconds"):
        replay(recorded, timeout=timeout)


def test_a_column_of_another_dtype_is_told_with_the_recorded_one() -> None:
    task = Task("t", setup="import pandas as pd\ndf = pd.DataFrame({'a': [1], 'b': [2]})")
    recorded = played(task, "df['b'] = df['b'] + 1")
    (turn,) = recorded.turns
    assert turn.result is not None
    ran = replace(turn.result, source="df['b'] = df['b'] + 1.0")
    replayed = replay(replace(recorded, turns=(replace(turn, result=ran),)))
    assert replayed.steps[1].details == ("df has another value: b float64, was int64",)


def test_without_a_seed_values_are_left_to_chance_and_names_are_not() -> None:
    task = Task("t", setup="import random")
    drawn = played(task, "n = random.random()", seed=None)
    replayed = replay(drawn)
    assert told(replayed)[1] == ("s01-a01", "same after")
    assert replayed.steps[1].details == (
        "n has another value",
        "the episode had no seed, so values may differ by chance",
    )
    assert (replayed.ok, replayed.compared) == (True, 1)
    assert told(replay(played(task, "n = [1, 2]", seed=None)))[1] == ("s01-a01", "same")
    (turn,) = drawn.turns
    assert turn.result is not None
    other = replace(turn, result=replace(turn.result, source="n = m = random.random()"))
    replayed = replay(replace(drawn, turns=(other,)))
    assert told(replayed)[1] == ("s01-a01", "differs")
    assert "m should not be there" in replayed.steps[1].details


def test_nothing_is_run_after_a_cell_that_failed(recorded: Episode) -> None:
    replayed = replay(edited(recorded, setup="1 / 0"))
    assert told(replayed) == [
        ("ep-setup", "error differs"),
        ("s01-a02", "not run"),
        ("ep-tests", "not run"),
    ]
    assert replayed.steps[1].result is None
    assert replayed.first is replayed.steps[0]


def test_without_a_recorded_digest_only_the_end_of_a_cell_counts(recorded: Episode) -> None:
    turns = tuple(replace(turn, digest=None) for turn in recorded.turns)
    replayed = replay(replace(recorded, turns=turns))
    assert told(replayed)[1] == ("s01-a02", "same")
    assert (replayed.ok, replayed.compared) == (True, 0)


def test_packages_that_are_not_as_recorded_are_named_and_used_ones_first(
    recorded: Episode,
) -> None:
    had = dict(recorded.kernel.packages)
    had.pop("ipython")  # as if it had been installed since, which tells nothing
    used = had["numpy"]
    kernel = replace(recorded.kernel, packages={**had, "numpy": "0.1", "absent": "7"})
    cell = f"{ACCEPTED}\nimport numpy"
    replayed = replay(edited(replace(recorded, kernel=kernel), cell=cell))
    assert replayed.packages == (
        PackageChange("numpy", "0.1", used),
        PackageChange("absent", "7", "", needed=False),
    )
    assert str(replayed.packages[1]) == "absent 7 → (absent)"


def test_what_a_rejected_attempt_left_behind_is_named_where_the_replay_lacks_it() -> None:
    task = Task("t", tests="assert done")
    episode = played(task, "leak = 1\ndone = False", "done = leak == 1", isolation="none")
    assert episode.turns[1].accepted
    replayed = replay(episode)
    assert told(replayed)[:2] == [("ep-setup", "same"), ("s01-a02", "error differs")]
    assert replayed.steps[1].details == (
        "NameError: name 'leak' is not defined",
        "rejected attempts had run in the session itself: s01-a01",
    )


def test_what_a_kernel_that_was_handed_in_had_is_named_where_the_replay_lacks_it() -> None:
    with Kernel.start() as kernel:
        kernel.run("rate = 2; price = 5").result()
        episode = played(Task("t"), "total = rate * price", kernel=kernel)
    assert episode.turns[0].accepted
    replayed = replay(episode)
    assert told(replayed) == [("ep-setup", "error differs"), ("s01-a01", "not run")]
    assert replayed.steps[0].details == (
        (
            "nothing was run, as the cells read rate, price, which came with the session that the "
            "episode began in and is not in its record"
        ),
        (
            "the episode began in a kernel that was handed in, and not in a fresh one; "
            "it had rate, price"
        ),
    )


@pytest.mark.parametrize(
    "cell",
    ["try:\n    rate\nexcept NameError:\n    rate = 2", "def priced(n): return n * rate"],
)
def test_cells_that_do_without_what_a_kernel_had_run_again(recorded: Episode, cell: str) -> None:
    episode = edited(replace(recorded, handed_in=("rate",)), setup="", cell=cell)
    step = replay(episode).steps[0]
    assert step.result is not None
    assert step.result.ok


def test_a_name_that_a_kernel_had_is_said_to_be_missing_where_a_cell_comes_to_it(
    recorded: Episode,
) -> None:
    cell = "def priced(n): return n * rate\ntotal = priced(3)"
    step = replay(edited(replace(recorded, handed_in=("rate",)), setup="", cell=cell)).steps[0]
    assert step.details[:2] == (
        "NameError: name 'rate' is not defined",
        "rate came with the session that the episode began in and is not in its record",
    )


def test_cells_find_their_data_beside_the_notebook(tmp_path: Path) -> None:
    (tmp_path / "data.txt").write_text("42")
    episode = played(Task("t"), "n = int(open('data.txt').read())", cwd=tmp_path)
    path = tmp_path / "episode.ipynb"
    notebook.save(episode, path)
    cells: list[str] = []
    assert replay(path, on_cell=cells.append).ok
    assert cells == ["ep-setup", "s01-a01"]
    assert told(replay(episode, cwd=tmp_path.parent))[1] == ("s01-a01", "error differs")


def test_an_episode_of_another_language_is_run_and_not_compared(bash_kernel: str) -> None:
    with NotebookEnvironment(Task("t"), kernel=bash_kernel, isolation="none") as env:
        state = env.step(env.reset()[0], Action.from_code("n=1")).next_state
    replayed = replay(state.hidden.episode)
    assert told(replayed) == [("s01-a01", "same")]
    assert replayed.kernel.name == bash_kernel


def test_a_replay_leaves_no_process(recorded: Episode, tmp_path: Path) -> None:
    told = tmp_path / "pid"
    cell = f"import os\nopen({str(told)!r}, 'w').write(str(os.getpid()))\n1 / 0"
    assert not replay(edited(recorded, cell=cell)).ok
    with pytest.raises(ProcessLookupError):
        os.kill(int(told.read_text()), 0)


def test_what_is_no_episode_and_no_kernel_is_refused(recorded: Episode, tmp_path: Path) -> None:
    with pytest.raises(RecordError):
        replay(tmp_path / "gone.ipynb")
    with pytest.raises(UsageError, match="no kernelspec 'no-such-kernel'"):
        replay(recorded, kernel="no-such-kernel")


def test_an_episode_without_accepted_cells_has_only_its_setup(recorded: Episode) -> None:
    rejected: tuple[Turn, ...] = recorded.turns[:1]
    assert told(replay(replace(recorded, turns=rejected))) == [("ep-setup", "same")]
