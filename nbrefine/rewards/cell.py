"""The tests as one plain cell of a notebook, which runs them in any Jupyter."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from nbrefine.kernel.inside.cases import (
    Call,
    Plan,
    decorators,
    filled,
    is_main,
    is_runner,
    is_test_case,
    lines_of,
    parameters,
    uses_asyncio_run,
)


def cell(tests: str, plan: Plan) -> str:
    """Give the source of tests with the calls that a test runner would make.

    What a cell cannot do is left as a comment that says so.
    """
    lines = list(_without_runners(tests))
    while lines and not lines[-1].strip():
        lines.pop()
    if plan.added:
        # Where the session has to tell the function, its name in check() is the best there is.
        call = plan.added.replace("@candidate", plan.guesses)
        lines.append(f"# name the function: {call}" if plan.guesses == "candidate" else call)
    calls = [unit for unit in plan.units if isinstance(unit, Call)]
    for unit in calls:
        if not unit.row:  # one loop is enough for all rows
            lines.extend(_lines(unit))
    lines.extend(f"# {case.name}: {case.unsupported}" for case in plan.cases if case.unsupported)
    return _quiet("\n".join(lines)) + "\n"


def _quiet(source: str) -> str:
    """End a last expression in a semicolon if it may have a value, which the cell would show.

    Run as tests it shows nothing, and the record is to agree with a run of the cell.
    """
    tree = ast.parse(source)
    last = tree.body[-1] if tree.body else None
    if not isinstance(last, ast.Expr) or _is_silent(last.value, tree):
        return source
    lines = lines_of(source)
    place = (last.end_lineno or 0) - 1
    end = last.end_col_offset or 0
    line = lines[place].encode()
    if not line[end:].lstrip().startswith(b";"):
        lines[place] = (line[:end] + b";" + line[end:]).decode()
    return "\n".join(lines)


def _is_silent(value: ast.expr, tree: ast.Module) -> bool:
    """Tell whether an expression calls something of this source, in which nothing is returned."""
    call = value.value if isinstance(value, ast.Await) else value
    if not isinstance(call, ast.Call):
        return False
    named = {node.id for node in ast.walk(call.func) if isinstance(node, ast.Name)}
    defined = {getattr(node, "name", "") for node in tree.body}
    returns = any(isinstance(node, ast.Return) and node.value for node in ast.walk(tree))
    return bool(named & defined) and not returns


def _without_runners(tests: str) -> Iterator[str]:
    """Give the lines without `unittest.main()` and its like, which would end the kernel's cell."""
    body = ast.parse(tests).body
    dropped = [
        node
        for node in body
        if is_runner(node) or (isinstance(node, ast.If) and is_main(node) and _only_runs(node))
    ]
    for number, line in enumerate(lines_of(tests), start=1):
        if not any(node.lineno <= number <= (node.end_lineno or 0) for node in dropped):
            yield line


def _only_runs(node: ast.If) -> bool:
    return any(is_runner(inner) for inner in node.body)


def _lines(unit: Call) -> list[str]:
    name = ".".join(unit.path)
    if uses_asyncio_run(unit.function):
        return [f"# {name}: it runs an event loop of its own, which a cell cannot"]
    if unit.owner is not None and is_test_case(unit.owner):
        return [f'{unit.path[0]}("{unit.path[1]}").debug()']
    marks = [
        mark for mark in decorators(unit.function, "parametrize") if isinstance(mark, ast.Call)
    ]
    arguments = filled(marks[0].args[0]) if marks else []
    source = ast.unparse(marks[0].args[1]) if marks else ""
    if len(marks) > 1 or "param(" in source or (marks and not arguments):
        return [f"# {name}: only pytest can run it with these parameters"]
    given = ", ".join(f"{argument}={argument}" for argument in arguments)
    body = _body(unit, given)
    if not marks:
        return body
    return [f"for {', '.join(arguments)} in {source}:", *(f"    {line}" for line in body)]


def _body(unit: Call, given: str) -> list[str]:
    wait = "await " if unit.awaits else ""
    if unit.owner is None:
        return [f"{wait}{unit.path[0]}({given})"]
    hooks = {
        item.name: "None" if len(parameters(item)) > 1 else ""
        for item in unit.owner.body
        if isinstance(item, ast.FunctionDef) and item.name in ("setup_method", "teardown_method")
    }
    if not hooks:
        return [f"{wait}{unit.path[0]}().{unit.path[1]}({given})"]
    lines = [f"case = {unit.path[0]}()"]
    if "setup_method" in hooks:
        lines.append(f"case.setup_method({hooks['setup_method']})")
    lines.append(f"{wait}case.{unit.path[1]}({given})")
    if "teardown_method" in hooks:
        lines.append(f"case.teardown_method({hooks['teardown_method']})")
    return lines
