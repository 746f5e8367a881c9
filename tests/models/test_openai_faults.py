"""What `OpenAIModel` does when a call fails, over real HTTP on loopback."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import threading
import time
from collections.abc import Callable
from email.utils import formatdate
from typing import TYPE_CHECKING

import pytest

from nbrefine.errors import (
    ModelAuthError,
    ModelError,
    ModelLimitError,
    ModelRequestError,
    ModelResponseError,
    ModelTimeoutError,
    ModelUnavailableError,
)
from nbrefine.models.openai import OpenAIModel
from nbrefine.values import Message

if TYPE_CHECKING:
    from tests.models.conftest import Exchange, LoopbackServer, Make

HELLO = [Message("user", "Hello")]


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
    server.script = [server.error(status, f"Incorrect API key provided: {server.key}")]
    model = make()
    with pytest.raises(ModelAuthError, match="OPENAI_API_KEY") as raised:
        model.complete(HELLO).result(30)
    shown = [str(raised.value), repr(raised.value), repr(model), str(vars(raised.value))]
    assert not any(server.key in text for text in [*shown, caplog.text])
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


def test_a_server_that_has_answered_is_waited_for_when_it_goes_away(
    server: LoopbackServer, make: Make
) -> None:
    def answer_and_close_the_door(exchange: Exchange) -> None:
        server.socket.close()
        exchange.json({"error": {"message": "going down"}}, status=503)
        exchange.close_connection = True

    server.script = [answer_and_close_the_door]
    with pytest.raises(ModelUnavailableError, match=r"No server can be reached.*3 tries"):
        make(retries=2).complete(HELLO).result(30)


def test_a_check_says_what_is_wrong_before_any_call(
    server: LoopbackServer, make: Make, closed_port: int
) -> None:
    with pytest.raises(ModelUnavailableError, match="No server can be reached"):
        asyncio.run(make(base_url=f"http://127.0.0.1:{closed_port}/v1").check())
    server.listing = server.error(401, f"Incorrect API key provided: {server.key}")
    with pytest.raises(ModelAuthError, match=r"Incorrect API key provided: \[key\]"):
        asyncio.run(make().check())
    assert server.requests == []


def test_a_check_tells_a_connection_that_does_not_come_about() -> None:
    with contextlib.ExitStack() as stack:
        full = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        for _ in range(4):  # nobody accepts them, so that Linux lets a later one wait
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(full.getsockname())
        url = f"http://127.0.0.1:{full.getsockname()[1]}/v1"
        model = stack.enter_context(OpenAIModel("m", base_url=url, connect_timeout=2.0))
        with pytest.raises(ModelUnavailableError, match="No server can be reached"):
            asyncio.run(model.check())


def _hang_up(exchange: Exchange) -> None:
    exchange.close_connection = True


def _list_in_another_shape(exchange: Exchange) -> None:
    exchange.bytes(b"<html>It works!</html>", "text/html")


@pytest.mark.parametrize(
    ("status", "said"),
    [(403, "not for this key"), (401, "Missing scopes: api.model.read"), (404, "no"), (500, "no")],
)
def test_a_check_passes_where_only_the_list_of_models_is_refused(
    server: LoopbackServer, make: Make, status: int, said: str
) -> None:
    server.listing = server.error(status, said)
    asyncio.run(make().check())


@pytest.mark.parametrize("listing", [None, _hang_up, _list_in_another_shape])
def test_a_check_passes_where_a_server_answers_anything_at_all(
    server: LoopbackServer, make: Make, listing: Callable[[Exchange], None] | None
) -> None:
    server.listing = listing
    asyncio.run(make().check())


def test_a_check_waits_for_a_slow_list_no_longer_than_for_a_connection(
    server: LoopbackServer, make: Make
) -> None:
    ended = threading.Event()

    def say_nothing(exchange: Exchange) -> None:
        ended.wait(30)

    server.listing = say_nothing
    asyncio.run(make(connect_timeout=0.2).check())
    ended.set()


def test_a_placeholder_for_a_key_is_not_hidden_in_other_words(
    server: LoopbackServer, make: Make
) -> None:
    server.script = [server.error(400, "no such thing")]
    with pytest.raises(ModelRequestError, match="no such thing"):
        make(api_key="no").complete(HELLO).result(30)


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
        exchange.say("The")
        while not ended.wait(0.05):
            exchange.wfile.write(b": ping\n\n")

    server.script = [keep_alive_only]
    with pytest.raises(ModelTimeoutError):
        make(timeout=0.3, retries=0).complete(HELLO).result(30)
    ended.set()


def _half(exchange: Exchange) -> None:
    exchange.start_stream()
    exchange.say("Half a")


def _half_of_a_promised_length(exchange: Exchange) -> None:
    exchange.send_response(200)
    exchange.send_header("content-type", "text/event-stream")
    exchange.send_header("content-length", "10000")
    exchange.end_headers()
    exchange.say("Half a")
    exchange.close_connection = True


def _half_an_event(exchange: Exchange) -> None:
    exchange.start_stream()
    exchange.say("Half a")
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
