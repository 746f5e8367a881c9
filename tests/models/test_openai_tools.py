"""Calls of tools and images, over real HTTP on loopback."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from nbrefine.errors import ModelRequestError, ModelResponseError
from nbrefine.values import Image, Message, Tool, ToolCall
from tests.models.conftest import chunk

if TYPE_CHECKING:
    from tests.models.conftest import LoopbackServer, Make

HELLO = [Message("user", "How many rows?")]
PARAMETERS = {
    "type": "object",
    "properties": {"code": {"type": "string"}},
    "required": ["code"],
}
RUN = Tool("run_cell", "Run a cell.", PARAMETERS)
COUNT = "n = len(df)\nprint(n)"


def piece(**call: Any) -> dict[str, Any]:
    """One event of a stream with a piece of a call; `name` and `arguments` are its function's."""
    function = {key: call.pop(key) for key in ("name", "arguments") if key in call}
    return chunk({"tool_calls": [{**call, "function": function}]})


def calls(make: Make, server: LoopbackServer, *events: Any) -> tuple[ToolCall, ...]:
    server.script = [server.events(*events, chunk({}, finish="tool_calls"), "[DONE]")]
    return make().complete(HELLO, tools=[RUN]).result(30).tool_calls


def test_tools_are_offered_as_the_protocol_says(server: LoopbackServer, make: Make) -> None:
    server.script = [server.reply("I need none.")]
    reply = make().complete(HELLO, tools=[RUN]).result(30)
    assert server.requests[0].body["tools"] == [
        {
            "type": "function",
            "function": {
                "name": "run_cell",
                "description": "Run a cell.",
                "parameters": PARAMETERS,
            },
        }
    ]
    assert (reply.text, reply.finish, reply.tool_calls) == ("I need none.", "stop", ())


def test_the_pieces_of_streamed_calls_are_put_together(server: LoopbackServer, make: Make) -> None:
    arguments = json.dumps({"code": COUNT})
    server.script = [
        server.events(
            chunk({"content": "I count"}),
            chunk({"content": " them."}),
            piece(index=0, id="call_1", type="function", name="run_cell", arguments=""),
            piece(index=0, arguments=arguments[:9]),
            piece(index=0, arguments=arguments[9:]),
            piece(index=1, id="call_2", type="function", name="finish", arguments="{}"),
            chunk({}, finish="tool_calls"),
            "[DONE]",
        )
    ]
    heard: list[str] = []
    reply = make().complete(HELLO, tools=[RUN], on_text=heard.append).result(30)
    assert (reply.text, reply.finish, heard) == (
        "I count them.",
        "tool-calls",
        ["I count", " them."],
    )
    assert reply.tool_calls == (
        ToolCall("run_cell", {"code": COUNT}, "call_1"),
        ToolCall("finish", {}, "call_2"),
    )


def test_servers_that_depart_from_the_protocol_are_understood(
    server: LoopbackServer, make: Make
) -> None:
    """What public reports tell of gateways to Gemini, of older vLLM and of Ollama."""
    without_index = (
        piece(id="a", name="run_cell", arguments='{"code": '),
        piece(arguments='"1"}'),
        piece(id="b", name="run_cell", arguments='{"code": "2"}'),
    )
    one_index_for_all = (
        piece(index=0, id="a", name="run_cell", arguments='{"code": "1"}'),
        piece(index=0, id="b", name="run_cell", arguments='{"code": "2"}'),
    )
    all_repeated = (
        piece(index=0, id="a", name="run_cell", arguments='{"code": '),
        piece(index=0, id="a", name="run_cell", arguments='"1"}'),
        piece(index=1, id="b", name="run_cell", arguments='{"code": "2"}'),
    )
    another_id_each = (
        piece(index=0, id="a", name="run_cell"),
        piece(index=0, id="x", arguments='{"code": "1"}'),
        piece(index=1, id="b", name="run_cell"),
        piece(index=1, id="y", arguments='{"code": "2"}'),
    )
    no_json_in_json = (
        piece(index=0, id="a", name="run_cell", arguments={"code": "1"}),
        piece(index=1, id="b", name="run_cell", arguments={"code": "2"}),
    )
    expected = (ToolCall("run_cell", {"code": "1"}, "a"), ToolCall("run_cell", {"code": "2"}, "b"))
    for way in (without_index, one_index_for_all, all_repeated, another_id_each, no_json_in_json):
        assert calls(make, server, *way) == expected


def test_an_empty_piece_is_no_call(server: LoopbackServer, make: Make) -> None:
    assert calls(make, server, piece(index=0), piece(index=1, name="look", arguments=None)) == (
        ToolCall("look"),
    )


def test_a_whole_reply_holds_its_calls_too(server: LoopbackServer, make: Make) -> None:
    function = {"name": "run_cell", "arguments": json.dumps({"code": COUNT})}
    message = {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "call_1", "type": "function", "function": function}],
    }
    whole = {"choices": [{"index": 0, "finish_reason": "tool_calls", "message": message}]}
    server.script = [lambda exchange: exchange.json(whole)]
    reply = make().complete(HELLO, tools=[RUN]).result(30)
    assert reply.text == ""
    assert reply.tool_calls == (ToolCall("run_cell", {"code": COUNT}, "call_1"),)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ('{"code": "1"', "not valid JSON (Expecting ',' delimiter: line 1 column 13 (char 12))"),
        ('["1"]', "not a JSON object"),
        ('{"code": ' + "[" * 30 + "]" * 30 + "}", "nested in more than 20 levels"),
        ('{"code": ' + "[" * 100_000 + "}", "not valid JSON"),
    ],
    ids=["broken", "a list", "deep", "endless"],
)
def test_arguments_that_cannot_be_read_are_a_problem_of_the_call(
    server: LoopbackServer, make: Make, arguments: str, problem: str
) -> None:
    (call,) = calls(make, server, piece(index=0, id="c", name="run_cell", arguments=arguments))
    assert (call.name, call.id, call.arguments, call.raw) == ("run_cell", "c", {}, arguments)
    assert problem in call.problem


def test_lines_that_break_within_a_string_are_read(server: LoopbackServer, make: Make) -> None:
    (call,) = calls(make, server, piece(index=0, name="run_cell", arguments='{"code": "a\nb"}'))
    assert call.arguments == {"code": "a\nb"}


def test_a_call_that_the_token_limit_cut_is_told_as_such(
    server: LoopbackServer, make: Make
) -> None:
    server.script = [
        server.events(
            piece(index=0, name="look", arguments="{}"),
            piece(index=1, name="run_cell", arguments='{"code": "n ='),
            chunk({}, finish="length"),
        )
    ]
    reply = make().complete(HELLO, tools=[RUN]).result(30)
    whole, cut = reply.tool_calls
    assert reply.finish == "length"
    assert whole == ToolCall("look")
    assert cut.raw == '{"code": "n ='
    assert "cut at the token limit" in cut.problem


def test_a_server_that_ends_a_reply_of_calls_like_any_other_is_understood(
    server: LoopbackServer, make: Make
) -> None:
    server.script = [
        server.events(piece(index=0, name="look", arguments="{}"), chunk({}, finish="stop"))
    ]
    assert make().complete(HELLO, tools=[RUN]).result(30).finish == "tool-calls"


def test_a_reply_that_breaks_off_within_a_call_is_asked_for_anew(
    server: LoopbackServer, make: Make
) -> None:
    begun = piece(index=0, id="a", name="run_cell", arguments='{"code": "1')
    whole = piece(index=0, id="b", name="run_cell", arguments='{"code": "2"}')
    server.script = [
        server.events(begun),
        server.events(whole, chunk({}, finish="tool_calls"), "[DONE]"),
    ]
    reply = make().complete(HELLO, tools=[RUN]).result(30)
    assert (reply.retries, reply.tool_calls) == (1, (ToolCall("run_cell", {"code": "2"}, "b"),))
    server.script = [server.events(begun)]
    with pytest.raises(ModelResponseError, match="broke off its reply after 11 characters"):
        make(retries=0).complete(HELLO, tools=[RUN]).result(30)


def test_secrets_and_lone_surrogates_do_not_enter_a_call(
    server: LoopbackServer, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SERVICE_TOKEN", "hunter2hunter2")
    arguments = json.dumps({"code": ["hunter2hunter2", {"\ud800": "hunter2hunter2\ud800"}, 1]})
    good, bad = calls(
        make,
        server,
        piece(index=0, name="run_cell", arguments=arguments),
        piece(index=1, name="hunter2hunter2", arguments="{hunter2hunter2"),
    )
    hidden = "[redacted:SERVICE_TOKEN]"
    assert good.arguments == {"code": [hidden, {"\ufffd": hidden + "\ufffd"}, 1]}
    assert (bad.name, bad.raw) == (hidden, "{" + hidden)


def test_a_call_that_the_server_could_not_read_is_the_model_s_mistake(
    server: LoopbackServer, make: Make
) -> None:
    """As Groq's servers answer it: an error with the text that the model wrote."""
    error = {
        "message": "Failed to call a function. See 'failed_generation'.",
        "code": "tool_use_failed",
        "failed_generation": "<function=run_cell{code: 1}>",
    }
    server.script = [lambda exchange: exchange.json({"error": error}, status=400)]
    reply = make().complete(HELLO, tools=[RUN]).result(30)
    (call,) = reply.tool_calls
    assert (reply.finish, call.name, call.raw) == ("tool-calls", "", error["failed_generation"])
    assert "no call that it could read" in call.problem


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (400, "registry.ollama.ai/library/codellama:latest does not support tools"),
        (404, "No endpoints found that support tool use."),
        (500, "tools param requires --jinja flag"),
        (500, "Unsupported param: tools"),
        (400, '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser'),
    ],
)
def test_a_server_without_tools_is_asked_once_and_the_error_names_the_other_style(
    server: LoopbackServer, make: Make, status: int, words: str
) -> None:
    server.script = [server.error(status, words)]
    with pytest.raises(ModelRequestError, match='style="fenced"') as raised:
        make().complete(HELLO, tools=[RUN]).result(30)
    assert words in raised.value.message


def test_images_go_along_only_to_a_model_that_takes_them(
    server: LoopbackServer, make: Make
) -> None:
    asked = [
        Message("system", "Look."),
        Message("user", "What is it?", (Image("image/png", "iVBORw0KGgo="),)),
    ]
    server.script = [server.reply("A plot."), server.reply("What?")]
    make(takes_images=True).complete(asked).result(30)
    make().complete(asked).result(30)
    with_image, without = (request.body["messages"] for request in server.requests)
    assert with_image == [
        {"role": "system", "content": "Look."},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "What is it?"},
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}},
            ],
        },
    ]
    assert without[1] == {"role": "user", "content": "What is it?"}
