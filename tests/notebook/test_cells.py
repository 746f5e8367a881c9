"""The notebook that a reader sees: its cells, and text that stays text."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from markdown_it import MarkdownIt

from nbrefine import notebook
from nbrefine.outputs import CellResult, Cut, Display, Failure
from nbrefine.values import (
    CaseResult,
    Episode,
    Extraction,
    Isolation,
    KernelInfo,
    Reply,
    Stop,
    Task,
    TestReport,
    Turn,
)


def _cells(episode: Episode) -> dict[str, Any]:
    return {cell["id"]: cell for cell in notebook.to_notebook(episode)["cells"]}


def _unsolved(repaired: Episode) -> Episode:
    stop = Stop("max-turns", "the limit of turns (1) was reached")
    return replace(repaired, turns=repaired.turns[:1], stop=stop)


def test_the_cells_stand_in_the_order_of_the_design(repaired: Episode) -> None:
    kinds = [(cell_id, cell["cell_type"]) for cell_id, cell in _cells(repaired).items()]
    assert kinds == [
        ("ep-summary", "markdown"),
        ("ep-params", "code"),
        ("ep-setup", "code"),
        ("s01-plan", "markdown"),
        ("s01-a01", "markdown"),
        ("s01-diff", "markdown"),
        ("s01-a02", "code"),
        ("ep-tests", "code"),
        ("ep-final", "markdown"),
    ]


def test_the_accepted_cell_has_source_outputs_timing_and_tag(repaired: Episode) -> None:
    cell = _cells(repaired)["s01-a02"]
    assert repaired.turns[1].result is not None
    assert cell["source"] == repaired.turns[1].result.source
    assert cell["execution_count"] == 2
    assert cell["outputs"] == [
        {"output_type": "stream", "name": "stdout", "text": "mean 4.0\n"},
        {
            "output_type": "execute_result",
            "data": {"text/plain": "4.0"},
            "metadata": {},
            "execution_count": 2,
        },
    ]
    assert cell["metadata"]["tags"] == ["nbrefine-accepted"]
    assert cell["metadata"]["execution"] == dict.fromkeys(
        (
            "iopub.status.busy",
            "iopub.execute_input",
            "shell.execute_reply",
            "iopub.status.idle",
        ),
        "2026-03-01T10:00:00.000000Z",
    )


def test_a_rejected_attempt_tells_its_error_code_and_feedback_without_colours(
    repaired: Episode,
) -> None:
    source = _cells(repaired)["s01-a01"]["source"]
    assert "rejected (failed)" in source
    assert "`KeyError: 'Price'`" in source
    assert 'values = prices["Price"]' in source
    assert "0/2 tests passed." in source
    assert "a session that is built anew has nothing of it" in source
    assert "\x1b" not in source


def test_the_comparison_names_changes_tests_and_regressions(repaired: Episode) -> None:
    first, second = repaired.turns
    cases = (CaseResult("test_1", "failed"), CaseResult("test_2", "passed"))
    second = replace(second, tests=TestReport(cases), accepted=False, verdict="failed")
    turned = (CaseResult("test_1", "passed"), CaseResult("test_2", "failed"))
    third = replace(repaired.turns[1], number=3, attempt=3, tests=TestReport(turned))
    source = _cells(replace(repaired, turns=(first, second, third)))["s01-diff"]["source"]
    assert "| Test | Attempt 1 | Attempt 2 | Attempt 3 |" in source
    assert "| test\\_1 | not run | fail | pass |" in source
    assert "| test\\_2 | not run | pass | fail |" in source
    assert "Regression at attempt 3: test\\_2 passed at attempt 2 and no longer does." in source
    assert "The code of attempt 2 and attempt 3 is the same." in source
    changes = _cells(repaired)["s01-diff"]["source"]
    assert '-values = prices["Price"]\n+values = prices["price"]' in changes


def test_an_unsolved_episode_runs_nothing_that_can_fail_and_names_its_best(
    repaired: Episode,
) -> None:
    cells = _cells(_unsolved(repaired))
    code = [cell_id for cell_id, cell in cells.items() if cell["cell_type"] == "code"]
    assert code == ["ep-params", "ep-setup"]
    assert "assert mean == 4" in cells["ep-tests"]["source"]
    assert "No attempt was accepted; the best was attempt 1" in cells["ep-summary"]["source"]
    assert 'values = prices["Price"]' in cells["ep-final"]["source"]


def test_the_summary_warns_where_a_rejected_attempt_touched_the_session(
    repaired: Episode,
) -> None:
    first, second = repaired.turns
    dirty, accepted = replace(first, isolation="none"), replace(second, isolation="none")
    stained = replace(repaired, turns=(dirty, accepted))
    warning = "Run All does not do it again"
    assert warning in _cells(stained)["ep-summary"]["source"]
    assert "which keeps what it did" in _cells(stained)["s01-a01"]["source"]
    rebuilt = replace(repaired, turns=(dirty, second))
    for clean in (repaired, rebuilt):
        assert warning not in _cells(clean)["ep-summary"]["source"]


def test_the_guide_of_an_episode_in_a_live_session_does_not_promise_its_state(
    repaired: Episode,
) -> None:
    promise = "Run All gives the accepted state"
    assert promise in _cells(repaired)["ep-summary"]["source"]
    live = replace(repaired, handed_in=("df", *(f"name{n}" for n in range(20))))
    said = _cells(live)["ep-summary"]["source"]
    assert promise not in said
    assert "began in a live session that was handed in, which held df, name0" in said
    assert "and 9 more. None of that is in the record" in said


def test_the_plan_tells_where_an_accepted_attempt_ran_if_not_simply_in_a_branch(
    repaired: Episode,
) -> None:
    first, second = repaired.turns
    cases: list[tuple[Isolation, str, str]] = [
        ("fork", "", ""),
        ("fork", "its tests ran in the attempt itself", "branch of the session"),
        ("rebuild", "the kernel cannot be branched", "rebuilt from the setup"),
        ("none", "asked for", "live session as it was"),
    ]
    for isolation, reason, told in cases:
        turn = replace(second, isolation=isolation, isolation_reason=reason)
        source = _cells(replace(repaired, turns=(first, turn)))["s01-plan"]["source"]
        assert ("Attempt 2, accepted: It ran in" in source) == bool(told)
        assert told in source
        assert reason in source


def test_hidden_tests_and_reference_cannot_be_read_in_the_notebook(repaired: Episode) -> None:
    task = replace(repaired.task, hidden_tests="assert secret_check()", reference="answer = 42")
    made = notebook.to_notebook(replace(repaired, task=task))
    assert "secret_check" not in str(made)
    assert "answer = 42" not in str(made)
    assert notebook.from_notebook(made).task == task


def test_a_reply_without_code_is_a_turn_of_its_own(repaired: Episode) -> None:
    prose = Turn(
        number=1,
        reply=Reply("Sorry, I cannot."),
        extraction=Extraction("no-code", reason="the reply holds no code"),
        verdict="no-code",
        feedback="Answer with code.",
    )
    second = replace(repaired.turns[1], number=2, attempt=2)
    source = _cells(replace(repaired, turns=(prose, second)))["s01-a01"]["source"]
    assert "rejected (no-code)" in source
    assert "Sorry, I cannot." in source
    assert "Nothing was run." in source


def test_turns_that_call_themselves_the_same_attempt_have_their_own_cells(
    repaired: Episode,
) -> None:
    first, second = repaired.turns
    turns = (first, first, replace(second, attempt=1))
    cells = _cells(replace(repaired, turns=turns))
    assert {"s01-a01", "s01-a01-t2", "s01-a01-t3"} <= cells.keys()


def test_every_step_has_its_heading_and_the_summary_links_to_it(repaired: Episode) -> None:
    first, second = repaired.turns
    step_two = replace(second, number=3, step=2, attempt=1)
    cells = _cells(replace(repaired, turns=(first, second, step_two)))
    assert cells["s02-plan"]["source"].startswith("## Step 2\n")
    assert (
        "| [Step 2](#Step-2) | accepted: attempt 1 | 1 | 2/2 tests passed |"
        in (cells["ep-summary"]["source"])
    )


def test_another_language_gets_its_kernel_and_no_python(repaired: Episode) -> None:
    kernel = KernelInfo("bash", "Bash", "bash", "5.2", file_extension=".sh", mimetype="text/x-sh")
    turn = replace(
        repaired.turns[1],
        attempt=1,
        extraction=Extraction("found", "echo hello", "bash"),
        result=CellResult("echo hello", "ok"),
    )
    episode = replace(repaired, kernel=kernel, setup=None, turns=(turn,), task=Task("Say hello."))
    made = notebook.to_notebook(episode)
    assert made["metadata"]["kernelspec"] == {
        "name": "bash",
        "display_name": "Bash",
        "language": "bash",
    }
    assert made["metadata"]["language_info"] == {
        "name": "bash",
        "version": "5.2",
        "file_extension": ".sh",
        "mimetype": "text/x-sh",
    }
    code = [cell["source"] for cell in made["cells"] if cell["cell_type"] == "code"]
    assert code == ["echo hello"]


def test_widgets_are_left_to_the_metadata(repaired: Episode) -> None:
    view = "application/vnd.jupyter.widget-view+json"
    shown = Display({view: {"model_id": "m"}, "text/plain": "IntSlider(value=1)"})
    result = CellResult("slider", "ok", (shown,))
    episode = replace(repaired, turns=(replace(repaired.turns[1], result=result),))
    made = notebook.to_notebook(episode)
    output = next(cell for cell in made["cells"] if cell["id"] == "s01-a02")["outputs"][0]
    assert output["data"] == {"text/plain": "IntSlider(value=1)"}
    assert "widgets" not in made["metadata"]
    assert notebook.from_notebook(made) == episode


def test_an_adopted_cell_that_fails_does_not_stop_run_all(repaired: Episode) -> None:
    failed = replace(repaired.turns[0], accepted=True)
    cell = _cells(replace(repaired, turns=(failed,)))["s01-a01"]
    assert cell["metadata"]["tags"] == ["nbrefine-accepted", "raises-exception"]
    assert cell["outputs"][0]["traceback"] == ["\x1b[31mKeyError\x1b[39m: 'Price'"]


NASTY = (
    "```\n# Not a heading\n~~~\n</details>\n<script>alert(1)</script>\n````\n"
    "[link](javascript:x) ![image](http://x/y.png) | a | b |\n$math$ **bold** &lt;\r\x1b[1m\x07"
)


@pytest.mark.parametrize("cut", [(), (Cut("<b>stdout</b>", 1, 2),)])
def test_text_of_programs_and_models_is_never_markup(
    repaired: Episode, cut: tuple[Cut, ...]
) -> None:
    """CommonMark itself says what is markup: only our own tags are left as HTML."""
    error = Failure(NASTY, NASTY, (NASTY,))
    bad = replace(
        repaired.turns[0],
        reply=Reply(NASTY),
        extraction=Extraction("found", NASTY, NASTY, NASTY),
        result=CellResult(NASTY, "error", (error,), error, cut=cut, notes=(NASTY,)),
        tests=TestReport((CaseResult(NASTY, "failed", NASTY, NASTY),)),
        feedback=NASTY,
        isolation_reason=NASTY,
    )
    prose = replace(
        bad, attempt=2, extraction=Extraction("no-code", reason=NASTY), result=None, tests=None
    )
    episode = Episode(
        Task(NASTY, NASTY, tests=NASTY),
        NASTY,
        NASTY,
        (bad, prose, replace(bad, attempt=3)),
        Stop("max-turns", NASTY),
        NASTY,
        KernelInfo(NASTY, NASTY, NASTY, NASTY),
        version=NASTY,
    )
    html: list[str] = []
    for cell in notebook.to_notebook(episode)["cells"]:
        assert cell["cell_type"] == "markdown"
        assert "\x1b" not in cell["source"]
        assert "\x07" not in cell["source"]
        for token in MarkdownIt().enable("table").parse(cell["source"]):
            kinds = [token, *(token.children or ())]
            html += (kind.content.strip() for kind in kinds if kind.type.startswith("html"))
            assert not any(kind.type == "image" for kind in kinds)
            links = [kind for kind in kinds if kind.type == "link_open"]
            assert all(link.attrs["href"] == "#Step-1" for link in links)
            bold = any(kind.type in ("strong_open", "em_open") for kind in kinds)
            assert not bold or token.content.startswith("**")
    assert html == ["<details>\n<summary>Code, output and feedback</summary>", "</details>"] * 3
