"""A recorded episode is gone on with, or shared by another one up to a step."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

import nbrefine
from nbrefine.errors import NbrefineError, RecordError, UsageError
from nbrefine.kernel import Kernel
from nbrefine.loop import refine
from nbrefine.notebook import Recorder, wording
from nbrefine.notebook.line import line
from nbrefine.solving import (
    branch_off,
    resume,
    solve,
    start_branching,
    start_resuming,
    start_solving,
)
from nbrefine.values import Episode, GradeNote, Message
from nbrefine.views.terminal import show

STEPS: list[dict[str, Any]] = [
    {"goal": "Begin a list.", "check": "items == ['a']"},
    {"goal": "Go on with it.", "needs": 1, "check": "items == ['a', 'b']"},
    {"goal": "Write it down.", "needs": 2, "check": {"file": "items.txt"}},
]
BEGIN = "```python\nitems = ['a']\nopen('log.txt', 'a').write('1')\n```"
ON = "```python\nitems.append('b')\nopen('log.txt', 'a').write('2')\n```"
WRONG = "```python\nitems.append('c')\nopen('log.txt', 'a').write('w')\n```"
WRITE = "```python\nopen('items.txt', 'w').write(' '.join(items))\n```"


def left(folder: Path, *replies: str, **settings: Any) -> Path:
    """Give the record of an episode that has used up its turns."""
    record = folder / "e.ipynb"
    solve(
        "Make a list.",
        subtasks=STEPS,
        model=list(replies),
        record=record,
        max_turns=len(replies),
        **settings,
    )
    return record


@pytest.fixture(scope="module")
def two_done(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Path], Path]:
    """Give what copies an episode that was left after two steps, and its folder, elsewhere."""
    record = left(tmp_path_factory.mktemp("two"), BEGIN, WRONG, ON, rebuild_limit=7.0)
    parts = {path.name: path.read_bytes() for path in record.parent.iterdir()}

    def copied(folder: Path) -> Path:
        for name, part in parts.items():
            (folder / name).write_bytes(part)
        return folder / record.name

    return copied


def codes(episode: Episode) -> list[tuple[int, str, bool]]:
    return [(turn.step, turn.code.split("\n")[0], turn.accepted) for turn in episode.turns]


def test_an_episode_goes_on_where_it_was_left(
    tmp_path: Path, two_done: Callable[[Path], Path]
) -> None:
    record = two_done(tmp_path)
    before = nbrefine.load(record)
    assert before.stop is not None
    assert before.stop.reason == "max-turns"
    episode = resume(record, model=[WRITE], max_turns=9)
    assert episode.solved
    assert codes(episode) == [
        (1, "items = ['a']", True),
        (2, "items.append('c')", False),
        (2, "items.append('b')", True),
        (3, "open('items.txt', 'w').write(' '.join(items))", True),
    ]
    assert episode.turns[:3] == before.turns
    assert episode.id == before.id
    assert (tmp_path / "items.txt").read_text() == "a b"
    assert (tmp_path / "log.txt").read_text() == "12"
    assert nbrefine.load(record) == episode
    # What was recorded is taken up again, and what is given wins.
    assert (episode.settings["rebuild_limit"], episode.settings["max_turns"]) == (7.0, 9)
    assert episode.settings["differences"] == []
    with pytest.raises(UsageError, match="reached its goal"):
        resume(record, model=[WRITE])


def test_what_is_other_than_it_was_stands_in_the_record(tmp_path: Path) -> None:
    (tmp_path / "given.txt").write_text("1")
    record = tmp_path / "e.ipynb"
    read = "```python\nn = [0] * len(open('given.txt').read())\n```"
    solve("Count.", subtasks=["Read.", "Sum."], model=[read], max_turns=1, record=record)
    (tmp_path / "given.txt").write_text("12")
    episode = resume(record, model=["```python\ntotal = 0\n```"], max_turns=2)
    assert episode.solved
    told = "n is list of length 2, not list of length 1"
    assert nbrefine.load(record).settings["differences"] == [told]
    cells = {
        cell["id"]: "".join(cell["source"]) for cell in json.loads(record.read_text())["cells"]
    }
    assert f"| Other when gone on with | {told} |" in cells["ep-summary"]
    assert f"\n- {told}" in cells["ep-final"]
    page = StringIO()
    show(record, console=Console(file=page, width=100))
    assert told in page.getvalue()


def test_several_models_are_named_with_their_turns(
    tmp_path: Path, two_done: Callable[[Path], Path]
) -> None:
    episode = nbrefine.load(two_done(tmp_path))
    assert dict(wording.facts(episode))["Model"] == episode.model
    turns = tuple(
        replace(turn, reply=replace(turn.reply, model=name))
        for turn, name in zip(episode.turns, ("first", "second", "first"), strict=True)
        if turn.reply is not None
    )
    episode = replace(episode, turns=turns, model="first")
    assert [row["model"] for row in episode.to_rows()] == ["first", "second", "first"]
    assert dict(wording.facts(episode))["Model"] == "first (turns 1, 3); second (turn 2)"


def test_checks_that_no_longer_hold_are_not_counted_at_the_end(tmp_path: Path) -> None:
    (tmp_path / "given.txt").write_text("1")
    record = tmp_path / "e.ipynb"
    steps = [{"goal": "Read.", "check": "len(n) == 1"}, {"goal": "Sum.", "check": "total == 0"}]
    read = "```python\nn = [0] * len(open('given.txt').read())\n```"
    solve("Count.", subtasks=steps, answer="text", model=[read], max_turns=1, record=record)
    (tmp_path / "given.txt").write_text("12")
    summed = "```python\ntotal = 0\nprint('ANSWER:', total)\n```"
    episode = resume(record, model=[summed], max_turns=2)
    assert episode.stop is not None
    assert episode.stop.detail == (
        "answered in the asked form; 1 check of its steps held, and nothing checks the answer "
        "itself; the checks of step 1 no longer hold since it was gone on with"
    )
    assert "a check of step 1 no longer holds: len(n) == 1" in episode.settings["differences"]


def test_data_that_is_gone_is_told_before_anything_runs(tmp_path: Path) -> None:
    data = tmp_path / "orders.csv"
    data.write_text("a\n1\n")
    record = tmp_path / "e.ipynb"
    read = "```python\nn = len(open('orders.csv').readlines())\n```"
    solve("Count.", data=data, subtasks=["Read.", "Say."], model=[read], max_turns=1, record=record)
    data.unlink()
    before = record.read_bytes()
    with pytest.raises(UsageError, match=r"There is no data file .*orders\.csv"):
        start_resuming(record, model=[read], max_turns=3)
    with pytest.raises(UsageError, match=r"There is no data file .*orders\.csv"):
        start_branching(record, 1, record=tmp_path / "new.ipynb", model=[read])
    assert [path.name for path in tmp_path.iterdir()] == ["e.ipynb"]
    assert record.read_bytes() == before


def test_what_cannot_be_gone_on_with_is_refused_and_left_as_it_is(
    tmp_path: Path, two_done: Callable[[Path], Path]
) -> None:
    record = two_done(tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(RecordError):
        resume(tmp_path / "none.ipynb")
    with pytest.raises(UsageError, match=r"does not say how to get its model.*Give model="):
        resume(record)
    with pytest.raises(UsageError, match="There is no setting 'max_turn'"):
        resume(record, model=[WRITE], max_turn=2)  # type: ignore[call-arg]
    with pytest.raises(UsageError, match="max_turns"):
        resume(record, model=[WRITE], max_turns=0)
    with pytest.raises(UsageError, match="nonsense"):
        resume(record, model="nonsense:x")
    with (
        Kernel.start() as kernel,
        pytest.raises(UsageError, match="not where the episode was left"),
    ):
        resume(record, model=[WRITE], kernel=kernel)
    with pytest.raises(UsageError, match=r"has no step 4.*steps 1 to 2"):
        branch_off(record, 4, record=tmp_path / "new.ipynb", model=[WRITE])
    with pytest.raises(UsageError, match="a number is wanted"):
        branch_off(record, "2", record=tmp_path / "new.ipynb", model=[WRITE])  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="replace the old one"):
        branch_off(record, 2, record=record, model=[WRITE])
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    refine("x", tests="assert x", model=["```python\nx = 1\n```"], record=tmp_path / "r.ipynb")
    with pytest.raises(UsageError, match=r"not one of solve\(\)"):
        resume(tmp_path / "r.ipynb", model=[WRITE])


def test_where_nothing_is_left_to_do_the_record_is_left_as_it_is(
    tmp_path: Path, two_done: Callable[[Path], Path]
) -> None:
    record = two_done(tmp_path)
    graded = replace(nbrefine.load(record), grade=GradeNote("failed", 1, 3))
    nbrefine.save(graded, record)
    new = tmp_path / "new.ipynb"
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    unchanged: dict[str, Any] = {}
    for settings in (unchanged, {"max_attempts": 9}):
        with pytest.raises(UsageError, match=r"Nothing is left to do: the limit of turns \(3\)"):
            resume(record, model=[WRITE], **settings)
        with pytest.raises(UsageError, match=r"1 turn is taken over\. Give at least 2"):
            branch_off(record, 2, record=new, model=[ON], max_turns=1, **settings)
        assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    # The grade is of what was there, and goes with the first turn that is added.
    run = start_resuming(record, model=[WRITE], max_turns=9)
    assert run.earlier == len(graded.turns)
    run.pause()
    while run.activity.doing != "paused":
        assert not run.done()
    run.stop()
    assert run.result().grade == nbrefine.load(record).grade == graded.grade
    assert resume(record, model=[WRITE], max_turns=9).grade is None


def test_an_episode_that_was_answered_is_not_gone_on_with(tmp_path: Path) -> None:
    record = tmp_path / "e.ipynb"
    left = solve(
        "Count.",
        subtasks=[{"goal": "a", "check": "a == 1"}],
        answer="text",
        model=["```python\na = 2\n```", "```answer\n2\n```"],
        record=record,
        max_attempts=1,
        max_replans=0,
        accept_best=True,
    )
    assert left.stop is not None
    assert (left.stop.reason, left.answer is not None) == ("gave-up", True)
    before = record.read_bytes()
    with pytest.raises(UsageError, match=r"was answered, which ends it.*Branch off"):
        resume(record, model=["```python\na = 1\n```"], max_attempts=9)
    assert record.read_bytes() == before


def test_two_cannot_go_on_with_one_record_at_once(
    tmp_path: Path, two_done: Callable[[Path], Path]
) -> None:
    record = two_done(tmp_path)
    # The second one is refused before the first one's kernel is there, and while it works.
    first = start_resuming(record, model=[WRITE], max_turns=9)
    first.pause()
    with pytest.raises(RecordError, match="Another run is recording"):
        start_resuming(record, model=[WRONG], max_turns=9)
    while first.activity.doing != "paused":
        assert not first.done()
    with pytest.raises(RecordError, match="Another run is recording"):
        start_resuming(record, model=[WRONG], max_turns=9)
    first.resume()
    assert first.result().solved
    assert nbrefine.load(record) == first.result()
    assert (tmp_path / "log.txt").read_text() == "12"


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


def test_a_step_that_is_gone_back_to_runs_and_stands_behind_what_was_done_meanwhile(
    tmp_path: Path,
) -> None:
    steps: list[Any] = [{"goal": "a", "check": "items == ['b', 'a']"}, "b"]
    cells = [f"```python\nitems {code}\n```" for code in ("= ['a']", "= ['b']", "+= ['a']")]
    record = tmp_path / "e.ipynb"
    settings: dict[str, Any] = {"max_attempts": 1, "max_replans": 0}
    solve("Do it.", subtasks=steps, model=cells[:2], record=record, **settings)
    episode = resume(record, model=cells[2:], max_attempts=2)
    assert episode.solved
    assert [(turn.step, turn.accepted) for turn in episode.turns] == [
        (1, False),
        (2, True),
        (1, True),
    ]
    made = nbrefine.notebook.to_notebook(nbrefine.load(record))["cells"]
    ran = [cell["id"] for cell in made if cell["cell_type"] == "code"]
    assert ran == ["ep-params", "ep-setup", "s02-a01", "s01-a02", "s01-checks"]


def test_lent_variables_are_lent_again(tmp_path: Path) -> None:
    record = tmp_path / "e.ipynb"
    step = "```python\ntotal = sum(numbers)\n```"
    with Kernel.start() as own:
        assert own.run("numbers = [1, 2, 3]").result().ok
        lend = (own, ["numbers"])
        solve("Sum.", subtasks=["a", "b"], lend=lend, model=[step], max_turns=1, record=record)
        with pytest.raises(UsageError, match=r"lent to it: numbers.*Lend them again"):
            resume(record, model=[step])
        episode = resume(
            record, lend=lend, model=["```python\nassert total == 6\n```"], max_turns=2
        )
        assert own.run("sorted(name for name in dir() if name == 'total')").result().text == "[]\n"
    assert episode.solved
    assert episode.handed_in == ("numbers",)
    assert episode.settings["lent"] == ["numbers"]


def test_a_kernel_that_was_handed_in_is_needed_again(tmp_path: Path) -> None:
    record = tmp_path / "e.ipynb"
    step = "```python\ntotal = sum(numbers)\n```"
    more = ["```python\nassert total == 6\n```"]
    with Kernel.start(cwd=tmp_path) as own:
        assert own.run("numbers = [1, 2, 3]").result().ok
        solve("Sum.", subtasks=["a", "b"], kernel=own, model=[step], max_turns=1, record=record)
        before = record.read_bytes()
        for other in (None, "python3"):
            with pytest.raises(UsageError, match=r"in a kernel that was handed in.*Give that one"):
                resume(record, model=more, kernel=other, max_turns=2)
        with pytest.raises(UsageError, match="in a kernel that was handed in"):
            branch_off(record, 1, record=tmp_path / "new.ipynb", model=more)
        assert record.read_bytes() == before
        assert resume(record, model=more, kernel=own, max_turns=2).solved


def test_a_run_that_is_stopped_goes_on_later(tmp_path: Path) -> None:
    record = tmp_path / "e.ipynb"
    slow = BEGIN.replace("items =", "import time; time.sleep(600); items =")
    run = start_solving(
        "Make a list.", subtasks=STEPS, model=iter([BEGIN, slow]), record=record, cwd=tmp_path
    )
    while ((now := run.activity).doing, now.turn) != ("running", 2):
        assert not run.done()
    run.stop()
    stopped = run.result()
    assert stopped.stop is not None
    assert stopped.stop.reason == "stopped"
    assert [turn.verdict for turn in stopped.turns] == ["solved", "infra-error"]
    assert wording.fate(stopped.turns[1]) == "not judged (stopped by a person)"
    assert "  stopped by a person  " in line(stopped, stopped.turns[1])
    assert not list(tmp_path.glob("*.undo"))
    assert resume(record, model=[ON, WRITE]).solved
    assert (tmp_path / "log.txt").read_text() == "12"


def test_trouble_of_the_host_is_recorded_and_gone_on_with(tmp_path: Path) -> None:
    def model(messages: Sequence[Message]) -> str:
        if "Do step 2" in messages[-1].content:
            raise OSError("the network is gone")
        return BEGIN

    record = tmp_path / "e.ipynb"
    with pytest.raises((OSError, NbrefineError)) as raised:
        solve("Make a list.", subtasks=STEPS, model=model, record=record)
    assert len(getattr(raised.value, "episode").turns) == 1  # noqa: B009 - of any exception
    episode = nbrefine.load(record)
    assert episode.stop is not None
    assert episode.stop.reason == "infra-error"
    assert resume(record, model=[ON, WRITE]).solved


def test_a_moved_folder_is_gone_on_with_there(
    tmp_path: Path, two_done: Callable[[Path], Path]
) -> None:
    (tmp_path / "moved").mkdir()
    record = two_done(tmp_path / "moved")
    episode = resume(record, model=[WRITE], max_turns=9)
    assert (tmp_path / "moved" / "items.txt").read_text() == "a b"
    assert episode.settings["folder"] == "."
    assert replace(episode, stop=None).turns[-1].artifacts[0].path == "items.txt"


def test_a_script_goes_on_behind_the_replies_that_it_has_given(tmp_path: Path) -> None:
    script = tmp_path / "replies.txt"
    script.write_text(f"{BEGIN}\n---\n{ON}\n---\n{WRITE}")
    solve(
        "Make a list.",
        subtasks=STEPS,
        model=f"scripted:{script}",
        record=tmp_path / "e.ipynb",
        max_turns=1,
    )
    episode = resume(tmp_path / "e.ipynb", max_turns=3)
    assert episode.solved
    assert codes(episode) == [
        (1, "items = ['a']", True),
        (2, "items.append('b')", True),
        (3, "open('items.txt', 'w').write(' '.join(items))", True),
    ]
    assert episode.settings["model"] == f"scripted:{script}"


def test_a_model_that_has_no_name_leaves_none_in_the_record(
    tmp_path: Path, two_done: Callable[[Path], Path]
) -> None:
    record = two_done(tmp_path)
    settings = {"model": "openai:x", "base_url": "http://127.0.0.1:9", "differences": ["earlier"]}
    left = nbrefine.load(record)
    nbrefine.save(replace(left, settings={**left.settings, **settings}), record)
    episode = resume(record, model=[WRITE], max_turns=9)
    told = nbrefine.load(record).settings
    assert (told["model"], told["base_url"]) == (None, None)
    assert told["differences"] == episode.settings["differences"] == ["earlier"]


def test_what_a_kill_has_taken_from_the_record_stays_told(
    tmp_path: Path, two_done: Callable[[Path], Path]
) -> None:
    record = two_done(tmp_path)
    left = replace(nbrefine.load(record), stop=None)
    left = replace(left, task=replace(left.task, hidden_tests="assert len(items) == 2"))
    record.unlink()
    recorder = Recorder(record)
    recorder.begin(left)
    recorder.close()
    resume(record, model=[WRITE], max_turns=9)
    assert nbrefine.load(record).settings["differences"] == [
        "hidden tests and reference are never in a journal"
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


def test_what_keeps_a_replacement_from_beginning_leaves_the_old_record_its_files(
    tmp_path: Path,
) -> None:
    record = tmp_path / "e.ipynb"
    undo = tmp_path / "e.nbrefine.undo"
    undo.mkdir()
    (undo / "index.json").write_text('{"accepted": 0, "files": {}}')
    with pytest.raises(UsageError, match="nonsense"):
        solve("x", model="nonsense:x", record=record, overwrite=True)
    assert undo.exists()
    solve("x", model=["```python\nprint('ANSWER: 1')\n```"], record=record, overwrite=True)
    assert not undo.exists()
