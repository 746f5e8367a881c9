"""Keep secrets, and text that cannot be encoded, out of results, prompts and records."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping

SHORTEST = 8
"""Characters; a shorter value of an environment variable is too common to be replaced."""

_SECRET_NAME = re.compile(
    r"(?:(?:^|_)(?:API)?(?:KEY|PAT)|TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE)S?(?:_?\d+)?$",
    re.IGNORECASE,
)

# Name, a text that must be there for the pattern to be tried at all, and the pattern, after the
# issuers' published formats.  A digit is asked for where ordinary words could look alike:
# scikit-learn's HTML is full of classes such as "sk-toggleable__label-arrow".
_SHAPES = tuple(
    (name, literal, re.compile(pattern, re.DOTALL))
    for name, literal, pattern in (
        (
            "private-key",
            "PRIVATE KEY-----",
            r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)",
        ),
        ("sk-key", "sk-", r"\bsk-(?=[\w-]*\d)[A-Za-z0-9_-]{20,}"),
        *(("github-token", f"gh{kind}_", rf"\bgh{kind}_[A-Za-z0-9]{{36,}}") for kind in "opsur"),
        ("github-token", "github_pat_", r"\bgithub_pat_[A-Za-z0-9_]{22,}"),
        ("aws-key", "AKIA", r"\bAKIA[A-Z0-9]{16}\b"),
        ("aws-key", "ASIA", r"\bASIA[A-Z0-9]{16}\b"),
        ("hf-token", "hf_", r"\bhf_[A-Za-z0-9]{30,}"),
        ("slack-token", "xox", r"\bxox[abeoprs]-[A-Za-z0-9-]{10,}"),
        ("google-key", "AIza", r"\bAIza[A-Za-z0-9_-]{35}"),
        ("bearer", "earer ", r"(?<=\b[Bb]earer )(?=\S*\d)[A-Za-z0-9._~+/-]{16,}=*"),
    )
)


class Redactor:
    """Replaces secrets in texts by `[redacted:NAME]`.

    Parameters
    ----------
    environ: environment whose values are secret where their name ends in KEY, TOKEN, SECRET,
        PASSWORD and the like and they have at least `SHORTEST` characters; the process's own
        by default, as it is now.
    """

    def __init__(self, environ: Mapping[str, str] | None = None) -> None:
        environ = os.environ if environ is None else environ
        known = {
            value: name
            for name, value in environ.items()
            if len(value) >= SHORTEST and _SECRET_NAME.search(name)
        }
        # A secret that holds another is replaced first, as a whole.
        self._known = sorted(known.items(), key=lambda item: -len(item[0]))

    def redact(self, text: str) -> tuple[str, int]:
        """Give the text without its secrets, and how many were replaced."""
        count = 0
        for value, name in self._known:
            if value in text:
                count += text.count(value)
                text = text.replace(value, f"[redacted:{name}]")
        for name, literal, pattern in _SHAPES:
            if literal in text:
                text, found = pattern.subn(f"[redacted:{name}]", text)
                count += found
        return text, count


_BLOCK = 256 * 1024  # characters that are redacted at once
_REACH = 16 * 1024  # characters on either side of a division in which a secret shows itself
_HELD = 4  # blocks that may wait for the end of a secret


class GrowingText:
    """Redacts a text that comes in pieces as it would be redacted whole.

    A piece is given out as soon as nothing that follows can change it.  A text in which a
    secret does not end, so that this never happens, is not given out from there on.

    Parameters
    ----------
    redact: gives a text without its secrets.
    """

    def __init__(self, redact: Callable[[str], str]) -> None:
        self._redact = redact
        self._held = ""
        self._due = _BLOCK  # characters held at which the next attempt is worth its cost
        self.withheld = 0
        """Characters that are not given out at all."""

    def feed(self, text: str) -> str:
        """Add to the text and give what is certain now."""
        given = []
        for start in range(0, len(text), _BLOCK):
            piece = text[start : start + _BLOCK]
            if self.withheld:
                self.withheld += len(piece)
                continue
            self._held += piece
            if len(self._held) >= self._due:
                given.append(self._advance())
        return "".join(given)

    def rest(self) -> str:
        """Give what is left when the text has ended."""
        return self._redact(self._held)

    def _advance(self) -> str:
        end = len(self._held) - _REACH
        places = [self._held.rfind(mark, 0, end) for mark in ("\n", "-----BEGIN", " ")]
        for place in (places[0] + 1, places[1], places[2] + 1, end):
            if place > 0 and (front := self._divided(place)) is not None:
                self._held = self._held[place:]
                self._due = len(self._held) + _BLOCK
                return front
        self._due = len(self._held) + _BLOCK
        if self._due > _HELD * _BLOCK:
            # What may be the beginning of another secret stays away too.
            front, self._held, self.withheld = self.rest()[:-_REACH], "", _REACH
            return front
        return ""

    def _divided(self, place: int) -> str | None:
        """Redact what is before a place; None where that depends on what is behind it."""
        before = self._held[max(0, place - _REACH) : place]
        behind = self._held[place : place + _REACH]
        near = self._redact(before)
        if near + self._redact(behind) != self._redact(before + behind):
            return None
        front = self._redact(self._held[:place])
        # Else a secret began farther off than `before` reaches, and covers its end.
        return front if front.endswith(near[-_REACH // 2 :]) else None


def clean_text(text: str) -> str:
    """Join surrogate pairs and replace lone surrogates by U+FFFD, so that UTF-8 can hold it."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text
