"""An episode as one page of HTML: complete, safe with whatever was written, and not too large."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterator
from dataclasses import replace
from html import unescape
from html.parser import HTMLParser
from pathlib import Path

import pytest

from nbrefine import notebook
from nbrefine.errors import RecordError
from nbrefine.outputs import CellResult, Display, Failure, Output, Stream
from nbrefine.values import (
    CaseResult,
    Episode,
    Extraction,
    GradeNote,
    KernelInfo,
    Message,
    Reply,
    Stop,
    Task,
    TestReport,
)
from nbrefine.views import page
from nbrefine.views.drawing.tables import tables
from tests.steps import answered, gave_up

VOID = {"meta", "link", "img", "br"}
APART = {"br", "dd", "td", "th"}
"""What stands apart on a page, with no blank between the tags."""


class Reader(HTMLParser):
    """A page as a browser without scripts has it: its texts, its tags, and where they lead."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self._texts: list[str] = []
        self._open: list[str] = []
        self.feed(html)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)
        if tag in APART:
            self._texts.append(" ")

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self._open[-1:] not in (["style"], ["script"]):
            self._texts.append(data)

    @property
    def text(self) -> str:
        return "".join(self._texts)

    @property
    def words(self) -> str:
        return " ".join(self.text.split())

    def all(self, tag: str) -> Iterator[dict[str, str | None]]:
        yield from (attrs for name, attrs in self.tags if name == tag)


def read(episode: Episode) -> Reader:
    return Reader(page.to_html(episode))


def in_order(text: str, *words: str) -> None:
    place = 0
    for each in words:
        assert each in text[place:], each
        place = text.index(each, place) + len(each)


def showing(episode: Episode, *outputs: Output) -> Episode:
    """Let the last attempt of an episode have put out something else."""
    turn = episode.turns[-1]
    result = CellResult(turn.code, "ok", outputs)
    return replace(episode, turns=(*episode.turns[:-1], replace(turn, result=result)))


def test_every_attempt_is_told_with_code_changes_output_tests_and_prompt(
    repaired: Episode,
) -> None:
    in_order(
        read(repaired).words,
        "mean-price",
        "Solved after 2 turns: 2/2 tests passed.",
        "Compute `mean`, the mean of the prices.",
        "Model scripted",
        "Attempt 1 of 2: rejected (failed), 0/2 tests passed",
        'values = prices["Price"]',
        "KeyError: 'Price'",
        "2 tests were not run",
        "Feedback to the model",
        "It ran in a session rebuilt",
        "Prompt 2 messages, 56 characters",
        "Message 1: system You write Python.",
        "Attempt 2 of 2: accepted, 2/2 tests passed",
        'print("mean", mean)',
        "Changes since attempt 1 3 lines added, 1 removed",
        '-values = prices["Price"]',
        "mean 4.0",
        "Messages 1 to 2, as sent before",
        "Message 3: assistant",
        "Tests by attempt",
        "test_1 not run pass",
        "Result",
    )


def test_steps_plans_answers_and_files_are_told_in_their_order() -> None:
    found = read(answered())
    in_order(
        found.words,
        "Step 1: Read `fares` from fares.csv done at attempt",
        "Step 1: Read `fares` from fares.csv Done at attempt",
        "It is done when these checks hold: fares has three numbers",
        "Turn 1: the model looked for what is not there",
        'inspect_variable(name="fares")',
        ": accepted, 1/1 checks held",
        "Checks by attempt",
        "It needs steps 1 and 2.",
        "files: wrote mean.txt (3 B)",
        "Turn 8: the model gave the answer",
        "Result",
        "mean 4.0",
        "3 bytes, sha256 fbd04e1aae9c",
    )
    in_order(
        read(gave_up()).words,
        "From turn 6 on another plan holds",
        "Turn 1: the model made a plan",
        "2. Draw a plot (needs step 1)",
        "I have no plan.",
        "Step 3: Check the count Not begun, as it needs step 2.",
        "given up for another plan",
    )


def test_everything_is_in_the_file_and_leads_to_a_place_in_it() -> None:
    for episode in (answered(), gave_up()):
        found = read(episode)
        ids = [attrs["id"] for _, attrs in found.tags if attrs.get("id")]
        assert len(ids) == len(set(ids))
        for tag, attrs in found.tags:
            assert not {"src", "srcset", "action", "style", "onclick", "onload"} & attrs.keys()
            href = attrs.get("href")
            if href and tag == "a":
                assert href.removeprefix("#") in ids
            elif href:
                assert href == "data:,"
            if labelled := attrs.get("aria-labelledby"):
                assert labelled in ids


def test_only_what_came_with_the_package_may_run_or_style(repaired: Episode) -> None:
    html = unescape(page.to_html(repaired))
    for kind, tag in (("style-src", "style"), ("script-src", "script")):
        (text,) = re.findall(f"<{tag}>(.*?)</{tag}>", html, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{kind} 'sha256-{digest}'" in html
    assert "default-src 'none'" in html


def test_hidden_tests_and_references_are_not_on_the_page(repaired: Episode) -> None:
    task = replace(
        repaired.task,
        hidden_tests="assert hidden_one",
        reference="ref_two",
        metadata={"key": "kept_three"},
    )
    html = page.to_html(replace(repaired, task=task, grade=GradeNote("failed", 3, 4)))
    assert not re.search("hidden_one|ref_two|kept_three", html)
    assert "Hidden tests" in html
    assert "Grade: failed, 3/4 visible and hidden tests." in html
    assert 'class="verdict bad' in html
    assert 'class="verdict good' not in html


NASTY = (
    "</script><script>alert(1)</script></pre></style><img src=x onerror=alert(2)>"
    "{{ 7 * 7 }} {% raw %} %s {0} \x00 \ud800 \u202e \x1b[31mred\x1b[0m \u05d0\u05d1 \x07 "
    "<!-- & ]]>"
)


def test_text_of_programs_and_models_is_text_and_nothing_else(repaired: Episode) -> None:
    error = Failure(NASTY, NASTY, (NASTY,))
    nasty = Display({"text/plain": NASTY, "text/html": f"<table><tr><td>{NASTY}</td></tr></table>"})
    outputs = (Stream("stdout", NASTY), nasty, Display({"text/markdown": NASTY}), error)
    turn = replace(
        repaired.turns[0],
        messages=(Message("user", NASTY),),
        reply=Reply(NASTY),
        extraction=Extraction("found", NASTY),
        result=CellResult(NASTY, "error", outputs, error, notes=(NASTY,)),
        tests=TestReport((CaseResult(NASTY, "failed", NASTY, NASTY, NASTY, NASTY),)),
        feedback=NASTY,
        isolation_reason=NASTY,
    )
    found = read(
        Episode(
            replace(repaired.task, prompt=NASTY, id=NASTY, setup=NASTY, tests=NASTY),
            turns=(
                turn,
                replace(turn, number=2, attempt=2, extraction=Extraction("found", f"{NASTY} + 1")),
                replace(turn, number=3, attempt=3, extraction=Extraction("no-code", reason=NASTY)),
            ),
            stop=Stop("max-turns", NASTY),
            model=NASTY,
            kernel=KernelInfo(NASTY, NASTY, NASTY, NASTY),
        )
    )
    assert [tag for tag, _ in found.tags].count("script") == 1
    assert not list(found.all("img"))
    assert not [attrs for _, attrs in found.tags if "onerror" in attrs]
    assert found.text.count("{{ 7 * 7 }} {% raw %} %s {0} \\x00 \ufffd \\u202e red") > 10
    assert not set(found.text) & set("\x00\x07\x1b\u202e\ud800")


PANDAS = """<div><style scoped>.dataframe tbody tr th { color: red }</style>
<table border="1" class="dataframe"><thead><tr style="text-align: right;"><th></th><th>price</th>
<th>city</th></tr></thead><tbody><tr><th>0</th><td>3 &lt; 4</td><td>Oslo<script>bad()</script></td>
</tr><tr><th>1</th><td colspan="2">7</td></tr></tbody></table><p>2 rows</p></div>"""


def test_tables_are_read_and_drawn_anew_with_heads(repaired: Episode) -> None:
    shown = showing(repaired, Display({"text/html": PANDAS, "text/plain": "   price\n0  3 < 4"}))
    found = read(shown)
    in_order(found.words, "price city 0 3 < 4 Oslo 1 7", "As plain text", "price 0 3 < 4")
    assert "bad()" not in found.text
    assert "scoped" not in page.to_html(shown)
    scopes = [attrs.get("scope") for attrs in found.all("th")]
    assert scopes == ["col", "col", "row", "row", *["col"] * 3, *["row"] * 2]
    assert [attrs["colspan"] for attrs in found.all("td") if "colspan" in attrs] == ["2"]


def test_a_huge_table_is_bounded_and_says_so(repaired: Episode) -> None:
    rows = "<tr><td>v</td></tr>" * 5_000
    html = f"<table><tr>{'<th>c</th>' * 70}</tr>{rows}</table><table colspan=9>"
    found = read(showing(repaired, Display({"text/html": html})))
    assert "The table has 5,001 rows and 70 columns; not all of them are shown." in found.words
    assert found.text.count("v\n") + found.text.count("v") < 1_000


@pytest.mark.parametrize(
    "part", ["<!--", "<table ", "<a ", '<a b="', "</", "<td", "<script>", "<" + "a" * 50, "&#"]
)
def test_html_that_is_made_to_take_long_does_not(part: str) -> None:
    """Each takes the parser of the standard library minutes, or did so once."""
    assert tables(part * 100_000) == []
    (table,) = tables(f"<table><td>{part * 100_000}")
    assert len(table.body) == 1


def test_tables_are_read_however_they_are_written() -> None:
    html = (
        "<TABLE><CAPTION>Prices &amp; more</CAPTION><!-- <td>no</td> --><TR><TH SCOPE=x>a<TD "
        "ColSpan='3'>1<br>2<tr><td>3 < 4<table><tr><td>inner</table><template><td>x</template>"
    )
    outer, inner = tables(html)
    assert outer.caption == "Prices & more"
    assert [[cell.text for cell in row] for row in outer.body] == [["a", "1\n2"], ["3 < 4"]]
    assert (outer.body[0][0].scope, outer.body[0][1].across) == ("row", 3)
    assert [[cell.text for cell in row] for row in inner.body] == [["inner"]]


def test_other_html_is_given_as_its_plain_text(repaired: Episode) -> None:
    html = '<iframe src="https://example.org"></iframe><b>bold</b>'
    found = read(showing(repaired, Display({"text/html": html, "text/plain": "Figure(7)"})))
    assert "Figure(7) Its HTML is not drawn here." in found.words
    assert not list(found.all("iframe"))
    widget = "application/vnd.jupyter.widget-view+json"
    found = read(showing(repaired, Display({widget: {"model_id": "1"}})))
    assert f"It is not drawn here: {widget}." in found.words


PIXEL = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5E"
    "rkJggg=="
)


def test_pictures_are_in_the_page_with_words_for_them(repaired: Episode) -> None:
    figure = {"image/png": f"{PIXEL}\n", "text/plain": "<Figure size 1x1>"}
    vector = {"image/svg+xml": "<svg xmlns='http://www.w3.org/2000/svg' onload='alert(1)'/>"}
    found = read(showing(repaired, Display(figure), Display(vector)))
    first, second = found.all("img")
    assert first == {"src": f"data:image/png;base64,{PIXEL}", "alt": "<Figure size 1x1>"}
    assert str(second["src"]).startswith("data:image/svg+xml;base64,")
    assert second["alt"] == "Picture without a description"


def test_pictures_that_are_none_or_too_large_are_told(repaired: Episode) -> None:
    large = base64.b64encode(base64.b64decode(PIXEL) + bytes(2_000_000)).decode()
    found = read(
        showing(
            repaired,
            Display({"image/png": large, "text/plain": "<Figure size 9999x9999>"}),
            Display({"image/png": "no base64 <>"}),
            Display({"image/jpeg": PIXEL}),
            Display({"image/x-unknown": PIXEL}),
        )
    )
    assert "A picture of 2.0 MB is too large to be shown. <Figure size 9999x9999>" in found.words
    assert found.words.count("that cannot be read") == 3
    assert not list(found.all("img"))


def test_all_pictures_together_are_bounded(repaired: Episode) -> None:
    large = base64.b64encode(base64.b64decode(PIXEL) + bytes(1_400_000)).decode()
    found = read(showing(repaired, *[Display({"image/png": large})] * 15))
    assert len(list(found.all("img"))) == 10  # of 1.87 MB each, in 20 MB
    assert found.words.count("is too large to be shown") == 5


def test_texts_of_a_megabyte_are_cut_and_tell_how_much(repaired: Episode) -> None:
    long = "begin" + "x" * 1_000_000 + "end"
    turn = replace(
        repaired.turns[0],
        extraction=Extraction("found", f"y = {long!r}"),
        result=CellResult(long, "ok", (Stream("stdout", long), *[Stream("stderr", "e")] * 100)),
        feedback=long,
        messages=(Message("user", long),),
    )
    html = page.to_html(replace(repaired, turns=(turn,), setup=None))
    assert len(html) < 300_000
    assert "980,009 characters are left out here" in html
    assert "51 more outputs are not shown here" in html


def test_episodes_with_little_in_them_are_pages_too(repaired: Episode) -> None:
    empty = read(Episode(Task("Set x.")))
    assert "Running: 0 turns so far." in empty.words
    assert "There is no turn in this episode." in empty.words
    broken = replace(repaired.turns[0], result=None, tests=None, verdict="infra-error")
    found = read(
        replace(
            repaired,
            turns=(replace(broken, extraction=Extraction("no-code", reason="the server is gone")),),
            stop=Stop("infra-error", "the server is gone"),
        )
    )
    assert "Not solved after 1 turn: infra-error: the server is gone." in found.words
    assert "not judged (infra-error)" in found.words


def test_submissions_that_no_kernel_ran_are_told(repaired: Episode) -> None:
    turn = replace(
        repaired.turns[0],
        result=None,
        tests=None,
        isolation_reason="",
        extraction=Extraction("found", "42 is the answer"),
        reply=Reply("<answer>42 is the answer</answer>"),
    )
    found = read(replace(repaired, turns=(turn,), kernel=KernelInfo(), setup=None))
    assert "42 is the answer" in found.words
    assert "It was handed in as it stands; no session ran it." in found.words


def test_what_came_before_is_quoted_and_not_repeated(repaired: Episode) -> None:
    """The prompt quotes code and feedback of the attempt before, and the feedback its output."""
    printed = "".join(f"row {n} of many\n" for n in range(100))
    code = "\n".join(f"value_{n} = {n}" for n in range(60))
    feedback = f"It failed.\n<output>\n{printed[:900]}\n</output>\nMend it."
    first = replace(
        repaired.turns[0],
        extraction=Extraction("found", code),
        result=CellResult(code, "ok", (Stream("stdout", printed),)),
        feedback=feedback,
    )
    prompt = Message("user", f"Your code:\n{code}\n{feedback}")
    second = replace(repaired.turns[1], messages=(prompt,))
    html = page.to_html(replace(repaired, turns=(first, second)))
    assert html.count("row 30 of many") == 1
    assert html.count("value_30") == 2  # in the code, and in the difference to it
    words = Reader(html).words
    assert "[the output of attempt 1, 900 of 1,489 characters]" in words
    assert f"[the code of attempt 1, {len(code)} characters]" in words
    assert f"[the feedback to attempt 1, {len(feedback)} characters]" in words


def long_episode(repaired: Episode, attempts: int) -> Episode:
    """Make attempts of 2 kB of output each; every prompt repeats what came before it."""
    system, turns = Message("system", "You write Python. " * 40), []
    sent: list[Message] = []
    for number in range(1, attempts + 1):
        code = f"rows = load({number})\nfor row in rows:\n    print(row)"
        printed = f"row {number:05d} of the file, {number * number}\n" * (2_000 // 32)
        feedback = f"1/2 tests passed.\n\n<output>\n{printed}</output>\n\nCorrect the code."
        turns.append(
            replace(
                repaired.turns[0],
                number=number,
                attempt=number,
                messages=(system, *sent),
                extraction=Extraction("found", code),
                result=CellResult(code, "ok", (Stream("stdout", printed),)),
                tests=TestReport(
                    (
                        CaseResult("test_1", "passed", "rows"),
                        CaseResult("test_2", "failed", "len(rows) == 5", str(number), "5"),
                    )
                ),
                feedback=feedback,
            )
        )
        sent += [Message("assistant", f"```python\n{code}\n```"), Message("user", feedback)]
    return replace(repaired, turns=tuple(turns), stop=Stop("max-turns", "1,000 turns"))


def test_a_thousand_attempts_are_a_page_of_a_few_megabytes(repaired: Episode) -> None:
    """Each prompt holds all messages before it, a gigabyte together; the page has each once."""
    html = page.to_html(long_episode(repaired, 1_000))
    assert 2_000_000 < len(html.encode()) < 4_500_000
    assert html.count("You write Python. " * 40) == 1
    assert html.count("row 00500 of the file") == 62
    assert re.search('data-last="1997">Messages 1 to 1997</a>, as sent before', html)


FRAMES = "\n\n".join(
    f"File /srv/lib/python3.11/table{n}.py:{n}, in look"
    + "".join(f"\n  {k}  x{k} = {n}" for k in range(30))
    for n in range(4)
)


def failing(episode: Episode) -> Episode:
    """Let every attempt of an episode end with an error that was raised in a library."""
    turns = []
    for turn in episode.turns:
        own = f"Cell In[{turn.number}], line 1\n----> 1 price[{turn.number}]"
        rule, head = "-" * 75, "KeyError    Traceback (most recent call last)"
        lines = (rule, head, f"{own}\n", f"{FRAMES}\n", f"KeyError: {turn.number}")
        error = Failure("KeyError", str(turn.number), lines)
        assert turn.result is not None
        result = replace(
            turn.result, status="error", outputs=(*turn.result.outputs, error), error=error
        )
        turns.append(replace(turn, result=result))
    return replace(episode, turns=tuple(turns))


def test_frames_of_libraries_stand_on_a_page_once_and_what_they_are_of_always(
    repaired: Episode,
) -> None:
    episode = failing(long_episode(repaired, 1_000))
    html = page.to_html(episode)
    assert len(html.encode()) < 5_000_000
    assert html.count("File /srv/lib/python3.11/table3.py") == 1
    assert html.count("----&gt; 1 price[500]") == 1
    again = (
        '<a class="quote" href="#f1">[the same 4 frames as in attempt 1]</a>\n\nKeyError: 500</pre>'
    )
    assert again in html
    assert "-" * 75 not in html


def test_a_page_is_written_once_unless_it_may_be_replaced(
    tmp_path: Path, repaired: Episode
) -> None:
    record, path = tmp_path / "e.ipynb", tmp_path / "e.html"
    notebook.save(repaired, record)
    assert page.write(record, path) == path
    before = path.read_text(encoding="utf-8")
    assert before == page.to_html(repaired)
    with pytest.raises(RecordError, match="is there already"):
        page.write(repaired, path)
    page.write(answered(), path, overwrite=True)
    assert path.read_text(encoding="utf-8") == page.to_html(answered()) != before
    with pytest.raises(RecordError, match="is a notebook's name"):
        page.write(repaired, record, overwrite=True)
    with pytest.raises(RecordError):
        page.write(repaired, tmp_path / "gone" / "e.html")
    with pytest.raises(RecordError):
        page.write(tmp_path / "gone.ipynb", tmp_path / "other.html")
    assert sorted(each.name for each in tmp_path.iterdir()) == ["e.html", "e.ipynb"]


def test_an_unknown_language_is_shown_as_it_is(repaired: Episode) -> None:
    turn = replace(repaired.turns[1], extraction=Extraction("found", "a <- b & c"))
    kernel = replace(repaired.kernel, language="no such language")
    assert "a <- b & c" in read(replace(repaired, turns=(turn,), kernel=kernel)).words
