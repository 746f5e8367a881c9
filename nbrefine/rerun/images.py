"""Whether two pictures show the same, whatever their files hold beside the pixels."""

from __future__ import annotations

import base64
import binascii
import io
import zlib

from nbrefine.outputs import extents

LEVELS = 2
"""How far a colour may be from the other one, of 255: what another rounding of a blend gives."""

INFLATED = 64_000_000
"""Bytes of pixels that are compared."""

_FILES = "the pictures' files differ"
_PNG = b"\x89PNG\r\n\x1a\n"


def alike(was: str, now: str) -> tuple[str, str]:
    """Compare two pictures, each as base64.

    Gives the name of what had to be looked at, or "" and how they differ.
    """
    try:
        old, new = (base64.b64decode("".join(each.split()), validate=True) for each in (was, now))
    except (binascii.Error, ValueError):
        return "", "a picture cannot be read"
    if old == new:
        return "image", ""
    if (sizes := (extents(old).strip(), extents(new).strip()))[0] != sizes[1]:
        return "", f"the picture is {sizes[1] or 'of another kind'}, not {sizes[0]}"
    packed = _packed(old), _packed(new)
    if packed[0] and packed[0] == packed[1]:
        return "image", ""
    apart = _apart(old, new)
    if isinstance(apart, str):
        return "", apart
    if apart == 0:
        return "image", ""
    share = f"{apart:.1%}" if apart >= 0.001 else "less than 0.1%"
    return "", f"{share} of the picture's pixels differ"


def _packed(picture: bytes) -> bytes:
    """Give the header and the filtered rows of a PNG; b"" of anything else.

    Two files of one encoder have the same ones where they show the same.
    """
    if not picture.startswith(_PNG):
        return b""
    header, rows, at = b"", [], len(_PNG)
    while at + 12 <= len(picture):
        size = int.from_bytes(picture[at : at + 4])
        kind, content = picture[at + 4 : at + 8], picture[at + 8 : at + 8 + size]
        if kind in (b"IHDR", b"PLTE", b"tRNS", b"acTL", b"fcTL", b"fdAT"):
            header += kind + content
        elif kind == b"IDAT":
            rows.append(content)
        at += 12 + size
    inflate = zlib.decompressobj()
    try:
        pixels = inflate.decompress(b"".join(rows), INFLATED)
    except zlib.error:
        return b""
    return header + pixels if inflate.eof else b""


def _apart(was: bytes, now: bytes) -> float | str:
    """Give the share of pixels that differ, or why the files differ and nobody knows how."""
    try:
        from PIL import Image, ImageChops
    except ImportError:
        return f"{_FILES}, and without Pillow nothing here reads their pixels"
    try:
        with Image.open(io.BytesIO(was)) as old, Image.open(io.BytesIO(now)) as new:
            if old.size != new.size or 4 * old.width * old.height > INFLATED:
                return f"{_FILES}, and they are too large to be compared"
            if getattr(old, "n_frames", 1) > 1 or getattr(new, "n_frames", 1) > 1:
                return f"{_FILES}, and they move"
            bands = ImageChops.difference(old.convert("RGBA"), new.convert("RGBA")).split()
    except Exception:  # noqa: BLE001 - whatever a damaged picture makes of its reader
        return f"{_FILES}, and one of them is damaged"
    most = bands[0]
    for band in bands[1:]:
        most = ImageChops.lighter(most, band)
    counts = most.histogram()
    return sum(counts[LEVELS + 1 :]) / max(1, sum(counts))
