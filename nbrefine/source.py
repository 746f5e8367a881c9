"""Python source as text: whether it parses as a notebook cell, and how Markdown shows it."""

from __future__ import annotations

import ast
import contextlib
import re
import threading
import warnings
from collections.abc import Iterator
from typing import Literal

_filters = threading.Lock()

_IPYTHON = re.compile(r"^\s*[%!?]|[=:]\s*[%!]|\?\s*$", re.MULTILINE)


@contextlib.contextmanager
def warnings_of_compiler(action: Literal["ignore", "error"]) -> Iterator[None]:
    """Ignore what the compiler warns of here, or have it raised as a `SyntaxError`.

    `warnings.catch_warnings` changes the whole process, and two threads would mix up its undo: so
    one does so at a time, and not twice.
    """
    with _filters, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter(action, SyntaxWarning)
        yield


def parse(code: str, *, magics: bool = True) -> ast.Module | None:
    """Parse a cell, top-level `await`, magics and shell lines included; None where it fails."""
    tree = _parse(code)
    if tree is None and magics and _IPYTHON.search(code):
        tree = _parse(_without_magics(code))
    return tree


def _parse(code: str) -> ast.Module | None:
    # Invalid escapes such as "\d" only warn, but a caller may have made warnings errors.
    with warnings_of_compiler("ignore"):
        try:
            return ast.parse(code)
        # Null bytes and lone surrogates are ValueErrors; deep nesting exhausts the parser.
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return None


def _without_magics(code: str) -> str:
    # Imported only for cells that plain Python cannot read.
    from IPython.core.inputtransformer2 import TransformerManager

    try:
        manager = TransformerManager()  # type: ignore[no-untyped-call] # IPython has no types
        return str(manager.transform_cell(code))
    except (SyntaxError, ValueError, RecursionError):
        return code


def fault(code: str) -> str:
    """Say with its line why a text is no plain Python that a cell could run; "" where it is."""
    with warnings_of_compiler("ignore"):
        try:
            compile(code, "<cell>", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
        except SyntaxError as error:
            return f"line {error.lineno}: {error.msg}" if error.lineno else error.msg
        except (ValueError, RecursionError, MemoryError) as error:
            return str(error) or "it is nested too deeply"
    return ""


def shape(code: str) -> str:
    """Give the syntax tree of a program without comments, layout and docstrings, as text.

    Two programs with one shape do the same; code that does not parse stands for itself.
    """
    tree = parse(code)
    if tree is None:
        return code
    for node in ast.walk(tree):
        if isinstance(node, _DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
            del node.body[0]
    return ast.dump(tree)


_DOCUMENTED = (ast.Module, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def fenced(text: str, language: str = "") -> str:
    """Put a text into a Markdown code block that nothing in the text can close."""
    longest = max((len(run) for run in re.findall(r"`{3,}", text)), default=2)
    mark = "`" * (longest + 1)
    return f"{mark}{language}\n{text}\n{mark}"
