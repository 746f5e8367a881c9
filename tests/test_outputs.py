"""Outputs as values: plain text and ANSI stripping."""

from __future__ import annotations

import base64
import struct

import pytest

from nbrefine.outputs import CellResult, Death, Display, Failure, Stream, strip_ansi


@pytest.mark.parametrize(
    ("raw", "plain"),
    [
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b[38;5;241;48;5;230mcolour\x1b[K", "colour"),
        ("\x1b]0;title\x07text", "text"),
        ("\x1b]8;;http://example.org\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("a\x1b(Bb", "ab"),
        ("\x9b1mbold", "bold"),
        ("no codes: [31m stays", "no codes: [31m stays"),
    ],
)
def test_every_kind_of_escape_sequence_goes_and_text_stays(raw: str, plain: str) -> None:
    assert strip_ansi(raw) == plain


def test_text_gives_the_outputs_in_order_and_without_colours() -> None:
    result = CellResult(
        source="",
        status="error",
        outputs=(
            Stream("stdout", "one\n"),
            Display({"text/plain": "two", "text/html": "<b>two</b>"}),
            Display({"image/png": "iVBOR"}),
            Failure("KeyError", "'x'", ("\x1b[31mTraceback\x1b[0m", "KeyError: 'x'")),
        ),
    )
    assert result.text == "one\ntwo\n[image/png]\nTraceback\nKeyError: 'x'\n"


def test_a_picture_without_words_is_told_by_its_extents_and_size() -> None:
    head = b"\x89PNG\r\n\x1a\n" + struct.pack(">I4sII", 13, b"IHDR", 640, 480)
    png = base64.encodebytes(head + bytes(23_000 - len(head))).decode()
    jpeg = base64.b64encode(b"\xff\xd8\xff" + bytes(97)).decode()
    for data, told in (
        ({"image/png": png}, "[image/png 640x480, 23 kB]\n"),
        ({"image/jpeg": jpeg, "application/json": {}}, "[application/json, image/jpeg, 100 B]\n"),
        ({"image/svg+xml": "<svg/>"}, "[image/svg+xml]\n"),
        ({"image/png": png[:-3]}, "[image/png]\n"),
        ({"image/png": png, "text/plain": "<Figure>"}, "<Figure>\n"),
    ):
        assert CellResult("", "ok", (Display(data),)).text == told


def test_an_error_without_a_value_is_told_by_its_name_alone() -> None:
    assert str(Failure("KeyboardInterrupt", "")) == "KeyboardInterrupt"
    assert str(Failure("ValueError", "bad")) == "ValueError: bad"


def test_a_death_names_the_signal_or_the_exit_code() -> None:
    assert str(Death(None, "SIGKILL")) == "the kernel died (killed by SIGKILL)"
    assert str(Death(3)) == "the kernel died (exit code 3)"
