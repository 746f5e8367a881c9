"""The words of a comparison: how each episode ended, where the two part, and in what."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from nbrefine.notebook.markdown import one_line
from nbrefine.values import Episode, StopReason
from nbrefine.views.diff.aligning import merged
from nbrefine.views.story import UNMISSED, Act, Scene

if TYPE_CHECKING:
    from nbrefine.views.diff.compared import EpisodeDiff, Pair, Part, StepPair
    from nbrefine.views.diff.runs import Contrast

NAMED = 3
"""Things in which the runs differ that the first sentence names."""

_WORDS: dict[Part, str] = {
    "code": "other code",
    "text": "other words of the model",
    "verdict": "another verdict",
    "tests": "other results of tests",
    "output": "other output",
}

_SHORT: dict[Part, str] = {
    "code": "code",
    "text": "words",
    "verdict": "verdict",
    "tests": "tests",
    "output": "output",
}

_ENDED: dict[StopReason, str] = {
    "submitted": "handed in its last submission after {many}",
    "max-turns": "ran out of turns after {many}",
    "budget": "ran out of its budget after {many}",
    "cycle": "gave up after {many} (cycle)",
    "stagnation": "gave up after {many} (stagnation)",
    "gave-up": "gave up after {many}",
    "stopped": "was stopped after {many}",
    "killed": "was killed after {many}",
    "invalid-task": "had a task that cannot be judged",
    "infra-error": "was ended by trouble of the host after {many}",
}


def sentence(compared: EpisodeDiff) -> str:
    """Tell whether they had one task, how each ended, and where they part."""
    if compared.equal:
        return _alike(compared)
    a, b = compared.a.episode.task.prompt, compared.b.episode.task.prompt
    tasks = "" if a == b else "Their tasks differ. "
    return f"{tasks}{_endings(compared)} {_parting(compared)}"


def _alike(compared: EpisodeDiff) -> str:
    took = {each.what for each in compared.costs}
    times = "times" if "Time" in took else ""
    tokens = "tokens" if took - {"Time"} else ""
    but = " and ".join(filter(None, (times, tokens)))
    return f"No differences but {but}." if but else "No differences."


def _endings(compared: EpisodeDiff) -> str:
    a, b = compared.a.episode, compared.b.episode
    in_steps = compared.in_steps
    ours, theirs = ended(a, in_steps), ended(b, in_steps)
    if ours == theirs:
        return f"Both {ours}."
    told = [f"A {ours}", f"B {theirs}"]
    return f"{'; '.join(reversed(told) if _good(b) and not _good(a) else told)}."


def _good(episode: Episode) -> bool:
    return episode.solved and not _missed(episode)


def _missed(episode: Episode) -> bool:
    """Tell whether there is a grade, which the code that passed what was shown has missed."""
    return episode.grade is not None and episode.grade.verdict not in UNMISSED


def ended(episode: Episode, in_steps: bool) -> str:
    """Tell how an episode ended, as what follows its name in a sentence.

    Parameters
    ----------
    in_steps: whether turns are counted, since attempts are counted step by step.
    """
    count = len(episode.turns)
    unit = "turn" if in_steps or count > len(episode.attempts) else "attempt"
    many = f"{count:,} {unit}{'' if count == 1 else 's'}"
    if episode.stop is None:
        return f"is not at its end after {many}"
    if episode.solved:
        where = f"after {many}" if unit == "turn" else f"in attempt {count:,}"
        if _missed(episode):
            return f"passed the tests it was shown {where} and failed its grade"
        return f"solved it {where}"
    return _ENDED.get(episode.stop.reason, f"ended ({episode.stop.reason}) after {{many}}").format(
        many=many
    )


def _parting(compared: EpisodeDiff) -> str:
    first = compared.first
    if first is not None:
        where = first.place[0].lower() + first.place[1:]
        return f"They part at {where}{_how(first)}."
    if compared.runs:
        named = [each.what[0].lower() + each.what[1:] for each in compared.runs[:NAMED]]
        more = len(compared.runs) - NAMED
        listed = ", ".join([*named, f"{more:,} more"] if more > 0 else named)
        return f"Turn by turn they are the same; what the runs began with differs: {listed}."
    return "Turn by turn they are the same, but not at the end."


def _how(pair: Pair) -> str:
    if pair.a is None or pair.b is None:
        return _alone(pair)
    words = [_WORDS[part] for part in pair.differs]
    listed = " and ".join(filter(None, (", ".join(words[:-1]), words[-1])))
    if "code" in pair.differs or "text" in pair.differs or not pair.a.code:
        return f": {listed}"
    return f": the same code, but {listed}"


def _alone(pair: Pair) -> str:
    ours, other = ("A", "B") if pair.b is None else ("B", "A")
    scene = pair.a or pair.b
    if scene is None or scene.of:
        return f", which only {ours} has"
    return f" of {ours}, where {one_line(scene.fate)}; {other} has nothing beside it"


def place(pair: Pair) -> str:
    """Name where a pair stands, in both episodes where that is not the same."""
    a, b = (scene.place if scene is not None else "" for scene in (pair.a, pair.b))
    if not a or not b or a == b:
        return a or b
    short, long = sorted((a, b), key=len)
    if long.lower().endswith(short.lower()):  # one episode has a single step
        return long
    return f"{a} of A, {b[0].lower()}{b[1:]} of B"


def parts(pair: Pair) -> str:
    """Say in a few words in what two turns differ."""
    if pair.a is None or pair.b is None:
        return f"only in {'A' if pair.b is None else 'B'}"
    after = f" after {', '.join(pair.after)}" if pair.after else ""
    return ", ".join(_SHORT[part] for part in pair.differs) or f"the same{after}"


def fate(scene: Scene | None) -> str:
    """Tell what became of a turn; a dash where there is none."""
    return one_line(scene.fate) if scene is not None else "-"


def title(act: Act | None) -> str:
    """Name a step; "" where there is none."""
    return act.title if act is not None else ""


def overview(compared: EpisodeDiff) -> list[tuple[str, str, str]]:
    """Give the facts of both that a reader asks for first: label, and what each side has."""
    sides = (compared.a, compared.b)
    ours, theirs = ({"Ended": side.story.verdict, **dict(side.story.facts())} for side in sides)
    labels = (label for label in merged(list(ours), list(theirs)) if label != "Hidden tests")
    return [(label, ours.get(label, "-"), theirs.get(label, "-")) for label in labels]


def contrasts(found: Sequence[Contrast]) -> list[tuple[str, str, str]]:
    """Give what differs and is short enough for a table."""
    return [(each.what, each.a or "-", each.b or "-") for each in found if not each.long]


def turns(step: StepPair) -> list[tuple[str, str, str, str]]:
    """Give the pairs of a step: place, what became of it in A and in B, and the difference."""
    return [(pair.place, fate(pair.a), fate(pair.b), pair.told) for pair in step.pairs]


def step_title(step: StepPair) -> str:
    """Name a pair of steps, by both names where they are not the same."""
    a, b = step.titles
    if not a or not b:
        return f"{a or b} (only in {'A' if a else 'B'})"
    return a if a == b else f"A: {a}; B: {b}"


def short_title(step: StepPair) -> str:
    """Name a pair of steps by number."""
    a, b = (f"Step {act.step.number}" if act is not None else "" for act in (step.a, step.b))
    return a or b if not a or not b or a == b else f"{a} of A, {b[0].lower()}{b[1:]} of B"


def sections(pair: Pair) -> list[tuple[str, str]]:
    """Give the unified diffs of a pair, each with its heading."""
    only = "" if pair.a is not None and pair.b is not None else " of A" if pair.a else " of B"
    found = (("Code", pair.code), ("What the model wrote", pair.text), ("Output", pair.output))
    return [(f"{name}{only}", changes) for name, changes in found if changes]
