"""What a reader sees of an episode, scene by scene, whatever it is shown on.

Terminal, player, panel and page tell the same story and differ only in how they draw it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from math import inf

from nbrefine.findings import findings
from nbrefine.notebook import steps, wording
from nbrefine.notebook.cells import turn_ids
from nbrefine.notebook.markdown import one_line
from nbrefine.outputs import Output
from nbrefine.prompts import fold_traceback
from nbrefine.values import CaseResult, Episode, Message, Plan, Turn, Usage
from nbrefine.views.recall import Recall

DOUBTS = 3
"""Tests that may be wrong and are told of."""
UNMISSED = ("solved", "invalid-task", "infra-error")
"""Grades that say nothing against the code."""


@dataclass(frozen=True, slots=True)
class Scene:
    """One turn: what was asked, what was tried, and what came of it."""

    key: str
    """Its cell's id in the episode notebook, such as "s02-a01"."""
    turn: Turn
    place: str
    """Such as "Step 1, attempt 2"."""
    of: str
    """How many there were in the end, such as " of 3"; "" where nobody counts."""
    fate: str
    """What became of it, such as "rejected (failed), 2/4 tests passed"."""
    language: str
    """What its code is written in."""
    recall: Recall = field(repr=False, compare=False)
    """What the prompts of its step show of the attempts."""
    before: Turn | None = None
    """The attempt of the same step whose code this one is compared with."""
    plan: Plan | None = None
    """The plan that it made."""
    plan_told: str = ""
    """The same in a sentence."""

    @property
    def title(self) -> str:
        """Such as "Attempt 2 of 3: rejected (failed), 2/4 tests passed"."""
        return f"{self.place}{self.of}: {self.fate}"

    @property
    def brief(self) -> str:
        """What came of it, in a word or two."""
        return steps.brief(self.turn)

    @property
    def code(self) -> str:
        return self.turn.code

    @property
    def said(self) -> str:
        """What the model wrote, where no code was found in it; its plan is told apart."""
        return "" if self.code or self.plan is not None else steps.asked(self.turn)

    @property
    def origin(self) -> str:
        """Who gave the code, where it is not what the model wrote; "" where it is."""
        extraction = self.turn.extraction
        told = one_line(extraction.reason) if extraction.status == "given" else ""
        return f"{told[:1].upper()}{told[1:].rstrip('.')}." if told else ""

    @property
    def prompt(self) -> tuple[Message, ...]:
        """The messages as sent; () where no model was asked."""
        return self.turn.messages

    @property
    def unshown(self) -> str:
        """Which attempts of its step its prompt does not show, in a sentence; "" for none."""
        return self.recall.unshown(self.turn)

    @property
    def changes(self) -> str:
        """The unified diff to the attempt before, or "" where there is none or all is the same."""
        return wording.diff(self.before, self.turn) if self.before is not None else ""

    @property
    def hunks(self) -> str:
        """The same without its two lines that name what is compared."""
        return self.changes.partition("\n")[2].partition("\n")[2]

    @property
    def repeats(self) -> bool:
        """Whether the code is the same as that of the attempt before."""
        return self.before is not None and self.before.code == self.code

    @property
    def ran(self) -> bool:
        """Whether anything was run or judged, so that there is an outcome to tell."""
        turn = self.turn
        return turn.tried and not wording.withheld(turn) and not wording.unjudged(turn)

    @property
    def outputs(self) -> tuple[Output, ...]:
        return self.turn.result.outputs if self.turn.result is not None else ()

    @property
    def text(self) -> str:
        """The outputs as plain text; of tracebacks without the frames that lie in libraries."""
        result = self.turn.result
        if result is None:
            return ""
        outputs = [
            replace(each, traceback=(fold_traceback(each),)) if each.kind == "error" else each
            for each in result.outputs
        ]
        return replace(result, outputs=tuple(outputs)).text

    @property
    def trouble(self) -> str:
        """Why it was judged as it was, in a sentence; "" where its tests say all."""
        if self.turn.kind != "attempt":
            return ""
        why = wording.reason(self.turn)
        return why if self.ran or wording.unjudged(self.turn) else f"Nothing was run: {why}"

    @property
    def missed(self) -> list[str]:
        """The tests that did not pass, a sentence each; those that were not run in one."""
        cases = wording.not_passed(self.turn)
        idle = [case for case in cases if case.status == "not-run"]
        reasons = "; ".join(dict.fromkeys(one_line(c.message) for c in idle if c.message))
        if len(idle) < 2:
            return [case_told(case) for case in cases]
        told = f"{len(idle):,} tests were not run{f': {reasons}' if reasons else ''}"
        return [*(case_told(case) for case in cases if case.status != "not-run"), told]

    @property
    def notes(self) -> list[str]:
        """What was left out of the outputs, and whatever else a reader should know of the run."""
        result = self.turn.result
        if result is None:
            return []
        return [*(f"Note: {note}" for note in result.notes), *wording.left_out(result)]

    @property
    def effects(self) -> list[str]:
        """What it changed in the session and in its folder, a line each."""
        return wording.changed(self.turn)

    @property
    def where(self) -> str:
        """Where it ran, and what the session keeps of it."""
        return wording.where(self.turn) if self.turn.kind == "attempt" else ""

    @property
    def cost(self) -> str:
        """What it took, in a few words; "" where nothing was measured."""
        usage = self.turn.reply.usage if self.turn.reply is not None else Usage()
        tokens = f"{usage.input_tokens:,} tokens in, {usage.output_tokens:,} out"
        seconds = f"{self.turn.seconds:.1f} s" if self.turn.seconds else ""
        return ", ".join(filter(None, (seconds, tokens if usage.total_tokens else "")))

    @property
    def feedback(self) -> str:
        """What the model was told of it; "" where it was accepted and there was no need."""
        return "" if self.turn.accepted and self.turn.kind == "attempt" else self.turn.feedback


def case_told(case: CaseResult) -> str:
    """Tell a test and how it ended in one line."""
    told = [one_line(case.expression)]
    told.append(f"got {one_line(case.got)}" if case.got else "")
    told.append(f"expected {one_line(case.expected)}" if case.expected else "")
    told.append(one_line(case.message))
    details = "; ".join(filter(None, told))
    return f"{case.name} {wording.STATUS[case.status]}{': ' if details else ''}{details}"


@dataclass(frozen=True, slots=True)
class Act:
    """One step, with the scenes in it; an episode without steps has a single act."""

    step: steps.Step
    scenes: tuple[Scene, ...]

    @property
    def title(self) -> str:
        return self.step.title

    @property
    def goal(self) -> str:
        """What the step is to do, where the title does not say all of it."""
        goal = self.step.subtask.goal if self.step.subtask is not None else ""
        return "" if goal in self.title else goal

    @property
    def needs(self) -> str:
        """The steps it builds on, in a sentence; "" for none."""
        needed = steps.needs(self.step.subtask) if self.step.subtask is not None else ""
        return f"It {needed}." if needed else ""

    @property
    def checks(self) -> list[str]:
        """When it is done, a line each."""
        return [steps.check_told(check) for check in self.step.checks]

    def matrix(self, until: Scene | None = None) -> tuple[list[str], list[list[str]]]:
        """Give header and rows of the table test x attempt, in words, the last attempts only.

        Parameters
        ----------
        until: the scene whose attempt is the last one in the table; None for the last of the step.
        """
        tested = [turn for turn in self._turns(until) if turn.tests is not None]
        shown = tested[-wording.COLUMNS :]
        if self.step.subtask is None:
            return wording.matrix(shown)
        header, rows = wording.matrix(steps.by_expression(shown))
        return ["Check", *header[1:]], rows

    def regressions(self, until: Scene | None = None) -> list[str]:
        """Name the tests that passed in one attempt and not in the next, one sentence each.

        Parameters
        ----------
        until: the scene whose attempt is the last one that is looked at.
        """
        return wording.regressions(self._turns(until))

    def _turns(self, until: Scene | None) -> list[Turn]:
        last = until.turn.number if until is not None else inf
        return [turn for turn in self.step.turns if turn.number <= last]


@dataclass(frozen=True, slots=True)
class Story:
    """All that is told of an episode."""

    episode: Episode
    acts: tuple[Act, ...]

    @property
    def title(self) -> str:
        return wording.title(self.episode)

    @property
    def verdict(self) -> str:
        """How it ended, in one sentence."""
        return wording.verdict(self.episode)

    @property
    def mood(self) -> str:
        """How it ended as one of "good", "bad" and "open", for a colour.

        A grade that the code has missed outweighs the tests that the model was shown.
        """
        episode = self.episode
        if episode.stop is None:
            return "open"
        graded = episode.grade.verdict if episode.grade is not None else "solved"
        return "good" if episode.solved and graded in UNMISSED else "bad"

    @property
    def task(self) -> str:
        """What is asked, where the title does not say all of it."""
        prompt = self.episode.task.prompt
        return "" if prompt.strip() == self.title else prompt

    @property
    def scenes(self) -> tuple[Scene, ...]:
        return tuple(scene for act in self.acts for scene in act.scenes)

    def in_order(self) -> list[tuple[Act, Scene]]:
        """Give all scenes in the order in which they happened; a step may be gone back to."""
        every = [(act, scene) for act in self.acts for scene in act.scenes]
        return sorted(every, key=lambda each: each[1].turn.number)

    @property
    def in_steps(self) -> bool:
        """Whether the acts are steps that a reader wants to tell apart."""
        return len(self.acts) > 1 or any(act.step.subtask is not None for act in self.acts)

    def facts(self) -> list[tuple[str, str]]:
        """Give what a reader asks for first, as label and value."""
        return [*steps.facts(self.episode), *wording.facts(self.episode)]

    def plans(self) -> list[str]:
        """Tell which plans were followed, one sentence each."""
        return steps.plans_told(self.episode)

    def warnings(self) -> list[str]:
        """Say what the episode needs that is not in its record, a paragraph each."""
        return list(filter(None, [wording.came_with(self.episode)]))

    def outcome(self) -> list[tuple[str, str]]:
        """Give what became of each step, the answer, and the files, as label and text."""
        episode = self.episode
        planned = [act.step for act in self.acts] if episode.plans else []
        rows = [(step.title, step.told) for step in planned]
        if episode.answer is not None:
            rows += steps.answered(episode.answer)
        rows += [
            (path, f"{size} bytes, sha256 {sha256[:12]}")
            for path, size, sha256 in steps.files_of(episode)
        ]
        return rows

    def doubts(self) -> list[str]:
        """Tell of tests that may be wrong, the likely ones first."""
        parts = (
            [replace(self.episode, turns=act.step.turns) for act in self.acts]
            if self.episode.plans  # the checks of two steps have nothing in common
            else [self.episode]
        )
        every = {each.detail: each for part in parts for each in findings(part)}
        found = sorted(every.values(), key=lambda finding: not finding.likely)
        told = [
            f"Possible trouble with the tests: {one_line(each.detail, 400)}."
            for each in found[:DOUBTS]
        ]
        more = len(found) - DOUBTS
        return [*told, f"The same holds for {more} more tests."] if more > 0 else told


def story(episode: Episode) -> Story:
    """Tell an episode, in the order in which things happened."""
    keys = dict(zip((turn.number for turn in episode.turns), turn_ids(episode), strict=True))
    found = steps.steps_of(episode)
    several = sum(bool(step.turns) for step in found) > 1
    acts = tuple(Act(step, tuple(_scenes(episode, step, keys, several))) for step in found)
    return Story(episode, acts)


def _scenes(
    episode: Episode, step: steps.Step, keys: dict[int, str], several: bool
) -> Iterator[Scene]:
    previous: Turn | None = None
    recall = Recall.of(episode, step.turns)
    for turn in step.turns:
        plan = steps.made_at(episode, turn)
        yield Scene(
            keys[turn.number],
            turn,
            *_title(episode, step, turn, several),
            wording.language(episode, turn),
            recall,
            previous if turn.code else None,
            plan,
            steps.plans_told(episode)[episode.plans.index(plan)] if plan is not None else "",
        )
        previous = turn if turn.code else previous


def _title(episode: Episode, step: steps.Step, turn: Turn, several: bool) -> tuple[str, str, str]:
    if not wording.is_attempt(episode, turn):
        return f"Turn {turn.number}", "", f"the model {steps.headline(turn)}"
    where = f"{wording.step_name(episode, step.number)}, " if several else ""
    place = f"{where}attempt {turn.attempt}"
    tests = f", {steps.checks_told(episode, turn)}" if turn.tests else ""
    return place.capitalize(), f" of {step.attempts}", f"{wording.fate(turn)}{tests}"
