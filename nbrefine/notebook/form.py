"""Cells and outputs as the notebook format has them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from nbrefine.notebook.codec import clean
from nbrefine.outputs import CellResult, Display, Output, Stream, Timing

WIDGET = "application/vnd.jupyter.widget-view+json"
"""Left out of cells: without its state a trusted JupyterLab shows an error in its place."""

_SLIDES = {"summary": "slide", "plan": "slide", "rejected": "subslide", "result": "slide"}

Cell = dict[str, Any]


def markdown(cell_id: str, role: str, parts: Sequence[str]) -> Cell:
    """Give a cell of text; empty parts are left out."""
    return {
        "cell_type": "markdown",
        "id": cell_id,
        "metadata": _metadata(role),
        "source": clean("\n\n".join(part for part in parts if part)),
    }


def code(
    cell_id: str,
    role: str,
    source: str,
    *,
    tags: Sequence[str] = (),
    outputs: Sequence[Cell] = (),
    execution_count: int | None = None,
) -> Cell:
    """Give a code cell."""
    return {
        "cell_type": "code",
        "id": cell_id,
        "metadata": _metadata(role, tags),
        "source": clean(source),
        "outputs": list(outputs),
        "execution_count": execution_count,
    }


def _metadata(role: str, tags: Sequence[str] = ()) -> dict[str, Any]:
    metadata: dict[str, Any] = {"nbrefine": {"role": role}}
    if role in ("accepted", "rejected", "tests"):
        tags = (f"nbrefine-{role}", *tags)
    if tags:
        metadata["tags"] = list(tags)
    if role in _SLIDES:
        metadata["slideshow"] = {"slide_type": _SLIDES[role]}
    return metadata


def ran(cell_id: str, role: str, result: CellResult) -> Cell:
    """Give a code cell with the outputs that it really had."""
    cell = code(
        cell_id,
        role,
        result.source,
        tags=() if result.ok else ("raises-exception",),
        outputs=[output(each) for each in result.outputs],
        execution_count=result.execution_count,
    )
    if timing := _timing(result.timing):
        cell["metadata"]["execution"] = timing
    return cell


def _timing(timing: Timing) -> dict[str, str]:
    keys = {
        "iopub.status.busy": timing.busy,
        "iopub.execute_input": timing.input,
        "shell.execute_reply": timing.reply,
        "iopub.status.idle": timing.idle,
    }
    return {key: clean(moment) for key, moment in keys.items() if moment}


def output(output: Output) -> Cell:
    """Give one output of a code cell."""
    if isinstance(output, Stream):
        return {"output_type": "stream", "name": output.name, "text": clean(output.text)}
    if isinstance(output, Display):
        return _display(output)
    return {
        "output_type": "error",
        "ename": clean(output.ename),
        "evalue": clean(output.evalue),
        "traceback": [clean(line) for line in output.traceback],
    }


def _display(output: Display) -> Cell:
    data = {mime: _mime(mime, value) for mime, value in output.data.items() if mime != WIDGET}
    metadata = _json(output.metadata, default={})
    shown: Cell = {"output_type": "display_data", "data": data, "metadata": metadata}
    if output.execution_count is not None:
        shown |= {"output_type": "execute_result", "execution_count": output.execution_count}
    return shown


def _mime(mime: str, value: Any) -> Any:
    """Give a value as the notebook format wants it: JSON for JSON types, text for others."""
    if is_json(mime):
        return _json(value, default=clean(repr(value)))
    if not isinstance(value, str):  # keys as text and sorted, as in a file
        value = json.dumps(json.loads(json.dumps(value, default=repr)), sort_keys=True)
    return clean(value)


def _json(value: Any, *, default: Any) -> Any:
    """Give a value as plain JSON; the default for NaN, for which JupyterLab refuses the file."""
    try:
        text = json.dumps(value, allow_nan=False, ensure_ascii=False, default=repr)
    except ValueError:
        return default
    return json.loads(clean(text))


def is_json(mime: str) -> bool:
    """Tell whether the notebook format takes a type's value as JSON and not as text."""
    return mime == "application/json" or (
        mime.startswith("application/") and mime.endswith("+json")
    )
