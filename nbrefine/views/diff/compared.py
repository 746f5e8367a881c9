"""Two episodes compared: pairs of steps and of attempts, and in what they differ."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from nbrefine.notebook import load
from nbrefine.values import Episode
from nbrefine.views.diff import outcomes, runs, telling
from nbrefine.views.diff.aligning import paired_acts, paired_scenes
from nbrefine.views.diff.changes import changes
from nbrefine.views.diff.runs import Contrast
from nbrefine.views.story import Act, Scene, Story, story

Part = Literal["there", "code", "text", "verdict", "tests", "output"]
"""In what two turns differ.

`there`: only one episode has it; `code`: what ran or was handed in; `text`: what the model wrote
where that is no code; `verdict`: how it was judged, and whether it was kept; `tests`: what single
tests or checks said; `output`: what the cell put out, its error included.
"""


def diff(a: Episode | str | Path, b: Episode | str | Path) -> EpisodeDiff:
    """Compare two episodes, step by step and attempt by attempt; in a notebook it shows itself.

    Parameters
    ----------
    a, b: an episode each, or the path of its notebook or journal.

    Raises
    ------
    RecordError: a path holds no episode.
    """
    ours, theirs = _side("A", a), _side("B", b)
    steps = tuple(
        StepPair(first, second, tuple(_pair(*both) for both in paired_scenes(first, second)))
        for first, second in paired_acts(ours.story, theirs.story)
    )
    return EpisodeDiff(
        ours,
        theirs,
        tuple(runs.before(ours.episode, theirs.episode)),
        steps,
        (
            *runs.ends(ours.episode, theirs.episode),
            *filter(None, map(_fates, steps)),
        ),
        tuple(runs.costs(ours.episode, theirs.episode)),
    )


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two episodes."""

    letter: str
    """Either "A" or "B"."""
    name: str
    """Its path as it was given, or what the episode is called."""
    story: Story

    @property
    def episode(self) -> Episode:
        return self.story.episode


@dataclass(frozen=True, slots=True)
class Pair:
    """Two turns that stand side by side, or one that has nothing beside it."""

    a: Scene | None
    b: Scene | None
    differs: tuple[Part, ...]
    """In what; () where both are alike."""
    after: tuple[str, ...] = ()
    """The names of the rules without which their outputs would not be the same, such as "time"."""

    @property
    def place(self) -> str:
        """Such as "Step 1, attempt 2", with both places where they are not the same."""
        return telling.place(self)

    @property
    def told(self) -> str:
        """In what they differ, in a few words."""
        return telling.parts(self)

    @property
    def code(self) -> str:
        """The unified diff from A's code to B's, or ""."""
        return changes(outcomes.code(self.a), outcomes.code(self.b))

    @property
    def text(self) -> str:
        """The unified diff between what the models wrote where that is no code, or ""."""
        return changes(outcomes.text(self.a), outcomes.text(self.b))

    @property
    def output(self) -> str:
        """The unified diff from A's outputs to B's, or "" where they are the same by rules."""
        if not {"output", "there"} & {*self.differs}:
            return ""
        return changes(outcomes.output(self.a), outcomes.output(self.b))

    @property
    def tests(self) -> list[tuple[str, str, str]]:
        """The tests that went otherwise: name, and what each side says of it."""
        return outcomes.tests(self.a, self.b)


@dataclass(frozen=True, slots=True)
class StepPair:
    """Two steps that stand side by side, or one that only one episode has."""

    a: Act | None
    b: Act | None
    pairs: tuple[Pair, ...]

    @property
    def titles(self) -> tuple[str, str]:
        """What each calls it; "" where it has none."""
        return telling.title(self.a), telling.title(self.b)


@dataclass(frozen=True, slots=True)
class EpisodeDiff:
    """Two episodes side by side."""

    a: Side
    b: Side
    runs: tuple[Contrast, ...]
    """What differs in what the runs began with: task, model, settings, prompt, packages."""
    steps: tuple[StepPair, ...]
    ends: tuple[Contrast, ...]
    """What differs in how they ended: stop, steps, answer, files."""
    costs: tuple[Contrast, ...]
    """What differs in seconds and tokens, which makes no episode another."""

    @property
    def equal(self) -> bool:
        """Whether nothing differs but what it took and when it was."""
        return not (self.runs or self.ends or self.first)

    @property
    def pairs(self) -> tuple[Pair, ...]:
        """The pairs of all steps, in order."""
        return tuple(itertools.chain.from_iterable(step.pairs for step in self.steps))

    @property
    def first(self) -> Pair | None:
        """Where they part: the first pair that differs."""
        return next((pair for pair in self.pairs if pair.differs), None)

    @property
    def in_steps(self) -> bool:
        """Whether there are steps that a reader wants to tell apart."""
        return self.a.story.in_steps or self.b.story.in_steps

    @property
    def sentence(self) -> str:
        """How each ended, and where they part."""
        return telling.sentence(self)

    def to_dict(self) -> dict[str, Any]:
        """Give all of it as plain JSON: `nbrefine diff --json` is this.

        `first` is the place at which they part, or null.  `runs`, `ends` and `costs` hold `what`,
        `a` and `b`.  Each of `steps` has its titles, null where a side has none, and `turns`: the
        facts of both, what `differs` (see `Part`), `changes` as unified diffs, and the `tests`
        that went otherwise.
        """
        first = self.first
        return {
            "equal": self.equal,
            "sentence": self.sentence,
            "first": first.place if first is not None else None,
            **{side.letter.lower(): _facts(side) for side in (self.a, self.b)},
            "runs": [dataclasses.asdict(each) for each in self.runs],
            "ends": [dataclasses.asdict(each) for each in self.ends],
            "costs": [dataclasses.asdict(each) for each in self.costs],
            "steps": [
                {
                    "a": step.titles[0] or None,
                    "b": step.titles[1] or None,
                    "turns": [_turns(pair) for pair in step.pairs],
                }
                for step in self.steps
            ],
        }

    def __str__(self) -> str:
        return self.sentence

    def __repr__(self) -> str:  # one line: all that it holds is many pages
        return f"<EpisodeDiff {self.sentence}>"

    def _ipython_display_(self) -> None:
        from nbrefine.views.widgets import in_notebook

        if in_notebook():
            from nbrefine.views.diff.controls import display_diff

            display_diff(self)
            return
        from nbrefine.views.diff.terminal import show

        show(self)


def _side(letter: str, source: Episode | str | Path) -> Side:
    if isinstance(source, Episode):
        told = story(source)
        return Side(letter, told.title, told)
    return Side(letter, str(source), story(load(source)))


def _fates(step: StepPair) -> Contrast | None:
    """Give what became of a step, where that is not the same."""
    acts = [act for act in (step.a, step.b) if act is not None and act.step.subtask is not None]
    a, b = (act.step.told if act in acts else "" for act in (step.a, step.b))
    return Contrast(telling.short_title(step), a, b) if a != b else None


def _pair(a: Scene | None, b: Scene | None) -> Pair:
    if a is None or b is None:
        return Pair(a, b, ("there",))
    same, after = outcomes.same_output(a, b)
    found = tuple(_differing(a, b))
    return Pair(a, b, found if same else (*found, "output"), after if same else ())


def _differing(a: Scene, b: Scene) -> Iterator[Part]:
    if outcomes.code(a) != outcomes.code(b):
        yield "code"
    if outcomes.text(a) != outcomes.text(b):
        yield "text"
    if outcomes.verdict(a) != outcomes.verdict(b):
        yield "verdict"
    if outcomes.tests(a, b):
        yield "tests"


def _facts(side: Side) -> dict[str, Any]:
    episode = side.episode
    return {
        "name": side.name,
        "solved": episode.solved,
        "verdict": episode.verdict,
        "stop": dataclasses.asdict(episode.stop) if episode.stop is not None else None,
        "model": episode.model,
        "turns": len(episode.turns),
        "attempts": len(episode.attempts),
        "tokens": {"input": episode.usage.input_tokens, "output": episode.usage.output_tokens},
        "seconds": round(episode.seconds, 3),
    }


def _turns(pair: Pair) -> dict[str, Any]:
    texts = {"code": pair.code, "text": pair.text, "output": pair.output}
    return {
        "place": pair.place,
        "differs": list(pair.differs),
        "after": list(pair.after),
        "a": outcomes.row(pair.a),
        "b": outcomes.row(pair.b),
        "changes": {name: text for name, text in texts.items() if text},
        "tests": [{"name": name, "a": ours, "b": theirs} for name, ours, theirs in pair.tests],
    }
