"""Extractors: which part of a reply is the answer, and what is said where there is none."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nbrefine.errors import UsageError
from nbrefine.extractors import (
    CLEANERS,
    EXTRACTORS,
    BoxedExtractor,
    CleanedExtractor,
    CodeBlockExtractor,
    CompositeExtractor,
    Extractor,
    FallbackExtractor,
    Gsm8kExtractor,
    LastLineExtractor,
    MultipleChoiceExtractor,
    NumericExtractor,
    RawGenerationExtractor,
    RegexExtractor,
    TagBasedExtractor,
    TailExtractor,
    make_extractor,
    strip_latex_dollars,
    strip_special_tokens,
    strip_surrounding_quotes,
    strip_thinking_tokens,
    strip_trailing_punctuation,
)

F = "```"

SAMPLES: Mapping[str, Mapping[str, Any]] = {
    "regex": {"pattern": r"x = (\d+)"},
    "fallback": {"extractors": ["boxed", {"name": "regex", "pattern": "(a)"}]},
    "composite": {"extractors": ["tag_based", "numeric"]},
    "cleaned": {"extractor": "last_line", "post": ["strip_surrounding_quotes"]},
}
"""Settings of the extractors that need some."""


def answer(extractor: Extractor, text: str) -> str | None:
    return extractor.extract(text)[0]


def reason(extractor: Extractor, text: str) -> str:
    found, facts = extractor.extract(text)
    assert (found is None) == (facts["reason"] != "found")
    return str(facts["reason"])


def test_the_raw_reply_is_taken_to_the_last_blank() -> None:
    text = "  \n<think>x</think> 4\n"
    assert answer(RawGenerationExtractor(), text) == text


@pytest.mark.parametrize("info", ["python", "py", "Python", "python3", "python ", "{python}", ""])
@pytest.mark.parametrize("mark", ["```", "~~~", "````"])
def test_defect_8_code_is_found_however_its_fence_is_written(info: str, mark: str) -> None:
    extractor = CodeBlockExtractor(language="python")
    assert answer(extractor, f"So:\n{mark}{info}\nx = 1\n{mark}\nDone.") == "x = 1"


def test_defect_8_a_fence_that_is_not_closed_is_incomplete() -> None:
    assert reason(CodeBlockExtractor("python"), f"So:\n{F}python\nx = 1") == "incomplete"


def test_defect_8_a_fence_within_a_string_cuts_no_code() -> None:
    code = f'page = """\n{F}\nhello\n{F}\n"""\nprint(page)'
    assert answer(CodeBlockExtractor("python"), f"So:\n{F}python\n{code}\n{F}\n") == code


def test_the_last_block_of_the_language_is_the_answer() -> None:
    reply = f"{F}python\nx = 1\n{F}\nor\n{F}python\nx = 2\n{F}\nwhich gives\n{F}text\n2\n{F}"
    assert answer(CodeBlockExtractor("python"), reply) == "x = 2"


def test_without_a_language_the_last_block_that_is_tagged_as_code_is_the_answer() -> None:
    reply = (
        f"{F}python\nx = 1\n{F}\n{F}sql\nselect 1\n{F}\nwhich gives\n{F}\n1\n{F}\n{F}text\n1\n{F}"
    )
    assert answer(CodeBlockExtractor(), reply) == "select 1"
    assert answer(CodeBlockExtractor("python"), reply) == "x = 1"
    assert answer(CodeBlockExtractor(), f"{F}\nx <- 1\n{F}") == "x <- 1"
    assert reason(CodeBlockExtractor(), f"{F}text\nhello\n{F}") == "no-code"
    assert reason(CodeBlockExtractor(), f"{F}sql\nselect 1") == "incomplete"


@pytest.mark.parametrize("language", [None, "python", "Python"])
@pytest.mark.parametrize("code", ["def f(x):\n    return x\n", "x = f(1)\n", "print('a')"])
def test_defect_1_code_without_its_fence_stays_code(language: str | None, code: str) -> None:
    assert answer(CodeBlockExtractor(language), code) == code


@pytest.mark.parametrize(
    "code",
    [
        "def f(x:\n    return x",
        "# adds\nimport os\nx = = 1",
        "from os import path\n)",
        "class A:\nx",
        "@cache\ndef f(:",
    ],
)
def test_code_that_does_not_parse_stays_code_without_its_fence(code: str) -> None:
    found, facts = CodeBlockExtractor("python").extract(code)
    assert found == code
    assert "does not parse" in facts["detail"]


def test_a_reply_with_a_fence_is_read_by_its_fences_however_it_begins() -> None:
    extractor = CodeBlockExtractor("python")
    assert reason(extractor, f"import os\n{F}bash\nls\n{F}") == "no-code"
    assert reason(extractor, f"import os\n{F}python\nos.remove(") == "incomplete"


@pytest.mark.parametrize(
    "text", ["Sorry, I cannot do that.", "ok", "Answer: yes", "Import duties are due.", ""]
)
def test_prose_is_no_code(text: str) -> None:
    assert reason(CodeBlockExtractor("python"), text) == "no-code"


@pytest.mark.parametrize(
    "text",
    [
        "<answer>4</answer>",
        "<answer>3</answer> no: <answer> 4\n</answer>",
        '<ANSWER kind="number" unit="m">4</Answer >',
        "I put it into <answer> tags: <answer>4</answer>.",
        "<answer><answer>4</answer></answer>",
        "<answer>4</answer> between <answer></answer>",
        "<answer/> is empty, <answer>4</answer>",
        "<answers>5</answers><answer>4</answer><answers>6</answers>",
    ],
)
def test_the_last_tag_is_read_with_attributes_and_in_any_case(text: str) -> None:
    assert answer(TagBasedExtractor(), text) == "4"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("4", "no-match"),
        ("4</answer>", "no-match"),
        ("<answer>4", "incomplete"),
        ("<answer>4</answer>, or rather <answer>5", "incomplete"),
        ("<answer> \n </answer>", "empty"),
    ],
)
def test_a_tag_that_is_missing_empty_or_open_gives_no_answer(text: str, why: str) -> None:
    assert reason(TagBasedExtractor(), text) == why


def test_a_tag_s_name_and_its_blanks_are_settings() -> None:
    kept = TagBasedExtractor("final.answer", strip_whitespace=False)
    assert answer(kept, "<final.answer> a\n</final.answer>") == " a\n"
    assert reason(kept, "<finalXanswer>a</finalXanswer>") == "no-match"
    with pytest.raises(UsageError, match="name of a tag"):
        TagBasedExtractor("<answer>")


def test_a_regex_s_last_match_is_the_answer() -> None:
    text = "x = 1, X = 2, y = 3"
    assert answer(RegexExtractor(r"(?i)x = (\d)"), text) == "2"
    assert answer(RegexExtractor(r"(\w) = (\d)", group_index=2), text) == "3"
    assert answer(RegexExtractor(r"y = \d", group_index=0), text) == "y = 3"
    assert answer(RegexExtractor(r"x = (\d)|y"), text) == "1"  # the last that holds the group
    assert answer(RegexExtractor(r"(\d*)"), text) == "3"  # not the empty match at the end
    assert reason(RegexExtractor("(z)"), text) == "no-match"
    assert reason(RegexExtractor("(z*)"), text) == "empty"


@pytest.mark.parametrize(
    ("pattern", "group"), [("(", 1), ("x", 1), ("(x)", 2), ("(x)", -1)]
)  # fmt: skip
def test_a_pattern_or_group_that_cannot_work_is_refused_at_once(pattern: str, group: int) -> None:
    with pytest.raises(UsageError):
        RegexExtractor(pattern, group)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("The answer is 1,234.5.", "1234.5"),
        ("about 1e-3", "1e-3"),
        ("2.5E+10 at most", "2.5E+10"),
        ("so x = -7", "-7"),
        ("so x=\u22127", "-7"),
        ("+7", "7"),
        ("It costs $12.", "12"),
        ("It costs US$1,000,000!", "1000000"),
        ("-$12", "-12"),
        ("$-12", "-12"),
        ("\\$12", "12"),
        ("$x = 5$", "5"),
        ("50% or 60 %", "60"),
        ("5kg", "5"),
        (".5", ".5"),
        ("12.", "12"),
        ("3 - 7", "7"),
        ("3-7", "7"),
        ("f(2)-7", "7"),
        ("1,2", "2"),
        ("12,3456", "3456"),
        ("1/2", "2"),
        ("7 in version 2.0.1 of x9", "7"),
        ("\\boxed{42}", "42"),
        ("**42**", "42"),
        ("007", "007"),
    ],
)
def test_the_last_number_is_read_as_written(text: str, number: str) -> None:
    assert answer(NumericExtractor(), text) == number


def test_a_percentage_is_told_beside_its_number() -> None:
    found, facts = NumericExtractor().extract("It grew by 12.5\\%.")
    assert (found, facts["percent"]) == ("12.5", True)
    assert NumericExtractor().extract("It grew by 12.5.")[1]["percent"] is False


@pytest.mark.parametrize("text", ["", "none", "x9", "v2.0.1", "-", "$", "\u0664\u0662"])
def test_a_text_without_a_number_gives_none(text: str) -> None:
    assert reason(NumericExtractor(), text) == "no-match"


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_any_float_that_python_writes_is_read_back(number: float) -> None:
    found = answer(NumericExtractor(), f"First 1, then {number!r} it is.")
    assert found is not None
    assert float(found) == number


@given(st.integers())
def test_any_integer_with_thousands_separators_is_read_back(number: int) -> None:
    found = answer(NumericExtractor(), f"First 1, then {number:,}.")
    assert found is not None
    assert int(found) == number


@pytest.mark.parametrize(
    ("text", "contents"),
    [
        (r"So \boxed{42}.", "42"),
        (r"\boxed{1} or \boxed{\frac{1}{2}}", r"\frac{1}{2}"),
        (r"\boxed{ x^{2^{3}} }$", "x^{2^{3}}"),
        (r"\boxed {a}", "a"),
        (r"\fbox{1} \fboxed{b}", "b"),
        (r"\boxed{\{1, 2\}}", r"\{1, 2\}"),
        (r"So \fbox{3}.", "3"),
        (r"\boxed{3}, as in \fbox{the figure}", "3"),
        (r"\boxed{\boxed{5}}", "5"),
    ],
)
def test_the_last_box_is_read_with_its_braces(text: str, contents: str) -> None:
    assert answer(BoxedExtractor(), text) == contents


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("42", "no-match"),
        (r"\boxed 42", "no-match"),
        (r"\boxed{\frac{1}{2}", "incomplete"),
        (r"\boxed{1} and \boxed{2", "incomplete"),
        (r"\boxed{\}", "incomplete"),
        (r"\boxed{ }", "empty"),
    ],
)
def test_a_box_that_is_missing_empty_or_open_gives_no_answer(text: str, why: str) -> None:
    assert reason(BoxedExtractor(), text) == why


def test_the_last_lines_are_those_that_are_not_blank() -> None:
    text = "one\n\n  two\n three \n\n"
    assert answer(LastLineExtractor(), text) == "three"
    assert answer(TailExtractor(2), text) == "two\n three"
    assert reason(LastLineExtractor(), " \n") == "empty"
    with pytest.raises(UsageError, match="0 lines"):
        TailExtractor(0)


def test_gsm8k_s_answer_is_the_number_after_the_last_mark() -> None:
    text = "2 + 2 = 4\n#### 4\nWait.\n#### $1,234 in 2 days are wrong\n#### 1,234"
    assert answer(Gsm8kExtractor(), text) == "1234"
    assert reason(Gsm8kExtractor(), "4") == "no-match"
    assert reason(Gsm8kExtractor(), "12\n#### none") == "no-match"


@pytest.mark.parametrize(
    ("text", "letter"),
    [
        ("The answer is (B).", "B"),
        ("Answer: **C**", "C"),
        ("First I chose (A). The answer is B, not (C).", "B"),
        ("The answer is A. No, the answer is D.", "D"),
        ("A dog barks.\n\nB.", "B"),
        ("So:\r\n **B** \r\nDone.", "B"),
        ("(A) is too small and (D) fits", "D"),
        ("the answer is $\\text{C}$ or so: (B)", "B"),
        ("c", "C"),
        ("**D**", "D"),
        ("B) because it is larger", "B"),
        ("(b) is right", "B"),
        ("I would take (b), not the others.", "B"),
        ("the answer is (b)", "B"),
        ("The answer is b) since it fits", "B"),
        ("Answer: b", "B"),
        ("Answer: **b**.", "B"),
        ("The answer is d.\nThat is all.", "D"),
        ("c) fits\n\nso c) it is", "C"),
    ],
)
def test_the_letter_that_is_chosen_is_read(text: str, letter: str) -> None:
    assert answer(MultipleChoiceExtractor(), text) == letter


@pytest.mark.parametrize(
    "text",
    [
        "A dog barks at Eve.",
        "The answer is a dog.",
        "Answer: a dog",
        "The answer is a\ndog.",
        "The answer is e.g. four.",
        "I think so.",
        "It calls f(a).",
        "A) one\nB) two\nI cannot tell.",
        "",
        "F",
        "(F)",
    ],
)
def test_a_letter_that_is_a_word_is_no_choice(text: str) -> None:
    assert reason(MultipleChoiceExtractor(), text) == "no-match"


def test_choices_are_a_setting() -> None:
    assert answer(MultipleChoiceExtractor("XY"), "The answer is (Y), and (A) is none.") == "Y"
    with pytest.raises(UsageError):
        MultipleChoiceExtractor("A-C")


def test_a_fallback_takes_what_the_first_finds_and_says_whose_it_is() -> None:
    either = FallbackExtractor((BoxedExtractor(), NumericExtractor()))
    assert either.extract(r"1 then \boxed{2} then 3")[0] == "2"
    found, facts = either.extract("1 then 3")
    assert (found, facts["extractor"]) == ("3", "NumericExtractor")
    found, facts = either.extract("nothing")
    assert found is None
    assert facts["detail"] == r"The reply holds no \boxed{…}. The reply holds no number."


def test_a_composite_reads_within_what_was_found() -> None:
    within = CompositeExtractor((TagBasedExtractor(), NumericExtractor()))
    assert answer(within, "<answer>7 of 9 apples, say 7</answer> since 2024") == "7"
    found, facts = within.extract("7")
    assert (found, facts["reason"], facts["extractor"]) == (None, "no-match", "TagBasedExtractor")


def test_an_answer_is_cleaned_before_and_after() -> None:
    assert (
        answer(CleanedExtractor(LastLineExtractor()), "so\nforty-two.<|im_end|>\n") == "forty-two"
    )
    own = CleanedExtractor(
        TagBasedExtractor(),
        pre=(strip_thinking_tokens, str.lower),
        post=("strip_latex_dollars", "strip_surrounding_quotes"),
    )
    assert answer(own, "<think><ANSWER>1</ANSWER></think><ANSWER>$'B'$</ANSWER>") == "b"
    assert reason(CleanedExtractor(LastLineExtractor()), "?!") == "empty"
    assert reason(CleanedExtractor(BoxedExtractor()), "?!") == "no-match"


@pytest.mark.parametrize(
    ("cleaner", "text", "clean"),
    [
        (strip_special_tokens, "a<|im_end|></s><end_of_turn> <b> a <| c |> d", "a <b> a <| c |> d"),
        (strip_thinking_tokens, "<think>1\n2</think>\n3", "3"),
        (strip_thinking_tokens, "1 so 2</think>3", "3"),
        (strip_thinking_tokens, "3<THINKING>4", "3"),
        (strip_trailing_punctuation, "42!?. \n", "42"),
        (strip_surrounding_quotes, "'a'", "a"),
        (strip_surrounding_quotes, "\u201ca\u201d", "a"),
        (strip_surrounding_quotes, "\"it's\"", "it's"),
        (strip_surrounding_quotes, "'a", "'a"),
        (strip_surrounding_quotes, "'", "'"),
        (strip_latex_dollars, "$x$", "x"),
        (strip_latex_dollars, "$$x$$", "x"),
        (strip_latex_dollars, "\\(x\\)", "x"),
        (strip_latex_dollars, "\\[x\\]", "x"),
        (strip_latex_dollars, "$12", "$12"),
    ],
)  # fmt: skip
def test_cleaners_take_away_what_their_names_say(cleaner: Any, text: str, clean: str) -> None:
    assert cleaner(text) == clean
    assert CLEANERS[cleaner.__name__] is cleaner


@pytest.mark.parametrize("name", EXTRACTORS)
def test_every_extractor_is_a_value(name: str) -> None:
    """It is equal to its copies, can be pickled and hashed, and says what it is."""
    made = make_extractor(name, SAMPLES.get(name))
    assert type(made) is EXTRACTORS[name]
    assert pickle.loads(pickle.dumps(made)) == copy.deepcopy(made) == copy.copy(made) == made
    assert hash(made) == hash(copy.copy(made))
    assert repr(made).startswith(type(made).__name__)
    for field in dataclasses.fields(EXTRACTORS[name]):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(made, field.name, None)


@pytest.mark.parametrize("name", EXTRACTORS)
@given(text=st.text(st.sampled_from("ab1-.,$%#<>/{}[]()\\`~\n \"'=:answerboxd")))
def test_no_reply_breaks_an_extractor_or_leaves_it_without_a_reason(name: str, text: str) -> None:
    found, facts = make_extractor(name, SAMPLES.get(name)).extract(text)
    assert found is None or isinstance(found, str)
    assert (facts["reason"] == "found") == (found is not None)
    assert found is not None or facts["detail"]


def test_settings_of_a_configuration_reach_the_extractor() -> None:
    assert make_extractor("code_block", {"language": "python"}) == CodeBlockExtractor("python")
    assert make_extractor("tag_based", {"tag_name": "a", "strip_whitespace": False}) == (
        TagBasedExtractor("a", strip_whitespace=False)
    )
    assert make_extractor("regex", {"pattern": "x", "group_index": 0}) == RegexExtractor("x", 0)
    assert make_extractor("multiple_choice", {"choices": "AB"}) == MultipleChoiceExtractor("AB")
    assert make_extractor("fallback", SAMPLES["fallback"]) == (
        FallbackExtractor((BoxedExtractor(), RegexExtractor("(a)")))
    )
    assert make_extractor("cleaned", SAMPLES["cleaned"]) == (
        CleanedExtractor(LastLineExtractor(), post=("strip_surrounding_quotes",))
    )


@pytest.mark.parametrize(
    ("name", "config", "said"),
    [
        ("code_blok", {}, 'no extractor "code_blok". Did you mean "code_block"? Known: raw, code_'),
        ("boxed", {"tag": 1}, 'The extractor "boxed" has no setting "tag". Allowed: none'),
        ("tag_based", {"tag": 1}, "Allowed: tag_name, strip_whitespace"),
        ("regex", {}, 'needs the setting "pattern". Its settings are: pattern, group_index'),
        ("regex", {"pattern": 5}, "no regular expression"),
        ("code_block", {"language": 5}, "a value of a wrong type"),
        ("code_block", {"language": ""}, "language of a code block is empty"),
        ("fallback", {"extractors": []}, "no extractor to ask"),
        ("fallback", {"extractors": ["box"]}, 'no extractor "box". Did you mean "boxed"?'),
        ("fallback", {"extractors": [5]}, "int is no extractor"),
        ("composite", {"extractors": 5}, "a value of a wrong type"),
        ("cleaned", {"extractor": "raw", "pre": ["strip_quotes"]}, 'There is no cleaner "strip_qu'),
    ],
)
def test_a_wrong_name_or_setting_is_told_with_what_is_right(
    name: str, config: dict[str, Any], said: str
) -> None:
    with pytest.raises(UsageError) as caught:
        make_extractor(name, config)
    assert said in str(caught.value)
