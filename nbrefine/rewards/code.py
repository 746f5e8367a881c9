"""The reward of code: run it with the task's tests, and tell each failure in words.

Whether what an executor says is feedback or a grade is the executor's to know: the signal's
metadata names its `tier`.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from textwrap import indent
from typing import TYPE_CHECKING, Any

from nbrefine._portal import call_user
from nbrefine.errors import InvalidTaskError, UsageError
from nbrefine.extraction import one_of_many
from nbrefine.extractors import CodeBlockExtractor, Extractor
from nbrefine.prompts import program_system
from nbrefine.rewards.base import IOReward
from nbrefine.rewards.tests import as_cell
from nbrefine.rewards.wording import told
from nbrefine.source import parse
from nbrefine.state import Action, State
from nbrefine.values import CaseResult, Episode, RewardType, Signal, Task, TestReport, Turn, Verdict

if TYPE_CHECKING:
    from nbrefine.executors import CodeExecutionResult, CodeExecutor

NO_TESTS = "No test code available for this task."
NO_CODE = "No code block found in response."
ONE_BLOCK = "Put all of the code between ``` and ```."
INCOMPLETE = "No complete code block found in response."

_PYTHON = CodeBlockExtractor("python")


@dataclass(frozen=True, slots=True)
class Tests:
    """The tests of a task, and what they build on."""

    __test__ = False  # not a test class, whatever pytest may think of the name

    source: str = ""
    entry_point: str = ""
    """The function that `check(candidate)` is given."""
    setup: str = ""
    """Code that runs before the model's."""
    prompt_code: str = ""
    """The begun function that the prompt shows; a reply may go on where it ends."""


def tests_of(state: State) -> Tests | None:
    """Find the visible tests of a state's task, or None.

    They are those of `hidden.task` (or of its episode's task), or else of the data set's row
    `hidden.entry`: `test_list` with `test_imports` and `test_setup_code` before it, `test` or
    `tests`; or else `hidden.tests`.  A task that names tests, hidden ones too, has no others: its
    row may well hold those that are to stay hidden.
    """
    task, hidden = task_of(state), state.hidden
    if task is not None and (task.tests or task.hidden_tests):
        begun = str(task.metadata.get("prompt_code") or "")
        return Tests(task.tests, task.entry_point, task.setup, begun)
    entry = getattr(hidden, "entry", None)
    if isinstance(entry, Mapping) and (source := _source(entry)):
        name, begun = (str(entry.get(key) or "") for key in ("entry_point", "prompt"))
        return Tests(source, name, prompt_code=begun)
    source = _joined(getattr(hidden, "tests", None))
    return Tests(source) if source else None


def task_of(state: State) -> Task | None:
    """Find the task that a state is about: `hidden.task`, or its episode's."""
    hidden = state.hidden
    for holder in (hidden, getattr(hidden, "episode", None)):
        task = getattr(holder, "task", None)
        if isinstance(task, Task):
            return task
    return None


def _source(entry: Mapping[str, Any]) -> str:
    if asserts := _joined(entry.get("test_list")):
        before = (_joined(entry.get(key)) for key in ("test_imports", "test_setup_code"))
        return "\n".join([*filter(None, before), asserts])
    return _joined(entry.get("test")) or _joined(entry.get("tests"))


def _joined(value: Any) -> str:
    if isinstance(value, list | tuple):
        return "\n".join(map(str, value))
    return value if isinstance(value, str) else ""


TestExtractor = Callable[[State], Tests | str | None]
"""Gives the tests of a state's task; a text alone keeps the task's setup and entry point."""


class CodeExecutionReward(IOReward):
    """Runs a reply's code with the task's tests: the reward is the share that passed.

    There is no reward, which is nobody's failure, where the task has no tests or they cannot be
    run; it is 0.0 where the reply holds no code.  The signal's metadata has `passed`, `total`,
    `errors`, `compilation_error`, `tier`, `verdict`, the `cases` one by one (see `report_of`) and
    the program that was run, as `code` in a `language`, or `no_tests`, or `extraction_failed`.

    An executor stays open for whoever made it, since others may use it too; one that nobody
    closes ends with the process at the latest.

    Parameters
    ----------
    executor: anything with `execute(code, test_code, *, timeout)`, called in a thread of its own;
        what has `aexecute` is awaited, and is told setup and entry point apart.
    code_extractor: finds the code in a reply.
    test_extractor: gives the tests; by default `tests_of`.
    name, reward_type, weight: of the signals.
    timeout: seconds for the code and all of its tests.
    close_executor: whether closing this closes the executor, which is then its own.

    Raises
    ------
    UsageError: the executor is none, or the timeout is not positive.
    """

    def __init__(
        self,
        executor: CodeExecutor,
        *,
        code_extractor: Extractor = _PYTHON,
        test_extractor: TestExtractor | None = None,
        name: str = "code_execution",
        reward_type: RewardType = RewardType.OUTCOME,
        weight: float = 1.0,
        timeout: float = 30.0,
        close_executor: bool = False,
    ) -> None:
        if not callable(getattr(executor, "execute", getattr(executor, "aexecute", None))):
            raise UsageError(
                f"{executor!r} executes no code",
                hint="Give an object with execute(code, test_code, *, timeout)",
            )
        if not timeout > 0:
            raise UsageError(f"timeout is {timeout}, but nothing runs in no time")
        self.executor = executor
        self.code_extractor = code_extractor
        self.test_extractor = test_extractor
        self.name = name
        self.reward_type = reward_type
        self.weight = weight
        self.timeout = timeout
        self.close_executor = close_executor

    def __repr__(self) -> str:
        return f"CodeExecutionReward({self.executor!r}, name={self.name!r})"

    @property
    def instructions(self) -> str:
        """What a model has to be told so that its code is found; "" where nobody knows."""
        extractor = self.code_extractor
        if not isinstance(extractor, CodeBlockExtractor):
            return ""
        return program_system(extractor.language or "python")

    async def _compute(self, state: State, action: Action, next_state: State) -> Signal:
        tests = await call_user(self._tests, state)
        if not tests.source.strip():
            return self._signal(None, NO_TESTS, {"no_tests": True})
        code, facts = await call_user(self._code, action, tests)
        if code is None:
            return self._signal(0.0, _no_code(facts), _without_code(facts))
        result = await self._executed(code, tests)
        return self._judged(result, facts)

    def _tests(self, state: State) -> Tests:
        own = tests_of(state) or Tests()
        if self.test_extractor is None:
            return own
        given = self.test_extractor(state)
        if isinstance(given, str):
            return replace(own, source=given)
        return given or Tests()

    def _code(self, action: Action, tests: Tests) -> tuple[str | None, dict[str, Any]]:
        if action.code is not None:
            return action.code, self._ran(action.code, {})
        text = action.text or ""
        code, facts = self.code_extractor.extract(text)
        if code is None and facts.get("reason") == "incomplete":
            return None, facts
        found = text if code is None else code
        whole = completed(found, tests)
        if whole != found:
            return whole, self._ran(whole, facts) | {"completed": True}
        return code, facts if code is None else self._ran(code, facts)

    def _ran(self, code: str, facts: Mapping[str, Any]) -> dict[str, Any]:
        wanted = getattr(self.code_extractor, "language", None)
        ran = {"code": code, "language": str(wanted or facts.get("language") or "")}
        blocks = facts.get("blocks")
        return ran | ({"blocks": blocks} if isinstance(blocks, int) else {})

    async def _executed(self, code: str, tests: Tests) -> CodeExecutionResult:
        aexecute = getattr(self.executor, "aexecute", None)
        result: CodeExecutionResult
        if aexecute is not None:
            result = await aexecute(
                code,
                tests.source,
                timeout=self.timeout,
                entry_point=tests.entry_point,
                setup=tests.setup,
            )
        else:
            before = f"{tests.setup.rstrip()}\n\n" if tests.setup.strip() else ""
            result = await call_user(
                self.executor.execute, before + code, _script(tests, code), timeout=self.timeout
            )
        return result

    def _judged(self, result: CodeExecutionResult, facts: dict[str, Any]) -> Signal:
        verdict = _verdict(result)
        report = getattr(result, "report", TestReport())
        metadata = {
            "passed": result.passed,
            "total": result.total,
            "errors": list(result.errors),
            "compilation_error": result.compilation_error,
            "tier": getattr(result, "tier", "feedback"),
            "verdict": verdict,
            "cases": [asdict(case) for case in report.cases],
            "problem": report.problem,
            "seconds": dict(getattr(result, "seconds", {})),
            "isolation": list(getattr(result, "isolation", ())),
            "stdout": getattr(result, "stdout", ""),
            "stderr": getattr(result, "stderr", ""),
            **facts,
        }
        if verdict == "invalid-task":
            metadata["no_tests"] = result.total == 0
            why = report.problem or result.compilation_error or NO_TESTS
            return self._signal(None, f"The tests of this task cannot be run: {why}", metadata)
        failed = result.compilation_error is not None
        reward = 0.0 if failed else result.passed / result.total
        feedback = told(result, report)
        many = one_of_many(facts.get("blocks", 0), feedback)
        return self._signal(reward, f"{feedback}\n{many}" if many else feedback, metadata)

    def _signal(self, reward: float | None, feedback: str, metadata: dict[str, Any]) -> Signal:
        return Signal(self.name, self.reward_type, reward, feedback, metadata, self.weight)

    async def _close(self) -> None:
        aclose = getattr(self.executor, "aclose", None)
        if self.close_executor and aclose is not None:
            await aclose()


def _verdict(result: CodeExecutionResult) -> Verdict:
    """Judge a result whose executor may know of no verdicts."""
    given: Verdict = getattr(result, "verdict", "failed")
    ran = result.compilation_error is None
    if given == "invalid-task" or (ran and result.total == 0):
        return "invalid-task"
    if ran and result.passed == result.total:
        return "solved"
    return "failed" if given == "solved" else given


def _no_code(facts: Mapping[str, Any]) -> str:
    incomplete = facts.get("reason") == "incomplete"
    if not incomplete and facts.get("blocks") == 0:
        return f"{NO_CODE} {ONE_BLOCK}"
    what = INCOMPLETE if incomplete else NO_CODE
    return f"{what} {facts['detail']}" if facts.get("detail") else what


def _without_code(facts: Mapping[str, Any]) -> dict[str, Any]:
    incomplete = facts.get("reason") == "incomplete"
    return {
        "extraction_failed": True,
        "reason": str(facts.get("reason") or "no-code"),
        "verdict": "incomplete-reply" if incomplete else "no-code",
    }


def completed(code: str, tests: Tests) -> str:
    """Put code that goes on where the prompt ends behind the prompt's own.

    Code that defines the function that is asked for stays as it is, and so does what makes no
    function of the prompt's code either.  Where that has no body yet, the reply's may have lost its
    indentation, wholly or on its first line.
    """
    name, begun = tests.entry_point, tests.prompt_code.rstrip()
    if not (name and begun and code.strip()) or _defines(code, name):
        return code
    before = _function(begun, name)
    bodies = [code]
    if before is None or (len(before.body) == 1 and isinstance(before.body[0], ast.Expr)):
        bodies += [indent(code, "    "), f"    {code.lstrip()}"]
    for body in bodies:
        whole = f"{begun}\n{body}"
        function = _function(whole, name)
        if function is None or (before and len(function.body) <= len(before.body)):
            continue
        # A program in its own right makes a body too, which then gives nothing back.
        if code.lstrip("\n")[0] in " \t" or _gives(function):
            return whole
    return code


def program_of(episode: Episode) -> str:
    """Give what an episode accepted, or else what it submitted last, as one program.

    It goes on where the prompt's code ends.
    """
    task = episode.task
    code = "\n".join(map(_program, episode.accepted or episode.turns[-1:]))
    begun = str(task.metadata.get("prompt_code") or "")
    return completed(code, Tests(task.hidden_tests, task.entry_point, prompt_code=begun))


def _program(turn: Turn) -> str:
    if turn.extraction.language:  # it has been taken out of its reply
        return turn.code
    found = _PYTHON.extract(turn.code)[0]
    return turn.code if found is None else found


def _defines(code: str, name: str) -> bool:
    tree = parse(code)
    return tree is not None and any(
        name in (getattr(node, "name", ""), getattr(node, "asname", ""))
        or (isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Store))
        for node in ast.walk(tree)
    )


FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef


def _function(code: str, name: str) -> FunctionNode | None:
    """Find a top-level function; the last one of a name is the one that counts."""
    return next((node for node in reversed(_functions(code)) if node.name == name), None)


def _functions(code: str) -> list[FunctionNode]:
    tree = parse(code)
    return [node for node in (tree.body if tree else []) if isinstance(node, FunctionNode)]


def _gives(function: FunctionNode) -> bool:
    """Tell whether a function itself returns or yields."""
    pending: list[ast.AST] = [*function.body]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.Return | ast.Yield | ast.YieldFrom):
            return True
        if not isinstance(node, FunctionNode | ast.Lambda | ast.ClassDef):
            pending.extend(ast.iter_child_nodes(node))
    return False


def _script(tests: Tests, code: str) -> str:
    """Give tests as a program that makes the calls which a source leaves to a test runner."""
    name = tests.entry_point or _only_function(code)
    try:
        return as_cell(tests.source, name)
    except InvalidTaskError:  # another language, or else the executor tells what is wrong
        return tests.source


def _only_function(code: str) -> str:
    names = {node.name for node in _functions(code) if not node.name.startswith("_")}
    return names.pop() if len(names) == 1 else ""


def report_of(signal: Signal) -> TestReport | None:
    """Give the tests that a signal tells of one by one, or None."""
    metadata = signal.metadata or {}
    cases = metadata.get("cases")
    if not isinstance(cases, list) or not (cases or metadata.get("problem")):
        return None
    try:
        known = tuple(CaseResult(**case) for case in cases)
    except TypeError:  # another's "cases"
        return None
    return TestReport(known, problem=str(metadata.get("problem") or ""))


def program_in(signal: Signal) -> tuple[str, str] | None:
    """Give the program that a signal says was run, and its language; or None."""
    metadata = signal.metadata or {}
    code, language = metadata.get("code"), metadata.get("language")
    return (code, language) if isinstance(code, str) and isinstance(language, str) else None
