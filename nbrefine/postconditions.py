"""What must hold when a subtask is done: builders of postconditions, and their code as tests.

The code that is built binds no names, so that it leaves no trace where a notebook's cell runs it
between those of the session.
"""

from __future__ import annotations

import ast
import json
import math
import symtable
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Any

from nbrefine.errors import UsageError, nearest
from nbrefine.source import fault, parse
from nbrefine.values import Origin, Postcondition

__all__ = [
    "cell_of",
    "file_written",
    "frame",
    "holds",
    "in_range",
    "postcondition_of",
    "tests_of",
    "told_of",
]


def file_written(path: str, *, at_least: int = 1) -> Postcondition:
    """Ask for a file in the working folder that a cell of this episode has written.

    One that was there before is not enough; under Run All, the source asks for no more than that
    it is there.

    Parameters
    ----------
    path: relative to the working folder, with `/`.
    at_least: bytes.

    Raises
    ------
    UsageError: the path is empty, absolute or leads out of the folder, or `at_least` is negative.
    """
    parts = PurePosixPath(path.strip())
    if not parts.parts or parts.is_absolute() or ".." in parts.parts or str(parts)[0] == "~":
        raise UsageError(
            f"{path!r} is no file of the working folder",
            hint='Give its path relative to that folder, such as "out/prices.csv"',
        )
    _count("at_least", at_least)
    name = str(parts)
    more = f" with at least {at_least:,} bytes" if at_least > 1 else " and not empty"
    told = f"{name} is written{more if at_least else ''}"
    # Opening fails with a telling error both for what is not there and for a folder.
    size, short = f'open({_text(name)}, "rb").seek(0, 2)', _text(f"{name} is too short")
    return Postcondition(f"assert {size} >= {at_least}, {short}", told, writes=name)


def frame(
    name: str,
    *,
    rows: int | None = None,
    min_rows: int | None = None,
    columns: Sequence[str] = (),
) -> Postcondition:
    """Ask for a data frame of pandas, polars or their kin.

    Parameters
    ----------
    name: the variable, or an expression that gives the frame.
    rows: how many it has.
    min_rows: how many it has at least; 1 where neither is given.
    columns: names of columns it must have; others may be there too.

    Raises
    ------
    UsageError: `name` is no expression, a number of rows is negative, both are given, or a
        column's name is no text.
    """
    value = _expression(name, "frame")
    if rows is not None and min_rows is not None:
        raise UsageError("A frame has rows and min_rows", hint="Keep one: rows is the exact number")
    least = rows is None
    count = rows if rows is not None else 1 if min_rows is None else min_rows
    _count("min_rows" if least else "rows", count)
    if isinstance(columns, str) or not all(_is_name(column) for column in columns):
        raise UsageError(
            f"The columns of a frame are a list of names, not {_cited(columns)}",
            hint='Write them as ["age", "fare"]',
        )
    parts = [f"{_text(column)} in {value}.columns" for column in columns]
    parts = parts or [f"len({value}.columns) >= 1"]
    parts.append(f"len({value}) {'>=' if least else '=='} {count}")
    number = f"{'at least ' if least else ''}{count:,} row{'' if count == 1 else 's'}"
    told = f"{name.strip()} is a data frame with {number}"
    if columns:
        told += f" and the column{'' if len(columns) == 1 else 's'} {', '.join(columns)}"
    # One condition is one assert, so that it counts as one test; what is wrong is told at once.
    why = _wrong_with(name.strip(), value, count, least, columns)
    return Postcondition(f"assert bool({' and '.join(parts)}), {why}", told)


def _wrong_with(name: str, value: str, count: int, least: bool, columns: Sequence[str]) -> str:
    """Give an expression that tells what is wrong with a frame; its names are of its own scope."""
    shown = "".join(c if c.isprintable() else " " for c in name)
    has = f"{' '.join(shown.split())} has "
    short = f"at least {count:,} were expected" if least else f"not {count:,}"
    rows = "{len(table):,} row{'s'[len(table) == 1:]}, " + short
    rows = _text(has.replace("{", "{{").replace("}", "}}") + rows)
    wrong = [f"(len(table) {'<' if least else '!='} {count}, f{rows}),"]
    lets = [f"for table in [{value}]"]
    if columns:
        asked = ", ".join(map(_text, columns))
        lets.append(f"for missing in [[name for name in [{asked}] if name not in table.columns]]")
        wrong.append('(missing, "columns missing: " + ", ".join(missing)),')
        wrong.append('(missing, "it has: " + ", ".join(f"{name}" for name in table.columns)),')
    else:
        wrong.append(f"(len(table.columns) < 1, {_text(has + 'no columns')}),")
    tells = [f"    {line}" for line in wrong]
    lines = ["told", *lets, "for wrong, told in [", *tells, "]", "if wrong"]
    return "\n    ".join(['"; ".join(', *lines]) + "\n)"


def in_range(
    expression: str, *, low: float | None = None, high: float | None = None
) -> Postcondition:
    """Ask that a number lies between two bounds, themselves included; NaN lies nowhere.

    Parameters
    ----------
    expression: what gives the number.
    low, high: one of them may be None, for no bound.

    Raises
    ------
    UsageError: `expression` is none, there is no bound, a bound is no finite number, or `low` is
        above `high`.
    """
    value = _expression(expression, "value")
    least, most = _bound("low", low), _bound("high", high)
    shown = expression.strip()
    if low is not None and high is not None:
        if low > high:
            raise UsageError(f"low is {least} and above high, {most}", hint="Exchange the two")
        source, told = f"{least} <= {value} <= {most}", f"between {least} and {most}"
    elif low is not None:
        source, told = f"{value} >= {least}", f"at least {least}"
    elif high is not None:
        source, told = f"{value} <= {most}", f"at most {most}"
    else:
        raise UsageError(f"The range of {shown!r} has no bound", hint="Give low, high or both")
    return Postcondition(f"assert {source}", f"{shown} is {told}")


def holds(source: str, *, told: str = "") -> Postcondition:
    """Ask that code holds.

    Parameters
    ----------
    source: an expression, or statements with at least one `assert` that runs.
    told: the same in words.

    Raises
    ------
    UsageError: it is no Python, asserts nothing, or asserts what is always true or names nothing.
    """
    code = textwrap.dedent(source).strip()
    if not code:
        raise UsageError("A check is empty", hint=_HOLDS)
    if problem := fault(code):
        raise UsageError(f"The check {_cited(code)} is no Python: {problem}", hint=_HOLDS)
    tree = parse(code, magics=False)
    assert tree is not None
    if all(isinstance(node, ast.Expr) for node in tree.body):
        code = "\n".join(_asserted(code, node) for node in tree.body)
        tree = ast.parse(code)
    asserts = list(_asserts(tree))
    if not asserts:
        raise UsageError(f"The check {_cited(code)} asserts nothing", hint=_HOLDS)
    if any(_is_always_true(node.test) for node in asserts):
        raise UsageError(f"The check {_cited(code)} is always true", hint=_HOLDS)
    if any(_looks_at_nothing(node.test) for node in asserts):
        raise UsageError(f"The check {_cited(code)} looks at nothing", hint=_HOLDS)
    if any(_is_about_all_code(node) for node in ast.walk(tree)):
        raise UsageError(
            f"The check {_cited(code)} sets something for all code around it",
            hint="Leave out `from __future__`, `global` and `nonlocal`",
        )
    return Postcondition(code, told.strip())


_HOLDS = "Write Python that can fail, such as `len(df) > 0` or `assert total == 12`"


def _asserted(code: str, node: ast.stmt) -> str:
    assert isinstance(node, ast.Expr)
    return f"assert {_as_operand(code, node.value, loose=True)}"


def _asserts(node: ast.AST) -> Iterator[ast.Assert]:
    """Give the asserts that run with the code, and not only where a function is called."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Assert):
            yield child
        elif not isinstance(child, (*_FUNCTIONS, ast.ClassDef)):
            yield from _asserts(child)


_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


def _is_always_true(test: ast.expr) -> bool:
    """Tell whether a condition is a constant, or a tuple such as `assert (x, "message")`."""
    if isinstance(test, ast.Constant):
        return bool(test.value)
    return isinstance(test, (ast.Tuple, ast.JoinedStr))


def _looks_at_nothing(test: ast.expr) -> bool:
    """Tell whether a condition such as `1 == 1` names nothing; one that always fails may."""
    return not isinstance(test, ast.Constant) and not any(
        isinstance(node, ast.Name) for node in ast.walk(test)
    )


def _is_about_all_code(node: ast.AST) -> bool:
    future = isinstance(node, ast.ImportFrom) and node.module == "__future__"
    return future or isinstance(node, (ast.Global, ast.Nonlocal))


def postcondition_of(data: Any, *, origin: Origin) -> Postcondition:
    """Make a postcondition of what YAML or JSON says.

    Parameters
    ----------
    data: a text as `holds` takes it, or a mapping of one of these kinds, each with `told` besides
        if wanted: `file` (`at_least`), `frame` (`rows` or `min_rows`, `columns`), `value` (`low`,
        `high`), `assert`.
    origin: who asks for it.

    Raises
    ------
    UsageError: there is no such kind or key, or a value is wrong; the message names what is
        allowed.
    """
    if isinstance(data, str):
        return replace(holds(data), origin=origin)
    if not isinstance(data, Mapping):
        raise UsageError(f"A check is a text or a mapping, not {_cited(data)}", hint=_allowed())
    keys = [key for key in data if key in _KINDS]
    if len(keys) != 1:
        near = "" if keys else _near(data)
        said = f"has the kinds {', '.join(keys)}" if keys else "is of no kind that is known"
        raise UsageError(f"The check {_cited(dict(data))} {said}", hint=near + _allowed())
    kind = keys[0]
    allowed, make = _KINDS[kind]
    for key in data:
        if key not in (kind, "told", *allowed):
            raise UsageError(
                f'Unknown key "{key}" in a check of the kind "{kind}"',
                hint=f"Allowed: {', '.join((kind, *allowed, 'told'))}",
            )
    for key in (kind, "told"):
        if not isinstance(data.get(key, ""), str):
            raise UsageError(
                f'"{key}" of a check is a text, not {_cited(data[key])}',
                hint="Put it in quotes",
            )
    made = make(data[kind], **{key: data[key] for key in allowed if data.get(key) is not None})
    told = str(data.get("told", "")).strip()
    return replace(made, told=told or made.told, origin=origin)


def _frame(name: str, *, columns: Any = (), **rows: Any) -> Postcondition:
    """Make one of a frame, of which YAML may name a single column without a list."""
    listed = [columns] if isinstance(columns, str) else columns
    if not isinstance(listed, (list, tuple)):
        raise UsageError(
            f"The columns of a frame are a list of names, not {_cited(columns)}",
            hint='Write them as ["age", "fare"]',
        )
    return frame(name, columns=listed, **rows)


def _value(expression: str, **bounds: Any) -> Postcondition:
    """Make one of a range, of which YAML gives a bound such as 1e-3 as text."""
    return in_range(expression, **{key: _read(bound) for key, bound in bounds.items()})


def _read(bound: Any) -> Any:
    try:
        return float(bound) if isinstance(bound, str) else bound
    except ValueError:
        return bound


_KINDS: dict[str, tuple[tuple[str, ...], Callable[..., Postcondition]]] = {
    "file": (("at_least",), file_written),
    "frame": (("rows", "min_rows", "columns"), _frame),
    "value": (("low", "high"), _value),
    "assert": ((), holds),
}
"""Kind -> its keys besides, and what makes it."""


def _allowed() -> str:
    kinds = (", ".join((kind, *keys)) for kind, (keys, _) in _KINDS.items())
    return f"Allowed: {{{'}, {'.join(kinds)}}} or a Python expression as text"


def _near(data: Mapping[Any, Any]) -> str:
    return next(filter(None, (nearest(str(key), _KINDS) for key in data)), "")


def tests_of(postconditions: Sequence[Postcondition]) -> str:
    """Give the source of tests that check postconditions, each under its words as a comment.

    It needs the standard library and what the session has, and no nbrefine.
    """
    return _joined([each.source for each in postconditions], postconditions)


def told_of(postcondition: Postcondition) -> tuple[str, ...]:
    """Tell a postcondition as a prompt does: in its words, or else as bare expressions.

    A model that is shown an `assert` copies it into its cell.  What is more than that stays code.
    """
    if postcondition.told:
        return (postcondition.told,)
    source = postcondition.source
    tree = parse(source, magics=False)
    nodes = tree.body if tree is not None else []
    asserts = [node for node in nodes if isinstance(node, ast.Assert)]
    if not asserts or len(asserts) < len(nodes):
        return (source,)
    return tuple(f"{_on_a_line(source, node.test)}{_reason(node.msg)}" for node in asserts)


def _on_a_line(source: str, node: ast.expr) -> str:
    written = ast.get_source_segment(source, node) or ""
    return written if written and "\n" not in written else ast.unparse(node)


def _reason(message: ast.expr | None) -> str:
    value = message.value if isinstance(message, ast.Constant) else None
    return f"  # {value}" if isinstance(value, str) and value.isprintable() else ""


def cell_of(postconditions: Sequence[Postcondition]) -> str:
    """Give the same as a notebook's cell after which the session is what it was before.

    Code that binds names of its own, as given ones may, runs in a copy of the session's names.
    """
    return _joined([_aside(each.source) for each in postconditions], postconditions)


def _joined(sources: Sequence[str], postconditions: Sequence[Postcondition]) -> str:
    return "".join(
        f"{_comment(each.told)}{source.rstrip()}\n"
        for source, each in zip(sources, postconditions, strict=True)
    )


def _comment(told: str) -> str:
    """Give words as comments; a sign that cannot be seen might end one, or be no source at all."""
    lines = ("".join(c if c.isprintable() else " " for c in line) for line in told.splitlines())
    return "".join(f"# {line.strip()}\n" for line in lines if line.strip())


def _aside(source: str) -> str:
    tree = parse(source, magics=False)
    if tree is None or not _binds(source, tree) or _waits(tree):
        return source
    quoted = source.replace("\\", "\\\\").replace('"""', r"\"\"\"")
    return f'exec("""\n{quoted}\n""", {{**globals()}})'


def _binds(source: str, tree: ast.Module) -> bool:
    names = symtable.symtable(source, "<check>", "exec").get_symbols()
    return any(name.is_assigned() or name.is_imported() for name in names) or any(
        isinstance(node, ast.NamedExpr) for node in ast.walk(tree)
    )


def _waits(tree: ast.Module) -> bool:
    """Tell whether something is awaited, which `exec` cannot."""
    return any(
        isinstance(node, (ast.Await, ast.AsyncFor, ast.AsyncWith)) for node in ast.walk(tree)
    )


def _expression(text: str, key: str) -> str:
    """Give an expression as it stands in a comparison.

    Raises
    ------
    UsageError: it is none.
    """
    code = text.strip()
    tree = None if fault(code) else parse(code, magics=False)
    if tree is None or len(tree.body) != 1 or not isinstance(tree.body[0], ast.Expr):
        raise UsageError(
            f'"{key}" of a check is {_cited(text)}, which is no Python expression',
            hint="Give a variable or an expression, such as df or df['age'].mean()",
        )
    return _as_operand(code, tree.body[0].value)


def _as_operand(code: str, node: ast.expr, *, loose: bool = False) -> str:
    """Give an expression's source in brackets where it needs them.

    Parameters
    ----------
    loose: whether it stands alone, and only its line breaks need them.
    """
    written = ast.get_source_segment(code, node) or ast.unparse(node)
    tight = not isinstance(node, _OPEN) if loose else isinstance(node, _TIGHT)
    return written if tight and "\n" not in written else f"({written})"


_TIGHT = (ast.Name, ast.Attribute, ast.Subscript, ast.Call)
_OPEN = (ast.Tuple, ast.NamedExpr)
"""What means something else, or nothing, behind the word assert."""


def _count(name: str, value: Any) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise UsageError(f"{name} is {value!r}, but a whole number from 0 on was expected")


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and bool(value)


def _bound(name: str, value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float) and math.isfinite(value):
        return float.__repr__(value)  # numpy's floats write themselves as calls
    if isinstance(value, int) and not isinstance(value, bool):
        return int.__repr__(value)
    raise UsageError(f"{name} is {value!r}, but a bound is a finite number")


def _text(value: str) -> str:
    """Write a text as Python source, in double quotes where all of it can be seen."""
    return json.dumps(value, ensure_ascii=False) if value.isprintable() else repr(value)


def _cited(value: Any) -> str:
    shown = value if isinstance(value, str) else repr(value)
    line = " ".join(shown.split())
    return f"`{line[:117]}…`" if len(line) > 120 else f"`{line}`"
