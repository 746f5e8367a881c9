"""What a model does in one turn of a multi-step task: run a cell, look, plan, or answer.

A reply says it by a call of a tool or in fenced text; at most one cell comes of it, and what
else it asked for is named in `note`, which is fed back.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from nbrefine.answers import only_fields, spoken
from nbrefine.errors import UsageError
from nbrefine.extraction import extract
from nbrefine.planning import plan_of, read_plan
from nbrefine.redaction import clean_text
from nbrefine.source import parse
from nbrefine.state import Action
from nbrefine.thinking import without_thinking
from nbrefine.values import AnswerForm, Extraction, Subtask, Tool, ToolCall


@dataclass(frozen=True, slots=True)
class RunCell:
    """Run a cell."""

    extraction: Extraction
    note: str = ""
    """What of the reply was not carried out, or ""; the same in the other moves."""


@dataclass(frozen=True, slots=True)
class Inspect:
    """Look at a variable."""

    name: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class ReadFile:
    """Read a file."""

    path: str
    start: int = 1
    """1-based number of the first line."""
    note: str = ""


@dataclass(frozen=True, slots=True)
class MakePlan:
    """Break what is left of the goal into subtasks."""

    subtasks: tuple[Subtask, ...]
    note: str = ""


@dataclass(frozen=True, slots=True)
class Finish:
    """Answer, and end."""

    text: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class Nothing:
    """Nothing that can be carried out."""

    extraction: Extraction
    problem: str
    """Why, fit to be fed back."""
    note: str = ""


Move = RunCell | Inspect | ReadFile | MakePlan | Finish | Nothing


def _tool(name: str, description: str, /, **parameters: tuple[str, dict[str, Any]]) -> Tool:
    """Make a tool of the description and the schema of each argument; the first one is required."""
    properties = {key: {"description": told, **kind} for key, (told, kind) in parameters.items()}
    schema = {"type": "object", "properties": properties, "required": list(parameters)[:1]}
    return Tool(name, description, schema)


_TEXT = {"type": "string"}
_COUNT = {"type": "integer", "minimum": 1}
_SUBTASK = {
    "type": "object",
    "properties": {
        "goal": {"description": "What the step does.", **_TEXT},
        "needs": {
            "description": "Numbers of earlier steps whose results it uses.",
            "type": "array",
            "items": _COUNT,
        },
        "check": {"description": "An expression that is true once the step is done.", **_TEXT},
    },
    "required": ["goal"],
}

TOOLS: tuple[Tool, ...] = (
    _tool(
        "run_cell",
        "Run code in the live notebook. What earlier cells have made is there.",
        code=("The whole code of the cell.", _TEXT),
    ),
    _tool(
        "inspect_variable",
        "Show what a variable of the notebook holds.",
        name=("The variable's name.", _TEXT),
    ),
    _tool(
        "read_file",
        "Show lines of a text file.",
        path=("The file's path, relative to the working folder.", _TEXT),
        start=("The first line to show; 1 if left out.", _COUNT),
    ),
    _tool(
        "make_plan",
        "Break the goal into steps, each done by one cell.",
        subtasks=("The steps in order.", {"type": "array", "minItems": 1, "items": _SUBTASK}),
    ),
    _tool(
        "finish",
        "Give the final answer once the goal is reached.",
        answer=("The answer in the form that was asked for.", _TEXT),
    ),
)
"""All that can be called."""


def tools_for(*, plan: bool, answer: bool) -> tuple[Tool, ...]:
    """Give the tools of a turn.

    Parameters
    ----------
    plan: whether a plan may be made.
    answer: whether an answer is asked for.
    """
    without = {name for name, wanted in (("make_plan", plan), ("finish", answer)) if not wanted}
    return tuple(tool for tool in TOOLS if tool.name not in without)


def read_move(
    action: Action,
    *,
    language: str,
    form: AnswerForm | None,
    wants: Literal["act", "plan"] = "act",
    may_plan: bool = True,
) -> Move:
    """Read what an action asks for: the first call of a tool, else what stands in its text.

    In text, that is a block of code in the kernel's language, one tagged `plan` or `answer`, a
    call written as JSON, or an answer in words.  A plan goes before code, and code before an
    answer, since neither can have taken in what the one before it gives.

    Parameters
    ----------
    language: the kernel's.
    form: how the answer is to look; None where none is asked for.
    wants: whether a plan was asked for: then a list of goals is one without any tag.
    may_plan: whether a plan is welcome where none was asked for; else code goes before it.
    """
    if action.code is not None:
        code = clean_text(action.code)
        return RunCell(Extraction("given", code, language, "the caller supplied the code"))
    calls = action.tool_calls or (action.reply.tool_calls if action.reply else ())
    if calls:
        return _noted(_called(calls[0], language), calls)
    return _written(action, language, form, wants, may_plan or wants == "plan")


def _noted(move: Move, calls: tuple[ToolCall, ...]) -> Move:
    if len(calls) == 1:
        return move
    rest = ", ".join(call.name for call in calls[1:])
    return replace(move, note=f"Only your first call was carried out; not done: {rest}.")


def _called(call: ToolCall, language: str) -> Move:
    """Read a call of a tool."""
    if call.problem:
        what = f"The arguments of {call.name}" if call.name else "Your call of a tool"
        return _nothing(f"{what} could not be read: {call.problem}")
    tool = next((tool for tool in TOOLS if tool.name == call.name), None)
    if tool is None:
        names = ", ".join(tool.name for tool in TOOLS)
        return _nothing(f"There is no tool {call.name!r}. The tools are: {names}.")
    needed = tool.parameters["required"][0]
    given = call.arguments.get(needed)
    if call.name == "make_plan":
        return _planned(lambda: plan_of(given))
    if not isinstance(given, str) or not (given.strip() or call.name == "finish"):
        return _nothing(f"A call of {call.name} needs a text as its argument {needed!r}.")
    text = clean_text(given)
    if call.name == "run_cell":
        return _cell(text, language)
    if call.name == "inspect_variable":
        return Inspect(text.strip())
    if call.name == "finish":
        return Finish(text.strip())
    return ReadFile(text.strip(), _line(call.arguments.get("start")))


def _nothing(problem: str) -> Nothing:
    return Nothing(Extraction("no-code", reason=problem), problem)


def _planned(read: Callable[[], tuple[Subtask, ...]]) -> MakePlan | Nothing:
    try:
        return MakePlan(read())
    except UsageError as unreadable:
        return _nothing(str(unreadable))


def _cell(code: str, language: str) -> Move:
    """Take the code of a call, which models like to fence as if it were text."""
    if code.lstrip().startswith(("```", "~~~")):
        inner = extract(code, language=language)
        if inner.status == "found":
            return RunCell(inner)
    return RunCell(Extraction("found", code, language, "The code of the call."))


def _line(start: Any) -> int:
    try:
        return min(max(int(start or 1), 1), _FARTHEST)
    except (TypeError, ValueError, OverflowError):  # Infinity is a number in Python's JSON
        return 1


_FARTHEST = 1_000_000_000
"""No file is read beyond this line."""


def _written(
    action: Action,
    language: str,
    form: AnswerForm | None,
    wants: Literal["act", "plan"],
    may_plan: bool,
) -> Move:
    text = clean_text(action.text or "")
    finish = action.reply.finish if action.reply else "stop"
    code = extract(text, language=language, finish=finish)
    said = spoken(text, form) if form is not None else None
    if (_words(code, language) and (said is not None or wants == "plan")) or (
        wants == "plan" and _is_plan(code, language)
    ):
        code = Extraction("no-code", reason="The reply holds no code.", blocks=code.blocks)
    if (plan := _tagged(text, "plan")) is not None:
        return _with_plan(_planned(lambda: read_plan(plan)), code, may_plan)
    answer = _tagged(text, "answer")
    if code.status == "found":
        late = "The answer beside the code was not taken: give it once the code has run."
        return RunCell(code, late if answer is not None else "")
    if answer is not None:
        inner = spoken(answer, form) if form is not None else None
        return Finish(inner if inner is not None else answer.strip())
    return _without_code(text, code, language, said, wants)


def _words(code: Extraction, language: str) -> bool:
    """Tell what was taken for code and is no cell: words without a tag, fields with or without."""
    if code.status != "found" or language != "python":
        return False
    tree = parse(code.code)
    if code.language:
        return tree is None and only_fields(code.code)
    # "ANSWER: mean(x)" happens to parse.
    return tree is None or all(isinstance(node, ast.AnnAssign) for node in tree.body)


def _is_plan(code: Extraction, language: str) -> bool:
    """Tell whether what was tagged as code is a plan."""
    if code.status != "found" or language != "python" or parse(code.code) is not None:
        return False
    return isinstance(_planned(lambda: read_plan(code.code)), MakePlan)


def _with_plan(plan: Move, code: Extraction, welcome: bool) -> Move:
    """Choose between a plan and the code beside it, which was written before its first step."""
    if code.status != "found":
        return plan
    if not welcome:
        return RunCell(code, "The plan beside the code was not taken: none is wanted now.")
    if isinstance(plan, Nothing):
        return RunCell(code, f"The plan beside the code was not taken: {plan.problem}")
    return replace(plan, note="The code beside the plan was not run.")


def _without_code(
    text: str, code: Extraction, language: str, said: str | None, wants: Literal["act", "plan"]
) -> Move:
    call = _call_in(text)
    if call is not None:
        return _called(call, language)
    listed: Move | None = None
    if code.status == "no-code" and wants == "plan":
        listed = _planned(lambda: read_plan(_unfenced(text)))
        if isinstance(listed, MakePlan):
            return listed
    if code.status == "no-code" and said is not None:
        return Finish(said)
    return listed or Nothing(code, code.reason)


def _tagged(text: str, tag: str) -> str | None:
    """Give the last block with a tag that is no language's."""
    found = extract(text, language=tag)
    return found.code if found.status == "found" and found.language == tag else None


_CALL = re.compile(r"<tool_call>(.*?)(?:</tool_call>|\Z)", re.DOTALL)


def _call_in(text: str) -> ToolCall | None:
    """Find the call of a tool that a model has written as JSON, as those without tools do."""
    fenced = extract(text, language="json")
    tagged = _CALL.search(text)
    for said in (fenced.code, tagged[1] if tagged else "", without_thinking(text)):
        try:
            call = json.loads(said)
        except (ValueError, RecursionError):
            continue
        if not isinstance(call, Mapping) or not isinstance(call.get("name"), str):
            continue
        arguments = call.get("arguments", call.get("parameters"))
        if isinstance(arguments, dict) and any(tool.name == call["name"] for tool in TOOLS):
            return ToolCall(call["name"], arguments)
    return None


def _unfenced(text: str) -> str:
    """Give what stands in the only block of a reply, or else all of it."""
    block = extract(text, language=None)
    if block.status == "found" and block.blocks == 1:
        return block.code
    only = re.fullmatch(r"[^`]*```[^\n]*\n(.*?)\n```[^`]*", text, re.DOTALL)
    return only[1] if only else without_thinking(text)
