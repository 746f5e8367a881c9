"""Waiting until a descriptor can be read."""

from __future__ import annotations

import asyncio
import os


async def readable(limit: float | None, *descriptors: int) -> bool:
    """Wait on the running loop until one of the descriptors has something to read.

    Parameters
    ----------
    limit: seconds to wait; None waits for as long as it takes.
    """
    loop = asyncio.get_running_loop()
    found = asyncio.Event()
    own = [os.dup(each) for each in descriptors]  # a loop keeps one reader for each descriptor
    for each in own:
        loop.add_reader(each, found.set)
    try:
        async with asyncio.timeout(None if limit is None else max(0, limit)):
            await found.wait()
    except TimeoutError:
        return False
    else:
        return True
    finally:
        for each in own:
            loop.remove_reader(each)
            os.close(each)
