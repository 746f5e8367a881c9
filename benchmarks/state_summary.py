"""What it takes to tell a model in a few lines what a session holds: ours and IPython's `%whos`.

The session has 1,000 names, 100 of them frames.  Ours is what every attempt ends with: one call
that gives the digest and the listing of all names, and their description.  The peers are cells:
`%whos`, which tells no columns, and with it `DataFrame.info` of every frame, which does.

    python benchmarks/state_summary.py
"""

from __future__ import annotations

import statistics
import time
from typing import Any

from figures import Figures, Row, ratio, show, spread, take_turns

from nbrefine import Kernel
from nbrefine._portal import Run
from nbrefine.kernel.state.digest import snapshot
from nbrefine.kernel.state.namespace import describe, variables

ROUNDS = 20
NAMES, FRAMES = 1000, 100
GOAL, CHARACTERS = 0.050, 4000

SESSION = """\
import string, numpy as np, pandas as pd
rng = np.random.default_rng(0)
def table(rows, columns):
    made = {"id": np.arange(rows), "name": [f"item {at % 97}" for at in range(rows)]}
    for at in range(columns - 2):
        made[f"value_{at}"] = rng.normal(size=rows)
        made[f"value_{at}"][:: at + 7] = np.nan
    return pd.DataFrame(made)
def bind(count, stem, make):
    for at in range(count):
        letters = string.ascii_letters[at % 26] + string.ascii_letters[at // 26]
        globals()[f"{stem}_{letters}"] = make(at)
def number(count, stem, make):
    for at in range(count):
        globals()[f"{stem}_{at}"] = make(at)
bind(60, "frame", lambda at: table(200 + 10 * at, 4 + at % 8))
number(40, "sales", lambda at: table(500, 6))
number(100, "weights", lambda at: rng.normal(size=(20, 10)))
bind(50, "series", lambda at: pd.Series(rng.normal(size=200)))
number(300, "x", lambda at: at)
bind(200, "rate", lambda at: at / 7)
number(100, "words", lambda at: ["word"] * at)
bind(80, "settings", lambda at: {f"key {key}": key for key in range(20)})
bind(63, "text", lambda at: "lorem ipsum " * 20)
"""
INFO = """
%whos
import io
for _name, _value in list(globals().items()):
    if isinstance(_value, pd.DataFrame) and not _name.startswith("_"):
        _text = io.StringIO()
        _value.info(buf=_text)
        print(_name, _text.getvalue())
"""


async def sides(kernel: Kernel) -> tuple[dict[str, list[float]], dict[str, int]]:
    """Let ours and the peers tell of the session in turn; give seconds, and characters."""
    lengths: dict[str, int] = {}

    def ours(look: Any) -> Any:
        async def once() -> float:
            began = time.perf_counter()
            text = describe(await look())
            lengths["summary"] = len(text)
            return time.perf_counter() - began

        return once

    def peer(name: str, source: str) -> Any:
        async def once() -> float:
            began = time.perf_counter()
            result = await kernel.run(source)
            taken = time.perf_counter() - began
            assert result.ok, result.text
            lengths[name] = len(result.text) + sum(cut.dropped for cut in result.cut)
            return taken

        return once

    async def whole() -> Any:
        return (await snapshot(kernel.core)).variables

    async def listing() -> Any:
        return await variables(kernel.core)

    found = await listing()
    assert len(found) == NAMES, len(found)
    assert sum(variable.type == "DataFrame" for variable in found) == FRAMES
    last: list[float] = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        describe(found)
        last.append(time.perf_counter() - began)
    every = {
        "whole": ours(whole),
        "listing": ours(listing),
        "whos": peer("whos", "%whos"),
        "info": peer("info", INFO),
    }
    await take_turns(2, every)
    return {**await take_turns(ROUNDS, every), "describe": last}, lengths


def measure() -> Figures:
    with Kernel.start("python3") as kernel:
        result = kernel.run(SESSION).result()
        assert result.ok, result.text
        taken, lengths = Run(sides(kernel)).result()

    def peer(name: str) -> str:
        told = {"whos": "`%whos`", "info": "`%whos` and `DataFrame.info`"}[name]
        return f"{spread(taken[name], 'ms', 1e3)}, {told}, {lengths[name]:,} characters"

    found = statistics.median(taken["whole"])
    return Figures(
        "A summary of 1,000 variables",
        f"{ROUNDS} times, in turn, in one kernel: {NAMES:,} names, {FRAMES} of them frames of 200 "
        "to 790 rows and 4 to 11 columns, else arrays, series, numbers, lists, dicts, texts. The "
        "summary has the columns and types of tables and two rows. The digest hashes every value.",
        (
            Row(
                "digest, listing and summary",
                spread(taken["whole"], "ms", 1e3),
                peer("info"),
                f"{ratio(taken['info'], taken['whole']):.2g} times as fast",
                f"≤ {GOAL * 1e3:.0f} ms",
                found <= GOAL,
            ),
            Row(
                "listing and summary",
                spread(taken["listing"], "ms", 1e3),
                peer("whos"),
                f"{ratio(taken['whos'], taken['listing']):.2g} times as fast",
            ),
            Row("of that: the summary", spread(taken["describe"], "ms", 1e3)),
            Row(
                "characters of the summary",
                f"{lengths['summary']:,}",
                "",
                "",
                f"≤ {CHARACTERS:,}",
                lengths["summary"] <= CHARACTERS,
            ),
        ),
        {"seconds": taken, "characters": lengths},
    )


if __name__ == "__main__":
    show(measure)
