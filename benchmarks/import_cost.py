"""What `import nbrefine` costs in a fresh process.

CPU seconds are user and system time of the whole process, the interpreter's own start included;
a bare interpreter runs in turn with it.

    python benchmarks/import_cost.py
"""

from __future__ import annotations

import os
import subprocess
import sys

from figures import Figures, Row, alternate, show, spread

ROUNDS = 20
GOAL = 0.25
HEAVY = ("openai", "datasets", "ipywidgets")

EVERYTHING = "import nbrefine\nfor name in nbrefine.__all__: getattr(nbrefine, name)"


def cpu_seconds(code: str) -> float:
    process = subprocess.Popen([sys.executable, "-c", code])
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, code
    return usage.ru_utime + usage.ru_stime


def loaded(code: str) -> list[str]:
    """Give the heavy modules that are loaded after the code has run."""
    asked = f"{code}\nimport sys; print(*(name for name in {HEAVY} if name in sys.modules))"
    done = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True)
    return done.stdout.split()


def measure() -> Figures:
    codes = ("pass", "import nbrefine", EVERYTHING, "import jupyter_client", "import nbclient")
    sides = [lambda code=code: cpu_seconds(code) for code in codes]
    alternate(1, *sides)  # writes the bytecode, as an installation does
    bare, alone, everything, client, notebooks = alternate(ROUNDS, *sides)
    heavy = {code: loaded(code) for code in codes[1:3]}
    median = sorted(alone)[len(alone) // 2]
    return Figures(
        "Import",
        f"{ROUNDS} fresh processes each, alternating; CPU seconds of the whole process, of which "
        f"a bare `python -c pass` takes {spread(bare, 's')}. The root loads its names when they "
        "are first used, so the second line shows what using all of them costs.",
        (
            Row(
                "`import nbrefine`",
                spread(alone, "s"),
                "",
                told(heavy["import nbrefine"]),
                f"≤ {GOAL} s",
                median <= GOAL and not heavy["import nbrefine"],
            ),
            Row(
                "the same, and every public name",
                spread(everything, "s"),
                f"{spread(client, 's')}, `import jupyter_client`; "
                f"{spread(notebooks, 's')}, `import nbclient`",
                told(heavy[EVERYTHING]),
            ),
        ),
        {
            "python -c pass": bare,
            "import nbrefine": alone,
            "every public name": everything,
            "import jupyter_client": client,
            "import nbclient": notebooks,
        },
    )


def told(heavy: list[str]) -> str:
    return f"loads {', '.join(heavy)}" if heavy else f"loads none of {', '.join(HEAVY)}"


if __name__ == "__main__":
    show(measure)
