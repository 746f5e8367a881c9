"""What a kernel says of an expression."""

from __future__ import annotations

from nbrefine.kernel import Kernel


def value(kernel: Kernel, expression: str) -> str:
    result = kernel.run(expression, timeout=30).result()
    assert result.ok, result.error
    return result.text.strip()
