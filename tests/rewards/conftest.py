"""A real HTTP server on loopback, as the tests of models have it."""

from __future__ import annotations

from tests.models.conftest import server

__all__ = ["server"]
