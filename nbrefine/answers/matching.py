"""A pattern of somebody else's, matched in a process of its own that can be ended.

A pattern such as `(a+)+b` takes longer than anybody waits for some texts, and Python's `re` keeps
all threads of its process waiting meanwhile.
"""

from __future__ import annotations

import json
import subprocess
import sys

from nbrefine.errors import ExecutorError

SECONDS = 5.0
"""How long a match may take, the start of the process included."""

_MATCH = """\
import json, re, sys
pattern, text = json.load(sys.stdin)
sys.exit(3 if re.fullmatch(pattern, text) else 4)
"""


def matches(pattern: str, text: str, *, seconds: float = SECONDS) -> bool | None:
    """Tell whether all of a text matches a regular expression; None where that takes too long.

    It waits for a process, and so belongs into a worker thread.

    Raises
    ------
    ExecutorError: no process can be started, it fails, or the pattern is none.
    """
    asked = json.dumps([pattern, text]).encode()
    command = [sys.executable, "-I", "-S", "-c", _MATCH]
    try:
        ended = subprocess.run(
            command, input=asked, timeout=seconds, check=False, capture_output=True
        )
    except subprocess.TimeoutExpired:
        return None
    except OSError as error:
        raise ExecutorError(
            f"The process that matches patterns cannot be started: {error.strerror or error}"
        ) from error
    if ended.returncode not in (3, 4):
        told = ended.stderr.decode(errors="replace").strip()[-300:]
        raise ExecutorError(f"The process that matches patterns failed: {told}")
    return ended.returncode == 3
