"""Looks at a session from within its kernel, where this file is sent as source.

Values leave it as sketches: JSON that says all that a comparison needs. None, truths, numbers and
texts stand for themselves; everything else is an object with its kind under "k".
"""

from __future__ import annotations

import ast
import json
import random
import re
import sys
from collections.abc import Callable, Iterator
from typing import Any

from IPython.core.getipython import get_ipython

MIME = "application/vnd.nbrefine+json"
CELLS = 5_000_000
"""Values that one sketch may hold; what is larger is told by its type alone."""
SHOWN = 2_000

_hidden: dict[str, Any] = {}


def answer(nonce: str, function: str, arguments: str) -> None:
    """Call a function of this module and send what it gives over the private channel."""
    try:
        told = {"value": globals()[function](*json.loads(arguments))}
    except Exception as error:  # noqa: BLE001  a foreign class may raise anything
        told = {"raised": f"{type(error).__name__}: {error}"}
    publisher: Any = _shell().display_pub
    publisher.session.send(
        publisher.pub_socket,
        "display_data",
        {"data": {MIME: json.dumps(told)}, "metadata": {"nbrefine": nonce}, "transient": {}},
        parent=publisher.parent_header,
        ident=publisher.topic,
    )


def hide(names: list[str]) -> None:
    """Let names be of no use until `observe`, as those a model must not be fitted to."""
    for name in names:
        if name in _names():
            _hidden[name] = _names()[name]
            _names()[name] = _Forbidden()


def observe(valued: bool, names: list[str]) -> dict[str, Any]:
    """Give the last cell's value, where it has one, and those of names that are bound."""
    _names().update(_hidden)
    _hidden.clear()
    return {
        "result": _seen(_names()["_"]) if valued and "_" in _names() else None,
        "names": {name: _seen(_names()[name]) for name in names if name in _names()},
    }


def guess(code: str) -> list[dict[str, Any]]:
    """Give what a cell without a value has printed or, where nothing, has assigned last."""
    tree = ast.parse(code)
    printed = [
        part
        for line in tree.body
        if isinstance(line, ast.Expr) and isinstance(line.value, ast.Call)
        if isinstance(line.value.func, ast.Name) and line.value.func.id == "print"
        for argument in line.value.args
        for part in _printed(argument)
    ]
    nodes = printed or [node for node in map(_target, reversed(tree.body)) if node is not None][:1]
    return [_seen(eval(ast.unparse(node), _names())) for node in nodes]  # noqa: S307


def calls(function: str, cases: list[Any]) -> list[dict[str, Any]]:
    """Call a function with each case; the last one is the first that raised."""
    told: list[dict[str, Any]] = []
    for arguments in _cases(cases):
        try:
            if isinstance(arguments, dict):
                value = _names()[function](**arguments)
            else:
                value = _names()[function](*arguments)
        except Exception as error:  # noqa: BLE001  it may raise anything
            told.append({"raised": f"{type(error).__name__}: {error}"})
            break
        told.append({"value": _seen(value), "arguments": _seen(arguments)})
    return told


def metrics(model: str, inputs: str, labels: str, kinds: list[str]) -> list[float]:
    """Score what a model predicts, by functions of scikit-learn."""
    measures: Any = __import__("sklearn.metrics").metrics
    predicted = _names()[model].predict(_names()[inputs])
    told = []
    for kind in kinds:
        name = {"mse": "mean_squared_error", "rmse": "mean_squared_error"}.get(kind)
        name = name or {"r2": "r2_score", "roc_auc": "roc_auc_score"}.get(kind, f"{kind}_score")
        value = float(getattr(measures, name)(_names()[labels], predicted))
        told.append(value**0.5 if kind == "rmse" else value)
    return told


def alias(name: str, other: str) -> None:
    """Bind a value to another name as well."""
    _names()[other] = _names()[name]


def compare(source: str, expected: str, found: str) -> list[Any]:
    """Compare two names by a `compare_fn` of the task's own."""
    space: dict[str, Any] = {}
    exec(source, space)  # noqa: S102  a validator of the data set's
    told = space["compare_fn"](_names()[expected], _names()[found])
    return [bool(told["match"]), str(told["reason"])]


class _Forbidden:
    """Is equal to nothing and can do nothing."""

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        return False


def _shell() -> Any:
    return get_ipython()


def _names() -> dict[str, Any]:
    names: dict[str, Any] = _shell().user_ns
    return names


def _printed(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.expr) and not isinstance(
        node, ast.Constant | ast.FormattedValue | ast.JoinedStr
    ):
        yield node
    else:
        for child in ast.iter_child_nodes(node):
            yield from _printed(child)


def _target(node: ast.stmt) -> ast.expr | None:
    if isinstance(node, ast.Assign):
        target = node.targets[0]
    elif isinstance(node, ast.AnnAssign | ast.AugAssign):
        target = node.target
    else:
        return None
    return target.value if isinstance(target, ast.Attribute | ast.Subscript) else target


def _cases(cases: list[Any]) -> Iterator[Any]:
    """Give the arguments of each test case; a text in backticks is an expression."""
    space: dict[str, Any] = {"random": random}
    for name, package in (("pd", "pandas"), ("np", "numpy")):
        try:
            space[name] = __import__(package)
        except ImportError:
            continue

    def value(part: Any) -> Any:
        ticked = isinstance(part, str) and part.startswith("`") and part.endswith("`")
        return eval(part[1:-1], space) if ticked else part  # noqa: S307

    last: Any = None
    for number, case in enumerate(cases):
        random.seed(number)
        if "np" in space:
            space["np"].random.seed(number)
        last = last if case == "//" else case
        yield tuple(map(value, last)) if isinstance(last, list) else value(last)


def _seen(value: Any) -> dict[str, Any]:
    try:
        shown = str(value)[:SHOWN]
    except Exception:  # noqa: BLE001  a foreign class may raise anything
        shown = ""
    kind = type(value)
    try:
        sketched = _Sketch().of(value)
    except Exception:  # noqa: BLE001  too large, nested too deeply, or a foreign class's trouble
        sketched = {"k": "other", "t": _type(value), "v": None}
    return {"type": f"{kind.__module__}.{kind.__qualname__}", "shown": shown, "value": sketched}


class _TooLargeError(Exception):
    """A value has more parts than are sketched."""


class _Sketch:
    """Makes the sketch of one value."""

    def __init__(self) -> None:
        self._left = CELLS
        self._numpy: Any = sys.modules.get("numpy")
        self._pandas: Any = sys.modules.get("pandas")

    def of(self, value: Any) -> Any:
        self._left -= 1
        if self._left < 0:
            raise _TooLargeError
        kind = type(value)
        if value is None or kind in (bool, int, float, str):
            return value
        for known in (self._plain, self._from_numpy, self._from_pandas, self._sparse):
            told = known(value)
            if told is not None:
                return told
        return {"k": "other", "t": _type(value), "v": _shown(value)}

    def all(self, values: Any) -> list[Any]:
        return [self.of(value) for value in values]

    def _plain(self, value: Any) -> Any:
        if isinstance(value, list | tuple):
            name = "list" if isinstance(value, list) else "tuple"
            return {"k": name, "items": self.all(value)}
        if isinstance(value, set | frozenset):
            return {"k": "set", "items": self.all(sorted(value, key=repr))}
        if isinstance(value, dict):
            return {"k": "dict", "items": [self.all(pair) for pair in value.items()]}
        for base in (str, int, float):  # an enum's member, a number of numpy's
            if isinstance(value, base):
                return base(value)
        return None

    def _from_numpy(self, value: Any) -> Any:
        numpy = self._numpy
        if numpy is None:
            return None
        if isinstance(value, numpy.bool_ | numpy.integer | numpy.floating):
            return value.item() if value.dtype.itemsize <= 8 else float(value)
        if isinstance(value, numpy.ndarray):
            kind = value.dtype.kind
            data = self.all(value.ravel().tolist() if kind != "M" else map(str, value.ravel()))
            return {"k": "array", "kind": kind, "dtype": str(value.dtype), "shape": value.shape,
                    "data": data}  # fmt: skip
        return None

    def _from_pandas(self, value: Any) -> Any:
        pandas = self._pandas
        if pandas is None:
            return None
        if value is pandas.NaT or value is pandas.NA:
            return {"k": "missing"}
        if isinstance(value, pandas.DataFrame):
            return {
                "k": "frame",
                "columns": self._index(value.columns),
                "index": self._index(value.index),
                "dtypes": [str(kind) for kind in value.dtypes],
                "data": [self.all(value.iloc[:, at].tolist()) for at in range(value.shape[1])],
            }
        if isinstance(value, pandas.Series):
            return {
                "k": "series",
                "name": self.of(value.name),
                "dtype": str(value.dtype),
                "index": self._index(value.index),
                "data": self.all(value.tolist()),
            }
        return self._index(value) if isinstance(value, pandas.Index) else None

    def _index(self, index: Any) -> dict[str, Any]:
        kind = type(index).__name__
        return {
            "k": "index",
            "class": "Index" if kind == "RangeIndex" else kind,
            "names": self.all(index.names),
            "dtype": str(index.dtype),
            "freq": str(getattr(index, "freq", None)),
            "data": self.all(index.tolist()),
        }

    def _sparse(self, value: Any) -> Any:
        module = type(value).__module__ or ""
        if not (module.startswith("scipy.sparse") and getattr(value, "format", "") == "csr"):
            return None
        parts = ("data", "indices", "indptr")
        told = {name: getattr(value, name).tolist() for name in parts}
        return {"k": "csr", "shape": value.shape, **told}


def _type(value: Any) -> str:
    kind = type(value)
    return f"{kind.__module__}.{kind.__qualname__}"


def _shown(value: Any) -> str | None:
    """Give a text by which values are the same; None where the text says where it lies."""
    describe: Callable[[Any], str] = repr
    try:
        text = describe(value)
    except Exception:  # noqa: BLE001  a foreign class may raise anything
        return None
    lies = re.search(r"\bat 0x[0-9a-f]+", text) or callable(value) or hasattr(value, "get_params")
    return None if lies or len(text) > 100_000 else text
