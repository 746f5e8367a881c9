"""An episode as text below the cell that asked for it: HTML without scripts, and plain text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from html import escape
from pathlib import Path

from nbrefine.notebook import wording
from nbrefine.notebook.codec import clean
from nbrefine.notebook.markdown import one_line, shorten, visible
from nbrefine.values import Episode, Turn
from nbrefine.views.story import Scene, Story, story

TURNS = 30
"""Turns that are named; of more, the first and the last ones."""

STARTING = (
    "The work has begun; what comes of it stands here at its end. "
    "If the kernel was restarted since, it has ended: run the cell again."
)

CODE_LINES = 60
OUTPUT_LINES = 12


def told(episode: Episode, *, record: Path, name: str) -> dict[str, str]:
    """Tell an episode, as MIME type -> text.

    Parameters
    ----------
    record: the episode notebook.
    name: what it is called in the session.
    """
    return _bundle(_parts(story(episode), record, name))


def told_with(trouble: str, episode: Episode | None, *, record: Path, name: str) -> dict[str, str]:
    """Tell an episode, if there is one, and below it what kept it from a proper end."""
    if episode is None:
        return {"text/plain": trouble or "Nothing has begun."}
    more = [_Words(trouble)] if trouble else []
    return _bundle([*_parts(story(episode), record, name), *more])


def _bundle(parts: Iterable[_Words | _Rows | _Block]) -> dict[str, str]:
    found = list(parts)
    return {  # a lone surrogate, as names of files may hold, could not be sent
        "text/html": clean("\n".join(part.html for part in found)),
        "text/plain": clean("\n".join(part.plain for part in found)),
    }


class _Words:
    """A paragraph."""

    def __init__(self, text: str, *, strong: bool = False) -> None:
        self.plain = visible(text)
        words = escape(self.plain)
        self.html = f"<p><strong>{words}</strong></p>" if strong else f"<p>{words}</p>"


class _Rows:
    """A list of lines."""

    def __init__(self, lines: list[str]) -> None:
        shown = [visible(line) for line in lines]
        self.plain = "\n".join(f"- {line}" for line in shown)
        items = "".join(f"<li>{escape(line)}</li>" for line in shown)
        self.html = f"<ul>{items}</ul>"


class _Block:
    """Text with its lines as they are."""

    def __init__(self, text: str, lines: int) -> None:
        shown = shorten(text, lines)
        self.plain = "\n".join(f"    {line}" for line in shown.splitlines())
        self.html = f"<pre><code>{escape(shown)}</code></pre>"


def _parts(told: Story, record: Path, name: str) -> Iterator[_Words | _Rows | _Block]:
    episode = told.episode
    yield _Words(told.title, strong=True)
    yield _Words(told.verdict)
    if told.scenes:
        yield _Rows(list(_scenes(told.scenes)))
    if outcome := told.outcome():
        yield _Rows([f"{label}: {text}" for label, text in outcome])
    for turn in episode.accepted:
        yield _Words(f"Accepted, {wording.place(episode, turn)}:")
        yield _Block(turn.code, CODE_LINES)
        if output := _output(turn):
            yield _Words("Its output:")
            yield _Block(output, OUTPUT_LINES)
    if episode.stop is not None:
        yield _Words(
            f"The record is {record}, and the episode is {name}; "
            f"%refine_view shows it attempt by attempt."
        )


def _scenes(scenes: tuple[Scene, ...]) -> Iterator[str]:
    for at, scene in enumerate(scenes):
        if at == TURNS // 2 and len(scenes) > TURNS:
            yield f"({len(scenes) - TURNS} more)"
        if len(scenes) > TURNS and TURNS // 2 <= at < len(scenes) - TURNS // 2:
            continue
        said = scene.turn.stopped and wording.unjudged(scene.turn)  # by its title
        trouble = "" if said else one_line(scene.trouble or "; ".join(scene.missed[:1]))
        yield f"{scene.title}{f': {trouble}' if trouble else ''}"


def _output(turn: Turn) -> str:
    return turn.result.text.strip("\n") if turn.result is not None else ""
