"""From configurations to environments, and to the rewards and models that belong to them."""

from __future__ import annotations

import asyncio
import inspect
import weakref
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from nbrefine.config.backends import BackendFactory, given
from nbrefine.config.evaluation import (
    CodeExecutionConfig,
    EnvironmentConfig,
    IterativeConfig,
    JudgeConfig,
)
from nbrefine.env.base import Environment, close_all
from nbrefine.env.coding import executor_for
from nbrefine.env.huggingface import HuggingFaceEnvironment
from nbrefine.env.iterative import IterativeEnvironment
from nbrefine.env.notebook import NotebookEnvironment
from nbrefine.env.reasoning import ReasoningGymEnvironment
from nbrefine.env.single import Problem, SingleTurnEnvironment
from nbrefine.errors import UsageError
from nbrefine.executors import CodeExecutor
from nbrefine.extractors import CodeBlockExtractor, Extractor, make_extractor
from nbrefine.kernel.processes.runtime import RuntimeFolder
from nbrefine.models import Model
from nbrefine.rewards.base import RewardFunction
from nbrefine.rewards.code import CodeExecutionReward
from nbrefine.rewards.judge import JudgeReward
from nbrefine.values import Task


class EnvironmentFactory:
    """Makes environments."""

    @staticmethod
    def create(config: EnvironmentConfig) -> Environment:
        """Make the environment that a configuration describes; closing it releases all of it.

        Tasks with tests of which nothing else could say that they are solved are judged by their
        tests.

        Raises
        ------
        UsageError: there are no such tasks, or a key does not go with the adapter.
        ModelError: the model of a judge cannot be used here.
        """
        if (per_episode := EnvironmentFactory.per_episode(config)) is not None:
            return per_episode()
        with config.at():
            return _shared(config)

    @staticmethod
    def per_episode(config: EnvironmentConfig) -> Callable[[], Environment] | None:
        """Give what makes an environment for each episode, where episodes cannot share one.

        None where they can.  For the errors see `create`.
        """
        if config.adapter != "notebook":
            return None
        with config.at():
            make = _notebooks(config)

        def located() -> Environment:
            with config.at():
                return make()

        return located


def _shared(config: EnvironmentConfig) -> Environment:
    inner = _INNER[config.adapter](config)
    execution = config.iterative.code_execution if config.iterative else None
    judged = inner.reward_functions or (config.judge and config.judge.reward_type == "outcome")
    if execution is None and _tested(inner) and not judged:
        execution = CodeExecutionConfig()
    if not (config.iterative or execution or config.judge or config.prompts):
        return inner
    return _loop(inner, config, config.iterative or _ONE_TURN, execution)


_ONE_TURN = IterativeConfig(max_turns=1, submit_keyword=None)
"""An environment of single turns as a loop that ends after the first."""


def _loop(
    inner: Environment,
    config: EnvironmentConfig,
    loop: IterativeConfig,
    execution: CodeExecutionConfig | None,
) -> Environment:
    extractor = (
        make_extractor(loop.submission_extractor, loop.submission_extractor_config)
        if loop.submission_extractor
        else None
    )
    owned: list[Model] = []
    rewards: list[RewardFunction] = []
    if execution is not None:
        code = extractor or CodeBlockExtractor(_language(config))
        rewards.append(
            CodeExecutionReward(
                _executor(config),
                code_extractor=code,
                timeout=execution.timeout,
                close_executor=True,
            )
        )
    if config.judge is not None:
        owned.append(BackendFactory.create(config.judge.model))
        rewards.append(_judge(config.judge, owned[-1]))
    env_model = None
    if config.env_llm is not None:
        env_model = BackendFactory.create(config.env_llm.model)
        owned.append(env_model)
    return _Configured(
        inner,
        submission_extractor=extractor,
        owned=owned,
        max_turns=loop.max_turns,
        include_history=loop.include_history,
        summarize_history=loop.summarize_history,
        env_model=env_model,
        submit_keyword=loop.submit_keyword,
        solved_threshold=loop.solved_threshold,
        extra_rewards=rewards,
        prompts=config.prompts,
    )


class _Configured(IterativeEnvironment):
    """A loop that closes the models that were made for it, too."""

    def __init__(self, *args: Any, owned: Iterable[Model], **settings: Any) -> None:
        super().__init__(*args, **settings)
        self._owned = tuple(owned)

    async def _close(self) -> None:
        try:
            await super()._close()
        finally:
            await close_all(self._owned)


def _judge(config: JudgeConfig, model: Model) -> JudgeReward:
    return JudgeReward(
        model,
        config.template,
        sampling_params=config.inference.to_sampling(),
        name=config.name,
        reward_type=config.to_reward_type(),
        weight=config.weight,
        normalize=config.normalize,
        default_score=config.default_score,
    )


def _executor(config: EnvironmentConfig) -> CodeExecutor:
    """Give what runs submissions with their tests; with a container, nothing runs outside it."""
    language = _language(config)
    if config.container is None:
        return executor_for(language)
    if language.lower() != "python":
        raise UsageError(
            f"Only Python runs in containers, not {language}", hint="Leave out the key container"
        )
    from nbrefine.executors import ContainerCodeExecutor

    return ContainerCodeExecutor(config.container.to_container())


def _language(config: EnvironmentConfig) -> str:
    return str(config.params.get("language", "python"))


def _tested(inner: Environment) -> bool:
    if isinstance(inner, HuggingFaceEnvironment):
        return bool(inner.columns.test)
    problems = getattr(inner, "problems", None)
    return isinstance(problems, list) and any(problem.task.tests for problem in problems)


def _huggingface(config: EnvironmentConfig) -> HuggingFaceEnvironment:
    settings = {
        **given(size=config.size, seed=config.seed, answer_extractor=_answer(config)),
        # A seed says that tasks are to be drawn.
        **({"shuffle": True} if config.seed is not None else {}),
        **config.params,
    }
    _check_params(HuggingFaceEnvironment, config)
    return HuggingFaceEnvironment(config.name, **settings)


def _reasoning_gym(config: EnvironmentConfig) -> ReasoningGymEnvironment:
    # Which settings there are is the data set's matter, and it says so.
    settings = given(size=config.size, seed=config.seed, answer_extractor=_answer(config))
    _refuse_repeated(config)
    return ReasoningGymEnvironment(config.name, **settings, **config.params)


def _standalone(config: EnvironmentConfig) -> SingleTurnEnvironment:
    """Make an environment of the tasks that the configuration itself holds."""
    for key in ("seed", "answer_extractor"):
        if getattr(config, key) is not None:
            raise UsageError(f"{key} does nothing for tasks that are listed", hint="Leave it out")
    tasks = config.params.get("tasks")
    if list(config.params) != ["tasks"] or not isinstance(tasks, list) or not tasks:
        raise UsageError(
            'The adapter "iterative" takes its tasks from params.tasks, and nothing else',
            hint="List blocks with prompt, ground_truth and test_code there",
        )
    problems = []
    for at, task in enumerate(tasks):
        with config.at("params", "tasks", at):
            problems.append(_problem(config.name, at, task))
    return SingleTurnEnvironment(problems[: config.size], name=config.name, adapter="iterative")


_TASK_KEYS = ("prompt", "ground_truth", "test_code", "metadata")


def _problem(name: str, at: int, told: Any) -> Problem:
    where = f"Task {at + 1} of params.tasks"
    if not isinstance(told, Mapping) or not isinstance(told.get("prompt"), str):
        raise UsageError(f"{where} has no prompt", hint="Write what is asked as its prompt")
    for key in told:
        if key not in _TASK_KEYS:
            raise UsageError(
                f'{where} has the unknown key "{key}"', hint=f"Allowed: {', '.join(_TASK_KEYS)}"
            )
    texts = {key: told.get(key, "") for key in ("ground_truth", "test_code")}
    for key, text in texts.items():
        if not isinstance(text, str):
            raise UsageError(f"{key} of {where} is {text!r}", hint="Give a text, in quotes")
    task = Task(
        told["prompt"],
        id=f"{name}/{at}",
        tests=texts["test_code"],
        metadata=dict(told.get("metadata") or {}),
    )
    return Problem(task, expected_answer=texts["ground_truth"])


_INNER: Mapping[str, Callable[[EnvironmentConfig], Environment]] = {
    "huggingface": _huggingface,
    "reasoning_gym": _reasoning_gym,
    "iterative": _standalone,
}


def _answer(config: EnvironmentConfig) -> Extractor | None:
    if config.answer_extractor is None:
        return None
    return make_extractor(config.answer_extractor, config.answer_extractor_config)


def _check_params(kind: type[Environment], config: EnvironmentConfig) -> None:
    """Refuse what an environment does not take, and what is given twice."""
    taken = inspect.signature(kind).parameters
    allowed = [name for name in taken if name not in _OWN_KEYS]
    allowed += _CELL_KEYS if config.adapter == "notebook" else ()
    _refuse_repeated(config)
    for key in config.params:
        if key not in allowed:
            raise UsageError(
                f'unknown key "{key}" in the params of {config.name}',
                hint=f"Allowed: {', '.join(allowed)}",
            )


_OWN_KEYS = ("dataset", "name", "size", "seed", "answer_extractor", "rewards", "task", "tasks")
"""Arguments that keys beside `params` stand for, or that no file can hold."""


def _refuse_repeated(config: EnvironmentConfig) -> None:
    for key in ("name", "size", "seed", "answer_extractor"):
        if key in config.params:
            raise UsageError(
                f'"{key}" stands in the params of {config.name}', hint="Write it beside params"
            )


_CELL_KEYS = (
    "kernel",
    "test_timeout",
    "isolation",
    "rebuild_limit",
    "workspace",
    "cwd",
    "show_tests",
)
"""Arguments of `NotebookEnvironment` that `params` may hold."""


def _notebooks(config: EnvironmentConfig) -> Callable[[], NotebookEnvironment]:
    """Give what makes environments of a live kernel from the tasks of a data set."""
    for key in ("container", "judge", "env_llm", "answer_extractor"):
        if getattr(config, key) is not None:
            raise UsageError(
                f'The key {key} does nothing with the adapter "notebook"', hint="Leave it out"
            )
    loop = config.iterative or IterativeConfig(max_turns=5, submit_keyword=None)
    heeded = {"max_turns", "submit_keyword", "code_execution"}
    if loop != IterativeConfig(**loop.model_dump(include=heeded)) or config.prompts:
        raise UsageError(
            f'The adapter "notebook" heeds of iterative only {", ".join(sorted(heeded))}, '
            "and no prompts",
            hint='Leave out the rest, or use the adapter "huggingface"',
        )
    cells = {key: value for key, value in config.params.items() if key in _CELL_KEYS}
    rows = {key: value for key, value in config.params.items() if key not in _CELL_KEYS}
    data = _huggingface(config.model_copy(update={"params": rows}))
    if not _tested(data):
        raise UsageError(
            f"{config.name} has no tests, which tell when a cell has solved its task",
            hint="Name their column as test_column in params",
        )
    if loop.code_execution is not None:
        cells["timeout"] = loop.code_execution.timeout
    tasks = [data.problems[at].task for at in range(len(data))]
    kind = NotebookEnvironment if "cwd" in cells else _InItsOwnFolder
    return lambda: kind(
        tasks, max_turns=loop.max_turns, submit_keyword=loop.submit_keyword, **cells
    )


class _InItsOwnFolder(NotebookEnvironment):
    """Live kernels that work in a folder which goes with them."""

    def __init__(self, tasks: list[Task], **settings: Any) -> None:
        self._own = RuntimeFolder()  # locked: others sweep away what nobody has
        self._left = weakref.finalize(self, self._own.remove)
        try:
            super().__init__(tasks, cwd=self._own.path, **settings)
        except BaseException:
            self._left()
            raise

    async def _close(self) -> None:
        try:
            await super()._close()
        finally:
            await asyncio.to_thread(self._left)
