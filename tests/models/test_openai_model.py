"""What `OpenAIModel` promises, over real HTTP on loopback."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Iterator
from email.utils import formatdate
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from nbrefine._portal import Run
from nbrefine.budget import Budget
from nbrefine.errors import (
    BudgetExceeded,
    ModelAuthError,
    ModelError,
    ModelLimitError,
    ModelRequestError,
    ModelResponseError,
    ModelTimeoutError,
    ModelUnavailableError,
    RunStopped,
    UsageError,
)
from nbrefine.models.openai import OpenAIModel
from nbrefine.values import Message, Sampling, Usage

if TYPE_CHECKING:
    from tests.models.conftest import Exchange, LoopbackServer

HELLO = [Message("system", "Be brief."), Message("user", "Hello")]
KEY = "sk-test-0123456789abcdefghij"

Make = Callable[..., OpenAIModel]


@pytest.fixture
def make(server: LoopbackServer) -> Iterator[Make]:
    made: list[OpenAIModel] = []

    def build(model: str = "served", **options: Any) -> OpenAIModel:
        options = {"base_url": server.url, "api_key": KEY, "backoff": 0.01, **options}
        made.append(OpenAIModel(model, **options))
        return made[-1]

    yield build
    for model in made:
        asyncio.run(model.aclose())


def delta(content: str) -> dict[str, Any]:
    choice = {"index": 0, "delta": {"content": content}, "finish_reason": None}
    return {"id": "c", "model": "served", "choices": [choice]}


def test_a_reply_is_streamed_with_usage_and_the_request_says_what_was_asked(
    server: LoopbackServer, make: Make
) -> None:
    counted = {
        "prompt_tokens": 12,
        "completion_tokens": 3,
        "total_tokens": 15,
        "prompt_tokens_details": {"cached_tokens": 8},
    }
    server.script = [server.reply("Good", " day", usage=counted)]
    pieces: list[str] = []
    sampling = Sampling(temperature=0.5, top_p=0.9, max_tokens=50, seed=7, stop=("END",))
    model = make(extra={"cache_prompt": False})

    reply = model.complete(HELLO, sampling=sampling, on_text=pieces.append).result(30)

    assert (reply.text, reply.finish, reply.model) == ("Good day", "stop", "served")
    assert reply.usage == Usage(input_tokens=12, output_tokens=3, cached_tokens=8)
    assert reply.sampling == sampling
    assert (reply.retries, pieces) == (0, ["Good", " day"])
    assert server.requests[0].path == "/v1/chat/completions"
    assert server.requests[0].headers["authorization"] == f"Bearer {KEY}"
    assert server.requests[0].body == {
        "model": "served",
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Hello"},
        ],
        "stream": True,
        "stream_options": {"include_usage": True},
        "temperature": 0.5,
        "top_p": 0.9,
        "max_tokens": 50,
        "seed": 7,
        "stop": ["END"],
        "cache_prompt": False,
    }


def test_settings_left_open_are_left_to_the_server(server: LoopbackServer, make: Make) -> None:
    server.script = [server.reply("ok")]
    make().complete(HELLO).result(30)
    sent = server.requests[0].body
    assert set(sent) == {"model", "messages", "stream", "stream_options"}


def test_a_server_that_answers_whole_is_understood(server: LoopbackServer, make: Make) -> None:
    whole = {
        "id": "c",
        "model": "served",
        "choices": [
            {
                "index": 0,
                "finish_reason": "stop",
                "message": {"role": "assistant", "content": "All at once"},
            }
        ],
        "usage": {"prompt_tokens": 2, "completion_tokens": 3, "total_tokens": 5},
    }
    server.script = [lambda exchange: exchange.json(whole)]
    reply = make().complete(HELLO).result(30)
    assert (reply.text, reply.usage) == ("All at once", Usage(2, 3))


def test_a_server_that_leaves_out_fields_is_understood(server: LoopbackServer, make: Make) -> None:
    server.script = [
        server.events(
            {"choices": [{"delta": {"content": "bare"}}]},
            {"choices": [{"finish_reason": "stop"}]},
            "[DONE]",
        )
    ]
    reply = make().complete(HELLO).result(30)
    assert (reply.text, reply.finish, reply.usage) == ("bare", "stop", Usage())


def test_a_server_that_refuses_stream_options_is_asked_without_them_from_then_on(
    server: LoopbackServer, make: Make
) -> None:
    server.script = [
        server.error(400, "Unrecognized request argument supplied: stream_options"),
        server.reply("one"),
        server.reply("two"),
    ]
    model = make(retries=0)
    texts = [model.complete(HELLO).result(30).text for _ in range(2)]
    assert texts == ["one", "two"]
    assert ["stream_options" in r.body for r in server.requests] == [True, False, False]


def test_the_newer_name_of_the_token_limit_is_used_where_the_server_asks_for_it(
    server: LoopbackServer, make: Make
) -> None:
    refusal = (
        "Unsupported parameter: 'max_tokens' is not supported with this model. "
        "Use 'max_completion_tokens' instead."
    )
    server.script = [server.error(400, refusal), server.reply("ok")]
    make().complete(HELLO, sampling=Sampling(max_tokens=9)).result(30)
    assert server.requests[1].body["max_completion_tokens"] == 9
    assert "max_tokens" not in server.requests[1].body


@pytest.mark.parametrize(
    ("reason", "finish"),
    [
        ("length", "length"),
        ("content_filter", "content-filter"),
        ("tool_calls", "tool-calls"),
        ("eos", "unknown"),
    ],
)
def test_why_the_model_stopped_is_a_value(
    server: LoopbackServer, make: Make, reason: str, finish: str
) -> None:
    server.script = [server.reply("def f(", finish=reason)]
    reply = make().complete(HELLO).result(30)
    assert (reply.text, reply.finish) == ("def f(", finish)


def test_a_prompt_that_a_content_filter_refused_is_a_reply(
    server: LoopbackServer, make: Make
) -> None:
    server.script = [server.error(400, "The response was filtered", code="content_filter")]
    reply = make().complete(HELLO).result(30)
    assert (reply.text, reply.finish) == ("", "content-filter")


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
def test_a_thinking_section_is_kept_apart(server: LoopbackServer, make: Make, field: str) -> None:
    thought = {"index": 0, "delta": {field: "Hm.", "content": None}, "finish_reason": None}
    server.script = [
        server.events(
            {"id": "c", "model": "served", "choices": [thought]},
            delta("42"),
            {
                "id": "c",
                "model": "served",
                "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}],
            },
            "[DONE]",
        )
    ]
    reply = make().complete(HELLO).result(30)
    assert (reply.text, reply.reasoning) == ("42", "Hm.")


def test_surrogates_are_joined_across_pieces_and_lone_ones_replaced(
    server: LoopbackServer, make: Make
) -> None:
    # U+1F600 is D83D DE00 in UTF-16; json.dumps writes both halves as escapes.
    server.script = [server.reply("a\ud83d", "\ude00b", " lone \ud800.")]
    reply = make().complete(HELLO).result(30)
    assert reply.text == "a\U0001f600b lone \ufffd."


def test_a_known_secret_does_not_enter_the_reply(
    server: LoopbackServer, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SERVICE_TOKEN", "hunter2hunter2")
    server.script = [server.reply("it is hunter2", "hunter2!")]
    assert make().complete(HELLO).result(30).text == "it is [redacted:SERVICE_TOKEN]!"


@pytest.mark.parametrize("status", [408, 429, 500, 503, 529])
def test_a_passing_trouble_is_tried_again(server: LoopbackServer, make: Make, status: int) -> None:
    server.script = [server.error(status), server.error(status), server.reply("ok")]
    reply = make().complete(HELLO).result(30)
    assert (reply.text, reply.retries) == ("ok", 2)


def _in_half_a_second() -> dict[str, str]:
    return {"retry_after": "0.5"}


def _at_a_date() -> dict[str, str]:
    # HTTP dates have whole seconds: two from now is at least one away.
    return {"retry_after": formatdate(time.time() + 2, usegmt=True)}


def _in_milliseconds() -> dict[str, str]:
    return {"retry_after_ms": "500"}


@pytest.mark.parametrize("header", [_in_half_a_second, _at_a_date, _in_milliseconds])
def test_a_server_that_says_when_is_not_asked_earlier(
    server: LoopbackServer, make: Make, header: Callable[[], dict[str, str]]
) -> None:
    server.script = [server.error(429, **header()), server.reply("ok")]
    assert make().complete(HELLO).result(30).seconds >= 0.45


def test_a_server_that_asks_for_an_hour_is_not_waited_for(
    server: LoopbackServer, make: Make
) -> None:
    server.script = [server.error(429, "slow down", retry_after="3600")]
    with pytest.raises(ModelLimitError, match=r"slow down; it asks to wait 3600 s") as raised:
        make().complete(HELLO).result(30)
    assert raised.value.hint


@pytest.mark.parametrize(
    ("status", "kind"),
    [(429, ModelLimitError), (500, ModelUnavailableError), (503, ModelUnavailableError)],
)
def test_after_all_tries_the_error_tells_them_and_their_time(
    server: LoopbackServer, make: Make, status: int, kind: type[ModelError]
) -> None:
    server.script = [server.error(status, "not now")] * 3
    with pytest.raises(kind, match=rf"answered {status}: not now \(3 tries in \d+\.\d s\)"):
        make(retries=2).complete(HELLO).result(30)
    assert len(server.requests) == 3


def test_a_spent_quota_is_not_tried_again(server: LoopbackServer, make: Make) -> None:
    server.script = [server.error(429, "You exceeded your quota", code="insufficient_quota")]
    with pytest.raises(ModelLimitError, match="quota"):
        make().complete(HELLO).result(30)
    assert len(server.requests) == 1


@pytest.mark.parametrize("status", [401, 403])
def test_a_refused_key_is_told_and_never_shown(
    server: LoopbackServer, make: Make, caplog: pytest.LogCaptureFixture, status: int
) -> None:
    caplog.set_level(logging.DEBUG)
    server.script = [server.error(status, f"Incorrect API key provided: {KEY}")]
    model = make()
    with pytest.raises(ModelAuthError, match="OPENAI_API_KEY") as raised:
        model.complete(HELLO).result(30)
    shown = [str(raised.value), repr(raised.value), repr(model), str(vars(raised.value))]
    assert not any(KEY in text for text in [*shown, caplog.text])
    assert raised.value.__suppress_context__
    assert len(server.requests) == 1


def test_an_unknown_model_is_answered_with_the_known_ones(
    server: LoopbackServer, make: Make
) -> None:
    server.models = ["zephyr", "qwen2.5-coder:1.5b", "llama3"]
    server.script = [server.error(404, 'model "qwen2.5-coder" not found')]
    with pytest.raises(ModelUnavailableError, match="not found") as raised:
        make("qwen2.5-coder").complete(HELLO).result(30)
    assert raised.value.hint == "The server has: qwen2.5-coder:1.5b, llama3, zephyr"


def test_a_request_the_server_refuses_is_not_tried_again(
    server: LoopbackServer, make: Make
) -> None:
    server.script = [server.error(400, "This model's maximum context length is 8192 tokens")]
    with pytest.raises(ModelRequestError, match="maximum context length"):
        make().complete(HELLO).result(30)
    assert len(server.requests) == 1


def test_where_nobody_listens_the_error_comes_at_once_and_says_how_to_look(
    closed_port: int,
) -> None:
    url = f"http://127.0.0.1:{closed_port}/v1"
    model = OpenAIModel("served", base_url=url, backoff=60.0)
    with pytest.raises(ModelUnavailableError, match=f"curl {url}/models"):
        model.complete(HELLO).result(30)
    asyncio.run(model.aclose())


def test_a_silent_server_is_given_up(server: LoopbackServer, make: Make) -> None:
    silent = threading.Event()

    def say_nothing(exchange: Exchange) -> None:
        silent.wait(30)

    server.script = [say_nothing, say_nothing]
    model = make(timeout=0.2, retries=1)
    with pytest.raises(ModelTimeoutError, match=r"nothing for 0\.2 s .*2 tries"):
        model.complete(HELLO).result(30)
    silent.set()


def test_silence_within_a_reply_counts_even_where_the_server_sends_comments(
    server: LoopbackServer, make: Make
) -> None:
    ended = threading.Event()

    def keep_alive_only(exchange: Exchange) -> None:
        exchange.start_stream()
        exchange.event(delta("The"))
        while not ended.wait(0.05):
            exchange.wfile.write(b": ping\n\n")

    server.script = [keep_alive_only]
    with pytest.raises(ModelTimeoutError):
        make(timeout=0.3, retries=0).complete(HELLO).result(30)
    ended.set()


def _half(exchange: Exchange) -> None:
    exchange.start_stream()
    exchange.event(delta("Half a"))


def _half_of_a_promised_length(exchange: Exchange) -> None:
    exchange.send_response(200)
    exchange.send_header("content-type", "text/event-stream")
    exchange.send_header("content-length", "10000")
    exchange.end_headers()
    exchange.event(delta("Half a"))
    exchange.close_connection = True


def _half_an_event(exchange: Exchange) -> None:
    exchange.start_stream()
    exchange.event(delta("Half a"))
    exchange.event('{"id": "c", "choi')


@pytest.mark.parametrize("half", [_half, _half_of_a_promised_length, _half_an_event])
def test_half_a_stream_is_asked_for_again_and_the_listener_told(
    server: LoopbackServer, make: Make, half: Callable[[Exchange], None]
) -> None:
    server.script = [half, server.reply("A whole", " one")]
    pieces: list[str] = []
    reply = make().complete(HELLO, on_text=pieces.append).result(30)
    assert (reply.text, reply.retries) == ("A whole one", 1)
    assert pieces == ["Half a", "", "A whole", " one"]


def test_a_connection_dropped_without_an_answer_is_tried_again(
    server: LoopbackServer, make: Make
) -> None:
    def drop(exchange: Exchange) -> None:
        exchange.close_connection = True

    server.script = [drop, server.reply("ok")]
    assert make().complete(HELLO).result(30).text == "ok"


def _not_json(exchange: Exchange) -> None:
    exchange.bytes(b"<html>It works!</html>", "text/html")


def _no_choices(exchange: Exchange) -> None:
    exchange.start_stream()
    exchange.event({"id": "c", "model": "served", "choices": []})
    exchange.event("[DONE]")


def _another_shape(exchange: Exchange) -> None:
    exchange.json({"id": "c", "model": "served", "choices": ["text"]})


def _an_error_within(exchange: Exchange) -> None:
    exchange.start_stream()
    exchange.event({"error": {"message": "worker crashed", "code": 500}})


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (_not_json, "cannot be read"),
        (_no_choices, "without any choice"),
        (_another_shape, "without any choice"),
        (_half, "broke off its reply after 6 characters"),
        (_half_an_event, "cannot be read"),
        (_an_error_within, "worker crashed"),
    ],
)
def test_a_reply_that_stays_unreadable_is_an_error_that_says_how(
    server: LoopbackServer, make: Make, bad: Callable[[Exchange], None], words: str
) -> None:
    server.script = [bad, bad]
    with pytest.raises(ModelResponseError, match=f"{words}.*2 tries"):
        make(retries=1).complete(HELLO).result(30)


def test_the_budget_is_asked_before_each_try_and_charged_for_it(
    server: LoopbackServer, make: Make
) -> None:
    server.script = [server.error(500)] * 5
    budget = Budget(calls=2)
    with pytest.raises(BudgetExceeded, match="calls: 2 of 2"):
        make().complete(HELLO, budget=budget).result(30)
    assert len(server.requests) == 2


def test_a_reply_charges_its_tokens(server: LoopbackServer, make: Make) -> None:
    counted = {"prompt_tokens": 12, "completion_tokens": 3, "total_tokens": 15}
    server.script = [server.reply("ok", usage=counted)]
    budget = Budget(tokens=15)
    make().complete(HELLO, budget=budget).result(30)
    assert (budget.spent.calls, budget.spent.usage) == (1, Usage(12, 3))
    with pytest.raises(BudgetExceeded):
        make().complete(HELLO, budget=budget).result(30)


def test_a_budget_of_seconds_ends_a_call_that_goes_on(server: LoopbackServer, make: Make) -> None:
    ended = threading.Event()

    def say_nothing(exchange: Exchange) -> None:
        ended.wait(30)

    server.script = [say_nothing]
    with pytest.raises(BudgetExceeded, match="seconds"):
        make().complete(HELLO, budget=Budget(seconds=0.3)).result(30)
    ended.set()


def test_stop_closes_the_connection_at_once(server: LoopbackServer, make: Make) -> None:
    begun, hung_up = threading.Event(), threading.Event()

    def never_ending(exchange: Exchange) -> None:
        exchange.start_stream()
        exchange.event(delta("On and"))
        if exchange.client_hung_up(30):
            hung_up.set()

    server.script = [never_ending]
    run: Run[Any] = make().complete(HELLO, on_text=lambda _piece: begun.set())
    assert begun.wait(30)
    run.stop()
    with pytest.raises(RunStopped):
        run.result(30)
    assert hung_up.wait(30)


def test_calls_run_side_by_side(server: LoopbackServer, make: Make) -> None:
    both = threading.Barrier(2)

    def meet(exchange: Exchange) -> None:
        both.wait(30)
        exchange.start_stream()
        exchange.event(delta("met"))
        exchange.end()

    server.script = [meet, meet]
    model = make()
    runs = [model.complete(HELLO), model.complete(HELLO)]
    assert [run.result(30).text for run in runs] == ["met", "met"]


def test_closing_gives_back_all_descriptors_and_a_later_call_opens_anew(
    server: LoopbackServer,
) -> None:
    def descriptors() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    with OpenAIModel("served", base_url=server.url) as warm:
        server.script = [server.reply("warm")]
        warm.complete(HELLO).result(30)
    assert server.all_closed()
    before = descriptors()
    model = OpenAIModel("served", base_url=server.url)
    for answer in ("first", "again"):
        server.script = [server.reply(answer)]
        with model:
            assert model.complete(HELLO).result(30).text == answer
        assert server.all_closed()
        assert descriptors() == before


def test_the_usual_variables_are_read(
    server: LoopbackServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", server.url)
    monkeypatch.setenv("OPENAI_API_KEY", "key-of-the-environment")
    monkeypatch.setenv("OPENAI_MODEL", "other")
    server.script = [server.reply("ok")]
    with OpenAIModel() as model:
        model.complete(HELLO).result(30)
    assert model.name == "openai:other"
    assert server.requests[0].body["model"] == "other"
    assert server.requests[0].headers["authorization"] == "Bearer key-of-the-environment"


def test_a_proxy_is_not_asked_for_loopback(
    server: LoopbackServer, make: Make, closed_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{closed_port}")
    monkeypatch.setenv("ALL_PROXY", f"http://127.0.0.1:{closed_port}")
    server.script = [server.reply("direct")]
    assert make().complete(HELLO).result(30).text == "direct"


def test_what_is_missing_is_told_before_any_call() -> None:
    with pytest.raises(ModelAuthError, match="OPENAI_API_KEY"):
        OpenAIModel("gpt-4o-mini")
    with pytest.raises(UsageError, match="OPENAI_MODEL"):
        OpenAIModel(base_url="http://127.0.0.1:1/v1")


def test_a_password_in_the_base_url_is_not_shown() -> None:
    model = OpenAIModel("served", base_url="https://me:hunter2@example.org/v1?key=hunter2")
    assert repr(model) == "OpenAIModel('served', base_url='https://example.org/v1')"
