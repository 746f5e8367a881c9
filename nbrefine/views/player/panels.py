"""What the parts of a player show of a scene, as HTML in which all foreign text is text."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from markupsafe import Markup

from nbrefine.bindings import Binding, NameChange
from nbrefine.notebook import steps, wording
from nbrefine.notebook.codec import clean
from nbrefine.notebook.markdown import one_line, visible
from nbrefine.values import Message
from nbrefine.views.page import highlight
from nbrefine.views.page.outputs import Block, Drawing, shown
from nbrefine.views.page.tables import Cell, Table
from nbrefine.views.player.again import ways
from nbrefine.views.story import Act, Scene, Story

CODE = 60_000
"""Characters of code, and of a difference, that are shown."""
LINES = 40
"""Sentences of one kind, such as tests that did not pass."""
TESTS = 200
"""Rows of the table of tests."""
NAMES = 100
"""Variables of a scene."""
MESSAGES = 30
"""Messages of a prompt, the last ones."""

Tab = Callable[[Act, Scene], Iterable[Markup]]

HIDDEN = Markup('<p class="hidden">Hidden until you press Reveal. What will happen?</p>')


class Panels:
    """Draws the scenes of an episode, each when it is asked for.

    Parameters
    ----------
    path: the episode's notebook, for the commands that go on from it; None where nobody knows it.
    """

    def __init__(self, story: Story, path: Path | None = None) -> None:
        self._story, self._path = story, path
        self._scenes = [(act, scene) for act in story.acts for scene in act.scenes]
        self._tabs: dict[str, tuple[Tab, bool]] = {
            "Code": (_code, True),
            "Output": (_output, False),
            "Tests": (_tests, False),
            "Diff": (_diff, True),
            "Variables": (_variables, False),
            "Prompt": (_prompt, True),
            "Run again": (self._again, False),  # it speaks of what was accepted
        }

    def __len__(self) -> int:
        return len(self._scenes)

    def label(self, at: int, *, outcome: bool) -> str:
        """Name a scene in a list."""
        scene = self._scenes[at][1]
        return one_line(f"{scene.place}: {scene.brief}" if outcome else scene.place)

    def count(self, at: int) -> str:
        """Say which scene it is."""
        last = ", the last one" if at + 1 == len(self) else ""
        return f"Scene {at + 1:,} of {len(self):,}{last}"

    def head(self, at: int, *, outcome: bool) -> str:
        """Give the heading of a scene, and how it ended."""
        act, scene = self._scenes[at]
        return _html(_head(act, scene, self._story.in_steps, outcome))

    def tabs(self, at: int, *, outcome: bool) -> list[str]:
        """Give what each tab shows of a scene.

        Parameters
        ----------
        outcome: whether to show what came of it; else the tabs that tell it say that they hide it.
        """
        act, scene = self._scenes[at]
        return [
            _html(draw(act, scene) if outcome or harmless else [HIDDEN])
            for draw, harmless in self._tabs.values()
        ]

    def ending(self) -> str:
        """Tell how the episode ended."""
        return _html(_ending(self._story))

    def nothing(self) -> str:
        """Tell of an episode that has no scene."""
        return _html([_told("There is no turn in this episode."), *_ending(self._story)])

    def trouble(self, text: str) -> str:
        """Tell of an error of the player's own."""
        return _html([_told("The player cannot show this:", "bad"), _pre(shown(text), "Error")])

    def _again(self, _: Act, scene: Scene) -> Iterator[Markup]:
        found = ways(self._story.episode, scene, self._path)
        if not found:
            yield _told("There is no code here that could run again.")
        for way in found:
            yield _told(way.told)
            yield _pre(highlight.code(way.text, way.language), "What to run")


TABS = ("Code", "Output", "Tests", "Diff", "Variables", "Prompt", "Run again")
"""The tabs of a scene, in the order in which they are drawn."""


def _html(parts: Iterable[Markup]) -> str:
    return clean('<div class="nbrefine-part">' + "\n".join(parts) + "</div>")


def _head(act: Act, scene: Scene, in_steps: bool, outcome: bool) -> Iterator[Markup]:
    if in_steps:
        yield _told(act.title, "step")
    yield Markup('<p class="place" role="status">{}{}</p>').format(
        visible(scene.place),
        Markup('{}: <span class="{}">{}</span>').format(scene.of, _mood(scene), visible(scene.fate))
        if outcome
        else "",
    )
    if outcome and scene.trouble:
        yield _told(scene.trouble, "bad")


def _mood(scene: Scene) -> str:
    if scene.turn.accepted:
        return "good"
    return "bad" if scene.turn.kind == "attempt" else "open"


def _code(_: Act, scene: Scene) -> Iterator[Markup]:
    if scene.plan is not None:
        yield _told(scene.plan_told)
        yield _list(steps.goals(scene.plan), "plain")
    if scene.said:
        yield _label("The model wrote")
        yield _pre(shown(scene.said), "What the model wrote", wraps=True)
    if scene.code:
        yield _pre(highlight.code(shown(scene.code, CODE), scene.language), "Code")
    elif scene.turn.kind == "attempt":
        yield _told("No code was found in the reply.")


def _output(_: Act, scene: Scene) -> Iterator[Markup]:
    blocks = list(Drawing().blocks(scene.outputs)) if scene.ran else []
    for block in blocks:
        yield from _block(block)
    if not blocks:
        yield _told("It put out nothing." if scene.ran else "Nothing was run.")
    if scene.notes:
        yield _list(scene.notes, "notes")


def _tests(act: Act, scene: Scene) -> Iterator[Markup]:
    if act.checks:
        yield _label("The step is done when these checks hold")
        yield _list(act.checks, "plain")
    header, rows = act.matrix(scene)
    if rows:
        kind = "Check" if act.step.subtask is not None else "Test"
        yield _matrix([kind, *header[1:]], rows)
    else:
        yield _told("No test was run.")
    if missed := (scene.missed if scene.ran else []):
        yield _label("Those that did not pass")
        yield _list(missed, "mono")
    if regressions := act.regressions(scene):
        yield _list(regressions, "notes")
    if scene.feedback:
        yield _label("What the model was told")
        yield _pre(shown(scene.feedback), "Feedback to the model", wraps=True)


def _diff(_: Act, scene: Scene) -> Iterator[Markup]:
    if scene.before is None:
        yield _told("There is no attempt before it to compare with.")
    elif scene.repeats:
        yield _told(f"The code is the same as in attempt {scene.before.attempt}.")
    else:
        yield _label(f"Changes since attempt {scene.before.attempt}")
        changes = scene.changes.split("\n", 2)[-1]  # the label says what is compared
        yield _pre(highlight.diff(shown(changes, CODE)), "Changes")


def _variables(_: Act, scene: Scene) -> Iterator[Markup]:
    change, changed = scene.turn.change, scene.turn.files
    if change is not None and change.names:
        yield _names(change.names)
    if change is not None and change.random:
        yield _told("The random generators' states changed.")
    if changed is not None and (files := changed.describe()):
        yield _told(f"Files: {files}")
    if not scene.effects:
        yield _told("No change of the session is recorded.")
    if told := " ".join(filter(None, (scene.where, scene.cost))):
        yield _told(told, "soft")


def _names(names: Sequence[NameChange]) -> Markup:
    rows = [_name(name) for name in names[:NAMES]]
    head = Markup("").join(
        Markup('<th scope="col">{}</th>').format(each)
        for each in ("Name", "Change", "Type", "Size", "Value")
    )
    body = Markup("<thead><tr>{}</tr></thead><tbody>{}</tbody>").format(
        head, Markup("\n").join(rows)
    )
    more = len(names) - NAMES
    left = _told(f"{more:,} more are not shown here.", "soft") if more > 0 else Markup("")
    return _scrolling("What it changed", "tests", body) + left


def _name(change: NameChange) -> Markup:
    value = change.after or change.before or Binding("")
    size = " x ".join(f"{extent:,}" for extent in value.shape or ())
    preview = value.preview if change.after is not None else ""
    cells = (change.kind, value.type, size, one_line(preview, 120))
    return Markup('<tr><th scope="row">{}</th>{}</tr>').format(
        visible(change.name),
        Markup("").join(Markup("<td>{}</td>").format(visible(cell)) for cell in cells),
    )


def _prompt(_: Act, scene: Scene) -> Iterator[Markup]:
    messages = scene.prompt
    if not messages:
        yield _told("No model was asked.")
        return
    size = sum(len(message.content) for message in messages)
    many = f"{len(messages)} message{'' if len(messages) == 1 else 's'}"
    yield _told(" ".join((f"{many}, {size:,} characters.", scene.cost)).strip(), "soft")
    left = max(0, len(messages) - MESSAGES)
    if left:
        yield _told(f"The first {left} are not shown here; the record has them.", "soft")
    for number, message in enumerate(messages[left:], left + 1):
        yield _message(number, message, opened=number == len(messages))


def _message(number: int, message: Message, *, opened: bool) -> Markup:
    pictures = f", with {len(message.images)} pictures" if message.images else ""
    return Markup("<details{}><summary>Message {}: {}{}</summary>{}</details>").format(
        Markup(" open") if opened else "",
        number,
        visible(message.role),
        pictures,
        _pre(shown(message.content), f"Message {number}", wraps=True),
    )


def _ending(story: Story) -> Iterator[Markup]:
    mood = "good" if story.episode.solved else "open" if story.episode.stop is None else "bad"
    yield _told(story.verdict, f"verdict {mood}")
    if warning := wording.came_with(story.episode):
        yield _told(warning, "soft")
    yield from (
        Markup('<p><span class="soft">{}:</span> {}</p>').format(visible(label), shown(told))
        for label, told in story.outcome()
    )
    if doubts := story.doubts():
        yield _list(doubts, "notes")


def _block(block: Block) -> Iterator[Markup]:
    if block.label:
        yield _label(block.label)
    if block.kind == "picture":
        told = block.text or "Picture without a description"
        yield Markup('<img src="{}" alt="{}">').format(block.source, told)
    elif block.kind == "table" and block.table is not None:
        yield _table(block.table)
    elif block.kind == "note":
        yield _told(block.text, "soft")
    else:
        yield _pre(block.text, "Error" if block.kind == "error" else "Output")


def _table(table: Table) -> Markup:
    caption = visible(table.caption.strip()) or "Table"
    parts = Markup("\n").join(
        part.format(Markup("").join(map(_row, table.shown(rows))))
        for part, rows in (
            (Markup("<thead>{}</thead>"), table.head),
            (Markup("<tbody>{}</tbody>"), table.body),
        )
        if rows
    )
    left = _told(table.left_out, "soft") if table.left_out else Markup("")
    return _scrolling(caption, "data", parts) + left


def _row(cells: list[Cell]) -> Markup:
    return Markup("<tr>{}</tr>").format(Markup("").join(map(_cell, cells)))


def _cell(cell: Cell) -> Markup:
    words = shown(cell.text.strip(), 400)
    spans = Markup(' colspan="{}" rowspan="{}"').format(cell.across, cell.down)
    if cell.scope and words:
        return Markup('<th scope="{}"{}>{}</th>').format(cell.scope, spans, words)
    return Markup("<td{}>{}</td>").format(spans, words)


def _matrix(header: list[str], rows: list[list[str]]) -> Markup:
    head = Markup("").join(Markup('<th scope="col">{}</th>').format(name) for name in header)
    body = Markup("\n").join(_tested(row) for row in rows[:TESTS])
    told = Markup("<thead><tr>{}</tr></thead><tbody>{}</tbody>").format(head, body)
    more = len(rows) - TESTS
    left = _told(f"{more:,} more are not shown here.", "soft") if more > 0 else Markup("")
    return _scrolling(f"{header[0]}s by attempt", "tests", told) + left


def _tested(row: list[str]) -> Markup:
    name, *words = row
    cells = Markup("").join(
        Markup('<td class="{}">{}</td>').format(_GOOD.get(word, "soft"), word) for word in words
    )
    return Markup('<tr><th scope="row">{}</th>{}</tr>').format(visible(name), cells)


_GOOD = {"pass": "good", "fail": "bad", "error": "bad", "timeout": "bad"}


def _scrolling(caption: str, kind: str, rows: Markup) -> Markup:
    return Markup(
        '<div class="wide" tabindex="0" role="group" aria-label="{0}">'
        '<table class="{1}"><caption>{0}</caption>{2}</table></div>'
    ).format(caption, kind, rows)


def _told(text: str, kind: str = "") -> Markup:
    opening = Markup('<p class="{}">').format(kind) if kind else Markup("<p>")
    return opening + Markup("{}</p>").format(visible(text))


def _label(text: str) -> Markup:
    return _told(text, "label")


def _list(lines: list[str], kind: str) -> Markup:
    more = len(lines) - LINES
    lines = [*lines[:LINES], f"and {more:,} more"] if more > 0 else lines
    items = Markup("\n").join(Markup("<li>{}</li>").format(visible(line)) for line in lines)
    return Markup('<ul class="{}">{}</ul>').format(kind, items)


def _pre(text: str | Markup, name: str, *, wraps: bool = False) -> Markup:
    """Give a box that scrolls, for the keyboard as well."""
    kind = Markup(' class="wrap"') if wraps else ""
    return Markup('<pre{} tabindex="0" role="group" aria-label="{}">{}</pre>').format(
        kind, name, text
    )
