"""Which parts of two episodes stand side by side: steps by their goals, turns by their count."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from itertools import zip_longest
from typing import TypeVar

from nbrefine.views.story import Act, Scene, Story

K = TypeVar("K", bound=Hashable)

Key = tuple[str, int]
"""What a turn is, and how many such there were before it in its step, it included."""


def paired_acts(a: Story, b: Story) -> Iterator[tuple[Act | None, Act | None]]:
    """Pair steps of the same goal, and those between them in their order; None where one has none.

    An episode without a plan has a step without a goal, which pairs with the first of another.
    """
    ours_to_do, theirs_to_do = ([_goal(act) for act in story.acts] for story in (a, b))
    matcher = SequenceMatcher(None, ours_to_do, theirs_to_do, autojunk=False)
    for _, first, last, begin, end in matcher.get_opcodes():
        for ours, theirs in zip_longest(a.acts[first:last], b.acts[begin:end]):
            if ours and theirs and _answers(ours) != _answers(theirs):
                yield from ((ours, None), (None, theirs))
            else:
                yield ours, theirs


def _goal(act: Act) -> str:
    subtask = act.step.subtask
    return " ".join(subtask.goal.split()) if subtask is not None else f"\0{act.step.fate}"


def _answers(act: Act) -> bool:
    """Tell whether a step is the one in which the answer is given, which is like no other."""
    return act.step.fate == "answer"


def paired_scenes(a: Act | None, b: Act | None) -> Iterator[tuple[Scene | None, Scene | None]]:
    """Pair attempts by number and other turns by kind and count; None where one has none."""
    ours, theirs = keyed(a), keyed(b)
    for key in merged(list(ours), list(theirs)):
        yield ours.get(key), theirs.get(key)


def keyed(act: Act | None) -> Mapping[Key, Scene]:
    """Give the scenes of a step by what each is and which of its kind."""
    seen: Counter[str] = Counter()
    found: dict[Key, Scene] = {}
    for scene in act.scenes if act is not None else ():
        kind = scene.turn.kind if scene.of or scene.turn.kind != "attempt" else "reply"
        seen[kind] += 1
        found[kind, seen[kind]] = scene
    return found


def merged(ours: Sequence[K], theirs: Sequence[K]) -> Iterator[K]:
    """Give all keys once, in our order, each of theirs alone behind the one that it follows."""
    known = set(ours)
    behind: dict[K | None, list[K]] = {}
    anchor: K | None = None
    for key in theirs:
        if key in known:
            anchor = key
        else:
            behind.setdefault(anchor, []).append(key)
    yield from behind.get(None, ())
    for key in ours:
        yield key
        yield from behind.get(key, ())
