"""Catches whatever is raised into it, and never answers."""
import signal

signal.signal(signal.SIGALRM, signal.default_int_handler)


def running(numbers):
    while True:
        try:
            while True:
                pass
        except BaseException:
            pass
