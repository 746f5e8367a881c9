"""Thinking between tags is told from an answer, and from words and code about tags."""

from __future__ import annotations

import pytest

from nbrefine.thinking import without_thinking


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("<think>\nHm.\n</think>\n\nANSWER", "ANSWER"),
        ("<THINKING>Hm.</THINKING>ANSWER", "ANSWER"),
        ("Hm, the prompt had begun it.\n</think>\nANSWER", "ANSWER"),
        ("A\n<think>Hm.</think>\nB\n<think>Hm.</think>\nC", "A\nB\nC"),
        ("ANSWER\n<think>cut off", "ANSWER"),
        ("I write of <think> here.", "I write of <think> here."),
        ("x = '</think>'", "x = '</think>'"),
        ("ANSWER", "ANSWER"),
    ],
)
def test_reasoning_within_a_reply_is_taken_out(text: str, left: str) -> None:
    assert without_thinking(text) == left


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("Hm. <think>1</think> 2", "Hm.  2"),
        ("1 so 2</think>3", "3"),
        ("1</think>2</THINKING>\n3 ", "3"),
        ("3<THINKING>4", "3"),
        (" I think so. ", "I think so."),
    ],
)
def test_where_tags_count_anywhere_all_up_to_the_last_of_them_is_thinking(
    text: str, left: str
) -> None:
    assert without_thinking(text, anywhere=True) == left
