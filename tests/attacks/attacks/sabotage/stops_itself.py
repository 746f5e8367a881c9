"""Stops itself, so that it neither answers nor ends."""
import os
import signal


def running(numbers):
    os.kill(os.getpid(), signal.SIGSTOP)
