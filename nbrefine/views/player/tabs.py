"""The tabs of a player: what each shows of a scene, as parts of HTML."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from markupsafe import Markup

from nbrefine.bindings import Binding, NameChange
from nbrefine.notebook import steps, wording
from nbrefine.notebook.markdown import one_line
from nbrefine.values import Message
from nbrefine.views.drawing import highlight
from nbrefine.views.drawing.outputs import Drawing, shown
from nbrefine.views.drawing.parts import blocks, box, grid, lines, paragraph
from nbrefine.views.story import Act, Scene

CODE = 60_000
"""Characters of code, and of a difference, that are shown."""
MESSAGES = 30
"""Messages of a prompt, the last ones."""


def _code(_: Act, scene: Scene) -> Iterator[Markup]:
    if scene.plan is not None:
        yield paragraph(scene.plan_told)
        yield lines(steps.goals(scene.plan), "plain")
    if scene.said:
        yield paragraph("The model wrote", "label")
        yield box(shown(scene.said), "What the model wrote", kind="wrap")
    if scene.origin:
        yield paragraph(scene.origin, "soft")
    if scene.code:
        code = shown(scene.code, CODE)
        yield box(highlight.code(code, scene.language), "Code", kind="code", plain=code)
    elif wording.unjudged(scene.turn):
        yield paragraph(f"{scene.trouble.removesuffix('.')}.")
    elif scene.turn.kind == "attempt":
        yield paragraph("No code was found in the reply.")


def _output(_: Act, scene: Scene) -> Iterator[Markup]:
    found = list(Drawing().blocks(scene.outputs)) if scene.ran else []
    if found:
        yield blocks(found)
    else:
        yield paragraph("It put out nothing." if scene.ran else "Nothing was run.")
    if scene.notes:
        yield lines(scene.notes, "notes")


def _tests(act: Act, scene: Scene) -> Iterator[Markup]:
    if act.checks:
        yield paragraph("The step is done when these checks hold", "label")
        yield lines(act.checks, "plain")
    header, rows = act.matrix(scene)
    if rows:
        yield grid(f"{header[0]}s by attempt", header, rows)
    else:
        yield paragraph("No test was run.")
    if missed := (scene.missed if scene.ran else []):
        yield paragraph("Those that did not pass", "label")
        yield lines(missed, "mono")
    if regressions := act.regressions(scene):
        yield lines(regressions, "notes")
    if scene.feedback:
        yield paragraph("What the model was told", "label")
        yield box(shown(scene.feedback), "Feedback to the model", kind="wrap")


def _diff(_: Act, scene: Scene) -> Iterator[Markup]:
    if scene.before is None:
        yield paragraph("There is no attempt before it to compare with.")
    elif scene.repeats:
        yield paragraph(f"The code is the same as in attempt {scene.before.attempt}.")
    else:
        yield paragraph(f"Changes since attempt {scene.before.attempt}", "label")
        changes = shown(scene.hunks, CODE)
        yield box(highlight.diff(changes), "Changes", kind="changes", plain=changes)


def _variables(_: Act, scene: Scene) -> Iterator[Markup]:
    change, changed = scene.turn.change, scene.turn.files
    if change is not None and change.names:
        header = ("Name", "Change", "Type", "Size", "Value")
        yield grid("What it changed", header, [_variable(name) for name in change.names])
    if change is not None and change.random:
        yield paragraph("The random generators' states changed.")
    if changed is not None and (files := changed.describe()):
        yield paragraph(f"Files: {files}")
    if not scene.effects:
        yield paragraph("No change of the session is recorded.")
    if told := " ".join(filter(None, (scene.where, scene.cost))):
        yield paragraph(told, "soft")


def _variable(change: NameChange) -> tuple[str, ...]:
    value = change.after or change.before or Binding("")
    size = " x ".join(f"{extent:,}" for extent in value.shape or ())
    preview = value.preview if change.after is not None else ""
    return change.name, change.kind, value.type, size, one_line(preview, 120)


def _prompt(_: Act, scene: Scene) -> Iterator[Markup]:
    messages = scene.prompt
    if not messages:
        yield paragraph("No model was asked.")
        return
    size = sum(len(message.content) for message in messages)
    many = f"{len(messages)} message{'' if len(messages) == 1 else 's'}"
    yield paragraph(" ".join((f"{many}, {size:,} characters.", scene.cost)).strip(), "soft")
    if unshown := scene.unshown:
        yield paragraph(unshown)
    left = max(0, len(messages) - MESSAGES)
    if left:
        yield paragraph(f"The first {left} are not shown here; the record has them.", "soft")
    for number, message in enumerate(messages[left:], left + 1):
        yield _message(number, message, opened=number == len(messages))


def _message(number: int, message: Message, *, opened: bool) -> Markup:
    count = len(message.images)
    pictures = f", with {count} picture{'' if count == 1 else 's'}" if count else ""
    return Markup("<details{}><summary>Message {}: {}{}</summary>{}</details>").format(
        Markup(" open") if opened else "",
        number,
        one_line(message.role),
        pictures,
        box(shown(message.content), f"Message {number}", kind="wrap"),
    )


TABS: dict[str, Callable[[Act, Scene], Iterable[Markup]]] = {
    "Code": _code,
    "Output": _output,
    "Tests": _tests,
    "Diff": _diff,
    "Variables": _variables,
    "Prompt": _prompt,
}
"""What draws each tab, in their order."""

TELLING = ("Output", "Tests", "Variables")
"""Those that tell what came of a scene."""
