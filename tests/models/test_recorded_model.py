"""What `RecordedModel` promises."""

from __future__ import annotations

import pytest

from nbrefine.budget import Budget
from nbrefine.errors import BudgetExceeded, ModelMismatchError, UsageError
from nbrefine.models.recorded import RecordedModel
from nbrefine.values import (
    Episode,
    Image,
    Message,
    Reply,
    Sampling,
    Task,
    Tool,
    ToolCall,
    Turn,
    Usage,
)

ASK = (Message("system", "Be brief."), Message("user", "line one\nline two\nline three"))
AGAIN = (*ASK, Message("assistant", "first"), Message("user", "wrong"))
DRAWN = Sampling(temperature=0.0, max_tokens=512, seed=1)


def episode() -> Episode:
    return Episode(
        Task("task"),
        model="local:small",
        turns=(
            Turn(1),  # given code: no model was asked
            Turn(2, messages=ASK, reply=Reply("first", usage=Usage(5, 6), sampling=DRAWN)),
            Turn(3, messages=AGAIN, reply=Reply("second", sampling=DRAWN)),
        ),
    )


def test_the_recorded_replies_come_back_as_they_were() -> None:
    model = RecordedModel(episode())
    heard: list[str] = []
    asked = Sampling(temperature=0.0, seed=1)  # the limit of 512 was the server's own
    first = model.complete(ASK, sampling=asked, on_text=heard.append).result(30)
    second = model.complete(AGAIN, sampling=asked).result(30)
    assert first == Reply("first", usage=Usage(5, 6), sampling=DRAWN)
    assert second.text == "second"
    assert heard == ["first"]
    assert model.name == "recorded:local:small"


def test_calls_in_another_order_get_their_own_replies() -> None:
    model = RecordedModel(episode())
    assert [model.complete(m).result(30).text for m in (AGAIN, ASK)] == ["second", "first"]


@pytest.mark.parametrize(
    ("messages", "words"),
    [
        (
            (ASK[0], Message("user", "line one\nline 2\nline three")),
            r"turn 2: message 2 \(user\) differs in line 2: 'two\\nline three' was recorded, '2",
        ),
        (ASK[:1], "2 messages were recorded, 1 came"),
        ((*ASK, Message("user", "more")), "2 messages were recorded, 3 came"),
        ((Message("user", "Be brief."), ASK[1]), "message 1 was by system, now by user"),
    ],
)
def test_another_prompt_is_told_with_the_first_difference(
    messages: tuple[Message, ...], words: str
) -> None:
    with pytest.raises(ModelMismatchError, match=words):
        RecordedModel(episode()).complete(messages).result(30)


def test_another_sampling_is_told() -> None:
    with pytest.raises(ModelMismatchError, match=r"temperature was 0\.0, now 0\.8"):
        RecordedModel(episode()).complete(ASK, sampling=Sampling(temperature=0.8)).result(30)


def test_recorded_calls_of_tools_come_back_whatever_is_offered() -> None:
    reply = Reply("", finish="tool-calls", tool_calls=(ToolCall("look", {"name": "df"}, "c1"),))
    recorded = Episode(Task("task"), turns=(Turn(1, messages=ASK, reply=reply),))
    heard: list[str] = []
    for tools in ((), (Tool("look", "Look around.", {"type": "object"}),)):
        model = RecordedModel(recorded)
        assert model.complete(ASK, tools=tools, on_text=heard.append).result(30) == reply
    assert heard == []


def test_other_images_are_told() -> None:
    seen = (Message("user", "What is it?", (Image("image/png", "iVBORw0KGgo="),)),)
    recorded = Episode(Task("task"), turns=(Turn(1, messages=seen, reply=Reply("A plot.")),))
    model = RecordedModel(recorded)
    with pytest.raises(ModelMismatchError, match=r"message 1 \(user\) came with other images"):
        model.complete((Message("user", "What is it?"),)).result(30)
    assert model.complete(seen).result(30).text == "A plot."
    assert (model.takes_images, RecordedModel(episode()).takes_images) == (True, False)


def test_without_strictness_replies_come_in_order_whatever_is_asked() -> None:
    model = RecordedModel(episode(), strict=False)
    other = (Message("user", "something else"),)
    assert [model.complete(other).result(30).text for _ in range(2)] == ["first", "second"]


def test_the_end_of_the_record_says_how_long_it_was() -> None:
    model = RecordedModel(episode(), strict=False)
    for _ in range(2):
        model.complete(ASK).result(30)
    with pytest.raises(ModelMismatchError, match="holds 2 replies"):
        model.complete(ASK).result(30)


def test_a_record_without_replies_is_refused() -> None:
    with pytest.raises(UsageError, match="no model's reply"):
        RecordedModel(Episode(Task("task"), turns=(Turn(1),)))


def test_the_budget_is_charged_as_when_it_was_recorded() -> None:
    budget = Budget(tokens=11)
    model = RecordedModel(episode())
    model.complete(ASK, budget=budget).result(30)
    with pytest.raises(BudgetExceeded, match="tokens: 11 of 11"):
        model.complete(AGAIN, budget=budget).result(30)
