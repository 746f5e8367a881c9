"""The steps of an episode in words: what each was to do, what became of it, and the plans."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Literal

from nbrefine.notebook import wording
from nbrefine.notebook.markdown import one_line
from nbrefine.planning.plans import begun, standing
from nbrefine.values import Answer, Episode, Plan, Postcondition, Subtask, TestReport, Turn, Verdict

Fate = Literal[
    "done",
    "kept",
    "given-up",
    "replaced",
    "blocked",
    "unfinished",
    "running",
    "not-begun",
    "answer",
    "unplanned",
]
"""What became of a step.

`kept`: its best attempt was adopted though not all of its checks held; `replaced`: it was given
up for another plan; `blocked`: it needs one that was given up; `unfinished`: the episode ended
meanwhile; `answer`: the plan was done, and what was left was to answer; `unplanned`: there is no
plan.
"""

GOAL = 90
"""Characters of a goal that a heading shows."""


@dataclass(frozen=True, slots=True)
class Step:
    """One step of an episode."""

    number: int
    turns: tuple[Turn, ...]
    subtask: Subtask | None
    """None where it was not planned."""
    fate: Fate
    lacks: tuple[int, ...] = ()
    """Numbers of the steps for want of which it is blocked."""
    attempts: int = 0
    """How many of the turns were attempts."""
    answered: bool = False
    """Whether the answer was taken in it."""
    lost: bool = False
    """Whether its checks no longer held when the episode was gone on with."""

    @property
    def title(self) -> str:
        if self.subtask is not None:
            return f"Step {self.number}: {one_line(self.subtask.goal, GOAL)}"
        return "Answer" if self.fate == "answer" else f"Step {self.number}"

    @property
    def told(self) -> str:
        """What became of it, in a few words."""
        attempts = ", ".join(str(turn.attempt) for turn in self.turns if turn.accepted)
        if self.fate == "unplanned":
            return f"accepted: attempt {attempts}" if attempts else "nothing accepted"
        if self.fate == "answer":
            return "the answer was taken" if self.answered else "no answer was taken"
        told = _TOLD[self.fate].format(attempts=attempts, lacks=listed(self.lacks))
        return f"{told}, though a check of it no longer holds" if self.lost else told

    @property
    def accepted(self) -> Turn | None:
        """The attempt that became the session."""
        return next((turn for turn in reversed(self.turns) if turn.accepted), None)

    @property
    def checks(self) -> tuple[Postcondition, ...]:
        return self.subtask.postconditions if self.subtask is not None else ()

    @property
    def held(self) -> TestReport | None:
        """What the checks said of the accepted attempt, where all of them held."""
        turn = self.accepted
        if not self.checks or turn is None or turn.tests is None:
            return None
        return turn.tests if turn.tests.solved and not turn.tests.problem else None


_TOLD: dict[Fate, str] = {
    "done": "done at attempt {attempts}",
    "kept": "attempt {attempts} was kept, though not all of its checks held",
    "given-up": "given up",
    "replaced": "given up for another plan",
    "blocked": "not begun, as it needs {lacks}",
    "unfinished": "not finished",
    "running": "being worked on",
    "not-begun": "not begun",
}


def steps_of(episode: Episode) -> list[Step]:
    """Give the steps of an episode, those of its plan that were not begun included."""
    turns = wording.by_step(episode)
    subtasks = episode.plan.subtasks if episode.plan is not None else ()
    replaced = standing(episode.plans, episode.turns).replaced
    steps: list[Step] = []
    missing: set[int] = set()
    for number in sorted({*turns, *range(1, len(subtasks) + 1)}):
        subtask = subtasks[number - 1] if 1 <= number <= len(subtasks) else None
        lacks = tuple(sorted(missing.intersection(subtask.needs))) if subtask is not None else ()
        here = turns.get(number, ())
        attempts = sum(wording.is_attempt(episode, turn) for turn in here)
        found = episode.answer is not None and episode.answer.turn in [t.number for t in here]
        lost = subtask is not None and number in lost_checks(episode)
        step = Step(number, here, subtask, "unplanned", lacks, attempts, found, lost)
        step = replace(step, fate=_fate(episode, step, replaced))
        if step.fate in ("given-up", "replaced", "blocked"):
            missing.add(number)
        steps.append(step)
    return steps


def lost_checks(episode: Episode) -> list[int]:
    """Number the steps whose checks no longer held when the episode was gone on with."""
    told = episode.settings.get("lost_checks", ())
    return (
        [each for each in told if isinstance(each, int)] if isinstance(told, list | tuple) else []
    )


def in_run_order(found: Sequence[Step]) -> list[Step]:
    """Order steps as their accepted cells ran; one without such a cell stands where it was begun.

    A step that was given up may be gone back to, so that is not always the order of the numbers.
    """
    return sorted(found, key=_place)


def _place(step: Step) -> tuple[float, int]:
    first = step.turns[0].number if step.turns else inf
    return (step.accepted.number if step.accepted is not None else first), step.number


def _fate(episode: Episode, step: Step, replaced: Collection[int]) -> Fate:
    if step.subtask is None:
        return "answer" if wording.beyond(episode, step.number) else "unplanned"
    if step.accepted is not None:
        return "done" if step.accepted.verdict == "solved" else "kept"
    if step.number in replaced:
        return "replaced"
    if step.lacks:
        return "blocked"
    if begun(episode.plans, step.turns) < step.number:
        return "not-begun"
    left = episode.turns[-1].step != step.number
    if left or (episode.stop is not None and episode.stop.reason == "gave-up"):
        return "given-up"
    return "running" if episode.stop is None else "unfinished"


def in_steps(episode: Episode) -> bool:
    """Tell whether an episode was worked on in steps, or may be."""
    return wording.stepwise(episode) or any(turn.step > 1 for turn in episode.turns)


def facts(episode: Episode) -> list[tuple[str, str]]:
    """Give the facts of an episode's steps and files that a reader asks for first."""
    found = []
    if episode.plans:
        steps = [step for step in steps_of(episode) if step.subtask and step.fate != "replaced"]
        done = sum(step.fate == "done" for step in steps)
        rest = [f"step {step.number} {step.told}" for step in steps if step.fate == "given-up"]
        found.append(("Steps", "; ".join([f"{done} of {len(steps)} done", *rest])))
    if files := episode.artifacts:
        more = f"; {too_many(count)} to be listed" if (count := unlisted(episode)) else ""
        found.append(("Files", ", ".join(each.path for each in files) + more))
    return found


def plans_told(episode: Episode) -> list[str]:
    """Tell which plans an episode followed, one sentence each."""
    return [_plan_told(episode, place) for place in range(len(episode.plans))]


def _plan_told(episode: Episode, place: int) -> str:
    plan = episode.plans[place]
    count = len(plan.subtasks)
    many = f"{count} step{'' if count == 1 else 's'}"
    if place == 0:
        who = "The task asks for" if plan.origin == "task" else "The model's plan has"
        return f"{who} {many}."
    kept = begun(
        episode.plans[:place], [turn for turn in episode.turns if turn.number < plan.since]
    )
    before, after = (
        standing(episode.plans[:end], episode.turns).replaced for end in (place, place + 1)
    )
    given_up = sorted(after - before)
    why = f" ({one_line(plan.reason, 300).rstrip('.')})" if plan.reason else ""
    parts = [
        f"{listed(given_up)} {_is(given_up)} given up" if given_up else "",
        f"{listed(new)} {_is(new)} new" if (new := range(kept + 1, count + 1)) else "",
    ]
    goals_now = {subtask.goal for subtask in plan.subtasks}
    earlier = [subtask.goal for subtask in episode.plans[place - 1].subtasks[kept:]]
    dropped = [one_line(goal, GOAL) for goal in earlier if goal not in goals_now]
    left_out = f"; no longer planned: {', '.join(dropped)}" if dropped else ""
    told = ", and ".join(part for part in parts if part)
    return f"From turn {plan.since} on another plan holds{why}: {told}{left_out}."


def _is(numbers: Sequence[int]) -> str:
    return "is" if len(numbers) == 1 else "are"


def made_at(episode: Episode, turn: Turn) -> Plan | None:
    """Give the plan that a turn made; None where none came of it."""
    if turn.kind != "plan" or turn.verdict != "solved":
        return None
    return next((plan for plan in episode.plans if plan.since == turn.number + 1), None)


def goals(plan: Plan) -> list[str]:
    """Give the goals of a plan, a numbered line each."""
    return [
        f"{number}. {one_line(subtask.goal, 300)}" + (f" ({needed})" if needed else "")
        for number, subtask in enumerate(plan.subtasks, 1)
        for needed in (needs(subtask),)
    ]


def needs(subtask: Subtask) -> str:
    """Say which steps a subtask builds on; "" for none."""
    return f"needs {listed(subtask.needs)}" if subtask.needs else ""


def listed(numbers: Iterable[int]) -> str:
    """Name steps: "step 2", "steps 2 and 3", "steps 2, 4 and 5"."""
    names = [str(number) for number in numbers]
    if not names:
        return "no step"
    ends = " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
    return f"step{'s' if len(names) > 1 else ''} {ends}"


def check_told(check: Postcondition) -> str:
    """Tell a check in words, or give its code on one line where it has none."""
    return one_line(check.told or "; ".join(check.source.splitlines()), 300)


def checks_told(episode: Episode, turn: Turn | None) -> str:
    """Tell how many checks of a step held, or how many of the task's tests passed."""
    if not episode.plans:
        return wording.tests(turn)
    if turn is None or turn.tests is None:
        return "no checks"
    if turn.tests.problem and not turn.tests.cases:
        return one_line(turn.tests.problem)
    since = " then, not all do now" if turn.accepted and turn.step in lost_checks(episode) else ""
    return f"{turn.tests.passed}/{turn.tests.total} checks held{since}"


def by_expression(turns: Iterable[Turn]) -> list[Turn]:
    """Let the checks in turns be called by what they ask; their numbers tell a reader nothing."""
    return [
        turn if turn.tests is None else replace(turn, tests=_by_expression(turn.tests))
        for turn in turns
    ]


def _by_expression(report: TestReport) -> TestReport:
    taken: set[str] = set()
    cases = []
    for case in report.cases:
        asked = one_line(case.expression, 120)
        name = case.name if not asked or asked in taken else asked
        taken.add(name)
        cases.append(replace(case, name=name))
    return replace(report, cases=tuple(cases))


def asked(turn: Turn) -> str:
    """Give what the model wrote in a turn, the tools it called included."""
    if turn.reply is None:
        return ""
    calls = [_call(call.name, call.arguments, call.raw) for call in turn.reply.tool_calls]
    return "\n\n".join(part for part in (turn.reply.text.strip(), *calls) if part)


def _call(name: str, arguments: dict[str, object], raw: str) -> str:
    if raw:
        return f"{name}({raw})"
    given = (f"{key}={_argument(value)}" for key, value in arguments.items())
    return f"{name}({', '.join(given)})"


def _argument(value: object) -> str:
    if isinstance(value, str) and "\n" in value:
        return f'"""\n{value}\n"""'
    return json.dumps(value, ensure_ascii=False, default=repr)


def brief(turn: Turn) -> str:
    """Say in a word or two what came of a turn in an episode of steps."""
    good = turn.verdict == "solved"
    match turn.kind:
        case "inspection":
            return "look"
        case "plan":
            return "plan" if good else "no plan"
        case "answer":
            return "answer" if good else "no answer"
        case _:
            return "accepted" if turn.accepted else wording.called(turn)


def headline(turn: Turn) -> str:
    """Say what a turn without a cell was."""
    good = turn.verdict == "solved"
    match turn.kind:
        case "inspection":
            return "looked at the session" if good else "looked for what is not there"
        case "plan":
            return "made a plan" if good else "made no plan that can be followed"
        case "answer":
            return "gave the answer" if good else "gave an answer that was not taken"
        case _:
            return _WITHOUT_CODE.get(turn.verdict, "gave a reply that was not judged")


_WITHOUT_CODE: dict[Verdict, str] = {
    "no-code": "gave a reply without code",
    "incomplete-reply": "gave a reply that was cut off",
}


def answered(answer: Answer) -> Iterator[tuple[str, str]]:
    """Give an answer as label and text: one for each field, or one for all of it."""
    fields = answer.value if isinstance(answer.value, dict) else {}
    if fields and all(isinstance(value, str) for value in fields.values()):
        yield from ((str(name), value) for name, value in fields.items())
    else:
        yield "Answer", answer.text


def unlisted(episode: Episode) -> int:
    """Count the changes to files of accepted cells that were too many to be listed."""
    return sum(turn.files.omitted for turn in episode.accepted if turn.files is not None)


def too_many(changes: int) -> str:
    """Say how many changes were left out; they may be of files that are listed, or have gone."""
    many = (
        "1 more change to files was" if changes == 1 else f"{changes:,} more changes to files were"
    )
    return f"{many} too many"


def files_of(episode: Episode) -> list[list[str]]:
    """Give path, size and hash of each file that accepted cells left."""
    return [[each.path, f"{each.size:,}", each.sha256] for each in episode.artifacts]
