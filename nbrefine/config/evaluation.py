"""An evaluation as a file: environments, a model and how it is asked, as `nbrefine eval` reads it.

Every block is a class here and every key a field, with the defaults of a program that leaves it
out::

    environments:
      - name: openai/openai_humaneval
        adapter: huggingface
        iterative:
          max_turns: 5
          submission_extractor: code_block
          code_execution:
            timeout: 30
    model: openai:gpt-4o-mini      # short for: {backend: openai, model: gpt-4o-mini}
    inference: {temperature: 0.8}
    samples: 5
    output_dir: results

Paths in a file are relative to its folder.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self, get_args

from pydantic import BeforeValidator, Field, ValidationInfo, field_validator, model_validator

from nbrefine.config.reading import Document, Section, checked, read_yaml
from nbrefine.errors import UsageError
from nbrefine.values import RewardType, Sampling

if TYPE_CHECKING:
    from nbrefine import executors

Backend = Literal["local", "openai", "vllm", "scripted", "recorded"]
Adapter = Literal["reasoning_gym", "huggingface", "iterative", "notebook"]

VLLM_URL = "http://localhost:8000/v1"
"""Where vLLM's own server answers unless it is told otherwise."""

Text = Annotated[str, Field(min_length=1)]
Count = Annotated[int, Field(ge=1)]
Seconds = Annotated[float, Field(gt=0)]


class InferenceConfig(Section):
    """How replies are drawn."""

    temperature: Annotated[float, Field(ge=0, le=2)] = 0.0
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    max_tokens: Count | None = None
    seed: Annotated[int, Field(ge=0, le=2**32 - 1)] | None = 0
    """Every episode's own seed follows from it; None leaves all to chance."""

    def to_sampling(self) -> Sampling:
        """Give the settings of a reply; its seed is made for every turn."""
        return Sampling(temperature=self.temperature, top_p=self.top_p, max_tokens=self.max_tokens)


class ModelConfig(Section):
    """Which model is asked."""

    backend: Backend = "local"
    """`local`: llama.cpp on this machine; `openai`: OpenAI's server, or another that speaks its
    protocol; `vllm`: such a server at `base_url`; `scripted`, `recorded`: replies in a file."""
    model: Text | None = None
    """Its name there; for `scripted` and `recorded` the file."""
    base_url: Text | None = None
    api_key_env: Text | None = None
    """The environment variable that holds the key; OPENAI_API_KEY by default."""
    timeout: Seconds | None = None
    """Seconds the model may be silent."""
    max_concurrency: Count = 64
    """How many calls may be under way at once."""

    @classmethod
    def of(cls, short: str) -> Self:
        """Read a short form, such as "local", "openai:NAME" or "scripted:FILE".

        Raises
        ------
        UsageError: it names no model.
        """
        backend, _, name = short.partition(":")
        if backend not in get_args(Backend):
            files = ("scripted", "recorded")
            forms = (f"{it}:{'FILE' if it in files else 'NAME'}" for it in get_args(Backend))
            raise UsageError(
                f'"{short}" names no model', hint=f"Use one of local, {', '.join(forms)}"
            )
        return checked(cls, Document({"backend": backend, **({"model": name} if name else {})}))

    @field_validator("model")
    @classmethod
    def _from_folder(cls, value: str | None, info: ValidationInfo) -> str | None:
        a_file = info.data.get("backend") in ("scripted", "recorded")
        a_file = a_file or bool(value and value.endswith(".gguf"))
        return _within(info, value) if value and a_file else value

    @model_validator(mode="after")
    def _complete(self) -> Self:
        served = self.backend in ("openai", "vllm")
        if self.model is None and self.backend in ("vllm", "scripted", "recorded"):
            what = "name as the server knows it" if served else "path of a file"
            raise UsageError(
                f'The backend "{self.backend}" needs a model', hint=f"Give its {what} as model"
            )
        if not served and (self.base_url or self.api_key_env):
            raise UsageError(
                f'The backend "{self.backend}" is no server, and has no base_url and no key',
                hint='Use the backend "openai" or "vllm"',
            )
        if self.timeout is not None and self.backend in ("scripted", "recorded"):
            raise UsageError(f'The backend "{self.backend}" never keeps one waiting; drop timeout')
        return self


def _written_out(value: object) -> object:
    """Let a short form stand for a block."""
    return ModelConfig.of(value).model_dump(exclude_unset=True) if isinstance(value, str) else value


ModelChoice = Annotated[ModelConfig, BeforeValidator(_written_out)]

_SHORT = InferenceConfig(temperature=0.0, max_tokens=512)


class CodeExecutionConfig(Section):
    """Tests that run with every submission."""

    timeout: Seconds = 30.0
    """Seconds for all tests of one submission together."""


class IterativeConfig(Section):
    """A loop of submission and feedback."""

    max_turns: Count = 3
    include_history: bool = True
    """Whether feedback tells of earlier attempts too."""
    summarize_history: bool = False
    """Have the environment's own model, `env_llm`, sum them up."""
    submit_keyword: Text | None = "SUBMIT"
    """Begins a response that ends the episode; null for no such thing."""
    submission_extractor: Text | None = None
    """Takes the submission out of a response, by name; see `nbrefine.extractors`."""
    submission_extractor_config: dict[str, Any] = Field(default_factory=dict)
    solved_threshold: float = 1.0
    """The outcome reward that solves a task."""
    code_execution: CodeExecutionConfig | None = None

    @model_validator(mode="after")
    def _has_an_extractor(self) -> Self:
        if self.submission_extractor_config and self.submission_extractor is None:
            raise UsageError(
                "submission_extractor_config configures nothing", hint="Name a submission_extractor"
            )
        return self


class JudgeConfig(Section):
    """A model that judges submissions in words and with a score."""

    model: ModelChoice
    template: Text = "iterative_feedback"
    """Name of one of `nbrefine.rewards.judge.JUDGE_TEMPLATES`."""
    name: Text = "judge"
    reward_type: Literal["outcome", "step", "format", "process"] | None = None
    """None: `process` where a task has tests, else `outcome`."""
    weight: float = 1.0
    normalize: bool = True
    """Whether scores are brought to 0 to 1."""
    default_score: float | None = None
    """Stands for a score that the judge did not give; None: no reward then."""
    inference: InferenceConfig = _SHORT

    def to_reward_type(self) -> RewardType | None:
        """Give the kind of signal asked for, if any was."""
        return RewardType(self.reward_type) if self.reward_type else None


class EnvironmentLLMConfig(Section):
    """The environment's own model."""

    model: ModelChoice


class ContainerConfig(Section):
    """A container in which submissions run; see `nbrefine.executors.ContainerConfig`."""

    runtime: Literal["docker", "podman", "process", "auto"] = "docker"
    image: Text | None = None
    rootfs: Text | None = None
    """A folder with the files of the container, in an image's place."""
    timeout: Seconds = 60.0
    """Seconds until it must be up."""
    env_vars: dict[str, str] = Field(default_factory=dict)
    volumes: dict[str, str] = Field(default_factory=dict)
    """Folders of the host that submissions may read, and where they have them."""
    docker_command: Text | None = None
    """The program to call, where it is not the runtime's name."""
    memory: Count | None = None
    """Bytes of memory for all that runs in it together."""

    @field_validator("rootfs")
    @classmethod
    def _folder_beside(cls, value: str | None, info: ValidationInfo) -> str | None:
        return _within(info, value) if value else value

    @field_validator("volumes")
    @classmethod
    def _folders_beside(cls, value: dict[str, str], info: ValidationInfo) -> dict[str, str]:
        return {_within(info, source): place for source, place in value.items()}

    @model_validator(mode="after")
    def _goes_together(self) -> Self:
        self.to_container()
        return self

    def to_container(self) -> executors.ContainerConfig:
        """Give it as executors take it.

        Raises
        ------
        UsageError: a value makes no sense, or two do not go together.
        """
        from nbrefine import executors

        return executors.ContainerConfig(**self.model_dump())


class EnvironmentConfig(Section):
    """One set of tasks, and what they are judged by."""

    adapter: Adapter = "reasoning_gym"
    """Where tasks come from: `reasoning_gym`; `huggingface`: a data set on the hub or in a file;
    `iterative`: the list `params.tasks` with `prompt`, `ground_truth` and `test_code`;
    `notebook`: as `huggingface`, and every attempt is a cell on a live kernel."""
    name: Text
    """Of the data set: on the hub, in reasoning_gym, or a local file; else a name for reports."""
    size: Count | None = None
    """How many tasks there are at most."""
    seed: int | None = None
    """Chooses the tasks where they are drawn at random."""
    answer_extractor: Text | None = None
    """Reads the answer out of a response, by name."""
    answer_extractor_config: dict[str, Any] = Field(default_factory=dict)
    prompts: dict[str, str] = Field(default_factory=dict)
    """Templates `initial`, `feedback` and `history_entry` that replace the usual ones."""
    params: dict[str, Any] = Field(default_factory=dict)
    """Further arguments of the adapter's environment."""
    container: ContainerConfig | None = None
    judge: JudgeConfig | None = None
    env_llm: EnvironmentLLMConfig | None = None
    iterative: IterativeConfig | None = None

    @field_validator("name")
    @classmethod
    def _beside_the_file(cls, value: str, info: ValidationInfo) -> str:
        beside = _within(info, value)
        here = value.endswith(DATA_FILES) or Path(beside).is_dir()
        rows = info.data.get("adapter") in ("huggingface", "notebook")
        return beside if rows and here else value

    @field_validator("params")
    @classmethod
    def _files_beside(cls, value: dict[str, Any], info: ValidationInfo) -> dict[str, Any]:
        if "data_files" not in value:
            return value
        return {**value, "data_files": _files_within(info, value["data_files"])}

    @model_validator(mode="after")
    def _goes_together(self) -> Self:
        if self.answer_extractor_config and self.answer_extractor is None:
            raise UsageError(
                "answer_extractor_config configures nothing", hint="Name an answer_extractor"
            )
        summarize = self.iterative is not None and self.iterative.summarize_history
        if summarize and self.env_llm is None:
            raise UsageError(
                "summarize_history needs the environment's own model", hint="Give env_llm"
            )
        if self.env_llm is not None and not summarize:
            raise UsageError(
                "env_llm is asked for nothing",
                hint="Set summarize_history in iterative, or drop it",
            )
        if self.container is not None and (
            self.iterative is None or self.iterative.code_execution is None
        ):
            raise UsageError(
                "In this container nothing would run", hint="Give iterative with code_execution"
            )
        return self


DATA_FILES = (".jsonl", ".jsonl.gz", ".json", ".parquet", ".csv")
"""How the name of a data set ends that is a file."""


class TurnInfoBlock(Section):
    """Texts that tell the model which turn it is; see `nbrefine.runner.TurnInfoConfig`."""

    task_suffix: str | None = None
    state_prefix: str | None = None
    task_suffix_no_max: str | None = None
    state_prefix_no_max: str | None = None


def _as_block(value: object) -> object:
    """Let true stand for a block of defaults, and false for none."""
    return ({} if value else None) if isinstance(value, bool) else value


class EvalConfig(Section):
    """One evaluation: every key of the file of `nbrefine eval`."""

    see: ClassVar[str] = "See `nbrefine eval --help` for the keys"

    environments: Annotated[tuple[EnvironmentConfig, ...], Field(strict=False, min_length=1)]
    model: ModelChoice = ModelConfig()
    inference: InferenceConfig = InferenceConfig()
    system_prompt: Text | None = None
    prompt_template: Text | None = None
    """How every task is asked, with `{task}` in it: the prompt `initial` of environments that
    have none of their own."""
    turn_info: Annotated[TurnInfoBlock | None, BeforeValidator(_as_block)] = None
    """true, or texts of your own: tell the model which turn it is."""
    judge: JudgeConfig | None = None
    """For every environment that names none itself."""
    samples: Count = 1
    """Episodes for each task."""
    limit: Count | None = None
    """How many tasks of each environment are taken."""
    batch_size: Count = 8
    """How many episodes run at once."""
    grade: bool = True
    """Whether submissions to tasks with hidden tests are graded with them at the end, and tasks
    whose own reference fails here are left out."""
    output_dir: Text = "./results"
    save_detailed_results: bool = True
    """Whether every episode is kept as a notebook."""

    @classmethod
    def from_yaml(cls, path: str | Path, *, options: Mapping[str, Any] | None = None) -> Self:
        """Read a file.

        Parameters
        ----------
        path: the YAML file.
        options: top-level keys that win over the file's; their paths are relative to the working
            folder.

        Raises
        ------
        UsageError: the file is missing or is no YAML, or a key is unknown, missing or wrong; the
            message names the file, the line and what is allowed there.
        """
        path = Path(path)
        read = read_yaml(path, what="evaluation file", see=cls.see)
        given = _absolute(options or {})
        document = replace(read, values={**read.values, **given}, given=frozenset(given))
        return checked(cls, document, folder=path.parent)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Take what a file would hold as a dict; paths are relative to the working folder.

        Raises
        ------
        UsageError: a key is unknown, missing or wrong.
        """
        return checked(cls, Document(values))

    def to_dict(self) -> dict[str, Any]:
        """Give all keys as plain JSON, from which `from_dict` makes the same configuration."""
        return self.model_dump(mode="json")

    @field_validator("prompt_template")
    @classmethod
    def _asks(cls, value: str | None) -> str | None:
        if value is not None and "{task}" not in value:
            raise UsageError("prompt_template asks for nothing", hint="Write {task} in it")
        return value

    @field_validator("output_dir")
    @classmethod
    def _from_folder(cls, value: str, info: ValidationInfo) -> str:
        folder = _within(info, value)
        if taken := [path for path in (Path(folder), *Path(folder).parents) if path.is_file()]:
            raise UsageError(f"{taken[0]} is a file, and no folder", hint="Give another output_dir")
        return folder


def _absolute(options: Mapping[str, Any]) -> dict[str, Any]:
    """Free options from the folder that a file's own paths start from."""
    given = dict(options)
    if isinstance(given.get("output_dir"), str):
        given["output_dir"] = str(Path(given["output_dir"]).absolute())
    if isinstance(given.get("model"), str):
        given["model"] = ModelConfig.of(given["model"])
    return given


def _within(info: ValidationInfo, path: str) -> str:
    folder = (info.context or {}).get("folder")
    return path if folder is None else str(folder / path)


def _files_within(info: ValidationInfo, files: Any) -> Any:
    """Take paths of files, one, several or by split, from the folder; addresses stay."""
    if isinstance(files, str):
        return files if "://" in files else _within(info, files)
    if isinstance(files, list):
        return [_files_within(info, file) for file in files]
    if isinstance(files, dict):
        return {split: _files_within(info, file) for split, file in files.items()}
    return files
