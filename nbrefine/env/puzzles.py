"""Makes puzzles of reasoning_gym and scores answers to them, in a process of its own; run by path.

Some data sets evaluate what a model wrote, as Python or by sympy, which does the same. So an
answer that could call anything is not shown to those, and whatever an answer does, such as
`9**9**9**9`, happens in a fork of this process, which its own use of time ends.
Six data sets (of 0.1.25) draw from sets: their puzzles are the same in every process with the same
PYTHONHASHSEED only, which this one is given.
"""

from __future__ import annotations

import dataclasses
import difflib
import inspect
import json
import os
import pickle
import re
import signal
import sys
from typing import Any

_PATIENCE = 60  # seconds of the wall clock for an answer that waits and uses no time


def main() -> None:
    """Read pickled requests on stdin and answer each with a line of JSON."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # data sets print

    def tell(**answer: Any) -> None:
        print(json.dumps(answer, default=repr, skipkeys=True), file=answers)

    try:
        sys.path[:] = _read()
        dataset = _dataset(*_read())
    except Refused as refused:
        tell(refused=refused.args)
        return
    source = inspect.getsource(sys.modules[type(dataset).__module__])
    evaluates = _EVALUATION.search(source) is not None
    tell(size=len(dataset))
    while True:
        try:
            index, answer, limit = _read()
        except EOFError:
            return
        child = os.fork()
        if not child:
            try:
                # Of its own time, however busy the machine is; no handler: nothing survives it.
                signal.setitimer(signal.ITIMER_PROF, limit)
                signal.alarm(_PATIENCE)
                told = _told(dataset, index, answer, evaluates=evaluates)
                signal.setitimer(signal.ITIMER_PROF, 0)
                signal.alarm(0)
                tell(**told)
                os._exit(0)
            finally:
                os._exit(1)
        if os.waitpid(child, 0)[1]:
            tell(unreadable=f"it took more than {limit:g} s, or ended the process")


def _told(dataset: Any, index: int, answer: str | None, *, evaluates: bool) -> dict[str, Any]:
    if answer is None:
        return {"entry": dataset[index]}
    if evaluates and not harmless(answer):
        return {"unreadable": "it calls what no answer needs"}
    return _scored(dataset, index, answer)


def _read() -> Any:
    return pickle.load(sys.stdin.buffer)  # noqa: S301 - the parent writes them


class Refused(Exception):
    """There is no such data set; a message and a hint."""


def _dataset(name: str, settings: dict[str, Any]) -> Any:
    try:
        from reasoning_gym.factory import DATASETS, create_dataset  # type: ignore[import-untyped]
    except ImportError as error:
        hint = "Install it: pip install 'nbrefine[gym]'"
        raise Refused(f"reasoning_gym cannot be imported: {error}", hint) from error
    if name not in DATASETS:
        near = difflib.get_close_matches(name, DATASETS, n=3) or sorted(DATASETS)[:3]
        hint = f"It has {len(DATASETS)} of them, such as {', '.join(near)}"
        raise Refused(f"reasoning_gym has no data set {name!r}", hint)
    known = [field.name for field in dataclasses.fields(DATASETS[name][1])]
    for key in settings:
        if key not in known:
            raise Refused(f"{name} has no setting {key!r}", f"Its settings are {', '.join(known)}")
    try:
        return create_dataset(name, **settings)
    except Exception as error:
        raise Refused(f"{name} refuses its settings ({_line(error)})", "Change them") from error


def _scored(dataset: Any, index: int, answer: str) -> dict[str, Any]:
    entry = dataset[index]
    try:
        return {"score": float(dataset.score_answer(answer, entry))}
    except BaseException as error:  # noqa: BLE001 - scorers parse the answer, and raise anything
        return {"unreadable": _line(error)}


def _line(error: BaseException) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:300]


_EVALUATION = re.compile(r"(?<!literal_)\beval\(|parse_expr\(|sympify\(")
_FUNCTIONS = re.compile(
    "|abs|Abs|a?(?:sin|cos|tan)h?|sec|csc|cot|exp|ln|log|sqrt|cbrt|factorial|Integer|Rational"
)
_BEFORE_CALL = re.compile(r"(\w*)\s*\(")


def harmless(answer: str) -> bool:
    """Tell whether an answer, evaluated as Python, calls nothing but elementary functions."""
    if "__" in answer or re.search(r"[#\\]|\blambda\b|\.\s*[^\W\d_]", answer):
        return False
    for found in _BEFORE_CALL.finditer(answer):
        before = answer[: found.start()].rstrip()[-1:]
        if not _FUNCTIONS.fullmatch(found[1]) or not (found[1] or before in "+-*/^%,([=<>|&~{:"):
            return False
    return True


if __name__ == "__main__":
    main()
