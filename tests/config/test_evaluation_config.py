"""The file of an evaluation: the page's keys and defaults, short forms, paths, and mistakes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from nbrefine.config import (
    BackendFactory,
    CodeExecutionConfig,
    ContainerConfig,
    EnvironmentConfig,
    EnvironmentFactory,
    EvalConfig,
    IterativeConfig,
    ModelConfig,
)
from nbrefine.errors import UsageError
from nbrefine.values import RewardType, Sampling

PAGE = """\
environments:
  - name: openai/openai_humaneval
    adapter: huggingface
    params:
      split: test
      question_column: prompt
      answer_column: canonical_solution
    iterative:
      max_turns: 5
      submission_extractor: code_block
      submission_extractor_config:
        language: python
      code_execution:
        timeout: 30
      solved_threshold: 1.0
      submit_keyword: SUBMIT
    judge:
      model:
        backend: openai
        model: gpt-4o-mini
      template: iterative_feedback
"""

CONTAINER = """\
environments:
  - name: openai/openai_humaneval
    adapter: huggingface
    container:
      runtime: docker
      image: python:3.12-slim
    iterative:
      max_turns: 5
      code_execution:
        timeout: 30
"""


def read(folder: Path, text: str, **options: Any) -> EvalConfig:
    path = folder / "eval.yaml"
    path.write_text(text, encoding="utf-8")
    return EvalConfig.from_yaml(path, options=options)


def test_the_page_s_file_is_read(tmp_path: Path) -> None:
    config = read(tmp_path, PAGE)
    (environment,) = config.environments
    assert (environment.name, environment.adapter) == ("openai/openai_humaneval", "huggingface")
    assert environment.params == {
        "split": "test",
        "question_column": "prompt",
        "answer_column": "canonical_solution",
    }
    assert environment.iterative == IterativeConfig(
        max_turns=5,
        submission_extractor="code_block",
        submission_extractor_config={"language": "python"},
        code_execution=CodeExecutionConfig(timeout=30.0),
        solved_threshold=1.0,
        submit_keyword="SUBMIT",
    )
    assert environment.judge is not None
    assert environment.judge.model == ModelConfig(backend="openai", model="gpt-4o-mini")
    assert environment.judge.template == "iterative_feedback"


def test_the_page_s_container_file_is_read(tmp_path: Path) -> None:
    (environment,) = read(tmp_path, CONTAINER).environments
    assert environment.container == ContainerConfig(runtime="docker", image="python:3.12-slim")
    assert environment.iterative is not None
    assert environment.iterative.max_turns == 5


def test_the_page_s_table_of_defaults_holds() -> None:
    assert IterativeConfig().model_dump() == {
        "max_turns": 3,
        "include_history": True,
        "summarize_history": False,
        "submit_keyword": "SUBMIT",
        "submission_extractor": None,
        "submission_extractor_config": {},
        "solved_threshold": 1.0,
        "code_execution": None,
    }
    assert CodeExecutionConfig().timeout == 30.0
    assert EnvironmentConfig(name="x").adapter == "reasoning_gym"
    assert EvalConfig(environments=(EnvironmentConfig(name="x"),)).output_dir == "./results"
    assert ModelConfig().max_concurrency == 64
    assert ContainerConfig().timeout == 60.0


def test_the_page_s_python_form_is_the_same_thing() -> None:
    made = EnvironmentConfig(name="polynomial_equations", adapter="reasoning_gym", size=50)
    read = EvalConfig.from_dict({"environments": [{"name": "polynomial_equations", "size": 50}]})
    assert read.environments == (made,)


def test_to_dict_is_plain_json_from_which_the_same_comes_back(tmp_path: Path) -> None:
    config = read(tmp_path, PAGE + "turn_info: true\ninference: {top_p: 0.9}\n", limit=3)
    told = json.loads(json.dumps(config.to_dict(), allow_nan=False))
    assert EvalConfig.from_dict(told) == config


def test_a_model_has_a_short_form() -> None:
    config = EvalConfig.from_dict(
        {"environments": [{"name": "x", "judge": {"model": "vllm:some/model"}}], "model": "local"}
    )
    assert config.model == ModelConfig(backend="local")
    assert config.environments[0].judge is not None
    assert config.environments[0].judge.model == ModelConfig(backend="vllm", model="some/model")
    assert ModelConfig.of("openai") == ModelConfig(backend="openai")


def test_paths_start_from_the_file_s_folder_and_options_from_the_working_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "rows").mkdir()
    monkeypatch.chdir(tmp_path)
    text = """\
output_dir: out
model: scripted:replies.yaml
environments:
  - {name: tasks.jsonl, adapter: huggingface}
  - {name: ../rows, adapter: huggingface}
  - {name: ../rows, adapter: reasoning_gym}
  - name: owner/set
    adapter: huggingface
    params:
      data_files: {test: [a.jsonl, "https://host/b.jsonl"]}
    judge: {model: {backend: recorded, model: judge.ipynb}}
"""
    config = read(Path("sub"), text)
    assert config.output_dir == "sub/out"
    assert config.model.model == "sub/replies.yaml"
    *_, third = config.environments
    assert [environment.name for environment in config.environments] == [
        "sub/tasks.jsonl",
        "sub/../rows",
        "../rows",
        "owner/set",
    ]
    assert third.params["data_files"] == {"test": ["sub/a.jsonl", "https://host/b.jsonl"]}
    assert third.judge is not None
    assert third.judge.model.model == "sub/judge.ipynb"
    config = read(Path("sub"), text, output_dir="out", model="scripted:other.yaml")
    assert (config.output_dir, config.model.model) == (str(tmp_path / "out"), "other.yaml")


def test_where_results_go_unless_told_is_the_working_folder(tmp_path: Path) -> None:
    assert read(tmp_path, "environments: [{name: x}]\n").output_dir == "./results"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            PAGE.replace("max_turns", "max_turn"),
            (
                'line 9: unknown key "max_turn" in iterative. Did you mean "max_turns"? Allowed: '
                "max_turns, include_history, summarize_history, submit_keyword, "
                "submission_extractor, submission_extractor_config, solved_threshold, "
                "code_execution"
            ),
        ),
        (
            PAGE.replace("        timeout: 30", "        timeouts: 30"),
            (
                'line 14: unknown key "timeouts" in code_execution. Did you mean "timeout"? '
                "Allowed: timeout"
            ),
        ),
        (
            PAGE.replace("        backend: openai", "        backend: openay"),
            (
                "line 19: backend in model: input should be 'local', 'openai', 'vllm', 'scripted' "
                "or 'recorded', not 'openay'"
            ),
        ),
        (
            PAGE.replace("timeout: 30", "timeout: .inf"),
            "line 14: timeout in code_execution: input should be a finite number, not inf",
        ),
        (
            PAGE.replace("submit_keyword: SUBMIT", "submit_keyword: NO"),
            "line 16: submit_keyword in iterative: input should be a valid string, not False",
        ),
        (
            PAGE.replace("max_turns: 5", "max_turns: 0"),
            "line 9: max_turns in iterative: input should be greater than or equal to 1, not 0",
        ),
        (PAGE + "outputdir: x\n", 'line 22: unknown key "outputdir". Did you mean "output_dir"?'),
        ("limit: 3\n", 'eval.yaml: the key "environments" is missing'),
        ("environments: []\n", "line 1: environments: at least one is expected, not []"),
        ("environments: [{adapter: huggingface}]\n", 'line 1: the key "name" is missing in'),
        ("environments: [{name: x}]\nmodel: gpt-4o\n", 'line 2: "gpt-4o" names no model. Use one'),
        (
            "environments: [{name: x}]\nmodel: {backend: vllm}\n",
            'line 2: The backend "vllm" needs a model',
        ),
        (
            "environments: [{name: x}]\nmodel: {base_url: 'http://h/v1'}\n",
            'line 2: The backend "local" is no server',
        ),
        (
            "environments:\n- name: x\n  iterative: {summarize_history: true}\n",
            "line 2: summarize_history needs the environment's own model. Give env_llm",
        ),
        (
            "environments:\n- name: x\n  env_llm: {model: local}\n",
            "line 2: env_llm is asked for nothing",
        ),
        (
            "environments:\n- name: x\n  container: {image: i}\n  iterative: {max_turns: 5}\n",
            "line 2: In this container nothing would run. Give iterative with code_execution",
        ),
        (
            CONTAINER.replace("image: python:3.12-slim", "image: Python 3"),
            'line 4: "Python 3" is no name of an image',
        ),
        (
            "environments:\n- name: x\n  iterative:\n    submission_extractor_config: {a: 1}\n",
            "line 3: submission_extractor_config configures nothing",
        ),
        (
            "environments:\n- name: x\n  answer_extractor_config: {a: 1}\n",
            "line 2: answer_extractor_config configures nothing",
        ),
        (
            "environments: [{name: x}]\nturn_info: {prefix: x}\n",
            'line 2: unknown key "prefix" in turn_info',
        ),
        (
            "environments: [{name: x}]\nprompt_template: Answer!\n",
            "line 2: prompt_template asks for nothing. Write {task} in it",
        ),
        ("- name: x\n", "is no evaluation file: it holds no `key: value` lines"),
    ],
)
def test_a_mistake_is_told_with_its_line_and_what_is_allowed_there(
    tmp_path: Path, text: str, said: str
) -> None:
    with pytest.raises(UsageError) as caught:
        read(tmp_path, text)
    assert said in str(caught.value)
    assert str(caught.value).startswith(str(tmp_path / "eval.yaml"))
    assert "\n" not in str(caught.value)


def test_a_mistake_of_a_dict_is_told_by_the_way_to_it() -> None:
    block = {"name": "x", "iterative": {"summarize_history": True}}
    with pytest.raises(UsageError, match=r"own model \(environments\[1\]\)"):
        EvalConfig.from_dict({"environments": [{"name": "y"}, block]})


def test_a_configuration_stays_as_it_is() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        ModelConfig().backend = "openai"


def test_turn_info_is_off_on_or_texts() -> None:
    blocks = [
        EvalConfig.from_dict({"environments": [{"name": "x"}], "turn_info": given}).turn_info
        for given in (False, True, {"state_prefix": "[{turn}] "})
    ]
    assert blocks[0] is None
    assert blocks[1] is not None
    assert blocks[1].model_dump(exclude_none=True) == {}
    assert blocks[2] is not None
    assert blocks[2].state_prefix == "[{turn}] "


def test_inference_and_judges_become_the_values_that_are_used() -> None:
    config = EvalConfig.from_dict(
        {
            "environments": [
                {"name": "x", "judge": {"model": "local", "reward_type": "process"}},
                {"name": "y", "judge": {"model": "local"}},
            ],
            "inference": {"temperature": 0.7, "top_p": 0.9, "max_tokens": 100, "seed": 3},
        }
    )
    assert config.inference.to_sampling() == Sampling(temperature=0.7, top_p=0.9, max_tokens=100)
    first, second = (each.judge for each in config.environments)
    assert first is not None
    assert second is not None
    assert (first.to_reward_type(), second.to_reward_type()) == (RewardType.PROCESS, None)
    assert first.inference.to_sampling() == Sampling(temperature=0.0, max_tokens=512)


PUT = """\
environments:
  - name: numbers.jsonl
    adapter: huggingface
    {}
model: scripted:replies.json
"""


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ("params: {split: test,\n      question_col: q}", 'line 5: unknown key "question_col"'),
        ("params: {split: test,\n      question_column: q}", "line 5: There is no column 'q'"),
        ("params: {split: test,\n      data_files: nowhere.csv}", "line 5: There is no file "),
        ("iterative:\n      submission_extractor: x", 'line 5: There is no extractor "x"'),
    ],
)
def test_what_only_building_tells_has_its_file_and_line_too(
    tmp_path: Path, keys: str, said: str
) -> None:
    (tmp_path / "numbers.jsonl").write_text('{"question": "1?", "answer": "one"}\n')
    config = read(tmp_path, PUT.format(keys))
    with pytest.raises(UsageError) as caught:
        EnvironmentFactory.create(config.environments[0])
    assert str(caught.value).startswith(f"{tmp_path / 'eval.yaml'}, {said}")
    assert str(caught.value).count("eval.yaml") == 1


def test_a_data_file_and_a_model_that_are_not_there_have_their_lines(tmp_path: Path) -> None:
    config = read(tmp_path, PUT.format("size: 3"))
    with pytest.raises(UsageError, match=r"eval\.yaml, line 2: There is no file or folder"):
        EnvironmentFactory.create(config.environments[0])
    with pytest.raises(UsageError, match=r"eval\.yaml, line 5: "):
        BackendFactory.create(config.model)
    given = read(tmp_path, PUT.format("size: 3"), model="scripted:nowhere.json")
    with pytest.raises(UsageError, match=r"^(?!.*eval\.yaml)"):
        BackendFactory.create(given.model)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("environments: {name: x}\n", "line 1: environments: give a list"),
        ("environments: [{name: x}]\nseed: 1\n", "It stands in environments or inference"),
        ("environments:\n- name: x\n  max_turns: 1\n", "It stands in iterative. Allowed"),
        ("environments: [{name: x}]\ninference: {temperature: 50}\n", "or equal to 2, not 50"),
        ("environments: [{name: x}]\noutput_dir: eval.yaml\n", "line 2: "),
        ("environments: [{name: x}]\noutput_dir: eval.yaml/a/b\n", "is a file, and no folder"),
    ],
)
def test_a_key_in_the_wrong_place_is_told_where_it_belongs(
    tmp_path: Path, text: str, said: str
) -> None:
    with pytest.raises(UsageError) as caught:
        read(tmp_path, text)
    assert said in str(caught.value)
