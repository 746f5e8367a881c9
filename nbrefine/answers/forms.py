"""Forms of answers, as a YAML file or somebody at a command line gives them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, get_args

from nbrefine.answers.fields import MARK, fields_form
from nbrefine.errors import UsageError
from nbrefine.values import AnswerForm, Postcondition

Kind = Literal["text", "fields", "value", "files"]

_ALLOWED = (
    "Give text, fields:NAME,NAME, value:VARIABLE, files:PATH,PATH, a wording with @name[value], "
    "or a mapping with kind, told, pattern, fields, variable, files, check"
)


def form_of(data: Any, *, check: Callable[[Any], Postcondition] | None = None) -> AnswerForm:
    """Read a form of an answer.

    That is a mapping with the names of `AnswerForm`, or in short "text", "fields:mean,sd",
    "value:NAME", "files:out.csv", or a wording with `@name[value]` in it, see `fields_form`.

    Parameters
    ----------
    check: reads what stands under `check` or `checks`; without it, nothing may.

    Raises
    ------
    UsageError: it cannot be read so; the message says what is allowed.
    """
    if isinstance(data, str):
        return fields_form(data) or _of_mapping(_spelt_out(data), check)
    if isinstance(data, Mapping):
        return _of_mapping(data, check)
    raise UsageError(f"{data!r} is no form of an answer", hint=_ALLOWED)


def _spelt_out(text: str) -> dict[str, str]:
    kind, _, rest = text.partition(":")
    kind = kind.strip()
    what = {"fields": "fields", "files": "files", "value": "variable", "text": "told"}
    return {"kind": kind, **({what[kind]: rest} if rest.strip() and kind in what else {})}


_IMPLIED: dict[str, Kind] = {"fields": "fields", "files": "files", "variable": "value"}


def _of_mapping(
    data: Mapping[str, Any], check: Callable[[Any], Postcondition] | None
) -> AnswerForm:
    checks = [each for key in ("check", "checks") if key in data for each in _listed(data[key])]
    allowed = ("kind", "told", "pattern", *_IMPLIED, "check", "checks")
    if unknown := [key for key in data if key not in allowed]:
        raise UsageError(f"A form of an answer has no {unknown[0]!r}", hint=_ALLOWED)
    if checks and check is None:
        raise UsageError("This form of an answer takes no checks", hint="Leave them out")
    told, fields = _text(data, "told"), _names(data, "fields")
    read = fields_form(told)
    if read is not None and not fields and data.get("kind") in (None, "fields"):
        told, fields = read.told, read.fields
    kind: Any = data.get("kind") or next(
        (_IMPLIED[key] for key in _IMPLIED if key in data), "fields" if fields else "text"
    )
    form = AnswerForm(
        kind=kind,
        told=told,
        pattern=_pattern(_text(data, "pattern")),
        fields=fields,
        variable=_text(data, "variable") or "answer",
        files=_names(data, "files"),
        postconditions=tuple(check(each) for each in checks) if check else (),
    )
    return _checked(form)


def _checked(form: AnswerForm) -> AnswerForm:
    if form.kind not in get_args(Kind):
        raise UsageError(f"There is no answer of the kind {form.kind!r}", hint=_ALLOWED)
    if form.kind in ("fields", "files") and not getattr(form, form.kind):
        raise UsageError(f"An answer of the kind {form.kind} needs {form.kind}", hint=_ALLOWED)
    for name in form.fields:
        if MARK.fullmatch(f"@{name}[") is None:
            raise UsageError(f"A field cannot be called {name!r}", hint="Use letters and digits")
    if not form.variable.isidentifier():
        raise UsageError(f"A variable cannot be called {form.variable!r}", hint="Use a name")
    return form


def _text(data: Mapping[str, Any], key: str) -> str:
    value = data.get(key) or ""
    if not isinstance(value, str):
        raise UsageError(f"The {key} of an answer is {value!r}, not a text", hint=_ALLOWED)
    return value.strip()


def _names(data: Mapping[str, Any], key: str) -> tuple[str, ...]:
    value = data.get(key) or ()
    names = value.split(",") if isinstance(value, str) else value
    if not isinstance(names, Sequence) or not all(isinstance(each, str) for each in names):
        raise UsageError(f"The {key} of an answer are {value!r}, not a list", hint=_ALLOWED)
    return tuple(dict.fromkeys(name.strip() for name in names if name.strip()))


def _pattern(text: str) -> str:
    try:
        re.compile(text)
    except (re.error, RecursionError, OverflowError) as wrong:
        raise UsageError(f"The pattern {text!r} cannot be read: {wrong}", hint="Mend it") from None
    return text


def _listed(value: Any) -> Iterator[Any]:
    if isinstance(value, list | tuple):
        yield from value
    else:
        yield value
