"""The last cells of an episode: what had to hold at its end, the answer, and the files."""

from __future__ import annotations

from collections.abc import Sequence

from nbrefine.errors import InvalidTaskError
from nbrefine.notebook import form, steps, wording
from nbrefine.notebook.form import Cell
from nbrefine.notebook.markdown import fence, plain, table
from nbrefine.outputs import Output
from nbrefine.postconditions import cell_of, tests_of
from nbrefine.rewards.tests import as_cell
from nbrefine.values import Episode, Postcondition

ANSWER_CHECKS = "ep-checks"
"""Id of the cell that holds the checks of the answer."""

SHORT = 200
"""Characters of an answer that fit into a sentence."""


def ending(episode: Episode) -> list[Cell]:
    """Give the cells after the last step."""
    return [*_checks(episode), *_tests(episode), _final(episode)]


def answer_checks(episode: Episode) -> tuple[Postcondition, ...]:
    """Give what has to hold of the session where the episode ends with an answer."""
    return episode.task.answer.postconditions if episode.task.answer is not None else ()


def answer(episode: Episode) -> str:
    """Tell the answer of an episode; "" where none was asked for, or the episode goes on."""
    if episode.task.answer is None or episode.stop is None:
        return ""
    if episode.answer is None:
        return "No answer was taken."
    told = list(steps.answered(episode.answer))
    if len(told) > 1 or told[0][0] != "Answer":
        return table(["Field", "Answer"], [[plain(name), plain(text, 400)] for name, text in told])
    text = told[0][1]
    if "\n" in text.strip() or len(text) > SHORT:
        return f"Answer:\n\n{fence(text, lines=40)}"
    return f"Answer: **{plain(text)}**"


def _checks(episode: Episode) -> list[Cell]:
    checks = answer_checks(episode)
    if not checks:
        return []
    if episode.solved and episode.kernel.language == "python":
        return [form.code(ANSWER_CHECKS, "checks", cell_of(checks).rstrip())]
    shown = fence(tests_of(checks), "python", lines=100)
    return [form.markdown(ANSWER_CHECKS, "checks", ["What has to hold of the answer:", shown])]


def _tests(episode: Episode) -> list[Cell]:
    """Give the visible tests: code where they pass, text where they would fail the run."""
    task = episode.task
    if not task.tests:
        return []
    passed = _passed(episode)
    runs = all(wording.runnable(turn) is not None for turn in episode.accepted[-1:])
    if passed is not None and runs and episode.kernel.language == "python":
        entry_point, put_out = passed
        outputs = [form.output(output) for output in put_out]
        try:
            source = as_cell(task.tests, task.entry_point or entry_point)
            return [form.code("ep-tests", "tests", source, outputs=outputs)]
        except InvalidTaskError:
            pass  # tests that do not parse are shown as they are
    why = ", as text, because no accepted attempt passes them all" if passed is None else ""
    shown = fence(task.tests, episode.kernel.language, lines=200)
    return [form.markdown("ep-tests", "tests", [f"The visible tests{why}:", shown])]


def _passed(episode: Episode) -> tuple[str, Sequence[Output]] | None:
    """Give what is known of the run in which the tests passed: their function, and the outputs.

    An episode of several steps is solved only where they do.
    """
    if not episode.solved:
        return None
    if episode.plans or episode.task.answer is not None:
        return "", ()
    report = episode.accepted[-1].tests if episode.accepted else None
    if report is None or not report.solved or report.problem:
        return None
    return report.entry_point, report.outputs


def _final(episode: Episode) -> Cell:
    parts = ["## Result", plain(wording.verdict(episode), 600), answer(episode)]
    best = wording.chosen_of(episode.turns)
    if best is not None and best.tests is not None and best.tests.cases and not episode.plans:
        header, rows = wording.matrix([best])
        parts.append(table(header, [[plain(name), *words] for name, *words in rows]))
    if other := wording.differences(episode):
        parts.append("When the episode was gone on with, this was other than recorded:")
        parts.append("\n".join(f"- {plain(told, 400)}" for told in other))
    if files := steps.files_of(episode):
        parts.append("Files that accepted cells left:")
        rows = [[plain(path, 400), size, f"`{sha256}`"] for path, size, sha256 in files]
        parts.append(table(["File", "Bytes", "SHA-256"], rows))
    if more := steps.unlisted(episode):
        parts.append(f"{steps.too_many(more)} to be listed.")
    if best is not None and not best.accepted and best.code:
        parts += ["The best attempt's code, which was not accepted:"]
        parts.append(fence(best.code, wording.language(episode, best), lines=400))
    return form.markdown("ep-final", "result", parts)
