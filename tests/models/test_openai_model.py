"""What `OpenAIModel` promises, over real HTTP on loopback."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from nbrefine._portal import Run
from nbrefine.budget import Budget
from nbrefine.errors import BudgetExceeded, ModelAuthError, RunStopped, UsageError
from nbrefine.models.openai import OpenAIModel
from nbrefine.values import Message, Sampling, Usage

if TYPE_CHECKING:
    from tests.models.conftest import Exchange, LoopbackServer, Make

HELLO = [Message("system", "Be brief."), Message("user", "Hello")]


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
    assert server.requests[0].headers["authorization"] == f"Bearer {server.key}"
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
            {"choices": [{"delta": {"content": "42"}}]},
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
        exchange.say("On and")
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
        exchange.say("met")
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


@pytest.mark.parametrize(
    "url",
    ["localhost:8000/v1", "nonsense", "http://", "ftp://host/v1", "http://[bad", "http://h:99999"],
)
def test_a_base_url_that_is_no_address_is_told_before_any_call(url: str) -> None:
    with pytest.raises(UsageError, match=r"is no address of a server.*http://localhost:8000/v1"):
        OpenAIModel("served", base_url=url)


def test_a_password_in_the_base_url_is_not_shown() -> None:
    model = OpenAIModel("served", base_url="https://me:hunter2@example.org/v1?key=hunter2")
    assert repr(model) == "OpenAIModel('served', base_url='https://example.org/v1')"
