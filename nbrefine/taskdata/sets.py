"""The sets whose rows need more than names of columns, each row as a task.

By default a set's own tests are the visible ones; with `split=True` the model sees a few examples
and the others are hidden.
"""

from __future__ import annotations

import ast
import doctest
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from nbrefine.errors import UsageError
from nbrefine.source import fenced, parse
from nbrefine.taskdata.columns import (
    BEFORE_TESTS,
    Columns,
    defines,
    preamble,
    tests_of,
    text_of,
    texts_of,
    to_task,
)
from nbrefine.values import Task

Row = Mapping[str, Any]

HUMANEVAL = Columns("prompt", "canonical_solution", "test", "entry_point", "task_id")

_WRONG_EXAMPLES = {"HumanEval/47"}
"""Whose docstring shows 15.0 where the set's own tests and solution have 8.0."""


def humaneval_task(row: Row, *, split: bool = False, plus: Row | None = None) -> Task:
    """Make a task of a row of HumanEval (openai/openai_humaneval) or HumanEval+.

    Parameters
    ----------
    split: whether the docstring's examples are all that is visible, and `test` is hidden.
    plus: the row of HumanEval+ (evalplus/humanevalplus) with the same id, whose stronger tests
        are the hidden ones.

    Raises
    ------
    UsageError: `plus` is the row of another task.
    """
    task = to_task(row, HUMANEVAL)
    hidden = _plus_tests(row, plus) or (task.tests if split else "")
    return replace(task, tests=_examples(task) if split else task.tests, hidden_tests=hidden)


def mbpp_task(
    row: Row, *, split: bool = False, plus: Row | None = None, challenge: bool = False
) -> Task:
    """Make a task of a row of MBPP (google-research-datasets/mbpp), full or sanitized, or MBPP+.

    The prompt shows the visible tests, as in the set's paper (Austin et al. 2021, arXiv
    2108.07732): they alone say what the function is called.

    Parameters
    ----------
    split: whether only the first test is visible, and the others are hidden.
    plus: the row of MBPP+ (evalplus/mbppplus) with the same id, whose tests are hidden.
    challenge: whether the set's challenge tests, where there are any, are hidden tests too.

    Raises
    ------
    UsageError: `plus` is the row of another task.
    """
    question = "text" if "text" in row else "prompt"
    task = to_task(row, Columns(question, "code", "test_list", id="task_id"))
    needed = [text for name in BEFORE_TESTS for text in texts_of(row, name)]
    asserts = texts_of(row, "test_list")
    shown, kept = (asserts[:1], asserts[1:]) if split else (asserts, [])
    more = texts_of(row, "challenge_test_list") if challenge else []
    hidden = [text for text in (_plus_tests(row, plus), *([] if plus else kept), *more) if text]
    listing = "\n".join(shown)
    return replace(
        task,
        prompt=f"{task.prompt.strip()}\n\nYour code should pass these tests:\n\n{listing}",
        tests="\n".join((*needed, *shown)),
        entry_point=_called(task.reference, asserts),
        hidden_tests="\n".join((*needed, *hidden)) if hidden else "",
    )


def humanevalpack_task(row: Row, *, split: bool = False, repair: bool = False) -> Task:
    """Make a task of a row of HumanEvalPack (bigcode/humanevalpack), Python.

    Parameters
    ----------
    split: whether `example_test` is all that is visible, and `test` is hidden.
    repair: whether the buggy program is shown to be mended (HumanEvalFix); otherwise the function
        is to be written (HumanEvalSynthesize).
    """
    task = to_task(row, replace(HUMANEVAL, question="instruction"))
    example = tests_of(row, "example_test")
    if parse(example, magics=False) is None:  # Python/119 has a piece of a program there
        example = ""
    declaration = text_of(row, "declaration")
    before = preamble(declaration, task.entry_point) or ""
    setup = [text_of(row, "import"), text_of(row, "test_setup"), before]
    prompt, metadata = task.prompt, {"prompt_code": text_of(row, "prompt")}
    if repair:
        program = fenced((declaration + text_of(row, "buggy_solution")).strip("\n"), "python")
        prompt = f"{prompt}\n\nMend the bug in this program:\n\n{program}"
        metadata = {"bug_type": text_of(row, "bug_type")}
    return replace(
        task,
        prompt=prompt,
        setup="\n".join(text for text in setup if text.strip()),
        tests=example if split else task.tests,
        hidden_tests=task.tests if split else "",
        reference=declaration + text_of(row, "canonical_solution"),
        metadata=metadata,
    )


def quixbugs_task(row: Row, *, split: bool = False) -> Task:
    """Make a task of a row of QuixBugs (Muennighoff/quixbugs): a program with a bug in one line.

    Parameters
    ----------
    split: whether the first test case is all that is visible, and all of them are hidden.
    """
    columns = Columns("docstring", "solution", "tests", id="name")
    task = to_task(row, columns)
    source = "\n".join(_unrolled(task.tests)) or task.tests
    program = fenced(text_of(row, "buggy_program").strip("\n"), "python")
    return replace(
        task,
        prompt=f"{task.prompt.strip()}\n\nMend the bug in this program:\n\n{program}",
        tests=_first_case(source) if split else source,
        hidden_tests=source if split else "",
        entry_point=task.id if defines(task.reference, task.id) else "",
    )


@dataclass(frozen=True, slots=True)
class KnownSet:
    """A set on the hub that is known by its name."""

    task: Callable[..., Task]
    """Makes a task of a row; with `split=True`, one with hidden tests."""
    by_language: bool = False
    """Whether its configurations are languages, "python" among them."""


KNOWN: Mapping[str, KnownSet] = {
    "openai/openai_humaneval": KnownSet(humaneval_task),
    "openai_humaneval": KnownSet(humaneval_task),
    "evalplus/humanevalplus": KnownSet(humaneval_task),
    "google-research-datasets/mbpp": KnownSet(mbpp_task),
    "mbpp": KnownSet(mbpp_task),
    "evalplus/mbppplus": KnownSet(mbpp_task),
    "bigcode/humanevalpack": KnownSet(humanevalpack_task, by_language=True),
    "Muennighoff/quixbugs": KnownSet(quixbugs_task),
}


def _plus_tests(row: Row, plus: Row | None) -> str:
    if plus is None:
        return ""
    if plus.get("task_id") != row.get("task_id"):
        raise UsageError(
            f"The tests of {plus.get('task_id')} are no tests of {row.get('task_id')}",
            hint="Give the row with the same task_id",
        )
    return text_of(plus, "test")


def _examples(task: Task) -> str:
    """Give the docstring's examples as asserts: expressions, each with the literal it must give."""
    tree = parse(f"{task.prompt.rstrip()}\n    pass\n")
    if task.id in _WRONG_EXAMPLES or tree is None:
        return ""
    documented = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    text = ast.get_docstring(documented[-1]) if documented else None
    try:
        found = doctest.DocTestParser().get_examples(text or "")
    except ValueError:  # its output is not laid out as doctest wants it
        return ""
    return "\n".join(
        f"assert {example.source.strip()} == {example.want.strip()}"
        for example in found
        if _is_expression(example.source) and _is_literal(example.want)
    )


def _is_expression(source: str) -> bool:
    tree = parse(source, magics=False)
    return tree is not None and len(tree.body) == 1 and isinstance(tree.body[0], ast.Expr)


def _is_literal(text: str) -> bool:
    try:
        ast.literal_eval(text.strip())
    except (ValueError, SyntaxError):
        return False
    return True


def _called(code: str, asserts: list[str]) -> str:
    """Give the function of a program that its tests call; "" where that is not clear."""
    tree = parse("\n".join(asserts), magics=False)
    nodes = list(ast.walk(tree)) if tree is not None else []
    names = {node.id for node in nodes if isinstance(node, ast.Name)}
    found = [name for name in sorted(names) if defines(code, name)]
    return found[0] if len(found) == 1 else ""


def _unrolled(source: str) -> list[str]:
    """Give one assert for each row of a test that is a loop over JSON; [] where it is none.

    Two of them leave a row out, which is too slow for a plain solution: `if input == …: return`.
    """
    tree = parse(source, magics=False)
    match tree.body if tree is not None else []:
        case [
            ast.Import(),
            ast.Assign(value=ast.Call(args=[ast.Constant(value=str(data))])),
            ast.FunctionDef(
                args=ast.arguments(args=[given, wanted]), body=[*skips, ast.Assert() as test]
            ),
            ast.For(),
        ]:
            nodes = [node for skip in skips for node in ast.walk(skip)]
            left_out = [
                ast.literal_eval(node.comparators[0])
                for node in nodes
                if isinstance(node, ast.Compare)
            ]
            return [
                ast.unparse(_Filled({given.arg: value, wanted.arg: result}).visit(_copy(test)))
                for value, result in json.loads(data)
                if value not in left_out
            ]
    return []


class _Filled(ast.NodeTransformer):
    """Puts values in the place of names."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = values

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if node.id not in self._values:
            return node
        return ast.parse(repr(self._values[node.id]), mode="eval").body

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        arguments: list[ast.expr] = []
        for argument in node.args:
            match argument:
                case ast.Starred(value=ast.List(elts=inner)):
                    arguments += inner
                case _:
                    arguments.append(argument)
        node.args = arguments
        return node


def _copy(test: ast.Assert) -> ast.Assert:
    copied = ast.parse(ast.unparse(test)).body[0]
    assert isinstance(copied, ast.Assert)
    return copied


def _first_case(source: str) -> str:
    """Give the first assert or test function of a source, with all that is no test."""
    tree = parse(source, magics=False)
    kept: list[ast.stmt] = []
    found = ""
    for node in tree.body if tree is not None else []:
        name = getattr(node, "name", "")
        test = isinstance(node, ast.Assert) or (
            isinstance(node, ast.FunctionDef) and name.startswith("test")
        )
        runs = isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)
        if (test and found) or (runs and ast.unparse(node).startswith("test")):
            continue
        if test:
            found = name or "assert"
        kept.append(node)
    return "\n\n".join(ast.unparse(node) for node in kept)
