"""What a run may spend: turns, calls, tokens, money, seconds."""


class Budget:
    """A stand-in."""
