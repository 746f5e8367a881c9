"""Coding sets as loops: a data set, an executor, and the tests' feedback after every attempt."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jupyter_client.kernelspec import KernelSpecManager

from nbrefine.env.huggingface import HuggingFaceEnvironment
from nbrefine.env.iterative import IterativeEnvironment
from nbrefine.errors import UsageError
from nbrefine.extractors import CodeBlockExtractor, Extractor
from nbrefine.rewards.base import RewardFunction
from nbrefine.rewards.code import CodeExecutionReward
from nbrefine.rewards.judge import JudgeReward
from nbrefine.taskdata.files import Row
from nbrefine.values import RewardType

if TYPE_CHECKING:
    from nbrefine.executors import CodeExecutor


class IterativeCodingEnvironment:
    """Ready-made loops over coding sets; each function gives an `IterativeEnvironment`.

    In all of them

    - `max_turns` are the submissions until an episode is truncated;
    - `timeout` is the seconds that a submission and all its tests may run;
    - `judge_backend` is a model that comments on each submission, as the signal
      "judge_feedback"; its score is a PROCESS reward and cannot end an episode;
    - `extra_rewards` judge a submission beside the tests;
    - `executor` runs code with tests in place of a `SubprocessCodeExecutor`, and stays open when
      the environment is closed;
    - `hf_kwargs` go to `HuggingFaceEnvironment`: split, subset, size, data_files, offline …
    """

    @staticmethod
    def from_humaneval(
        *,
        max_turns: int = 5,
        timeout: float = 30,
        judge_backend: Any = None,
        extra_rewards: Iterable[RewardFunction] = (),
        executor: CodeExecutor | None = None,
        **hf_kwargs: Any,
    ) -> IterativeEnvironment:
        """Make a loop over HumanEval: openai/openai_humaneval, split test."""
        maker = IterativeCodingEnvironment.from_humaneval
        inner = _rows(maker, "openai/openai_humaneval", hf_kwargs)
        rewards = _rewards(executor, timeout, judge_backend=judge_backend, extra=extra_rewards)
        return IterativeEnvironment(
            inner, submission_extractor=_PYTHON, max_turns=max_turns, extra_rewards=rewards
        )

    @staticmethod
    def from_mbpp(
        *,
        max_turns: int = 3,
        timeout: float = 30,
        judge_backend: Any = None,
        extra_rewards: Iterable[RewardFunction] = (),
        executor: CodeExecutor | None = None,
        **hf_kwargs: Any,
    ) -> IterativeEnvironment:
        """Make a loop over MBPP: google-research-datasets/mbpp, split test.

        The full set, unless `subset="sanitized"` is given.
        """
        maker = IterativeCodingEnvironment.from_mbpp
        inner = _rows(maker, "google-research-datasets/mbpp", hf_kwargs)
        rewards = _rewards(executor, timeout, judge_backend=judge_backend, extra=extra_rewards)
        return IterativeEnvironment(
            inner, submission_extractor=_PYTHON, max_turns=max_turns, extra_rewards=rewards
        )

    @staticmethod
    def create(
        dataset: str | Path | Sequence[Row],
        *,
        language: str = "python",
        max_turns: int = 3,
        timeout: float = 30,
        question_column: str = "prompt",
        answer_column: str = "canonical_solution",
        test_column: str | None = None,
        judge_backend: Any = None,
        judge_template: str = "iterative_feedback",
        submission_extractor: Extractor | None = None,
        extra_rewards: Iterable[RewardFunction] = (),
        executor: CodeExecutor | None = None,
        **hf_kwargs: Any,
    ) -> IterativeEnvironment:
        """Make a loop over any coding set.

        Parameters
        ----------
        language: Python runs in processes of its own, another language in its Jupyter kernel.
        answer_column: holds references; rows need none.
        test_column: None takes test_list, test or tests, whichever is there first.
        submission_extractor: finds the code in a response; by default the last block of the
            language.

        Raises
        ------
        UsageError: no kernel of the language is installed, the rows cannot be read, a named
            column is not among theirs, or they hold no tests.
        """
        own = executor is None
        executor = executor or executor_for(language)
        extractor = submission_extractor or CodeBlockExtractor(language)
        inner = _rows(
            IterativeCodingEnvironment.create,
            dataset,
            hf_kwargs,
            language=language,
            question_column=question_column,
            answer_column=answer_column,
            test_column=test_column,
        )
        if not inner.columns.test:
            raise UsageError(
                f"No column holds tests; the columns are {', '.join(inner.rows.columns)}",
                hint="Name theirs with test_column",
            )
        rewards = _rewards(
            executor,
            timeout,
            extractor,
            own=own,
            judge_backend=judge_backend,
            judge_template=judge_template,
            extra=extra_rewards,
        )
        return IterativeEnvironment(
            inner, submission_extractor=extractor, max_turns=max_turns, extra_rewards=rewards
        )


_PYTHON = CodeBlockExtractor("python")


def _rows(
    maker: Callable[..., IterativeEnvironment],
    dataset: str | Path | Sequence[Row],
    hf_kwargs: Mapping[str, Any],
    **own: Any,
) -> HuggingFaceEnvironment:
    """Make the environment within a loop.

    Raises
    ------
    UsageError: it takes no such argument, or the rows cannot be read.
    """
    further = set(inspect.signature(HuggingFaceEnvironment).parameters)
    further -= {"dataset", "rewards", *own}
    for key in hf_kwargs:
        if key not in further:
            taken = sorted({*inspect.signature(maker).parameters, *further} - {"hf_kwargs"})
            near = difflib.get_close_matches(key, taken, n=2)
            raise UsageError(
                f"{maker.__name__} takes no {key}",
                hint=f"Did you mean {' or '.join(near)}?" if near else f"Give {', '.join(taken)}",
            )
    return HuggingFaceEnvironment(dataset, rewards=(), **own, **hf_kwargs)


def _rewards(
    executor: CodeExecutor | None,
    timeout: float,
    extractor: Extractor = _PYTHON,
    *,
    own: bool = False,
    judge_backend: Any,
    judge_template: str = "iterative_feedback",
    extra: Iterable[RewardFunction],
) -> tuple[RewardFunction, ...]:
    # The loop shows these the whole response: the extractor reads what it was made for, once.
    tests = CodeExecutionReward(
        executor or executor_for("python"),
        code_extractor=extractor,
        timeout=timeout,
        close_executor=own or executor is None,
    )
    if judge_backend is None:
        return (tests, *extra)
    judge = JudgeReward(
        judge_backend, judge_template, name="judge_feedback", reward_type=RewardType.PROCESS
    )
    return (tests, judge, *extra)


def executor_for(language: str) -> CodeExecutor:
    """Give what runs code of a language.

    Raises
    ------
    UsageError: no kernel of that language is installed.
    """
    if language.lower() == "python":
        from nbrefine.executors import SubprocessCodeExecutor

        return SubprocessCodeExecutor()
    specs = KernelSpecManager().get_all_specs()
    languages = {name: specs[name]["spec"]["language"] for name in sorted(specs)}
    kernel = next((name for name in languages if languages[name].lower() == language.lower()), None)
    if kernel is None:
        listed = ", ".join(f"{name} ({spoken})" for name, spoken in languages.items())
        raise UsageError(
            f"No kernel runs {language}; those installed are {listed or 'none'}",
            hint=f"Install a Jupyter kernel for {language}, or give an executor",
        )
    from nbrefine.executors import KernelCodeExecutor

    executor: CodeExecutor = KernelCodeExecutor(kernel=kernel)
    return executor
