"""Patterns that take for ever are left after a while."""

from __future__ import annotations

import asyncio
import sys
import time

import pytest

from nbrefine.answers import problem
from nbrefine.answers.matching import matches
from nbrefine.errors import ExecutorError, InvalidTaskError
from nbrefine.values import AnswerForm

ENDLESS = r"(\w+\s?)+!"


def test_all_of_a_text_must_match() -> None:
    assert matches(r"\d+", "12") is True
    assert matches(r"\d+", "12 \ud83d\ude00") is False
    assert matches(r"é\n.", "é\nx") is True


def test_a_match_without_end_is_left_while_all_else_goes_on() -> None:
    form = AnswerForm(pattern=ENDLESS)

    async def asked() -> int:
        ticks, answer = 0, asyncio.ensure_future(asyncio.to_thread(problem, "a" * 60, form))
        while not answer.done():
            await asyncio.sleep(0.1)
            ticks += 1
        with pytest.raises(InvalidTaskError, match=r"The pattern .* takes over 5 s on an answer"):
            answer.result()  # no answer's fault
        return ticks

    started = time.monotonic()
    assert asyncio.run(asked()) > 5
    assert time.monotonic() - started < 60


def test_what_cannot_be_matched_at_all_is_no_answer_s_fault() -> None:
    with pytest.raises(ExecutorError, match="unterminated"):
        matches("(", "x")


def test_a_host_without_processes_is_no_answer_s_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with pytest.raises(ExecutorError, match="cannot be started"):
        matches("x", "x")
