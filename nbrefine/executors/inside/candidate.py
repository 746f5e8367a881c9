"""The process of the code: runs it as the module `solution`, then answers what is asked of it.

Whatever the code does to this process, it does to itself: all that leaves it is an answer, which
the other process takes as a plain value, as a reference to an object that stays here, or for a
broken process. What the loop needs is bound before the code runs, so that code which replaces a
builtin or a module by accident is still answered for.
"""

from __future__ import annotations

import builtins
import contextlib
import copy
import functools
import importlib
import linecache
import operator
import random
import signal
import socket
import sys
import time
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from . import frames
from .exports import Exports
from .kinds import Malformed, Unsendable
from .peer import Gone, Peer
from .plain import Packer, Unpacker, become, is_container, is_mutable
from .stand_ins import StandIns

if TYPE_CHECKING:
    import asyncio

PRELOAD = (
    "abc",
    "array",
    "bisect",
    "collections",
    "contextlib",
    "copy",
    "dataclasses",
    "datetime",
    "decimal",
    "enum",
    "fractions",
    "functools",
    "heapq",
    "inspect",
    "io",
    "itertools",
    "json",
    "math",
    "numbers",
    "operator",
    "os",
    "pathlib",
    "random",
    "re",
    "statistics",
    "string",
    "struct",
    "textwrap",
    "time",
    "typing",
    "uuid",
)
"""What a nursery imports first: what this needs and what solutions commonly use."""

NAME = "solution"
"""The module that the code is."""

_BATCH = 0.005  # seconds of work on items that nobody has asked for yet
_SETTLE = 1.0


def server() -> Callable[[socket.socket], None]:
    """Make what answers the other process until it ends; a nursery does so once for all."""
    return Candidate().run


def serve(calls: socket.socket) -> None:
    """Answer the other process until it ends."""
    server()(calls)


def seed() -> None:
    """Begin as every check does, in the fork itself: hooks for after one may have drawn a seed."""
    random.seed(0)
    if "numpy" in sys.modules:
        importlib.import_module("numpy.random").seed(0)  # which numpy itself leaves for later


def rehearse() -> None:
    """Answer as for a code, so that no process has to do what is only done the first time."""
    interrupt, builtin = signal.getsignal(signal.SIGINT), sys.modules["builtins"]
    near, far = socket.socketpair()
    with near, far:
        for count, question in enumerate(_REHEARSED):
            frames.send(near, ["ask", count, *question, []])
        near.shutdown(socket.SHUT_WR)
        serve(far)
    signal.signal(signal.SIGINT, interrupt)
    sys.modules["builtins"] = builtin
    del sys.modules[NAME], linecache.cache[SETUP], linecache.cache[CODE]


class Candidate(Peer):
    """The code's end of the connection."""

    def __init__(self) -> None:
        super().__init__()
        self.module = types.ModuleType(NAME)
        # What the code does to its built-in names, nothing else in this process will see.
        self._builtins = types.ModuleType("builtins")
        vars(self._builtins).update(vars(builtins))
        vars(self.module)["__builtins__"] = self._builtins
        self._exports = Exports(self.module)
        self._stand_ins = StandIns(self._call_back, self._exports.lend)
        self._iterators = _Iterators()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._working = False
        self._interrupts = self._settled = 0
        # Bound now: the code may replace those of the modules.
        self._sleep, self._clock = time.sleep, time.monotonic
        self._own: dict[str, Callable[..., Any]] = {
            "load": self._load,
            "names": self._names,
            "settle": self._settle,
            "become": become,
            "await": self._await,
            "next": self._iterators.next,
            "send": self._iterators.send,
        }

    def run(self, calls: socket.socket) -> None:
        """Say that this is there, and answer until the connection is not one any more."""
        self._sock = calls
        seed()
        signal.signal(signal.SIGINT, self._interrupted)
        try:
            self.write(b"")
            while True:
                data = self.read()
                self.write(self.answer(self.understood(data), data))
        except (Gone, Malformed):
            return

    def answer(self, message: list[Any], data: bytes) -> bytes:
        """Do what was asked; whatever is raised is an answer too."""
        _, count, operation, content, names = message
        working, self._working = self._working, False
        self._exports.begin()
        unpacker = Unpacker(self._object)
        arguments: list[Any] = []
        kind, value = "ok", None
        try:
            arguments = unpacker.items(content)
            positional = len(arguments) - len(names)
            named = dict(zip(names, arguments[positional:]))  # noqa: B905  `strict` came with 3.10
            function = self._own.get(operation) or _OPERATIONS[operation]
            self._working = True
            if self._interrupts > self._settled and operation != "settle":
                raise KeyboardInterrupt  # noqa: TRY301
            value = function(*arguments[:positional], **named)
            self._working = False
        except (Gone, Malformed):
            raise
        except BaseException as error:  # noqa: BLE001  also SystemExit is no more than an answer
            self._working = False
            kind, value = "raise", error
        changed: list[Any] = []
        if any(is_mutable(item) for item in unpacker.held):
            changed = self._changed(message, arguments, unpacker.held, data)
        lent = kind == "ok" and operation in ("get", "getitem") and is_container(value)
        answer = self._packed(kind, count, value, unpacker.held, changed, lent=lent)
        self._exports.end()
        self._working = working
        return answer

    def _changed(
        self, message: list[Any], arguments: list[Any], held: list[Any], data: bytes
    ) -> list[Any]:
        """Give the arguments that may have changed in place: all, where any has."""
        with contextlib.suppress(Exception):  # what cannot be packed now was changed
            content = Packer(self._exports.same).items(arguments)
            if frames.pack([*message[:3], content, message[4]]) == data:
                return []
        return [[number, item] for number, item in enumerate(held) if is_mutable(item)]

    def _packed(
        self,
        kind: str,
        count: int,
        value: Any,
        held: list[Any],
        changed: list[Any],
        *,
        lent: bool,
    ) -> bytes:
        """Pack an answer, or in its place why it cannot be packed."""
        try:
            packer = Packer(
                self._exports.export, {id(item): number for number, item in enumerate(held)}
            )
            if kind == "ok":
                pack = packer.pack if not lent else functools.partial(self._exports.lent, packer)
                told, place = pack(value), None
            else:
                told, place = self._exports.raised(packer, value), _place(value)
            contents = [[number, packer.content(item)] for number, item in changed]
            fields = self._exports.fields()
            return frames.pack(
                [kind, count, told, contents, self._exports.described(), fields, place]
            )
        except Exception as error:  # noqa: BLE001  an answer that cannot be given is the code's
            why = str(error) if isinstance(error, (Unsendable, ValueError)) else repr(error)
            if isinstance(error, (MemoryError, RecursionError)):
                large = isinstance(error, MemoryError)
                why = f"the value is too {'large' if large else 'deep'} to be judged"
            refused = ["error", "builtins", "ValueError", "ValueError", None, [why], [], why, None]
            return frames.pack(["raise", count, refused, [], self._exports.described(), [], None])

    def _object(self, unpacker: Unpacker, data: list[Any]) -> Any:
        """Give what the other process speaks of: an object of the code, or one of the tests."""
        if data[0] == "object":
            return self._exports.object(data[1])
        if data[0] == "named":
            return tuple.__new__(self._exports.object(data[1]), unpacker.items(data[2]))
        return self._stand_ins.make(unpacker, data)

    def _call_back(self, operation: str, arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
        """Ask the tests' process to do something with an object of its own."""
        working, self._working = self._working, False
        packer = Packer(self._exports.export)
        content = packer.items((*arguments, *named.values()))
        extra = [self._exports.described(), self._exports.fields()]
        answer = self.ask(operation, [content, extra], list(named))
        value = Unpacker(self._object).unpack(answer[2])
        self._working = working
        if working and self._interrupts > self._settled:
            raise KeyboardInterrupt
        if answer[0] == "raise":
            raise value
        return value

    # What can be asked

    def _load(self, setup: str, code: str) -> list[list[str]]:
        """Run setup and code, and tell the names they leave."""
        sys.modules[NAME], sys.modules["builtins"] = self.module, self._builtins
        for filename, source in ((SETUP, setup), (CODE, code)):
            lines = [f"{line}\n" for line in source.split("\n")]
            linecache.cache[filename] = (len(source), None, lines, filename)
            exec(compile(source, filename, "exec", dont_inherit=True), self.module.__dict__)  # noqa: S102
        return self._exports.names()

    def _names(self, *names: str) -> tuple[Any, ...]:
        """Give what names stand for now."""
        return tuple(self.module.__dict__[name] for name in names)

    def _settle(self, interrupts: int) -> None:
        """Wait for an interrupt that was asked for and may still be on its way."""
        self._working = False
        until = self._clock() + _SETTLE
        while self._interrupts < interrupts and self._clock() < until:
            self._sleep(0.001)
        self._settled = self._interrupts

    def _await(self, awaitable: Any) -> Any:
        """Run a coroutine to its end, on one loop for all of them."""
        import asyncio  # here, as few codes need it and it makes each fork dearer

        if self._loop is None:
            self._loop = asyncio.new_event_loop()
        return self._loop.run_until_complete(_awaited(awaitable))

    def _interrupted(self, signum: int, frame: object) -> None:
        self._interrupts += 1
        if self._working:
            raise KeyboardInterrupt


SETUP, CODE = "<setup>", "<solution>"
"""The files that tracebacks name."""


_REHEARSED: list[tuple[str, list[Any]]] = [
    ("load", ["import math\n", "def same(*values):\n    return [*values]\n"]),
    ("names", ["same"]),
    *[("call", [["object", 0], 1, 0.5, "text", ["l", [1, 2]], ["t", [None, True]]])] * 20,
    ("call", [["object", 0], ["d", ["key", ["S", [3]]]]]),
    ("call", [["object", 0], 1, ["f", "nan"]]),
]
"""A conversation, without what Python takes over from the first time on: its frames and numbers."""


class _Iterators:
    """Iterators of the code, from which a few items more than were asked for may be taken.

    Only what cannot change is taken ahead. A list that is given again, changed in between, is
    told as the same list.
    """

    def __init__(self) -> None:
        self._errors: dict[int, BaseException] = {}
        self._given: dict[int, dict[int, tuple[int, Any]]] = {}
        self._clock = time.monotonic

    def next(self, iterator: Any, count: int) -> tuple[list[Any], str, Any]:
        """Give the next items, at most so many.

        Beside them stands what follows: "more"; "end", with what a generator returned; or "same",
        with the number of the changeable item that the last one is.
        """
        place = id(iterator)
        if place in self._errors:
            raise self._errors.pop(place)
        until = self._clock() + _BATCH
        items: list[Any] = []
        try:
            while not items or (len(items) < count and self._clock() < until):
                item = next(iterator)
                items.append(item)
                if type(item) in (list, dict, set, bytearray):
                    given = self._given.setdefault(place, {})
                    number, _ = given.setdefault(id(item), (len(given), item))
                    return items, "same", number
        except StopIteration as end:
            return items, "end", end.value
        except BaseException as error:
            if not items:
                raise
            self._errors[place] = error
        return items, "more", None

    def send(self, generator: Any, value: Any) -> tuple[list[Any], str, Any]:
        """Send a value into a generator that waits at its last item."""
        try:
            return [generator.send(value)], "more", None
        except StopIteration as end:
            return [], "end", end.value


def _place(error: BaseException) -> list[Any] | None:
    """Give the innermost line of the code's own on the way of an exception."""
    found: list[Any] | None = None
    trace = error.__traceback__
    while trace is not None:
        filename = trace.tb_frame.f_code.co_filename
        if filename in (SETUP, CODE):
            found = [filename, trace.tb_lineno]
        trace = trace.tb_next
    if found is None and isinstance(error, SyntaxError) and error.filename in (SETUP, CODE):
        found = [error.filename, error.lineno or 0]
    return found


async def _awaited(awaitable: Any) -> Any:
    return await awaitable


def _leave(manager: Any, error: BaseException | None) -> Any:
    return type(manager).__exit__(manager, *_told(error))


def _leave_later(manager: Any, error: BaseException | None) -> Any:
    return type(manager).__aexit__(manager, *_told(error))


def _told(error: BaseException | None) -> tuple[Any, Any, Any]:
    return (None, None, None) if error is None else (type(error), error, error.__traceback__)


def _contains(container: Any, item: Any) -> bool:
    return item in container


def _call(function: Any, /, *arguments: Any, **named: Any) -> Any:
    return function(*arguments, **named)


_OPERATIONS: dict[str, Callable[..., Any]] = {
    "call": _call,
    "get": getattr,
    "set": setattr,
    "del": delattr,
    "contains": _contains,
    "enter": lambda manager: type(manager).__enter__(manager),
    "exit": _leave,
    "aenter": lambda manager: type(manager).__aenter__(manager),
    "aexit": _leave_later,
    "aiter": lambda items: type(items).__aiter__(items),
    "anext": lambda iterator: type(iterator).__anext__(iterator),
    **{
        function.__name__: function
        for function in (
            *(len, iter, bool, str, repr, hash, abs, round, int, float, complex, bytes, reversed),
            *(format, divmod, pow, dir, copy.copy, copy.deepcopy),
        )
    },
    **{
        name: getattr(operator, name)
        for name in [
            "getitem",
            "setitem",
            "delitem",
            "index",
            "neg",
            "pos",
            "invert",
            "add",
            "sub",
            "mul",
            "truediv",
            "floordiv",
            "mod",
            "matmul",
            "lshift",
            "rshift",
            "and_",
            "or_",
            "xor",
            "lt",
            "le",
            "gt",
            "ge",
            "eq",
            "ne",
            "iadd",
            "isub",
            "imul",
            "itruediv",
            "ifloordiv",
            "imod",
            "imatmul",
            "ilshift",
            "irshift",
            "iand",
            "ior",
            "ixor",
        ]
    },
}
