"""What `ScriptedModel` and the short forms of models promise."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from nbrefine.budget import Budget
from nbrefine.errors import BudgetExceeded, ModelUnavailableError, UsageError
from nbrefine.models import resolve
from nbrefine.models.scripted import ScriptedModel
from nbrefine.values import (
    Episode,
    Message,
    Reply,
    Sampling,
    Task,
    Tool,
    ToolCall,
    Turn,
    Usage,
)

HELLO = [Message("user", "Hello")]


def test_replies_come_in_order_and_the_requests_are_kept() -> None:
    model = ScriptedModel(["one", Reply("two", finish="length", usage=Usage(3, 4))])
    heard: list[str] = []
    first = model.complete(HELLO, sampling=Sampling(seed=1), on_text=heard.append).result(30)
    second = model.complete([Message("user", "More")]).result(30)
    assert (first.text, first.usage, first.sampling) == ("one", Usage(), Sampling(seed=1))
    assert (second.text, second.finish, second.usage) == ("two", "length", Usage(3, 4))
    assert heard == ["one"]
    assert model.requests == [tuple(HELLO), (Message("user", "More"),)]


def test_a_script_calls_tools() -> None:
    heard: list[str] = []
    model = ScriptedModel(
        [
            {"tool": "run_cell", "arguments": {"code": "x = 1"}, "text": "I try."},
            {"tool": "look"},
            {"tool": "run_cell", "arguments": '{"code": '},
        ]
    )
    look = Tool("look", "Look around.", {"type": "object"})
    first, second, third = (
        model.complete(HELLO, tools=tools, on_text=heard.append).result(30)
        for tools in ([look], [], [look])
    )
    assert (first.text, first.finish) == ("I try.", "tool-calls")
    assert first.tool_calls == (ToolCall("run_cell", {"code": "x = 1"}),)
    assert (second.text, second.tool_calls) == ("", (ToolCall("look"),))
    assert heard == ["I try."]  # an empty piece would say that the reply begins anew
    assert "not valid JSON" in third.tool_calls[0].problem
    assert model.offers == [(look,), (), (look,)]


@pytest.mark.parametrize(
    "reply",
    [
        {"arguments": {}},
        {"tool": "look", "argument": {}},
        {"tool": "look", "arguments": ["x"]},
        {"tool": "look", "text": None},
    ],
)
def test_a_mapping_that_calls_no_tool_is_answered_with_the_form(reply: dict[str, object]) -> None:
    with pytest.raises(UsageError, match=r"cannot be read.*\{\"tool\": NAME, \"arguments\""):
        ScriptedModel([reply]).complete(HELLO).result(30)


def test_an_iterator_is_asked_for_no_more_than_was_needed() -> None:
    asked = []

    def replies() -> object:
        for number in range(10):
            asked.append(number)
            yield str(number)

    model = ScriptedModel(replies())  # type: ignore[arg-type] # a generator, told as an object
    assert [model.complete(HELLO).result(30).text for _ in range(2)] == ["0", "1"]
    assert asked == [0, 1]


def test_a_function_sees_the_messages_and_runs_off_the_portal() -> None:
    threads = []

    def answer(messages: Sequence[Message]) -> str:
        threads.append(threading.current_thread().name)
        return messages[-1].content.upper()

    assert ScriptedModel(answer).complete(HELLO).result(30).text == "HELLO"
    assert threads == ["nbrefine-user"]


def test_an_async_function_answers_too() -> None:
    async def answer(messages: Sequence[Message]) -> str:
        return f"{len(messages)} messages"

    assert ScriptedModel(answer).complete(HELLO).result(30).text == "1 messages"


def test_the_end_of_the_script_says_how_long_it_was() -> None:
    model = ScriptedModel(["one", "two"])
    for _ in range(2):
        model.complete(HELLO).result(30)
    with pytest.raises(UsageError, match=r"all its replies \(2\)"):
        model.complete(HELLO).result(30)


def test_an_answer_of_another_type_is_named() -> None:
    with pytest.raises(UsageError, match="gave int"):
        ScriptedModel(lambda _messages: 42).complete(HELLO).result(30)


def test_what_a_function_raises_reaches_the_caller() -> None:
    def answer(messages: Sequence[Message]) -> str:
        raise LookupError("no answer")

    with pytest.raises(LookupError, match="no answer"):
        ScriptedModel(answer).complete(HELLO).result(30)


def test_the_budget_is_checked_and_charged() -> None:
    budget = Budget(calls=1)
    model = ScriptedModel(["one", "two"])
    model.complete(HELLO, budget=budget).result(30)
    with pytest.raises(BudgetExceeded):
        model.complete(HELLO, budget=budget).result(30)
    assert len(model.requests) == 1


def test_lone_surrogates_are_replaced() -> None:
    assert ScriptedModel(["a\ud800b"]).complete(HELLO).result(30).text == "a\ufffdb"


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("replies.md", "```python\nx = 1\n```\n---\nSecond\n--- not a line of its own\n"),
        (
            "replies.yaml",
            '- "```python\\nx = 1\\n```\\n"\n- |\n  Second\n  --- not a line of its own\n',
        ),
        ("replies.json", '["```python\\nx = 1\\n```\\n", "Second\\n--- not a line of its own\\n"]'),
    ],
)
def test_replies_are_read_from_a_file(tmp_path: Path, name: str, content: str) -> None:
    path = tmp_path / name
    path.write_text(content, encoding="utf-8")
    model = resolve(f"scripted:{path}")
    texts = [model.complete(HELLO).result(30).text for _ in range(2)]
    assert texts == ["```python\nx = 1\n```\n", "Second\n--- not a line of its own\n"]
    assert model.name == f"scripted:{name}"


def test_calls_of_tools_are_read_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "replies.yaml"
    path.write_text("- tool: look\n  arguments: {name: df}\n- Done.\n", encoding="utf-8")
    model = ScriptedModel.from_file(path)
    first, second = (model.complete(HELLO).result(30) for _ in range(2))
    assert first.tool_calls == (ToolCall("look", {"name": "df"}),)
    assert (second.text, second.tool_calls) == ("Done.", ())


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("replies.yaml", b"a: b", "does not hold a list"),
        ("replies.yaml", b"- {tools: look}", "cannot be read: {'tools': 'look'}"),
        ("replies.yaml", b"- [1", "does not parse"),
        ("replies.json", b'["a", 2]', "does not hold a list"),
        ("replies.json", b'["a"', "does not parse"),
        ("replies.txt", b"\xff\xfe\xff", "cannot be read"),
    ],
)
def test_a_file_of_something_else_is_named(
    tmp_path: Path, name: str, content: bytes, words: str
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(UsageError, match=words) as raised:
        ScriptedModel.from_file(path)
    assert str(path) in raised.value.message


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no file"):
        resolve(f"scripted:{tmp_path / 'none.txt'}")


def test_each_short_form_gives_its_model(tmp_path: Path) -> None:
    given = ScriptedModel([])
    episode = Episode(Task("t"), model="m", turns=(Turn(1, reply=Reply("r")),))
    loaded: list[Path] = []

    def load(path: Path) -> Episode:
        loaded.append(path)
        return episode

    assert resolve(given) is given
    assert resolve(["a"]).complete(HELLO).result(30).text == "a"
    assert resolve(lambda _messages: "b").complete(HELLO).result(30).text == "b"
    assert resolve("openai:gpt", base_url="http://127.0.0.1:1/v1").name == "openai:gpt"
    assert resolve("recorded:e.ipynb", load=load).name == "recorded:m"
    assert loaded == [Path("e.ipynb")]
    weights = tmp_path / "own.gguf"
    weights.touch()
    assert resolve(f"local:{weights}").name == "local:own"


@pytest.mark.parametrize("spec", ["gpt-4", "scripted", "recorded:x.ipynb", "", "LOCAL"])
def test_an_unknown_form_is_answered_with_the_known_ones(spec: str) -> None:
    with pytest.raises(UsageError, match=r"local:NAME.*openai:NAME.*scripted:FILE"):
        resolve(spec)


def test_something_else_is_no_model() -> None:
    with pytest.raises(UsageError, match="int is not a model"):
        resolve(3)  # type: ignore[arg-type] # the mistake under test


@pytest.mark.parametrize("spec", ["local", "scripted:x"])
def test_a_base_url_where_there_is_no_server_is_refused(spec: str) -> None:
    with pytest.raises(UsageError, match="base URL"):
        resolve(spec, base_url="http://127.0.0.1:1/v1")


def test_a_local_model_that_is_not_here_names_the_command_that_brings_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NBREFINE_CACHE", str(tmp_path))
    with pytest.raises(ModelUnavailableError, match=r"nbrefine models pull qwen2\.5-coder-0\.5b"):
        resolve("local:qwen2.5-coder-0.5b")
    with pytest.raises(UsageError, match=r"Known: qwen2\.5-coder-1\.5b"):
        resolve("local:gpt-5")


def test_importing_the_models_imports_no_client_and_no_runtime() -> None:
    heavy = "{'openai', 'httpx2', 'xllamacpp', 'huggingface_hub', 'yaml', 'filelock'}"
    code = f"import sys, nbrefine.models; print({heavy} & set(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "set()"
