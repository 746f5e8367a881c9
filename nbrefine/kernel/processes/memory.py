"""How much memory a process has, shared pages counted fairly."""

from __future__ import annotations

from pathlib import Path

from nbrefine.errors import KernelError
from nbrefine.outputs import Memory


def memory(pid: int | None) -> Memory:
    """Read a process's memory from `/proc/PID/smaps_rollup`.

    Raises
    ------
    KernelError: there is no such file, because the process has ended, is not of this host, or
        the host is no Linux.
    """
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
    except OSError as error:
        raise KernelError(f"The memory of process {pid} cannot be read: {error}") from None
    kilobytes = {name: int(rest.split()[0]) for name, _, rest in (x.partition(":") for x in lines)}
    private = kilobytes["Private_Clean"] + kilobytes["Private_Dirty"]
    return Memory(kilobytes["Rss"] * 1024, kilobytes["Pss"] * 1024, private * 1024)
