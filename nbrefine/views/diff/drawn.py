"""What page and widget show of a comparison, as HTML in which all foreign text is text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from markupsafe import Markup

from nbrefine.notebook.markdown import visible
from nbrefine.outputs import Display
from nbrefine.views.diff import telling
from nbrefine.views.diff.changes import counted
from nbrefine.views.diff.compared import EpisodeDiff, Pair, StepPair
from nbrefine.views.diff.runs import Contrast
from nbrefine.views.drawing import highlight, parts
from nbrefine.views.drawing.outputs import Drawing, shown
from nbrefine.views.story import Scene

CHANGES = 60_000
"""Characters of one difference."""
FOLDED = 60
"""Lines from which a difference is folded."""

LETTERS = ("", "A", "B")


def verdict(compared: EpisodeDiff) -> Markup:
    """Give the sentence that says it all."""
    return parts.paragraph(compared.sentence, "verdict good" if compared.equal else "verdict")


def names(compared: EpisodeDiff) -> Markup:
    """Say which episode is A and which is B."""
    return Markup("\n").join(
        Markup('<p class="side"><strong>{}</strong> {}</p>').format(
            side.letter, highlight.text(visible(side.name))
        )
        for side in (compared.a, compared.b)
    )


def overview(compared: EpisodeDiff) -> Markup:
    """Give the facts of both."""
    return parts.grid("Both episodes", LETTERS, telling.overview(compared))


def around(compared: EpisodeDiff) -> list[tuple[str, str, tuple[Contrast, ...]]]:
    """Give what differs around the turns, with its heading and what a table of it is called."""
    return [
        ("What differs before the first turn", "What each began with", compared.runs),
        ("What differs at the end", "What each ended with", compared.ends),
    ]


def contrasts(caption: str, found: Sequence[Contrast]) -> Iterator[Markup]:
    """Give what differs: a table of what is short, and the changes of each text."""
    if rows := telling.contrasts(found):
        yield parts.grid(caption, LETTERS, rows)
    for each in found:
        if each.long:
            yield changes(each.what, each.changes)


def turns(step: StepPair, title: str, *, linked: Sequence[str] = ()) -> Markup:
    """Give the table of a step's pairs.

    Parameters
    ----------
    linked: where on the page each pair is told, "" where it is not.
    """
    rows = []
    for place, (pair, cells) in enumerate(zip(step.pairs, telling.turns(step), strict=True)):
        name, ours, theirs, told = (highlight.text(visible(cell)) for cell in cells)
        target = linked[place] if linked else ""
        link = Markup('<a href="#{}">{}</a>').format(target, name) if target else name
        rows.append(
            Markup(
                '<tr><th scope="row">{}</th><td{}>{}</td><td{}>{}</td><td{}>{}</td></tr>'
            ).format(
                link,
                _mood(pair.a),
                ours,
                _mood(pair.b),
                theirs,
                Markup("") if pair.differs else Markup(' class="soft"'),
                told,
            )
        )
    head = Markup("").join(
        Markup('<th scope="col">{}</th>').format(each) for each in ("Turn", "A", "B", "Differs")
    )
    return Markup(
        '<div class="wide" tabindex="0" role="group" aria-label="{0}">\n'
        '<table class="turns"><caption>{0}</caption>\n'
        "<thead><tr>{1}</tr></thead>\n<tbody>\n{2}\n</tbody></table></div>"
    ).format(visible(title), head, Markup("\n").join(rows))


def _mood(scene: Scene | None) -> Markup:
    if scene is None or scene.turn.kind != "attempt":
        return Markup(' class="soft"')
    return Markup(' class="good"') if scene.turn.accepted else Markup("")


def detail(pair: Pair) -> Iterator[Markup]:
    """Give all in which two turns differ, and the code that both have."""
    for letter, scene in (("A", pair.a), ("B", pair.b)):
        if scene is not None:
            yield _fate(letter, scene)
    if (both := pair.a) is not None and both.code and not {"there", "code"} & {*pair.differs}:
        yield parts.paragraph("The code is the same.", "soft")
        code = highlight.code(shown(both.code), both.language)
        yield _folded("The code of both", parts.box(code, "Code", kind="code", plain=both.code))
    for name, text in telling.sections(pair):
        yield changes(name, text)
    if "output" in pair.differs or "there" in pair.differs:
        yield from _pictures(pair)
    if rows := pair.tests:
        yield parts.grid("Tests that went otherwise", ("Test", "A", "B"), rows)


def _fate(letter: str, scene: Scene) -> Markup:
    trouble = f": {scene.trouble}" if scene.trouble else ""
    kept = "good" if scene.turn.accepted else "bad" if scene.turn.kind == "attempt" else "soft"
    return Markup('<p class="side"><strong>{}</strong> <span class="{}">{}</span></p>').format(
        letter, kept, highlight.text(visible(f"{scene.fate}{trouble}"))
    )


def changes(name: str, text: str) -> Markup:
    """Give a unified diff under its name; one that is long is folded."""
    drawn = parts.box(
        highlight.diff(shown(text, CHANGES)), f"Changes: {name}", kind="changes", plain=text
    )
    how, name = counted(text), visible(name)
    if text.count("\n") >= FOLDED:
        return _folded(name, drawn, how)
    return Markup('<p class="label">{} <small>{}</small></p>\n{}').format(name, how, drawn)


def _folded(name: str, drawn: Markup, how: str = "") -> Markup:
    small = Markup(" <small>{}</small>").format(how) if how else ""
    return Markup("<details><summary>{}{}</summary>\n{}</details>").format(name, small, drawn)


def _pictures(pair: Pair) -> Iterator[Markup]:
    """Give the pictures of both, which no text can compare."""
    for letter, scene in (("A", pair.a), ("B", pair.b)):
        if scene is None or not scene.ran:
            continue
        drawn = [each for each in scene.outputs if isinstance(each, Display) and _is_picture(each)]
        if drawn:
            yield parts.paragraph(f"Pictures of {letter}", "label")
            yield parts.blocks(Drawing().blocks(drawn))


def _is_picture(output: Display) -> bool:
    return any(mime.startswith("image/") for mime in output.data)
