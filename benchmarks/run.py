"""Run benchmarks and write what they gave: the tables in README.md, all of it in results.json.

The machine must have nothing else to do; most of the time goes into the floods.  Tables of those
that are not named stay as they were measured.

    python benchmarks/run.py                       all of them
    python benchmarks/run.py branches speculation  these
"""

from __future__ import annotations

import datetime as dt
import json
import os
import platform
import re
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import branches
import cold_start
import flood
import fork_server
import grading
import import_cost
import live_panel
import long_episode
import page
import per_cell
import player
import psutil
import refinement_turn
import replay
import speculation
import state_summary
import stopping
import subtask
from figures import table

BENCHMARKS = (
    import_cost,
    cold_start,
    per_cell,
    fork_server,
    branches,
    speculation,
    refinement_turn,
    subtask,
    state_summary,
    flood,
    long_episode,
    page,
    live_panel,
    stopping,
    player,
    replay,
    grading,
)
PACKAGES = (
    "nbrefine",
    "ipykernel",
    "IPython",
    "jupyter_client",
    "nbclient",
    "pyzmq",
    "pandas",
    "cloudpickle",
)
HERE = Path(__file__).parent
RESULTS = HERE / "results.json"
BLOCK = re.compile(r"(?<=<!-- figures:begin -->\n).*(?=<!-- figures:end -->)", re.DOTALL)


def main(names: Sequence[str]) -> None:
    known = {benchmark.__name__: benchmark for benchmark in BENCHMARKS}
    if unknown := set(names) - set(known):
        raise SystemExit(f"There is no {', '.join(unknown)}; there are: {', '.join(known)}")
    results = json.loads(RESULTS.read_text())
    for name in names or known:
        load = os.getloadavg()[0]
        figures = known[name].measure()
        told = f"{sentence(machine())} Load average before it: {load:.1f}."
        results[name] = {"table": f"{table(figures)}\n\n{told}", "raw": rounded(figures.raw)}
        print(f"{table(figures)}\n", flush=True)
        RESULTS.write_text(json.dumps(results) + "\n")
    text = "\n\n".join(results[name]["table"] for name in known if name in results) + "\n"
    readme = HERE / "README.md"
    readme.write_text(BLOCK.sub(lambda _: text, readme.read_text()))


def rounded(value: Any) -> Any:
    """Round all seconds to microseconds."""
    if isinstance(value, dict):
        return {name: rounded(each) for name, each in value.items()}
    if isinstance(value, list):
        return [rounded(each) for each in value]
    return round(value, 6) if isinstance(value, float) else value


def machine() -> dict[str, str]:
    cpu = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    return {
        "date": dt.datetime.now(dt.UTC).date().isoformat(),
        "system": f"{platform.system()} {platform.release()}",
        "processor": f"{cpu[1].strip() if cpu else platform.machine()}, {os.cpu_count()} cores",
        "memory": f"{psutil.virtual_memory().total / 2**30:.0f} GiB",
        "python": platform.python_version(),
        **{name: version(name) for name in PACKAGES},
    }


def sentence(about: dict[str, str]) -> str:
    packages = ", ".join(f"{name} {about[name]}" for name in PACKAGES)
    return (
        f"{about['date']}: {about['processor']}, {about['memory']} of memory, {about['system']}, "
        f"Python {about['python']}; {packages}."
    )


if __name__ == "__main__":
    main(sys.argv[1:])
