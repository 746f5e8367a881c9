"""Expected texts are what a terminal shows, worked out by hand from ECMA-48."""

from __future__ import annotations

import pytest

from nbrefine.kernel.messages.terminal import ROW, Terminal


def shown(*chunks: str) -> str:
    terminal = Terminal()
    return "".join(terminal.feed(chunk) for chunk in chunks) + terminal.line


@pytest.mark.parametrize(
    ("chunks", "expected"),
    [
        (["plain\ntext"], "plain\ntext"),
        (["10%\r20%\r100%\n"], "100%\n"),
        (["long text\rnew"], "new" + "g text"),
        (["a\r\nb\r\n"], "a\nb\n"),
        (["a\r", "\nb"], "a\nb"),
        (["abc\b\bXY"], "aXY"),
        (["abc\b"], "abc"),
        (["\b\bx"], "x"),
        (["|\b/\b-"], "-"),
        (["90% done\r\x1b[K95%"], "95%"),
        (["old\x1b[2K\rnew"], "new"),
        (["\x1b[31mred\x1b[0m\rX"], "X" + "e" + "d\x1b[0m"),
        (["done\n50%", "\r", "60%"], "done\n60%"),
        ([""], ""),
        (["\r"], ""),
    ],
)
def test_moves_of_the_cursor_give_what_a_terminal_shows(chunks: list[str], expected: str) -> None:
    assert shown(*chunks) == expected


@pytest.mark.parametrize("text", ["10%\r20%\nabc\b\bX\r\nend\x1b[K!", "a\x1b[31mb\x1b[0m\rc\n"])
def test_chunks_of_any_size_give_the_same_text(text: str) -> None:
    escape_free = [text[:n] for n in range(len(text))]
    for head in escape_free:
        if "\x1b" in head[-4:]:
            continue  # a split escape sequence is not one
        assert shown(head, text[len(head) :]) == shown(text)


def test_a_million_updates_of_one_line_stay_one_line() -> None:
    terminal = Terminal()
    for count in range(100_000):
        assert terminal.feed(f"\rstep {count}") == ""
    assert terminal.line == "step 99999"


def test_a_line_without_end_is_final_up_to_its_last_row() -> None:
    terminal = Terminal()
    final = terminal.feed("x" * (3 * ROW))
    assert (len(final), len(terminal.line)) == (2 * ROW, ROW)
    assert terminal.feed("\rY") == ""
    assert terminal.line == "Y" + "x" * (ROW - 1)
