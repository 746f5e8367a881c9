"""The prompts of a multi-step task: the goal, what is done, what there is, and what comes next.

The step worked on is shown in full, earlier ones as their code and a short result.  The texts
are short because small local models use them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from nbrefine.answers import described
from nbrefine.briefing.amending import instructions
from nbrefine.briefing.past import earlier, newest, shortened
from nbrefine.planning import Progress
from nbrefine.planning.plans import standing
from nbrefine.postconditions import told_of
from nbrefine.prompts import SYSTEM, fence_output, in_language, told_entry, told_task
from nbrefine.source import fenced
from nbrefine.values import Image, Message, Plan, Postcondition, Subtask, Task, Turn

LIMIT = 12_000
"""Characters of a whole prompt, where the goal itself leaves room for that."""

GOAL = 300
"""Characters of a subtask's goal where the plan is told; of the one worked on, all is."""

CHECK = 1_000
"""Characters of what must hold."""

LEAST = 800
"""Characters of the last feedback that are shown in any case."""

CALLS = (
    "You work step by step in a live Jupyter notebook that runs {language}. "
    "Variables and files stay from one cell to the next. "
    "Call exactly one tool in each reply."
)

PLANS = (
    "You plan work that is done in a live Jupyter notebook, one {language} cell after the other. "
    "Reply with exactly one ```plan block and nothing else."
)

ASK_PLAN = """\
Break the goal into 2 to 6 steps, each small enough for one cell. Name the variables and files \
that a step makes. Reply in this form:
```plan
- goal: what the first step does
  check: a {language} expression that is true once it is done
- goal: what the next step does
```
Leave the check out where there is none."""

AMENDED = """\
Do step {step} now, but in another way than planned: {instruction}
The step was planned as: {goal}"""

CALL_PLAN = (
    "Break the goal into 2 to 6 steps, each small enough for one cell, and call make_plan. "
    "Name the variables and files that a step makes."
)


@dataclass(frozen=True, slots=True)
class Seen:
    """What the session holds, as a prompt tells it."""

    variables: str = ""
    """In a few lines; see `nbrefine.kernel.state.namespace.describe`."""
    files: str = ""
    """The working folder in a few lines."""
    data: str = ""
    """The data files that lie elsewhere, in a few lines."""
    images: tuple[Image, ...] = ()
    """What the newest cell has drawn, for models that take pictures."""


def brief(
    task: Task,
    plans: Sequence[Plan],
    turns: Sequence[Turn],
    now: Progress,
    seen: Seen,
    *,
    wants: Literal["act", "plan"] = "act",
    may_plan: bool = False,
    tools: bool = False,
    escalated: bool = False,
    language: str = "python",
    limit: int = LIMIT,
) -> tuple[Message, ...]:
    """Compose the messages of the next prompt.

    Parameters
    ----------
    task: its hidden tests and its reference are not shown.
    plans: those followed so far; the last one holds.
    turns: all so far.
    now: where the work stands.
    seen: what the session holds now.
    wants: whether the next cell or a plan is asked for.
    may_plan: whether a plan is welcome where none is asked for.
    tools: whether the model calls tools; else it writes fenced text.
    escalated: whether another approach is asked for, without the code that was repeated.
    language: the kernel's.
    limit: characters that the prompt should take; what earlier steps have printed goes first,
        then their code, each from the oldest on, and then the middle of the last feedback.
    """
    system = CALLS if tools else PLANS if wants == "plan" else SYSTEM
    before = [*_goal(task, language), _plan(plans, now)]
    after = [*_seen(seen), _aim(task, plans, turns, now, wants)]
    request = _request(
        task,
        plans,
        now,
        wants=wants,
        may_plan=may_plan and not turns,  # later on it would only be in the way
        tools=tools,
        language=language,
    )
    new = newest(turns, now, wants=wants, tools=tools, escalated=escalated, language=language)
    room = limit - sum(map(len, (system, *before, *after, request, new.code, new.note)))
    told = shortened(new.told, max(room, LEAST))
    cells = [turn for turn in turns if turn.accepted and turn not in new.covered]
    done = earlier(cells, plans, room=room - len(told), language=language)
    end = [new.code, told, new.note]
    parts = [*before, done, *after, *([*end, request] if wants == "plan" else [request, *end])]
    content = "\n\n".join(part for part in parts if part)
    return (
        Message("system", in_language(system, language)),
        Message("user", content, seen.images),
    )


def _goal(task: Task, language: str) -> list[str]:
    parts = told_task(task, language)
    if task.tests:
        tests = fenced(task.tests, language.lower())
        parts += [told_entry(task)] if task.entry_point else []
        parts.append(f"At the end these tests must pass:\n{tests}")
    return parts


def _plan(plans: Sequence[Plan], now: Progress) -> str:
    if not plans:
        return ""
    lines = [
        f"{number}. {shortened(subtask.goal, GOAL)}{_standing(number, now)}"
        for number, subtask in enumerate(plans[-1].subtasks, 1)
    ]
    return "The plan:\n" + "\n".join(lines)


def _standing(number: int, now: Progress) -> str:
    if number in now.done:
        return " (done)"
    if number in now.given_up or number in now.replaced:
        return " (given up)"
    if number in now.blocked:
        return " (cannot be done)"
    return " (now)" if number == now.step and now.subtask is not None else ""


def _seen(seen: Seen) -> list[str]:
    parts = []
    if seen.data:
        parts.append(f"Data files:\n{fence_output(seen.data, name='files')}")
    if seen.files:
        parts.append(f"Files in the working folder:\n{fence_output(seen.files, name='files')}")
    if seen.variables:
        shown = fence_output(seen.variables, name="variables")
        parts.append(f"Variables in the notebook:\n{shown}")
    return parts


def _aim(
    task: Task,
    plans: Sequence[Plan],
    turns: Sequence[Turn],
    now: Progress,
    wants: Literal["act", "plan"],
) -> str:
    """Say what is to be done now."""
    if wants == "plan":
        if not plans:
            return ""
        failed = f"{now.exhausted}, and is not done.\n" if now.exhausted else ""
        return f"{failed}Make a new plan for what is left of the goal."
    if now.subtask is not None:
        since = instructions(task, now.step) if now.step in standing(plans, turns).own else []
        return "\n".join([_step(now.step, now.subtask.goal, since), *_checks(now.subtask)])
    if now.finished and plans:
        return "All steps are done." + (" Now answer." if task.answer else "")
    told = instructions(task, now.step)
    return f"Do now, in another way than before: {' '.join(told)}" if told and not plans else ""


def _step(step: int, goal: str, since: Sequence[str]) -> str:
    """Say what a step is, and first what was asked for since: a small model does what stands there.

    Told in the goal, or behind the step, it did the step as it was planned.

    Parameters
    ----------
    since: what was asked for since a step of the task's own was planned; one of a model's plan is
        planned with that in mind.
    """
    if not since:
        return f"Do step {step} now: {goal}"
    return AMENDED.format(step=step, instruction="\n".join(since), goal=goal)


def _checks(subtask: Subtask) -> list[str]:
    if not subtask.postconditions:
        return []
    return ["It is done when all of this holds:", *map(_check, subtask.postconditions)]


def _check(condition: Postcondition) -> str:
    return shortened("\n".join(f"- {each}" for each in told_of(condition)), CHECK)


def _request(
    task: Task,
    plans: Sequence[Plan],
    now: Progress,
    *,
    wants: Literal["act", "plan"],
    may_plan: bool,
    tools: bool,
    language: str,
) -> str:
    """Say in what form the reply, and with the last step the answer, is to be given."""
    if wants == "plan":
        asked = CALL_PLAN if tools else in_language(ASK_PLAN, language)
        form = task.answer.told if task.answer is not None else ""
        return f"The last step gives the answer in this form:\n{form}\n\n{asked}" if form else asked
    parts = []
    if may_plan:
        how = "call make_plan" if tools else "reply with a numbered list in a ```plan block"
        parts.append(f"If the goal takes several steps, you may first {how}.")
    if task.answer is not None and _last(plans, now):
        parts.append(described(task.answer, language=language))
        if task.answer.kind == "files":
            end = "call finish" if tools else "reply with an ```answer block"
            parts.append(f"When they are written, {end} and say what they hold.")
        elif tools:
            parts.append("Or call finish with the answer.")
    return "\n".join(parts)


def _last(plans: Sequence[Plan], now: Progress) -> bool:
    """Tell whether no step is left after the one worked on."""
    if not plans or now.subtask is None:
        return True
    over = {*now.done, *now.given_up, *now.replaced, *now.blocked, now.step}
    return len(over) >= len(plans[-1].subtasks)
