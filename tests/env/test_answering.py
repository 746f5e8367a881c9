"""Answers at the end of work in steps: their forms, what they are checked by, and what is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from nbrefine.env import MultiStepEnvironment
from nbrefine.kernel import Kernel
from nbrefine.planning import StepLimits
from nbrefine.postconditions import holds, in_range
from nbrefine.values import (
    AnswerForm,
    Stop,
    Subtask,
    Task,
)
from tests.multistep import TWO, cell, driven, episode_of, newest, prompt, text


def test_an_answer_says_what_speaks_for_it_and_solves_nothing_where_a_step_is_not_done(
    kernel: Kernel,
) -> None:
    task = Task("Do it", subtasks=TWO[:1], answer=AnswerForm())
    with MultiStepEnvironment(
        task,
        kernel=kernel,
        limits_per_step=StepLimits(attempts=1),
        max_replans=0,
        accept_best=True,
    ) as env:
        good = driven(env, cell("rows = [1, 2, 3]\nprint('ANSWER: three')"))
        bad = driven(env, cell("rows = [1]\nprint('one row')"), text("ANSWER: one"))
    assert episode_of(good).stop == Stop(
        "solved",
        "answered in the asked form; 1 check of its steps held, "
        "and nothing checks the answer itself",
    )
    assert episode_of(bad).stop == Stop(
        "gave-up",
        "answered in the asked form, but not all checks of step 1 held; "
        "the best attempt was kept there",
    )
    assert episode_of(bad).answer is not None


def test_an_answer_in_the_wrong_form_or_too_early_is_fed_back(kernel: Kernel) -> None:
    form = AnswerForm("fields", fields=("mean", "sd"))
    task = Task("Describe", subtasks=TWO[:1], answer=form)
    with MultiStepEnvironment(task, kernel=kernel) as env:
        state = driven(env, text("```answer\n@mean[2] @sd[1]\n```"))
        early = newest(state)
        assert (early.kind, early.verdict, early.step) == ("answer", "failed", 1)
        assert "step 1 (Load the rows)" in early.feedback
        for action in (cell("rows = [1, 2, 3]"), text("```answer\n@mean[2]\n```")):
            state = env.step(state, action).next_state
        assert (newest(state).kind, newest(state).verdict) == ("answer", "failed")
        assert "sd" in newest(state).feedback
        assert "All steps are done" in prompt(state)
        state = env.step(state, text("```answer\n@mean[2] @sd[1]\n```")).next_state
    episode = episode_of(state)
    assert episode.answer is not None
    assert episode.answer.value == {"mean": "2", "sd": "1"}
    assert (episode.turns[-1].kind, episode.turns[-1].verdict) == ("answer", "solved")
    assert episode.solved


def test_an_answer_after_a_step_that_was_given_up_is_told_so(kernel: Kernel) -> None:
    subtasks = (*TWO, Subtask("Bind hello", postconditions=(holds("hello"),)))
    task = Task("Describe", subtasks=subtasks, answer=AnswerForm())
    with MultiStepEnvironment(
        task,
        kernel=kernel,
        limits_per_step=StepLimits(attempts=1),
        planning="none",
    ) as env:
        state = driven(env, cell("rows = []"), cell("hello = 'hi'\nprint('ANSWER: hi')"))
    told = newest(state).feedback
    assert "was given up or could not be begun: step 1 (Load the rows); step 2 (Write" in told
    assert "still to do" not in told


def test_a_value_is_read_where_a_cell_binds_it_and_its_checks_hold(kernel: Kernel) -> None:
    form = AnswerForm("value", postconditions=(in_range("answer", low=0, high=1),))
    with MultiStepEnvironment(Task("A share", answer=form), kernel=kernel) as env:
        state = driven(env, cell("answer = 40"))
        assert newest(state).accepted
        assert "not taken" in newest(state).feedback
        assert "0 <= answer <= 1\n  got: 40" in newest(state).feedback
        state = env.step(state, cell("answer = 0.4")).next_state
    episode = episode_of(state)
    assert episode.answer is not None
    assert (episode.answer.value, episode.answer.text) == (0.4, "0.4")
    assert episode.stop is not None
    assert "1 check of it held" in episode.stop.detail


def test_visible_tests_of_the_whole_task_decide_on_the_answer(kernel: Kernel) -> None:
    task = Task("Make x", tests="assert x == 3", answer=AnswerForm())
    with MultiStepEnvironment(task, kernel=kernel) as env:
        state = driven(env, cell("x = 2\nprint('ANSWER: two')"))
        assert episode_of(state).stop is None
        assert newest(state).accepted
        assert "x == 3" in newest(state).feedback
        state = env.step(state, cell("x = 3\nprint('ANSWER: three')")).next_state
    assert episode_of(state).solved


def test_files_answer_where_they_were_written_in_the_episode(kernel: Kernel, folder: Path) -> None:
    (folder / "old.txt").write_text("old")
    form = AnswerForm("files", files=("new.txt", "old.txt"))
    with MultiStepEnvironment(Task("Write", answer=form), kernel=kernel) as env:
        state = driven(env, text("```answer\ndone\n```"))
        told = newest(state).feedback
        assert "new.txt is not there; old.txt was not written by a cell of yours" in told
        write = "for name in ('new.txt', 'old.txt'):\n    open(name, 'w').write({!r})"
        for action in (
            cell(write.format("")),
            text("```answer\ndone\n```"),
            cell(write.format("ab")),
            text("```answer\nBoth hold ab.\n```"),
        ):
            state = env.step(state, action).next_state
    episode = episode_of(state)
    assert "new.txt is empty" in episode.turns[2].feedback
    assert episode.answer is not None
    assert episode.answer.text == "Both hold ab."
    assert [(file.path, file.size) for file in episode.answer.files] == [
        ("new.txt", 2),
        ("old.txt", 2),
    ]


def test_files_answer_also_where_a_cell_wrote_too_many_to_list(
    kernel: Kernel, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nbrefine.kernel.workspace.folders.LISTED", 2)
    (folder / "y.txt").write_text("old")
    form = AnswerForm("files", files=("./y.txt", "z.txt"))
    many = "for name in 'abcz':\n    open(name + '.txt', 'w').write(name)"
    with MultiStepEnvironment(Task("Write", answer=form), kernel=kernel) as env:
        state = driven(env, cell(many), text("```answer\ndone\n```"))
        files = episode_of(state).turns[0].files
        assert files is not None
        assert files.omitted == 2
        assert "y.txt was not written by a cell of yours" in newest(state).feedback
        assert "z.txt" not in newest(state).feedback
        rewrite = cell(many.replace("abcz", "abcy"))
        for action in (rewrite, text("```answer\ndone\n```")):
            state = env.step(state, action).next_state
    assert episode_of(state).solved
    assert [each.path for each in episode_of(state).turns[2].artifacts][-1] == "y.txt"


FORM = AnswerForm("fields", fields=("mean",))


@pytest.mark.parametrize("words", ["```answer\nIt is three.\n```", "It is three."])
def test_an_answer_in_plain_words_is_told_how_one_looks(kernel: Kernel, words: str) -> None:
    like = "The answer must look like this:\n```answer\n@mean[{mean}]\n```"
    with MultiStepEnvironment(Task("The mean", answer=FORM), kernel=kernel) as env:
        state = driven(env, text("It is three."))
        assert like not in newest(state).feedback  # nothing has been done yet
        for action in (cell("mean = 3"), text(words)):
            state = env.step(state, action).next_state
        assert like in newest(state).feedback
        state = env.step(state, cell("print('@mean[]')")).next_state
        state = env.step(state, text("@mean[3]")).next_state
    assert episode_of(state).solved
