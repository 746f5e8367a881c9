"""A server for the page's judges."""

from __future__ import annotations

import pytest

from tests.models.conftest import LoopbackServer, server

__all__ = ["openai", "server"]


@pytest.fixture
def openai(server: LoopbackServer, monkeypatch: pytest.MonkeyPatch) -> LoopbackServer:
    """A server on loopback where OpenAI's is looked for."""
    monkeypatch.setenv("OPENAI_BASE_URL", server.url)
    monkeypatch.setenv("OPENAI_API_KEY", server.key)
    return server
