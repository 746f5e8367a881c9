"""The process of the tests: runs them one by one, with proxies for the names that are the code's.

It is trusted and the code's process is not: values are compared here, what is told of them is
made here, and the code sees of the tests what they pass to it and nothing else.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import signal
import socket
import sys
import time
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from . import frames, link
from .candidate import CODE, NAME, PRELOAD, SETUP, seed
from .candidate import serve as answer
from .clock import Clock, Overdue
from .kinds import string
from .lending import TESTS
from .link import Link
from .names import Names, Told
from .peer import Gone
from .results import MAX_TIMEOUTS, Results

if TYPE_CHECKING:
    from nbrefine.kernel.inside import cases
    from nbrefine.kernel.inside.guard import cut
    from nbrefine.kernel.inside.record import VALUE, Recorder
    from nbrefine.kernel.inside.units import Program, Units
else:  # the very files of that package, loaded by path
    from _nbrefine_inside import cases
    from _nbrefine_inside.guard import cut
    from _nbrefine_inside.record import VALUE, Recorder
    from _nbrefine_inside.units import Program, Units

__all__ = ["PRELOAD", "prepare", "rehearse", "serve", "server"]

NONE_FOUND = "no tests were found: write asserts, check(candidate) or functions called test_…"

_REHEARSED = {
    "setup": "import math\n",
    "code": "def same(*values):\n    return [*values]\n",
    "tests": "def check(same):\n"
    + "    assert same(1, 'text', [0.5, (None,)]) == [1, 'text', [0.5, (None,)]], 'words'\n" * 20
    + "    assert same({'key': {3}}) == []\n",
    "entry_point": "same",
    "test_timeout": 10.0,
    "code_timeout": 10.0,
}

TASK = ("tests", "setup", "entry_point")
"""The parts of a job that do not change from one code to the next."""

_LINE = 200  # characters of a line of the code in a message


def server() -> Callable[..., None]:
    """Make what runs one job; a nursery does so once for all."""
    return Tester().run


def serve(report: socket.socket, calls: socket.socket) -> None:
    """Run one job that comes over `report`, with the code at the other end of `calls`."""
    server()(report, calls)


def rehearse() -> None:
    """Run a check, so that no process has to do what is only done the first time."""
    main, alarm = sys.modules[TESTS], signal.getsignal(signal.SIGALRM)
    calls, far = socket.socketpair()
    hear, report = socket.socketpair()
    with calls, far, hear, report:
        pid = os.fork()
        if pid == 0:
            calls.close()
            answer(far)
            os._exit(0)
        far.close()
        frames.send(hear, _REHEARSED)
        serve(report, calls)
    os.waitpid(pid, 0)
    signal.signal(signal.SIGALRM, alarm)
    sys.modules[TESTS] = main
    sys.modules.pop(NAME, None)
    prepare.cache_clear()


class Prepared(NamedTuple):
    """What the tests of a task are, the same for each code that is checked by them."""

    program: Program
    names: Names
    cases: bytes
    """The message that tells which there are."""


@functools.lru_cache(maxsize=256)
def prepare(tests: str, setup: str, entry_point: str) -> Prepared:
    """Plan and compile tests, and tell their names; the nursery does so before it forks.

    Raises
    ------
    SyntaxError, ValueError, RecursionError, MemoryError: they cannot be compiled.
    """
    program = Program(cases.plan(tests, entry_point))
    names = Names(tests, setup, entry_point)
    names.known_classes  # noqa: B018 - found here, once for all that are forked
    program.compile()
    told = [{"name": case.name, "expression": case.expression} for case in program.plan.cases]
    return Prepared(program, names, frames.pack({"cases": told}))


class Tester:
    """One check; made before there is anything to be checked."""

    def __init__(self) -> None:
        self._clock = Clock(self._tell)
        self._module = types.ModuleType(TESTS)
        self._names: dict[str, Any] = self._module.__dict__
        self._taken: set[str] = set()
        self._values: list[str] = []

    def run(self, report: socket.socket, calls: socket.socket, *task: str) -> None:
        """Plan, run the code, run the tests; tell what came of each.

        Parameters
        ----------
        report: where the job comes from, and results go: setup, code, tests, entry_point;
            test_timeout and code_timeout in seconds; and maybe `max_timeouts`, and `classes`, the
            names of those that the tests are about, where they are known better than by their
            names in the tests.
        calls: the connection with the code.
        task: the values of `TASK`, where the job leaves them out.
        """
        job = frames.receive(report)
        if job is None:
            return
        self._report = report
        self._link = Link(calls, self._clock)
        self._job: dict[str, Any] = {**job, **dict(zip(TASK, task))}  # noqa: B905
        sys.modules[TESTS] = self._module
        try:
            program, self._found, told_cases = prepare(*(self._job[part] for part in TASK))
        except SyntaxError as error:
            self._refuse(f"the tests do not parse: line {error.lineno}: {error.msg}")
            return
        except (ValueError, RecursionError, MemoryError) as error:
            self._refuse(f"the tests do not parse: {error}")
            return
        planned = program.plan
        if not planned.cases:
            self._refuse(NONE_FOUND)
            return
        with contextlib.suppress(Gone):  # which is told where the code is run
            self._link.read()  # nobody's time begins before the code's process is there
        frames.write(report, told_cases)
        seed()
        most = self._job.get("max_timeouts", MAX_TIMEOUTS)
        results = Results(planned.cases, self._tell, most)
        told = self._load()
        if told is None:
            results.leave("the code did not run")
        else:
            self._run_all(program, told, results)
        self._tell({"done": True})

    def _load(self) -> dict[str, Told] | None:
        """Run setup and code, and give the names they left; None where they did not run."""
        started = time.monotonic()
        names = self._found
        told: dict[str, Told] = {}

        def load() -> None:
            rows = self._link.request("load", self._job["setup"], self._job["code"])
            told.update({string(name): Told(*map(string, rest)) for name, *rest in rows})

        raised = self._tried(self._job["code_timeout"], load)
        status, message = self._ending_of_code(raised)
        seconds = time.monotonic() - started
        if raised is None:
            self._link.settle()
            raised = self._tried(self._job["code_timeout"], lambda: self._bind(names, told))
            status, message = self._ending_of_code(raised)
        self._tell({"code": {"status": status, "message": message, "seconds": seconds}})
        return told if status == "ok" else None

    def _ending_of_code(self, raised: BaseException | None) -> tuple[str, str]:
        if raised is None:
            return "ok", ""
        if self._clock.over and isinstance(raised, (Gone, Overdue)):
            return "timeout", self._over("code")
        if isinstance(raised, Gone):
            return "died", str(raised)
        return "exited" if isinstance(raised, SystemExit) else "error", self.raised(raised)

    def _tried(self, seconds: float, work: Callable[[], object]) -> BaseException | None:
        """Do what asks the code, in so many seconds; give what was raised, whatever that is.

        The code may answer any question with any exception, and one that ended this process
        would leave it ungraded.
        """
        raised: BaseException | None = None
        try:
            self._clock.start(seconds)
            try:
                work()
            finally:
                self._clock.stop()
        except BaseException as error:  # noqa: BLE001  KeyboardInterrupt of the code's own, too
            raised = error
            self._clock.stop()  # as it may have rung before it was stopped
        return raised

    def _bind(self, names: Names, told: dict[str, Told]) -> None:
        """Give the tests the names they do not have themselves."""
        own = names.modules(told)
        if names.helpers and self._run_setup():
            own.update({name: self._names[name] for name in names.helpers})
        self._names.update(own)
        taken = names.of_code(told, own)
        given = self._job.get("classes")
        known = names.known_classes if given is None else set(given)
        self._link.known = {name for name in taken if name in known and told[name].what == "class"}
        values = self._link.request("names", *taken)
        self._taken = {name for name in taken if told[name].what != "value"}
        self._names.update(zip(taken, values))  # noqa: B905  `strict` came with Python 3.10
        # A variable of the code may change from test to test; one that tests set is theirs.
        self._values = [
            name for name in taken if told[name].what == "value" and name not in names.bound
        ]
        module = sys.modules[NAME] = types.ModuleType(NAME)
        vars(module)["__getattr__"] = self._imported

    def _run_setup(self) -> bool:
        """Run the task's own setup here, too, for the functions and values it defines."""
        try:
            exec(compile(self._job["setup"], SETUP, "exec", dont_inherit=True), self._names)  # noqa: S102
        except Exception:  # noqa: BLE001  it may need what only the code's process has
            return False
        return True

    def _imported(self, name: str) -> Any:
        """Give a name that the tests import from the code's module."""
        if name.startswith("__"):
            raise AttributeError(name)
        try:
            return (
                self._names[name] if name in self._taken else self._link.request("names", name)[0]
            )
        except KeyError:
            raise AttributeError(f"the code has no {name}") from None

    # Running the tests

    def _run_all(self, program: Program, told: dict[str, Told], results: Results) -> None:
        planned = program.plan
        if planned.guesses:
            problem = self._bind_candidate(planned.guesses, told)
            if problem:
                results.settle([], {"status": "error", "message": problem})
                return
        recorder = CodeRecorder(self, self._link, planned.looped)
        recorder.emit = results.hear
        units = Units(planned, self._job["tests"], self._names, recorder, program)
        for index in range(len(planned.units)):
            started = time.monotonic()
            ending = self._run_unit(units, index)
            results.settle(planned.of(index), ending, time.monotonic() - started)
            self._link.settle()
            if self._link.dead:
                results.leave(self._link.dead)
            if results.over:
                break

    def _bind_candidate(self, guess: str, told: dict[str, Told]) -> str:
        """Bind the function that `check` is for, where nothing but the code tells it."""
        found = [
            name
            for name, meant in told.items()
            if meant.what == "function" and name[0] != "_" and name not in self._found.setup
        ]
        if not found:
            return "check() needs a function to test, and the code has none"
        if len(found) > 1 and guess not in found:
            return f"check() needs one function to test, and the code has {', '.join(found)}"
        name = guess if guess in found else found[0]

        def bind() -> None:
            self._names["@candidate"] = self._link.request("names", name)[0]

        raised = self._tried(self._job["code_timeout"], bind)
        if self._clock.over:
            return self._over("code")
        return "" if raised is None else self._link.dead or self.raised(raised)

    def _run_unit(self, units: Units, index: int) -> dict[str, Any] | None:
        """Run a unit; tell how it ended where that was not by itself."""
        told: list[dict[str, str] | None] = []

        def run() -> None:
            self._refresh()
            told.append(_completed(units, index))

        raised = self._tried(self._job["test_timeout"], run)
        if self._clock.over:
            return {"status": "timeout", "message": self._over("test")}
        if self._link.dead:
            return {"status": "error", "message": self._link.dead}
        if raised is not None:
            return {"status": "error", "message": self.raised(raised)}
        return told[0]

    def _refresh(self) -> None:
        if self._values:
            values = self._link.request("names", *self._values)
            self._names.update(zip(self._values, values))  # noqa: B905

    # What is told

    def place(self, error: BaseException) -> str:
        """Tell the line of the code that raised an error, if it was the code."""
        filename, line = getattr(error, link.PLACE, ("", 0))
        if filename not in (CODE, SETUP) or line < 1:
            return ""
        source = self._job["code" if filename == CODE else "setup"]
        lines = cases.lines_of(source)
        text = lines[line - 1].strip()[:_LINE] if line <= len(lines) else ""
        return f" ({'' if filename == CODE else 'setup, '}line {line}: {text})"

    def raised(self, error: BaseException) -> str:
        """Tell what the code raised."""
        if isinstance(error, SystemExit):
            told = cut(self._text(error.code, repr), VALUE)
            return f"the code called sys.exit({told}){self.place(error)}"
        text = self._text(error.msg if isinstance(error, SyntaxError) else error)
        name = type(error).__name__
        return (
            f"{name}: {cut(text, VALUE)}{self.place(error)}" if text else name + self.place(error)
        )

    def _text(self, value: object, write: Callable[[object], str] = str) -> str:
        """Make text without the code, which would be asked at no time that counts."""
        quiet, self._link.quiet = self._link.quiet, True
        try:
            return write(value)
        except Exception:  # noqa: BLE001  the classes of the library are not made for such values
            return "(its text could not be had)"
        finally:
            self._link.quiet = quiet

    def _over(self, what: str) -> str:
        return f"ran over {self._job[f'{what}_timeout']:g} s"

    def _refuse(self, problem: str) -> None:
        self._tell({"problem": problem})
        self._tell({"done": True})

    def _tell(self, message: dict[str, Any]) -> None:
        frames.send(self._report, message)


class CodeRecorder(Recorder):
    """Makes text of values without asking the code's process, which an alarm could cut short."""

    through = (Gone, Overdue, asyncio.CancelledError)

    def __init__(self, tester: Tester, link: Link, looped: set[int]) -> None:
        super().__init__({}, looped)
        self._tester = tester
        self._link = link

    def failed(self, index: int, message: object = None) -> Any:
        self._link.quiet = True
        try:
            return super().failed(index, message)
        finally:
            self._link.quiet = False

    def told(self, error: BaseException) -> dict[str, str]:
        self._link.quiet = True
        try:
            told = super().told(error)
            if hasattr(error, link.PLACE):  # the code's own, whatever its class is called
                told.update(status="error", message=self._tester.raised(error))
        finally:
            self._link.quiet = False
        return told

    def place(self, error: BaseException) -> str:
        return self._tester.place(error)


def _completed(units: Units, index: int) -> dict[str, str] | None:
    """Run a unit to its end, on a loop if it needs one."""
    if not units.needs_await(index):
        work = units.run(index, awaits=False)
        try:
            work.send(None)
        except StopIteration as ended:
            told: dict[str, str] | None = ended.value
            return told
        work.close()
    return asyncio.run(units.run(index, awaits=True))
