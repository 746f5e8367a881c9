"""Judge an answer to a question of DSEval on the live session that it was given for.

Two branches grow from one state: one runs the reference, then the other the answer. What they
leave is compared as plain data, so that nothing of the answer's is unpickled here; what the answer
has changed comes from the digests of the session's names. The session itself stays as it was.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from nbrefine._portal import Run
from nbrefine.errors import InvalidTaskError, UsageError
from nbrefine.taskdata.dseval.likeness import match
from nbrefine.taskdata.dseval.looking import AnswerRaised, Observed, ask, observe
from nbrefine.taskdata.dseval.sets import Question
from nbrefine.taskdata.dseval.sketches import Match, Rules, Seen
from nbrefine.taskdata.dseval.verdicts import Flaw, Judgement, Remark, judgement_of

if TYPE_CHECKING:
    from nbrefine.kernel import Kernel

FLOOR, FACTOR = 30.0, 10.0
"""Seconds that any code may take, and how many times upstream's limit, which is mostly a second
and would let a busy machine decide."""

_EXPECTED = "nbrefine_expected"


def judge(kernel: Kernel, question: Question, code: str) -> Run[Judgement]:
    """Judge the code that answers a question.

    Parameters
    ----------
    kernel: in the state in which the question was asked; it is branched and stays unharmed.

    Raises
    ------
    InvalidTaskError: the reference itself fails here.
    UsageError: a check is configured in a way that is not known.
    BranchRefused: the kernel cannot be branched.
    KernelError: the kernel has ended, or a branch could not be looked at.
    """
    return Run(_judge(kernel, question, code))


async def _judge(kernel: Kernel, question: Question, code: str) -> Judgement:
    from nbrefine.kernel.state.digest import digest

    before = await digest(kernel.core)
    async with AsyncExitStack() as stack:
        branches = [await stack.enter_async_context(_branch(kernel)) for _ in range(2)]
        reference, answer = branches
        # Not side by side: a reference may write files that the answer reads.
        wanted = await _ran(reference, question, question.code, before)
        if not wanted.ran.ok:
            raise InvalidTaskError(
                f"The reference of question {question.number} fails here: "
                f"{wanted.ran.error or wanted.ran.status}",
                hint="Leave the question out, or install what it needs",
            )
        found = await _ran(answer, question, code, before)
        if found.ran.death is not None:
            return judgement_of([_crash(wanted, found)])
        sides = _Sides(reference, answer, wanted, found)
        remarks: list[Remark] = []
        for check, settings in question.checks.items():
            remarks += await sides.check(check, settings)
    return judgement_of(remarks)


@asynccontextmanager
async def _branch(kernel: Kernel) -> AsyncIterator[Kernel]:
    branch = await kernel.branch()
    try:
        yield branch
    finally:
        await branch.aclose()


async def _ran(kernel: Kernel, question: Question, code: str, before: Any) -> Observed:
    from nbrefine.kernel.state.changes import changes
    from nbrefine.kernel.state.digest import digest

    if question.forbidden:
        await ask(kernel, "hide", list(question.forbidden))
    limit = max(FLOOR, FACTOR * question.seconds)
    # A semicolon at the end would keep the value from being one.
    ran = await kernel.run(code.rstrip().removesuffix(";"), timeout=limit)
    if ran.death is not None:
        return Observed(code, ran)
    checked = list(question.checks.get("namespace_check") or ())
    seen = await observe(kernel, code, ran, checked)
    return replace(seen, change=changes(before, await digest(kernel.core)))


class _Sides:
    """The two branches, and what is seen in them."""

    def __init__(
        self, reference: Kernel, answer: Kernel, wanted: Observed, found: Observed
    ) -> None:
        self._reference, self._answer = reference, answer
        self._wanted, self._found = wanted, found

    async def check(self, check: str, settings: Any) -> list[Remark]:
        """Carry out one check."""
        if check == "crash":
            return [_crash(self._wanted, self._found)]
        if check == "namespace_intact":
            return [_intact(self._wanted, self._found, settings or {})]
        if check == "namespace_check":
            return [await self._name(name, rules) for name, rules in settings.items()]
        if check == "result":
            return [await self._result(settings)]
        if check == "table_test":
            return [await self._calls(**settings)]
        if check == "model":
            return [await self._model(**settings)]
        raise UsageError(f"DSEval's check {check!r} is not known here", hint="Leave the row out")

    async def _name(self, name: str, settings: Any) -> Remark:
        if name not in self._wanted.names:
            raise InvalidTaskError(f"The reference does not bind {name}, which is checked")
        if name not in self._found.names:
            return Remark("namespace_check", "no", f"{name} is not there")
        if isinstance(settings, str):
            told = await self._compared_by(settings, name)
        else:
            told = _compared(self._wanted.names[name], self._found.names[name], settings)
        correct, matched = told
        return Remark("namespace_check", correct, f"{name}: {matched.told}", matched.difference,
                      _flaw(matched))  # fmt: skip

    async def _compared_by(self, source: str, name: str) -> tuple[Any, Match]:
        """Compare by the data set's own function, in the answer's branch, on the values."""
        await ask(self._reference, "alias", name, _EXPECTED)
        copied = await self._reference.copy_variables([_EXPECTED], self._answer)
        if copied.failed:
            raise InvalidTaskError(f"The reference's {name} cannot be compared: {copied}")
        try:
            ok, told = await ask(self._answer, "compare", source, _EXPECTED, name)
        except AnswerRaised as error:
            return "no", Match(False, str(error))
        return ("yes" if ok else "no"), Match(ok, told)

    async def _result(self, settings: Any) -> Remark:
        wanted, found = self._wanted.result, self._found.result
        if wanted is None:
            return Remark("result")
        if isinstance(settings, dict) and "compare_fn" in settings:
            settings = settings["compare_fn"]
        if isinstance(settings, str) and found is not None:
            correct, matched = await self._compared_by(settings, "_")
            return Remark("result", correct, matched.told)
        rules = None if isinstance(settings, str) else settings
        inferred = found is None
        if found is None:
            if answer := _written(self._found.code, wanted):
                return Remark("result", "partial", answer, flaw="non-code")
            try:
                guesses = [
                    Seen(**told) for told in await ask(self._answer, "guess", self._found.code)
                ]
            except AnswerRaised as error:
                return Remark("result", "no", f"There is no output, nor any to infer: {error}")
            found = _combined(guesses, wanted)
            if found is None:
                return Remark("result", "no", "There is no output")
        correct, matched = _compared(wanted, found, rules)
        if inferred and correct != "no":
            return Remark("result", "partial", "It is printed or assigned", flaw="missing-return")
        flaw = _flaw(matched)
        return Remark("result", correct, matched.told, matched.difference, flaw)

    async def _calls(self, function_name: str, test_cases: list[Any], **settings: Any) -> Remark:
        if unknown := sorted(set(settings) - {"input_checker", "output_checker"}):
            raise UsageError(f"table_test's {unknown[0]!r} is not known here")
        asked = ("calls", function_name, test_cases)
        wanted = await ask(self._reference, *asked)
        if failed := next((call["raised"] for call in wanted if "raised" in call), ""):
            raise InvalidTaskError(f"The reference's {function_name} fails here: {failed}")
        found = await ask(self._answer, *asked)
        for number, (call, other) in enumerate(zip(wanted, found, strict=False), 1):
            if "raised" in other:
                return Remark("crash", "no", f"{other['raised']} ({function_name}, case {number})")
            for part, rules in (("arguments", "input_checker"), ("value", "output_checker")):
                given = settings.get(rules)
                if part == "arguments" and given is False:
                    continue
                options = given if isinstance(given, dict) else None
                correct, matched = _compared(Seen(**call[part]), Seen(**other[part]), options)
                if correct != "yes":
                    told = f"{function_name}, case {number}, {part}: {matched.told}"
                    flaw = _flaw(matched)
                    return Remark("table_test", correct, told, matched.difference, flaw)
        return Remark("table_test")

    async def _model(
        self,
        model_name: str,
        inputs_name: str,
        labels_name: str,
        metric_type: str | list[str],
        tolerance: float | list[float] = 0.0,
    ) -> Remark:
        kinds = [metric_type] if isinstance(metric_type, str) else metric_type
        limits = tolerance if isinstance(tolerance, list) else [tolerance] * len(kinds)
        asked = ("metrics", model_name, inputs_name, labels_name, kinds)
        try:
            wanted = await ask(self._reference, *asked)
        except AnswerRaised as error:
            raise InvalidTaskError(f"The reference's {model_name} fails here: {error}") from error
        # The reference's data judge both models, whatever the answer calls its own.
        copied = await self._reference.copy_variables([inputs_name, labels_name], self._answer)
        if copied.failed:
            raise InvalidTaskError(f"The data that {model_name} is judged by: {copied}")
        try:
            found = await ask(self._answer, *asked)
        except AnswerRaised as error:
            return Remark("model", "no", f"{model_name} does not predict: {error}")
        for name, expected, value, limit in zip(kinds, wanted, found, limits, strict=True):
            if not _within(expected, value, limit):
                return Remark("model", "no", f"{name} is {value:g}, the reference's {expected:g}")
        return Remark("model")


def _crash(wanted: Observed, found: Observed) -> Remark:
    ran = found.ran
    if ran.ok:
        return Remark("crash")
    if wanted.result is not None and (answer := _written(found.code, wanted.result)):
        return Remark("crash", "partial", answer, flaw="non-code")
    told = str(ran.death or ran.error or ran.status)
    if ran.status == "timeout":
        return Remark(
            "crash", "no", f"It was stopped after {ran.timing.seconds:.0f} s", flaw="timeout"
        )
    # Python's parser has subclasses of it for indentation.
    syntax = ran.error is not None and ran.error.ename in (
        "SyntaxError",
        "IndentationError",
        "TabError",
    )
    return Remark("crash", "no", told, flaw="syntax" if syntax else "")


def _intact(wanted: Observed, found: Observed, settings: Mapping[str, Any]) -> Remark:
    """Refuse changes of names that the reference leaves alone; new names are free.

    A name bound to an equal value is no change here; upstream counts another object as one.
    """
    allowed = {
        "addition": settings.get("addition", True),
        "update": settings.get("update"),
        "deletion": settings.get("deletion"),
    }
    made = {
        "addition": (found.change.new, wanted.change.new),
        "update": (found.change.changed, wanted.change.changed),
        "deletion": (found.change.deleted, wanted.change.deleted),
    }
    for what, (names, expected) in made.items():
        free = allowed[what]
        if free is True:
            continue
        may = expected if free is None else free or ()
        told = next((name for name in names if name not in may), "")
        if told:
            verb = {"addition": "bound", "update": "changed", "deletion": "deleted"}[what]
            return Remark("namespace_intact", "no", f"{told} should not have been {verb}")
    return Remark("namespace_intact")


def _compared(wanted: Seen, found: Seen, settings: Mapping[str, Any] | None) -> tuple[Any, Match]:
    """Compare strictly first, and then by the loose rules under which an answer is partly right."""
    rules = Rules.of(settings)
    strictly = match(wanted, found, rules)
    if strictly.ok:
        return "yes", strictly
    loosely = match(wanted, found, rules.loose)
    if loosely.ok:
        told = loosely.told or f"It is right but for its form: {strictly.told}"
        return "partial", Match(True, told, strictly.difference)
    return "no", loosely


def _flaw(matched: Match) -> Flaw:
    """Name what is wrong with the form of an answer that is right in part."""
    return "partial-match" if matched.told.startswith("Partial match on") else ""


def _written(code: str, wanted: Seen) -> str:
    """Tell of an answer that stands in the code itself, or give ""."""
    if wanted.value is None or not wanted.shown.strip():
        return ""
    found = re.search(rf"\b{re.escape(wanted.shown)}\b", code)
    return f"The output stands in the code: {wanted.shown}" if found else ""


def _combined(guesses: list[Seen], wanted: Seen) -> Seen | None:
    """Make of what was printed one value of the expected kind."""
    if len(guesses) <= 1:
        return guesses[0] if guesses else None
    kind = wanted.value["k"] if isinstance(wanted.value, dict) else ""
    values: list[Any] = [guess.value for guess in guesses]
    if kind in ("tuple", "list"):
        return Seen(kind, {"k": kind, "items": values})
    if kind == "dict":
        keys = [pair[0] for pair in wanted.value["items"]]
        padded = [None] * (len(keys) - len(values)) + values[-len(keys) :]
        return Seen("dict", {"k": "dict", "items": [[*p] for p in zip(keys, padded, strict=True)]})
    return guesses[-1]


def _within(wanted: float, found: float, tolerance: float) -> bool:
    """Tell whether a metric is good enough: upstream's rule, whose sign says which way is better.

    With a positive tolerance it may be no greater than (1 + tolerance) times the reference's, with
    a negative one no less than that.
    """
    if tolerance == 0:
        return abs(found - wanted) <= 1e-8 + 1e-5 * abs(wanted)
    limit = (1 + tolerance) * wanted
    return found <= limit if tolerance > 0 else found >= limit
