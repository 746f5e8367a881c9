"""An answer in words: how it is asked for, found in what was said, and checked for its form."""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Iterator, Mapping

from nbrefine.answers.asked import Asked, plain
from nbrefine.answers.fields import fields_of
from nbrefine.answers.matching import SECONDS, matches
from nbrefine.errors import InvalidTaskError
from nbrefine.source import fenced, parse
from nbrefine.values import AnswerForm

SHOWN = 80
"""Characters of a value that is refused."""


def described(form: AnswerForm, *, language: str = "python") -> str:
    """Say in words how to answer in a form, as a prompt does.

    Parameters
    ----------
    language: the kernel's, in which the answer may be printed.
    """
    if form.kind == "fields":
        return _fields(form, language)
    return "\n".join(part for part in (_how(form), form.told) if part)


def _how(form: AnswerForm) -> str:
    if form.kind == "value":
        return f"When the goal is reached, put the answer into the variable `{form.variable}`."
    if form.kind == "files":
        return f"The answer is what these files hold; write them: {', '.join(form.files)}."
    return 'When the goal is reached, print the answer in one line that begins with "ANSWER:".'


def _fields(form: AnswerForm, language: str) -> str:
    """Show the last lines of the code as code, and behind the words: a model copies the rest."""
    line = " ".join(f"@{name}[{{{name}}}]" for name in form.fields)
    form_told = form.told if all(f"@{name}" in form.told for name in form.fields) else ""
    told = f"The code must print the answer in this form: {form_told or line}"
    if form.told and not form_told:
        told = f"{told}\n{form.told}"
    if language != "python" or not all(name.isidentifier() for name in form.fields):
        return told
    code = fenced("\n".join([*_choices(form), f'print(f"{line}")']), "python")
    return f"{told}\n\nLet it end like this, with the values it has computed:\n{code}"


def reminder(form: AnswerForm) -> str:
    """Repeat in short what an answer looks like, for one that does not; "" for files."""
    if form.kind == "value":
        told = f"The answer must be in the variable `{form.variable}`, put there by a cell:"
        return f"{told}\n{fenced(f'{form.variable} = …', 'python')}"
    if form.kind == "files":
        return ""  # what is missing has been named
    # A place that is not filled is told from a value, where it is copied as it stands.
    fields = " ".join(f"@{name}[{{{name}}}]" for name in form.fields)
    words = " ".join(form.told.split())
    told = f": {words}" if words and len(words) <= SHOWN and not fields else ""
    like = fenced(fields or "the answer", "answer")
    return f"The answer must look like this{told or ':'}\n{like}"


def _choices(form: AnswerForm) -> Iterator[str]:
    """Show in code how a field gets one of its choices: small models give a truth value else."""
    for name in form.fields:
        choices = Asked.of(name, form.told).choices
        if len(choices) == 2:
            yield f"{name} = {choices[0]!r} if CONDITION else {choices[1]!r}"
        elif choices:
            yield f"# {name} is {' or '.join(map(repr, choices))}"


def problem(text: str, form: AnswerForm) -> str:
    """Say what keeps an answer from being in its form, fit to be fed back; "" where nothing does.

    Choices and numbers that `told` asks of a field are looked for, such as `"response" is either
    "yes" or "no"`; whatever it says besides is not.  With a pattern, it belongs into a worker
    thread: see `matches`.

    Parameters
    ----------
    text: the answer in words, see `Answer.text`.

    Raises
    ------
    InvalidTaskError: it takes too long to tell whether the pattern matches.
    ExecutorError: the process that matches it fails.
    """
    if form.kind == "fields":
        told = _fields_problem(fields_of(text), form)
    else:
        told = "" if text.strip() or form.kind == "files" else "The answer is blank."
    return told or (_pattern_problem(text.strip(), form.pattern) if form.pattern else "")


def _pattern_problem(text: str, pattern: str) -> str:
    matched = matches(pattern, text)
    if matched is None:
        raise InvalidTaskError(
            f"The pattern {pattern} takes over {SECONDS:g} s on an answer",
            hint="Write one that does not try the same signs in many ways, or use checks",
        )
    return "" if matched else f"The answer does not match the pattern {pattern}"


def spoken(text: str, form: AnswerForm) -> str | None:
    """Find the answer in what a cell has printed, or in a reply without code; None for none.

    That is the last `ANSWER:` line for a text, or all the fields; a value and files are looked
    at where they are.
    """
    if form.kind == "text":
        return _said(text)
    if form.kind != "fields":
        return None
    found = fields_of(text)
    if not form.fields or not all(name in found for name in form.fields):
        return None
    return " ".join(f"@{name}[{found[name]}]" for name in form.fields)


_SAID = re.compile(
    r"^[ \t]*(?P<mark>(?:[*_#>`][*_#>` ]*)?)ANSWER[*_` ]*:[*_` \t]*(?P<rest>.*)$", re.MULTILINE
)


def _said(text: str) -> str | None:
    lines = list(_SAID.finditer(text))
    if not lines:
        return None
    rest = lines[-1]["rest"].strip() or text[lines[-1].end() :].strip()
    return rest.rstrip("*_` ") if lines[-1]["mark"] else rest


def _fields_problem(found: Mapping[str, str], form: AnswerForm) -> str:
    missing = [name for name in form.fields if not found.get(name)]
    if missing:
        return f"The answer lacks {' '.join(f'@{name}[…]' for name in missing)}."
    told = (_value_problem(name, found[name], form.told) for name in form.fields)
    return "\n".join(part for part in told if part)


def _value_problem(name: str, value: str, told: str) -> str:
    asked = Asked.of(name, told)
    shown = value if len(value) <= SHOWN else value[: SHOWN - 1] + "…"
    if _unfilled(value):
        return f'`{name}` is {shown}, not a value: put an f before the quotes, as in print(f"…").'
    if asked.choices and plain(value) not in map(plain, asked.choices):
        choices = " or ".join(map(repr, asked.choices))
        return f"`{name}` is {shown!r}, but must be {choices}.{_choosing(name, value, asked)}"
    if asked.number and not _is_number(value):
        return f"`{name}` is {shown!r}, but must be a number."
    if asked.explained and value == asked.placeholder:
        return f"`{name}` is {shown!r}, which only stands for the value. Put the value there."
    return ""


def _choosing(name: str, value: str, asked: Asked) -> str:
    """Show how a truth value becomes one of two choices."""
    if len(asked.choices) != 2 or plain(value) not in ("true", "false") or not name.isidentifier():
        return ""
    return f" Choose it: {name} = {' if CONDITION else '.join(map(repr, asked.choices))}"


def _unfilled(value: str) -> bool:
    """Tell a place that an f-string would have filled, such as "{mean:.2f}"."""
    if not (value.startswith("{") and value.endswith("}")):
        return False
    tree = parse(f"f{value!r}", magics=False)
    holes = [n for n in ast.walk(tree) if isinstance(n, ast.FormattedValue)] if tree else []
    return len(holes) == 1 and any(isinstance(n, ast.Name) for n in ast.walk(holes[0].value))


def _is_number(value: str) -> bool:
    """Tell a number; NaN is one, as it may be what is right, and infinity is none."""
    try:
        return not math.isinf(float(value.strip("\"'").replace(",", "")))
    except ValueError:
        return False
