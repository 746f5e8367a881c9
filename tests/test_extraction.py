from __future__ import annotations

import gzip
import json
import warnings
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nbrefine.extraction import extract, one_of_many

F = "```"


def fence(code: str, info: str = "python", mark: str = F) -> str:
    return f"{mark}{info}\n{code}\n{mark}"


@pytest.mark.parametrize(
    "info",
    ["python", "Python", "PYTHON", "py", "python3", "ipython", "python ", " python", "{python}",
     "{.python}", "python title=x", ""],
)  # fmt: skip
@pytest.mark.parametrize("mark", ["```", "````", "~~~"])
def test_info_strings_and_marks_that_models_write_are_read(info: str, mark: str) -> None:
    got = extract(f"Here it is:\n\n{fence('x = 1', info, mark)}\n\nDone.")
    assert (got.status, got.code) == ("found", "x = 1")


def test_the_block_after_an_example_in_the_thought_is_chosen() -> None:
    reply = f"I could call\n{fence('print(f(1))')}\nbut first:\n{fence('def f(x): return x')}"
    got = extract(reply)
    assert got.code == "def f(x): return x"
    assert got.blocks == 2
    assert got.reason == "The last of 2 code blocks that parses."


def test_a_block_that_parses_is_preferred_to_a_later_one_that_does_not() -> None:
    assert extract(fence("x = 1") + "\nBad:\n" + fence("x = = 1")).code == "x = 1"


def test_a_tagged_block_is_preferred_to_a_later_untagged_one() -> None:
    reply = fence("x = 1\nprint(x)") + "\nIt prints\n" + fence("print(2)", "")
    assert extract(reply).code == "x = 1\nprint(x)"


def test_untagged_output_does_not_hide_untagged_code() -> None:
    assert extract(fence("print('a')", "") + "\nprints\n" + fence("a", "")).code == "print('a')"


def test_code_that_does_not_parse_is_still_found_and_said_so() -> None:
    got = extract(fence("def f(:\n    pass"))
    assert (got.status, got.code) == ("found", "def f(:\n    pass")
    assert got.reason == "The last code block; it does not parse."


@pytest.mark.parametrize("tag", ["bash", "json", "text", "output", "c++"])
def test_blocks_of_other_languages_are_not_code(tag: str) -> None:
    got = extract(fence("x = 1", tag))
    assert got.status == "no-code"
    assert tag in got.reason


def test_the_kernel_s_own_language_is_looked_for() -> None:
    reply = fence("x <- 1", "r") + "\n" + fence("ls; ((", "sh")
    assert extract(reply, language="bash").code == "ls; (("
    assert extract(reply, language="R").code == "x <- 1"


def test_a_fence_within_a_string_of_the_code_does_not_cut_it() -> None:
    code = 'page = """\n```\nhello\n```\n"""\nprint(page)'
    assert extract(f"So:\n{fence(code)}\nThat is all.").code == code


def test_a_closing_tag_within_a_string_of_the_code_does_not_cut_it() -> None:
    code = 'import re\nx = """\n</think>\n"""\ny = re.sub("<think>.*?</think>", "", x)'
    assert extract(fence(code)).code == code


def test_a_longer_fence_holds_shorter_ones() -> None:
    code = 's = """\n```python\nno()\n```\n"""'
    assert extract(fence(code, mark="`````")).code == code


@pytest.mark.parametrize("mark", ["```", "````"])
def test_a_block_within_a_page_of_markdown_is_found(mark: str) -> None:
    page = fence(f"# Solution\n\n{fence('x = 1')}", "markdown", mark)
    assert extract(f"{page}\nHope this helps!").code == "x = 1"


@pytest.mark.parametrize(
    "reply",
    [
        f"1. Do this:\n\n   {F}python\n   def f():\n       return 1\n   {F}\n2. Done.",
        f"- {F}python\n  def f():\n      return 1\n  {F}",
        f"      {F}python\n      def f():\n          return 1\n      {F}",
        f"\t{F}python\n\tdef f():\n\t    return 1\n\t{F}",
        f"> {F}python\n> def f():\n>     return 1\n> {F}",
        f"1. Do this:\n   {F}python\ndef f():\n    return 1\n   {F}",
    ],
)
def test_indented_and_list_item_and_quoted_fences_are_dedented(reply: str) -> None:
    assert extract(reply).code == "def f():\n    return 1"


@pytest.mark.parametrize("finish", ["stop", "length"])
def test_an_unclosed_fence_is_incomplete_and_not_code_to_run(finish: str) -> None:
    got = extract(f"Here:\n{F}python\nimport os\nos.remove(", finish=finish)  # type: ignore[arg-type]
    assert got.status == "incomplete"
    assert got.code == "import os\nos.remove("


def test_an_unclosed_block_after_a_closed_one_is_incomplete() -> None:
    got = extract(f"For example\n{fence('print(1)')}\nand now\n{F}python\nx = ", finish="length")
    assert got.status == "incomplete"


def test_an_answer_is_kept_where_only_what_follows_it_was_cut() -> None:
    answer = fence("print(1)")
    assert extract(f"{answer}\nThis prints", finish="length").code == "print(1)"
    assert extract(f"{answer}\n{F}output\n1\n1\n1", finish="length").code == "print(1)"
    assert extract(f"{answer}\n{F}", finish="stop").code == "print(1)"


def test_a_reply_cut_before_any_code_is_incomplete() -> None:
    assert extract("First I will load the", finish="length").status == "incomplete"
    assert extract("<think>First I will", finish="length").status == "incomplete"


@pytest.mark.parametrize(
    "thought",
    [
        f"<think>\nMaybe\n{fence('wrong()')}\n</think>\n",
        "<think>\n\n</think>\n\n",
        f"<Thinking>{F}python\nwrong()</Thinking>\n",
        f"Maybe\n{fence('wrong()')}\nNo.</think>\n",
        f"Maybe\n{fence('wrong()')}\n</think>",
    ],
)
def test_thinking_sections_are_ignored(thought: str) -> None:
    got = extract(thought + fence("right()"))
    assert (got.code, got.blocks) == ("right()", 1)


def test_a_thinking_section_that_never_ends_holds_no_code() -> None:
    got = extract(f"<think>\n{fence('wrong()')}")
    assert (got.status, got.code) == ("no-code", "")
    assert "thinking" in got.reason


def test_prose_that_speaks_of_the_tags_hides_nothing() -> None:
    reply = f"I strip `<think>` first:\n{fence('x = 1')}\nso `</think>` goes too."
    assert extract(reply).code == "x = 1"


@pytest.mark.parametrize(
    "reply",
    ["", "  \n", "ok", "Sorry, I cannot do that.", "Done", "yes, done", "Answer: yes", "42",
     "not sure", "well-known", "see [1]", "return home", "Shall I go on?", "Really?",
     f"Use {F}print(1){F} here."],
)  # fmt: skip
def test_words_are_not_code_even_where_they_parse(reply: str) -> None:
    assert extract(reply).status == "no-code"


@pytest.mark.parametrize(
    "reply", ["print(1)", "x = 1", "import os\nos.getcwd()", "def f():\n    return 1\n", "f(1)\n"]
)
def test_a_reply_that_is_nothing_but_code_is_taken_as_it_is(reply: str) -> None:
    got = extract(reply)
    assert (got.status, got.code) == ("found", reply)
    assert got.reason == "No fence, but the whole reply is code."


@pytest.mark.parametrize(
    "inner", ["x = 1", "assert f() == 2", "```\nx = 1\n```", "~~~\nx = 1\n~~~"]
)
@pytest.mark.parametrize("language", ["python", None])
def test_fences_within_a_docstring_do_not_cut_a_reply_that_is_code(
    inner: str, language: str | None
) -> None:
    reply = f'''def f():\n    """Give 2.\n\n{fence(inner)}\n    """\n    return 2\n'''
    got = extract(reply, language=language)
    assert (got.status, got.code) == ("found", reply)


@pytest.mark.parametrize(
    "cell",
    ["%matplotlib inline\nx = 1", "!pip list", "%%bash\nif then ((", "files = !ls\nfiles",
     "await job()", "async with a as b:\n    await b", "x?", "?x", "%time f()"],
)  # fmt: skip
def test_everything_a_notebook_runs_counts_as_code_that_parses(cell: str) -> None:
    # The later block does not parse, so the first is chosen only where it is seen to parse.
    assert extract(fence(cell) + "\n" + fence("x = = 1")).code == cell


def test_blank_lines_stay_also_where_a_shell_line_stands() -> None:
    code = '!ls\n\ntext = """\n\na\n\n"""\n\n\nreturn_PYTHON = text  '
    assert extract(fence(code)).code == code


def test_empty_blocks_are_no_code() -> None:
    assert extract(fence("  ")).status == "no-code"
    assert extract(fence("x = 1") + "\n" + fence("")).code == "x = 1"


def test_windows_line_ends_are_read() -> None:
    assert extract("```python\r\nx = 1\r\n```\r\n").code == "x = 1\r"


def test_form_feeds_and_separators_do_not_split_lines() -> None:
    code = 'x = "a\x0c```b\u2028c"'
    assert extract(fence(code)).code == code


def test_a_lone_surrogate_cannot_reach_the_kernel() -> None:
    assert extract(fence("x = '\ud800'")).code == "x = '\ufffd'"


def test_invalid_escapes_count_as_code_where_warnings_are_errors() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert extract(fence(r"x = '\d'") + "\n" + fence("x = = 1")).code == r"x = '\d'"


@pytest.mark.parametrize(
    ("reply", "status", "code"),
    [
        ("x = 1\n```\nThis sets x.", "found", "x = 1"),
        ("x = 1\n", "found", "x = 1\n"),
        ("```python\nx = 1\n```", "found", "x = 1"),
        ("Here is the fix:\n```python\nx = 1\n```", "found", "x = 1"),
        (f"x = 1\n```\nUse it so:\n{fence('print(x)')}", "found", "x = 1"),
        ("def f(:\n```\n", "found", "def f(:"),
        ("x = '''\n```\n'''\n```\n", "found", "x = '''\n```\n'''"),
        ("Sorry, I cannot.", "no-code", ""),
        ("Sorry", "no-code", ""),
        ("x = 1\n```\nI am done.</think>", "found", "x = 1"),
    ],
)
def test_a_reply_may_continue_the_fence_the_prompt_opened(
    reply: str, status: str, code: str
) -> None:
    got = extract(reply, open_fence=True)
    assert (got.status, got.code) == (status, code)


def test_a_continued_fence_that_was_cut_is_incomplete() -> None:
    assert extract("x = 1\ny = 2", open_fence=True, finish="length").status == "incomplete"
    assert extract("def f(", open_fence=True, finish="length").status == "incomplete"


@given(code=st.text(st.characters(codec="utf-8", exclude_characters="\n")).filter(str.strip))
def test_any_line_comes_out_of_a_tagged_fence_as_it_went_in(code: str) -> None:
    assert extract(f"Here:\n```python\n# {code}\n```\n").code == f"# {code}"


LINES = st.sampled_from(
    [
        "```",
        "````",
        "~~~",
        "```python",
        "x = 1",
        "  y",
        "",
        "'''",
        '"""',
        "</think>",
        "> q",
        "- ```",
    ]
)


@given(lines=st.lists(LINES, min_size=1, max_size=12))
def test_any_program_comes_out_of_a_fence_longer_than_its_own(lines: list[str]) -> None:
    program = "\n".join(["def f(): ...", *lines])
    got = extract(fence(program, mark="`" * 6), finish="length")
    assert (got.status, got.code) == ("found", program)


@given(
    lines=st.lists(LINES | st.sampled_from(["<think>", "prose", "print(1)"])),
    open_fence=st.booleans(),
)
def test_no_reply_makes_extraction_fail_or_invent_code(lines: list[str], open_fence: bool) -> None:
    text = "\n".join(lines)
    got = extract(text, open_fence=open_fence)
    assert all(line in text for line in got.code.split("\n"))


@pytest.mark.parametrize(
    ("piece", "blocks"),
    [
        ("```python\nx = (\n```\n", 10_000),  # none parses
        ("```python\n'''\n```\n", 5_000),  # each ends within a string of the one before
        ("```text\n", 1),  # never closed
        ("- 1. > ", 0),
    ],
)
def test_a_hostile_reply_is_read_in_time_and_without_deep_recursion(
    piece: str, blocks: int
) -> None:
    assert extract(piece * 10_000).blocks == blocks


def test_every_recorded_solution_comes_back_unchanged(shared_data: Path) -> None:
    path = shared_data / "recorded" / "humaneval_first_attempts.jsonl.gz"
    with gzip.open(path, "rt", encoding="utf-8") as file:
        solutions = [json.loads(line)["solution"] for line in file]
    assert len(solutions) == 820
    assert [s for s in solutions if extract(f"Sure.\n{fence(s)}\nDone.").code != s] == []


def test_a_byte_order_mark_does_not_hide_the_fence() -> None:
    assert extract("\ufeff```python\nx = 1\n```").code == "x = 1"


def test_a_reply_is_said_to_have_many_blocks_only_where_a_name_is_missing() -> None:
    missing = "NameError: name 'g' is not defined"
    assert one_of_many(2, missing).startswith("Your reply had 2 code blocks; only one")
    assert one_of_many(1, missing) == one_of_many(2, "TypeError: no") == ""
