"""Episode <-> notebook: cells for people, and the whole truth in `metadata.nbrefine`.

The metadata holds every turn with prompt, reply, result and feedback.  A long output of an
accepted cell is not stored again: its hash is, and the cell has the text.  A person may edit or
run the notebook; the record of what happened stays, and `from_notebook` notes on the turn what
no longer agrees.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from nbrefine.errors import RecordError
from nbrefine.notebook import cells, form
from nbrefine.notebook.codec import SCHEMA, Packer, Unpacker, clean, damaged, digest
from nbrefine.notebook.reading import ANOTHER, AnotherKind
from nbrefine.notebook.wording import title
from nbrefine.outputs import CellResult
from nbrefine.values import Episode, KernelInfo, Turn

Notebook = dict[str, Any]
"""A notebook as its JSON has it."""

EDITED = "the cell was edited or removed in the notebook; this is the recorded source"
RERUN = "the cell was run again or cleared in the notebook; long recorded outputs are lost"
OTHERS = "the notebook shows other outputs: edited, or of another run; these are the recorded ones"


def to_notebook(episode: Episode, *, name: str = "episode.ipynb") -> Notebook:
    """Give an episode as a valid notebook of format 4.5; equal episodes give equal notebooks.

    Parameters
    ----------
    name: the file's name, which the notebook tells its reader.

    Returns
    -------
    A `nbformat.NotebookNode`, which is a dict.
    """
    import nbformat

    return nbformat.from_dict(build(episode, name=name))  # type: ignore[no-any-return,no-untyped-call]


def build(episode: Episode, *, name: str, journal: str | None = None) -> Notebook:
    """Give an episode's notebook.

    Parameters
    ----------
    journal: name of the journal that is ahead of the notebook while the episode runs.  Hidden
        tests and reference stay out of the file then: the candidate could read it.
    """
    packer = Packer()
    built = cells.build(episode, name)
    record: dict[str, Any] = {
        "schema": SCHEMA,
        "episode": packer.head(episode, hidden=journal is None),
        "turns": [packer.turn(turn) for turn in episode.turns],
        "messages": packer.fresh_messages,
    }
    shared = {digest(text) for text in _long_outputs(built)}
    record["blobs"] = {k: text for k, text in packer.fresh_blobs.items() if k not in shared}
    if journal is not None:
        record["journal"] = journal
    return {
        "cells": built,
        "metadata": {
            "title": clean(title(episode)),
            **kernel_metadata(episode.kernel),
            "nbrefine": record,
        },
        "nbformat": 4,
        "nbformat_minor": 5,
    }


def dumps(notebook: Notebook) -> str:
    """Give the text of a notebook's file, after a strict check.

    Raises
    ------
    RecordError: the notebook would not be valid.
    """
    if trouble := _invalid(notebook):
        raise RecordError(
            f"The notebook would not be valid: {trouble}", hint="Please report this episode"
        )
    on_disk = {**notebook, "cells": [_lines(cell) for cell in notebook["cells"]]}
    text = json.dumps(on_disk, allow_nan=False, ensure_ascii=False, indent=1, sort_keys=True)
    return f"{text}\n"


def _invalid(notebook: Notebook) -> str:
    """Say what keeps a notebook from being one of format 4.5, or "".

    `nbformat.validate` would put ids that are missing or doubled right, and warn.
    """
    from nbformat.validator import iter_validate

    for error in iter_validate(notebook, version=4, version_minor=5):  # type: ignore[no-untyped-call]
        return str(error)
    counted = Counter(cell["id"] for cell in notebook["cells"])
    return next(
        (f"{count} cells are called {each}" for each, count in counted.items() if count > 1), ""
    )


def _lines(cell: Mapping[str, Any]) -> dict[str, Any]:
    """Split a cell's texts into lines, as notebooks have them for the sake of line diffs."""
    split = {**cell, "source": cell["source"].splitlines(keepends=True)}
    if "outputs" in cell:
        split["outputs"] = [_split_output(output) for output in cell["outputs"]]
    return split


def _split_output(output: Mapping[str, Any]) -> dict[str, Any]:
    split = dict(output)
    if "text" in output:
        split["text"] = output["text"].splitlines(keepends=True)
    if "data" in output:
        split["data"] = {
            mime: value.splitlines(keepends=True) if _has_lines(mime) else value
            for mime, value in output["data"].items()
        }
    return split


def _has_lines(mime: str) -> bool:
    """Tell whether Jupyter splits a type's text; base64 stays in one piece, as `nbformat` does."""
    return mime.startswith("text/") or mime in ("image/svg+xml", "application/javascript")


def from_notebook(notebook: Mapping[str, Any]) -> Episode:
    """Give the episode back that a notebook holds.

    Parameters
    ----------
    notebook: what `to_notebook` gave or `json` or `nbformat` read; cells may be edited.

    Raises
    ------
    RecordError: this is another kind of notebook, or its record is damaged or too new.
    """
    return parse(notebook, where="The notebook")


def parse(notebook: Any, *, where: str) -> Episode:
    """Do `from_notebook`, and begin errors with `where`."""
    record = record_of(notebook, where)
    try:
        found = _code_cells(notebook)
        blobs = {digest(text): text for text in _long_outputs(found)}
        unpacker = Unpacker({**blobs, **record["blobs"]})
        unpacker.add_messages(record["messages"])
        turns = []
        for data in record["turns"]:
            turn = unpacker.turn(data)
            turns.append(_noted(turn, RERUN) if unpacker.lost else turn)
        episode = unpacker.head(record["episode"], turns)
        if unpacker.lost and episode.setup is not None:
            episode = replace(episode, setup=_with_note(episode.setup, RERUN))
        return _compared(episode, found)
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise damaged(where, error) from None


def record_of(notebook: Any, where: str) -> Mapping[str, Any]:
    """Give the record in a notebook's metadata.

    Raises
    ------
    RecordError: there is none, and what this is instead; or it is of a newer kind.
    """
    if not isinstance(notebook, dict) or not isinstance(notebook.get("nbformat"), int):
        raise RecordError(f"{where} is JSON, but not a notebook", hint=ANOTHER)
    metadata = notebook.get("metadata")
    record = metadata.get("nbrefine") if isinstance(metadata, dict) else None
    schema = record.get("schema") if isinstance(record, dict) else None
    if not isinstance(record, dict) or not isinstance(schema, str):
        raise AnotherKind(f"{where} is {_kind(notebook)}, not an episode", hint=ANOTHER)
    if schema != SCHEMA:
        raise RecordError(
            f"{where} has the schema {schema[:40]!r}, and this nbrefine reads {SCHEMA!r}",
            hint="Install a newer nbrefine",
        )
    return record


def _kind(notebook: Mapping[str, Any]) -> str:
    if notebook["nbformat"] < 4:
        return f"a notebook of the old format {notebook['nbformat']}"
    cells_found = notebook.get("cells")
    count = len(cells_found) if isinstance(cells_found, list) else 0
    return f"a plain notebook of {count} cell{'' if count == 1 else 's'}"


def _code_cells(notebook: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Give the code cells with their texts joined; on disk a text may be a list of lines.

    Cells are for people, who have other tools as well: what is none is passed over.
    """
    return [
        {
            **cell,
            "source": clean(_joined(cell.get("source"))),
            "outputs": [_joined_output(output) for output in _dicts(cell.get("outputs"))],
        }
        for cell in _dicts(notebook.get("cells"))
        if cell.get("cell_type") == "code"
    ]


def _dicts(found: Any) -> list[dict[str, Any]]:
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []


def _joined_output(output: Mapping[str, Any]) -> dict[str, Any]:
    data, traceback = output.get("data"), output.get("traceback")
    return {
        **output,
        "text": _joined(output.get("text")),
        "data": {
            mime: value if form.is_json(mime) else _joined(value)
            for mime, value in (data if isinstance(data, dict) else {}).items()
        },
        "traceback": traceback if isinstance(traceback, list) else [],
    }


def _joined(text: Any) -> str:
    if isinstance(text, list):
        return "".join(part for part in text if isinstance(part, str))
    return text if isinstance(text, str) else ""


def _long_outputs(found: list[dict[str, Any]]) -> Iterator[str]:
    """Give the texts in the outputs of code cells that a record would store by hash."""
    for cell in found:
        for output in cell.get("outputs", ()):
            texts = [output.get("text"), output.get("evalue"), *output.get("traceback", ())]
            texts += output.get("data", {}).values()
            yield from (text for text in texts if isinstance(text, str))


def _compared(episode: Episode, found: list[dict[str, Any]]) -> Episode:
    """Note on each accepted turn where its cell is gone, was edited, or shows other outputs."""
    ours: dict[str, dict[str, Any]] = {}
    for cell in found:
        # A copied cell keeps its id in some editors; the first one is ours.
        ours.setdefault(str(cell.get("id")), cell)
    # Some tools take ids away, or give new ones: then the source tells which cell it is.
    others = {cell["source"]: cell for cell in reversed(found)}

    def noted(turn: Turn, cell_id: str) -> Turn:
        cell = ours.get(cell_id) or others.get(_source(turn))
        if cell is None or cell["source"] != _source(turn):
            return _noted(turn, EDITED)
        return turn if _shows(cell, turn) else _noted(turn, OTHERS)

    turns = [
        noted(turn, cell_id) if turn.accepted else turn
        for turn, cell_id in zip(episode.turns, cells.turn_ids(episode), strict=True)
    ]
    return replace(episode, turns=tuple(turns))


def _shows(cell: Mapping[str, Any], turn: Turn) -> bool:
    """Tell whether a cell has the outputs of a turn; one that was cleared claims nothing."""
    if turn.result is None or RERUN in turn.result.notes or not cell["outputs"]:
        return True
    recorded = [_joined_output(form.output(each)) for each in turn.result.outputs]
    return _plain(cell["outputs"]) == _plain(recorded)


def _plain(outputs: list[dict[str, Any]]) -> list[Any]:
    """Give what outputs say: streams in one piece, and nothing of counts and metadata."""
    plain: list[Any] = []
    for output in outputs:
        stream = output.get("name") if output.get("output_type") == "stream" else None
        if stream is not None and plain and plain[-1][0] == stream:
            plain[-1] = (stream, plain[-1][1] + output["text"])
        elif stream is not None:
            plain.append((stream, output["text"]))
        else:
            data = {mime: value for mime, value in output["data"].items() if mime != form.WIDGET}
            error = output.get("ename"), output.get("evalue")
            plain.append((None, data, error))
    return plain


def _noted(turn: Turn, note: str) -> Turn:
    return turn if turn.result is None else replace(turn, result=_with_note(turn.result, note))


def _with_note(result: CellResult, note: str) -> CellResult:
    return replace(result, notes=(*result.notes, note))


def _source(turn: Turn) -> str:
    return turn.result.source if turn.result is not None else turn.code


def kernel_metadata(kernel: KernelInfo) -> dict[str, Any]:
    """Give the standard metadata that tells a front end which kernel to start."""
    info = {
        "name": kernel.language,
        "version": kernel.language_version,
        "file_extension": kernel.file_extension,
        "mimetype": kernel.mimetype,
    }
    if kernel.language == "python":
        info["nbconvert_exporter"] = "python"
    metadata: dict[str, Any] = {}
    if kernel.language:
        metadata["language_info"] = {key: clean(text) for key, text in info.items() if text}
    name = kernel.name or ("python3" if kernel.language == "python" else "")
    if name:
        spec = {"name": clean(name), "display_name": clean(kernel.display_name or name)}
        metadata["kernelspec"] = {**spec, "language": clean(kernel.language)}
    return metadata
