"""What `%load_ext nbrefine` brings to a notebook.

Cells of people, without any model:

    %%try             run the cell in a branch of this kernel, and see what it would change
    %keep             run it here, once, and compare
    %discard          forget it
    %undo             says why this kernel cannot go back

An agent, asked from a cell:

    %%refine          work on what the cell says until it is solved
    %refine_status    where the work stands
    %refine_stop      end it
    %refine_view      read an episode, attempt by attempt
    %refine_replay    run a recorded episode again, and compare

They work wherever the notebook runs, also in Run All, papermill and nbconvert.
"""

from __future__ import annotations

from typing import Any

from nbrefine.magics.refine import Refinement
from nbrefine.magics.transactions import Transactions


def load_ipython_extension(shell: Any) -> None:
    """Register the magics; IPython calls it."""
    for magics in (Transactions(shell), Refinement(shell)):
        shell.register_magics(magics)
        shell.input_transformers_cleanup.append(magics.awaited)


def unload_ipython_extension(shell: Any) -> None:
    """Take the magics back, forget an attempt that waits, and stop an agent that works."""
    for name in ("Transactions", "Refinement"):
        magics = shell.magics_manager.registry.pop(name, None)
        if magics is None:
            continue
        magics.forget()
        shell.input_transformers_cleanup.remove(magics.awaited)
        for kind, own in magics.magics.items():
            for each in own:
                shell.magics_manager.magics[kind].pop(each, None)
