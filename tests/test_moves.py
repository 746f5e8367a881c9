from __future__ import annotations

import json
from typing import Any

import pytest

from nbrefine.moves import (
    TOOLS,
    Finish,
    Inspect,
    MakePlan,
    Move,
    Nothing,
    ReadFile,
    RunCell,
    read_move,
    tools_for,
)
from nbrefine.state import Action
from nbrefine.values import AnswerForm, Reply, ToolCall

TEXT = AnswerForm("text")
MEAN = AnswerForm("fields", fields=("mean",))


def of_text(text: str, *, form: AnswerForm | None = TEXT, **more: Any) -> Move:
    return read_move(Action.from_reply(Reply(text)), language="python", form=form, **more)


def of_call(name: str, /, **arguments: Any) -> Move:
    return of_calls(ToolCall(name, arguments))


def of_calls(*calls: ToolCall) -> Move:
    reply = Reply("", "tool-calls", tool_calls=calls)
    return read_move(Action.from_reply(reply), language="python", form=TEXT)


def code(move: Move) -> str:
    assert isinstance(move, RunCell)
    return move.extraction.code


def goals(move: Move) -> list[str]:
    assert isinstance(move, MakePlan)
    return [subtask.goal for subtask in move.subtasks]


@pytest.mark.parametrize(
    ("start", "line"),
    [
        (3, 3),
        ("3", 3),
        (-1, 1),
        (None, 1),
        ([2], 1),
        (float("nan"), 1),
        (float("inf"), 1),
        (10**30, 1_000_000_000),
    ],
)
def test_a_file_is_read_from_a_line_on_that_a_file_may_have(start: Any, line: int) -> None:
    move = of_call("read_file", path="a.txt", start=start)
    assert move == ReadFile("a.txt", line)


@pytest.mark.parametrize("text", ["[" * 100_000, '```json\n{"a":' + "[" * 100_000 + "\n```"])
def test_text_that_is_nested_without_end_is_nothing(text: str) -> None:
    assert isinstance(of_text(text), Nothing)


def test_given_code_is_run_as_it_is() -> None:
    move = read_move(Action.from_code("x = 1"), language="python", form=None)
    assert isinstance(move, RunCell)
    assert (move.extraction.status, move.extraction.code) == ("given", "x = 1")


def test_a_block_of_code_is_a_cell() -> None:
    assert code(of_text("Here:\n```python\nx = 1\n```\n")) == "x = 1"


def test_bare_code_is_a_cell_even_where_it_prints_an_answer() -> None:
    assert code(of_text("x = 1\nprint('ANSWER: 1')")) == "x = 1\nprint('ANSWER: 1')"
    said = 'm = 3\nprint(f"@mean[{m}]")'
    assert code(of_text(said, form=MEAN)) == said


@pytest.mark.parametrize("text", ["ANSWER: mean(x)", "ANSWER: a = f(x)", "Done.\n**ANSWER:** 3"])
def test_an_answer_in_words_is_one_though_it_might_be_code(text: str) -> None:
    assert isinstance(of_text(text), Finish)


@pytest.mark.parametrize("tag", ["", "python"])
def test_fields_alone_in_a_block_are_an_answer(tag: str) -> None:
    assert of_text(f"```{tag}\n@mean[3.4]\n```", form=MEAN) == Finish("@mean[3.4]")


def test_a_cell_that_does_not_parse_stays_one() -> None:
    assert code(of_text("```python\nx = (\n@mean[3.4]\n```", form=MEAN)) == "x = (\n@mean[3.4]"


def test_fields_in_words_are_an_answer() -> None:
    assert of_text("So @mean[3.4] it is.", form=MEAN) == Finish("@mean[3.4]")
    assert isinstance(of_text("So @sd[3.4] it is.", form=MEAN), Nothing)


@pytest.mark.parametrize(
    ("text", "answer"),
    [("```answer\n42\n```", "42"), ("```answer\nANSWER: 42\n```", "42"), ("```answer\n```", "")],
)
def test_an_answer_block_ends(text: str, answer: str) -> None:
    if answer:
        assert of_text(f"Done.\n{text}") == Finish(answer)
    else:
        assert isinstance(of_text(text), Nothing)


def test_an_answer_block_counts_where_no_answer_is_asked_for() -> None:
    assert of_text("```answer\n42\n```", form=None) == Finish("42")
    assert isinstance(of_text("ANSWER: 42", form=None), Nothing)


def test_a_cell_goes_before_the_answer_beside_it() -> None:
    move = of_text("```python\nx = 1\n```\n```answer\n42\n```")
    assert code(move) == "x = 1"
    assert "answer beside the code was not taken" in move.note


def test_a_plan_goes_before_the_code_beside_it() -> None:
    move = of_text("```plan\n1. Load it\n2. Count it\n```\n```python\nx = 1\n```")
    assert goals(move) == ["Load it", "Count it"]
    assert move.note == "The code beside the plan was not run."


def test_the_code_beside_a_plan_that_cannot_be_read_is_run() -> None:
    move = of_text("```plan\n\n```\n```python\nx = 1\n```")
    assert code(move) == "x = 1"
    bad = of_text("```plan\n- goal: ''\n```\n```python\nx = 1\n```")
    assert code(bad) == "x = 1"
    assert "was not taken" in bad.note


def test_a_plan_that_cannot_be_read_is_told_why() -> None:
    move = of_text("```plan\n- goal: ''\n```")
    assert isinstance(move, Nothing)
    assert move.problem


@pytest.mark.parametrize(
    "text",
    [
        "1. Load it\n2. Count it",
        "```\n1. Load it\n2. Count it\n```",
        "Here is it:\n```markdown\n- Load it\n- Count it\n```",
        "```yaml\n- goal: Load it\n- goal: Count it\n```",
        '```json\n[{"goal": "Load it"}, {"goal": "Count it"}]\n```',
    ],
)
def test_where_a_plan_was_asked_for_a_list_is_one(text: str) -> None:
    assert goals(of_text(text, wants="plan")) == ["Load it", "Count it"]
    assert not isinstance(of_text(text), MakePlan)


def test_where_a_plan_was_asked_for_code_stays_code() -> None:
    assert code(of_text("```python\nx = 1\n```", wants="plan")) == "x = 1"


def test_a_reply_that_was_cut_is_not_run() -> None:
    reply = Reply("```python\nx = 1", "length")
    move = read_move(Action.from_reply(reply), language="python", form=TEXT)
    assert isinstance(move, Nothing)
    assert move.extraction.status == "incomplete"


def test_a_cut_reply_is_neither_a_plan_nor_an_answer() -> None:
    reply = Reply("1. Load it\nANSWER: about t", "length")
    move = read_move(Action.from_reply(reply), language="python", form=TEXT, wants="plan")
    assert isinstance(move, Nothing)


def test_words_alone_are_nothing_and_say_why() -> None:
    move = of_text("I cannot do that.")
    assert move == Nothing(move.extraction, "The reply holds no code block.")  # type: ignore[union-attr]


def test_thinking_holds_no_move() -> None:
    thought = "<think>\n```answer\n1\n```\nANSWER: 2\n</think>\n"
    assert code(of_text(f"{thought}```python\nx = 1\n```")) == "x = 1"
    assert of_text(f"{thought}```answer\n3\n```") == Finish("3")


def test_each_tool_has_its_move() -> None:
    assert code(of_call("run_cell", code="x = 1")) == "x = 1"
    assert of_call("inspect_variable", name=" df ") == Inspect("df")
    assert of_call("read_file", path="a.csv") == ReadFile("a.csv", 1)
    assert of_call("read_file", path="a.csv", start=40) == ReadFile("a.csv", 40)
    assert of_call("finish", answer="42") == Finish("42")
    plan = of_call("make_plan", subtasks=[{"goal": "Load it", "check": "n > 1"}, "Count it"])
    assert goals(plan) == ["Load it", "Count it"]
    assert isinstance(plan, MakePlan)
    assert plan.subtasks[0].postconditions[0].origin == "model"


def test_code_of_a_call_may_stand_in_a_fence() -> None:
    assert code(of_call("run_cell", code="```python\nx = 1\n```")) == "x = 1"
    assert code(of_call("run_cell", code="s = '```'")) == "s = '```'"


@pytest.mark.parametrize(("start", "line"), [("7", 7), (0, 1), (-3, 1), ("x", 1), (None, 1)])
def test_a_line_that_is_none_is_the_first(start: Any, line: int) -> None:
    assert of_call("read_file", path="a", start=start) == ReadFile("a", line)


@pytest.mark.parametrize(
    ("name", "arguments", "told"),
    [
        ("run_sell", {"code": "x"}, "The tools are: run_cell, inspect_variable,"),
        ("run_cell", {}, "'code'"),
        ("run_cell", {"code": "  "}, "'code'"),
        ("inspect_variable", {"name": 3}, "'name'"),
        ("read_file", {"start": 3}, "'path'"),
        ("finish", {}, "'answer'"),
    ],
)
def test_a_call_that_cannot_be_carried_out_says_why(
    name: str, arguments: dict[str, Any], told: str
) -> None:
    move = of_call(name, **arguments)
    assert isinstance(move, Nothing)
    assert told in move.problem


@pytest.mark.parametrize("given", [None, [], [{"goal": ""}], "", 3])
def test_a_plan_of_a_call_must_be_one(given: Any) -> None:
    move = of_call("make_plan", subtasks=given)
    assert isinstance(move, Nothing)
    assert move.problem


def test_arguments_that_were_not_read_are_fed_back() -> None:
    move = of_calls(ToolCall("run_cell", problem="it ends too early", raw='{"code": "x'))
    assert isinstance(move, Nothing)
    assert "run_cell could not be read: it ends too early" in move.problem


def test_only_the_first_call_is_carried_out_and_the_others_are_named() -> None:
    move = of_calls(
        ToolCall("run_cell", {"code": "x = 1"}), ToolCall("finish", {"answer": "1"}), ToolCall("b")
    )
    assert code(move) == "x = 1"
    assert move.note == "Only your first call was carried out; not done: finish, b."


def test_a_call_goes_before_what_the_text_says() -> None:
    reply = Reply("```python\ny = 2\n```", tool_calls=(ToolCall("run_cell", {"code": "x = 1"}),))
    assert code(read_move(Action.from_reply(reply), language="python", form=TEXT)) == "x = 1"


def test_the_calls_of_an_action_count_without_a_reply() -> None:
    action = Action.from_tool_call(ToolCall("finish", {"answer": "1"}))
    assert read_move(action, language="python", form=TEXT) == Finish("1")


CALL = {"name": "run_cell", "arguments": {"code": "x = 1"}}


@pytest.mark.parametrize(
    "text",
    [
        json.dumps(CALL),
        f"```json\n{json.dumps(CALL, indent=2)}\n```",
        f"I will.\n<tool_call>\n{json.dumps(CALL)}\n</tool_call>",
        f"<tool_call>{json.dumps(CALL)}",
        json.dumps({"name": "run_cell", "parameters": {"code": "x = 1"}}),
    ],
)
def test_a_call_that_is_written_as_text_is_one(text: str) -> None:
    assert code(of_text(text)) == "x = 1"


@pytest.mark.parametrize(
    "text", ['{"name": "Ada", "arguments": {}}', '{"name": "run_cell"}', "[1]", '"run_cell"']
)
def test_other_json_is_no_call(text: str) -> None:
    assert isinstance(of_text(text), Nothing)


def test_other_languages_have_their_own_blocks() -> None:
    action = Action.from_text("```r\nx <- 1\n```")
    assert code(read_move(action, language="r", form=TEXT)) == "x <- 1"
    assert isinstance(read_move(action, language="python", form=TEXT), Nothing)


def test_tools_are_those_of_the_turn() -> None:
    every = [tool.name for tool in TOOLS]
    assert every == ["run_cell", "inspect_variable", "read_file", "make_plan", "finish"]
    assert tools_for(plan=True, answer=True) == TOOLS
    assert [tool.name for tool in tools_for(plan=False, answer=False)] == every[:3]


def test_every_tool_requires_its_first_argument_and_explains_each() -> None:
    for tool in TOOLS:
        schema = json.loads(json.dumps(tool.parameters))
        assert schema["required"] == [next(iter(schema["properties"]))]
        assert all(each["description"] for each in schema["properties"].values())


def test_code_goes_before_a_plan_that_is_not_welcome() -> None:
    text = "```plan\n1. Make x\n```\n```python\nx = 1\n```"
    assert isinstance(of_text(text), MakePlan)
    assert isinstance(of_text(text, wants="plan", may_plan=False), MakePlan)
    move = of_text(text, may_plan=False)
    assert code(move) == "x = 1"
    assert "plan beside the code was not taken" in move.note
    assert isinstance(of_text("```plan\n1. Make x\n```", may_plan=False), MakePlan)


@pytest.mark.parametrize(
    "text",
    [
        "First this, then that:\n\n- goal: Load it\n  check: `len(df) > 0`\n- goal: Say it\n",
        "1. Load it, check: `len(df) > 0`\n2. Say it",
        "```\n- goal: Load it\n  check: `len(df) > 0`\n- goal: Say it\n```",
        "```python\n- goal: Load it\n  check: len(df) > 0\n- goal: Say it\n```",
        "```plan\n- goal: Load it\n  check: `len(df) > 0`\n- goal: Say it\n```",
    ],
)
def test_a_plan_that_was_asked_for_is_read_however_it_is_written(text: str) -> None:
    move = of_text(text, wants="plan")
    assert isinstance(move, MakePlan)
    assert [subtask.goal for subtask in move.subtasks] == ["Load it", "Say it"]
    assert move.subtasks[0].postconditions[0].source == "assert len(df) > 0"


def test_a_plan_that_cannot_be_followed_says_why_where_it_was_asked_for() -> None:
    move = of_text("- goal: Load it\n  check: all rows are there\n", wants="plan")
    assert isinstance(move, Nothing)
    assert "The check `all rows are there` is no Python" in move.problem
