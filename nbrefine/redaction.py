"""Keep secrets, and text that cannot be encoded, out of results, prompts and records."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

SHORTEST = 8
"""Characters; a shorter value of an environment variable is too common to be replaced."""

_SECRET_NAME = re.compile(
    r"(?:^|_)(?:API)?(?:KEY|TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|PAT)S?(?:_?\d+)?$",
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
        ("github-token", "gh", r"\bgh[opsur]_[A-Za-z0-9]{36,}"),
        ("github-token", "github_pat_", r"\bgithub_pat_[A-Za-z0-9_]{22,}"),
        ("aws-key", "A", r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b"),
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


def clean_text(text: str) -> str:
    """Join surrogate pairs and replace lone surrogates by U+FFFD, so that UTF-8 can hold it."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text
