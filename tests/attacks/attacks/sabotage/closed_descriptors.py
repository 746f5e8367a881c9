"""Closes every descriptor, so that it can neither be asked nor answer."""
import os

os.closerange(3, 4096)


def running(numbers):
    return None
