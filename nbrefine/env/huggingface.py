"""Any set of questions, on the hub or in files, as an environment of single turns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import overload

from nbrefine.env.single import Problem, SingleTurnEnvironment
from nbrefine.errors import UsageError
from nbrefine.extractors import Extractor, RawGenerationExtractor, make_extractor
from nbrefine.rewards.base import RewardFunction
from nbrefine.rewards.format import AnswerReward
from nbrefine.taskdata import KNOWN, Columns, Rows, load_rows, to_task
from nbrefine.taskdata.columns import text_of
from nbrefine.taskdata.files import DataFiles, Row
from nbrefine.values import Task


class HuggingFaceEnvironment(SingleTurnEnvironment):
    """Tasks made of the rows of a data set, each when it is asked for.

    Parameters
    ----------
    dataset: a name on the hub, a local file or folder, or rows; see `load_rows`.
    split, subset, data_files, offline: see `load_rows`.
    question_column, answer_column: what is asked, and what is expected; where no column is named,
        a set of `nbrefine.taskdata.KNOWN` is read as it is meant, and any other by "question" and
        "answer".  Rows with tests need no answer.
    test_column, entry_point_column: tests and the function they call; None takes the usual names
        that are there, "" takes none.
    hidden_test_column: tests that the model never sees and a grade is given by; None takes
        hidden_tests or hidden_test, "" takes none.
    split_tests: whether of a known set's tests only a few examples are visible, and the others
        hidden.
    task: makes a task of a row, in place of the columns.
    size: how many tasks at most; None for all.
    shuffle: whether they are drawn at random, with `seed` (0 if it is None).
    answer_extractor: reads the answer out of a reply, and out of the answer column, as GSM8K's
        needs; by name or as an object.  By default the whole reply is the answer: of a chat model
        ask for a form with `system_prompt`, and name what reads it, such as "tag_based".
    rewards: what judges an answer; by default an `AnswerReward`, and nothing where the rows hold
        tests, which need an executor.
    language: the one answers are written in; told in `Task.metadata` where it is not Python, and
        the subset of a set that has one for each language.
    system_prompt: begins every chat, if it is not empty.

    Raises
    ------
    UsageError: the rows cannot be read, there are none, or a named column is not among theirs.
    """

    def __init__(
        self,
        dataset: str | Path | Sequence[Row],
        *,
        split: str = "test",
        subset: str | None = None,
        question_column: str | None = None,
        answer_column: str | None = None,
        test_column: str | None = None,
        entry_point_column: str | None = None,
        hidden_test_column: str | None = None,
        split_tests: bool = False,
        task: Callable[[Row], Task] | None = None,
        size: int | None = None,
        seed: int | None = None,
        shuffle: bool = False,
        answer_extractor: Extractor | str | None = None,
        rewards: Iterable[RewardFunction] | None = None,
        language: str = "python",
        data_files: DataFiles | None = None,
        offline: bool | None = None,
        system_prompt: str = "",
    ) -> None:
        name = str(dataset) if isinstance(dataset, str | Path) else "rows"
        known = KNOWN.get(name)
        named = (
            question_column,
            answer_column,
            test_column,
            entry_point_column,
            hidden_test_column,
        )
        as_meant = language.lower() == "python" and task is None and named == (None,) * len(named)
        if known is not None and known.by_language and subset is None:
            subset = language.lower()
        rows = load_rows(
            dataset, split=split, subset=subset, data_files=data_files, offline=offline
        )
        if not rows:
            raise UsageError(f"{name} has no rows", hint="Check split, subset and the files")
        if known is not None and as_meant:
            task = partial(known.task, split=True) if split_tests else known.task
        elif split_tests:
            raise UsageError(
                f"The tests of {name} cannot be split, as it is read here",
                hint="Name a column of hidden tests as hidden_test_column",
            )
        self.rows = rows.chosen(size=size, shuffle=shuffle, seed=seed)
        self.columns = Columns.among(
            rows.columns,
            question=question_column or ("" if task else "question"),
            answer=answer_column or ("" if task else "answer"),
            test=test_column,
            entry_point=entry_point_column,
            hidden_test=hidden_test_column,
        )
        extractor = (
            make_extractor(answer_extractor)
            if isinstance(answer_extractor, str)
            else answer_extractor or RawGenerationExtractor()
        )
        if rewards is None:
            tested = self.columns.test or self.columns.hidden_test
            rewards = () if tested else (AnswerReward(extractor),)
        super().__init__(
            _Problems(self.rows, self.columns, task, extractor, language),
            rewards=rewards,
            name=name,
            adapter="huggingface",
            system_prompt=system_prompt,
        )


@dataclass(frozen=True, slots=True)
class _Problems(Sequence[Problem]):
    rows: Rows
    columns: Columns
    task: Callable[[Row], Task] | None
    extractor: Extractor
    language: str

    def __len__(self) -> int:
        return len(self.rows)

    @overload
    def __getitem__(self, index: int) -> Problem: ...
    @overload
    def __getitem__(self, index: slice) -> _Problems: ...
    def __getitem__(self, index: int | slice) -> Problem | _Problems:
        if isinstance(index, slice):
            return replace(self, rows=self.rows[index])
        row = self.rows[index]
        task = self.task(row) if self.task else to_task(row, self.columns)
        if self.language.lower() != "python":
            task = replace(task, metadata={**task.metadata, "language": self.language})
        answer = text_of(row, self.columns.answer) if self.columns.answer else task.reference
        found, _ = self.extractor.extract(answer)
        return Problem(task, dict(row), (answer if found is None else found).strip())
