"""Which parts of a text a page has had already."""

from __future__ import annotations

from nbrefine.views.page.passages import SHORTEST, Passages, Quote

CODE = "\n".join(f"line {n} of the code" for n in range(40))


def split(passages: Passages, text: str) -> list[str | tuple[str, int, int]]:
    return [
        piece if isinstance(piece, str) else (piece.passage.target, piece.begin, piece.end)
        for piece in passages.split(text)
    ]


def known(text: str = CODE) -> Passages:
    passages = Passages()
    passages.add(text, "code", "the code")
    return passages


def test_a_passage_within_a_text_is_quoted_whole() -> None:
    text = f"before\n{CODE}\nafter"
    assert split(known(), text) == ["before\n", ("code", 0, len(CODE)), "\nafter"]


def test_what_was_cut_in_the_middle_is_quoted_by_its_head_and_its_tail() -> None:
    gap = "\n... 300 characters are left out here ...\n"
    head, tail = CODE.index("\nline 20"), CODE.index("line 23 ")
    found = split(known(), f"{CODE[:head]}{gap}{CODE[tail:]}\n.")
    assert found == [("code", 0, head), gap, ("code", tail, len(CODE)), "\n."]


def test_a_quotation_begins_and_ends_with_a_line_where_there_are_lines() -> None:
    begin, end = CODE.index("line 1 "), CODE.index("\nline 30")
    found = split(known(), f"odd {CODE[3 : end + 5]} odd")
    assert found == [f"odd {CODE[3:begin]}", ("code", begin, end), "\nline odd"]
    passages = known("x" * 2_000)
    assert split(passages, f"{'x' * 500}y") == [("code", 0, 500), "y"]


def test_what_has_lines_in_common_in_its_midst_quotes_those() -> None:
    text = f"first\n{CODE}\nlast"
    passages = known("other\n" + CODE + "\nend")
    assert split(passages, text) == ["first\n", ("code", 6, 6 + len(CODE)), "\nlast"]


def test_no_quotation_leads_on_without_end() -> None:
    """Of texts that each quote the one before, only what they have of their own is quoted."""
    passages = known()
    passages.add(f"It failed.\n{CODE}", "feedback", "the feedback", quotes=True)
    text = f"It failed.\n{CODE}"
    assert split(passages, text) == [("feedback", 0, len(text))]
    flat = passages.split(text, flat=True)
    assert [each if isinstance(each, str) else each.passage.target for each in flat] == [
        "It failed.\n",
        "code",
    ]


def test_short_and_unknown_texts_stay_as_they_are() -> None:
    short = CODE[: SHORTEST - 1]
    assert split(known(short), f"a{short}") == [f"a{short}"]
    assert split(known(), f"a{short}") == [f"a{short}"]
    assert split(known(), "") == []
    assert split(known(), "x" * 1_000) == ["x" * 1_000]


def test_the_longest_passage_is_quoted() -> None:
    passages = known()
    passages.add(f"It failed.\n{CODE}", "feedback", "the feedback")
    assert split(passages, f"It failed.\n{CODE}") == [("feedback", 0, len(CODE) + 11)]


def test_all_pieces_together_are_the_text() -> None:
    passages = known()
    passages.add("z" * 500, "z", "letters")
    text = f"{'z' * 700}{CODE[:400]}{CODE}{'z' * 450}"
    pieces = passages.split(text)
    whole = "".join(p if isinstance(p, str) else p.passage.text[p.begin : p.end] for p in pieces)
    assert whole == text
    assert sum(isinstance(piece, Quote) for piece in pieces) >= 3


def test_places_are_counted_as_scripts_count() -> None:
    wide = "\U0001f600" * 10 + CODE
    (quote,) = known(wide).split(wide[:500])
    assert isinstance(quote, Quote)
    assert (quote.begin, quote.end) == (0, 500)
    assert quote.units == (0, 510)
    assert quote.told == f"the code, 500 of {len(wide)} characters"
