"""What a test said: the recorder that rewritten asserts speak to."""

from __future__ import annotations

import asyncio
import inspect
import linecache
from types import TracebackType
from typing import TYPE_CHECKING, Any

from .guard import SECONDS, Overdue, clean, cut, kind_name, show, time_limit
from .rewrite import Detail

if TYPE_CHECKING:
    from .link import Emit

VALUE = 500
"""Characters kept of one value or message."""

THROUGH = (KeyboardInterrupt, asyncio.CancelledError, GeneratorExit)
"""What ends a unit and is no test's failure: the controller's interrupt."""

_SKIPPED = ("Skipped", "SkipTest")


class Failed(AssertionError):
    """An assertion that did not hold, and what it saw."""

    def __init__(self, expression: str, got: str, expected: str, message: str) -> None:
        super().__init__(message or f"{expression}: got {got}, expected {expected}")
        self.expression = expression
        self.got = got
        self.expected = expected
        self.message = message


class Recorder:
    """Keeps what the assert at work has evaluated, and sends each case's failure as it comes."""

    through: tuple[type[BaseException], ...] = THROUGH

    def __init__(self, session: dict[str, Any], looped: set[int]) -> None:
        self.session = session
        self.looped = looped
        self.details: list[Detail] = []
        self.emit: Emit = lambda message: None
        self._current = -1
        self._got: dict[int, Any] = {}
        self._want: dict[int, Any] = {}
        self._begun: set[int] = set()
        self._failed: set[int] = set()

    def live(self, case: int) -> bool:
        """Tell whether a case is worth running: in a loop, its first failure is the last."""
        if case not in self._begun:
            self._begun.add(case)
            self.emit({"begin": case})
        return case not in self._failed

    def case(self, case: int) -> _Case:
        """Give the context in which a case's failure is recorded and goes no further."""
        self.live(case)
        return _Case(self, case)

    def hold(self, case: int) -> None:
        """Record that a case held; one in a loop may still fail in a later round."""
        if case not in self.looped:
            self.emit({"case": case, "status": "passed"})

    def fail(self, case: int, error: BaseException) -> None:
        """Record a case's failure."""
        self._failed.add(case)
        self.emit({"case": case, **self.told(error)})

    def open(self, index: int) -> None:
        """Note that an assert begins."""
        self._current = index

    def done(self) -> None:
        """Note that it held."""
        self._current = -1

    def got(self, index: int, value: Any) -> Any:
        """Note the value that was there, and hand it on."""
        self._current = index
        self._got[index] = value
        self._want.pop(index, None)
        return value

    def want(self, index: int, value: Any) -> Any:
        """Note the value that was asked for, and hand it on."""
        self._current = index
        self._want[index] = value
        return value

    def failed(self, index: int, message: object = None) -> Failed:
        """Give the error of an assert that did not hold."""
        detail, got, expected = self._seen(index)
        text = "" if message is None else cut(_text(message), VALUE)
        if not text:
            text = self._difference()
        elif got in ("True", "False") and expected in ("a true value", "a false value"):
            got = expected = ""  # which say less than the words do
        return Failed(detail.expression, got, expected, text)

    @staticmethod
    async def settle(value: Any) -> Any:
        """Await a coroutine; hand on anything else."""
        return await value if inspect.iscoroutine(value) else value

    def forget(self) -> None:
        """Let go of the values seen, which may be large."""
        self._current = -1
        self._got.clear()
        self._want.clear()

    def told(self, error: BaseException) -> dict[str, str]:
        """Give an exception as the fields of a case's result."""
        if isinstance(error, Failed):
            return {
                "status": "failed",
                "expression": error.expression,
                "got": error.got,
                "expected": error.expected,
                "message": error.message,
            }
        name = kind_name(error)
        text = cut(_text(error), VALUE)
        if name in _SKIPPED:
            return {"status": "not-run", "message": f"skipped: {text}"}
        told = {"status": "failed", "message": text}
        # pytest.raises and pytest.fail raise an outcome of pytest's own, called Failed.
        if not isinstance(error, AssertionError) and name != "Failed":
            message = f"{name}: {text}" if text else name
            told = {"status": "error", "message": message + self.place(error)}
        if self._current >= 0:
            detail, got, expected = self._seen(self._current)
            told.update(expression=detail.expression, got=got, expected=expected)
        return told

    def _seen(self, index: int) -> tuple[Detail, str, str]:
        """Give what an assert, or the part of it that was last at work, got and expected."""
        detail, place = self.details[index], index
        if self._current > index and self.details[self._current].expression == detail.expression:
            place = self._current
        elif index not in self._got and index + 1 < len(self.details):
            # Nothing was evaluated: its first part knows at least what was wanted.
            following = self.details[index + 1]
            place = index + 1 if following.expression == detail.expression else index
        detail = self.details[place]
        if place not in self._got or place != self._current:
            return detail, "", detail.expected
        got = show(self._got[place], VALUE)
        expected = detail.expected
        if place in self._want:
            wanted = show(self._want[place], VALUE)
            if wanted == got and not detail.prefix and not detail.suffix:
                got = f"{got} ({kind_name(self._got[place])})"
                wanted = f"{wanted} ({kind_name(self._want[place])})"
            expected = f"{detail.prefix}{wanted}{detail.suffix}"
        elif detail.typed:
            got = f"{got} ({kind_name(self._got[place])})"
        return detail, got, expected

    def _difference(self) -> str:
        """Tell where two long sequences first differ, which their beginnings may not show."""
        got, want = self._got.get(self._current), self._want.get(self._current)
        if type(got) is not type(want) or not isinstance(got, (str, list, tuple)):
            return ""
        assert isinstance(want, (str, list, tuple))
        if len(got) != len(want):
            return f"the lengths are {len(got):,} and {len(want):,}" if len(got) > 20 else ""
        try:
            with time_limit(SECONDS):
                place = next((i for i, item in enumerate(got) if item != want[i]), -1)
        except (Exception, Overdue):  # noqa: BLE001  any __ne__ may be at work
            return ""
        if place < 20:
            return ""
        return f"first different at index {place:,}: {show(got[place])}, not {show(want[place])}"

    def place(self, error: BaseException) -> str:
        """Tell the line of the session's code, or else of the tests, that raised an error."""
        line, code = 0, ""
        trace = error.__traceback__
        while trace is not None:
            if trace.tb_frame.f_globals is self.session:
                line = trace.tb_lineno
                code = linecache.getline(trace.tb_frame.f_code.co_filename, line).strip()
            trace = trace.tb_next
        return f" (line {line}: {clean(cut(code, 200))})" if line else ""


class _Case:
    """The context of one case."""

    def __init__(self, recorder: Recorder, case: int) -> None:
        self._recorder = recorder
        self._case = case

    def __enter__(self) -> None:
        pass

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        if error is None:
            self._recorder.hold(self._case)
            return False
        if isinstance(error, self._recorder.through):
            return False
        self._recorder.fail(self._case, error)
        return True


def _text(value: object) -> str:
    """Give `str(value)` of a value whose class may do anything."""
    try:
        with time_limit(SECONDS):
            return clean("".join([str(value)]))
    except (Exception, Overdue):  # noqa: BLE001  __str__ may raise anything
        return f"(the text of this {kind_name(value)} could not be had)"
