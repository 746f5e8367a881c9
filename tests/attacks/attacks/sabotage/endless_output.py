"""Prints without end, where no alarm reaches it."""
import signal

signal.signal(signal.SIGALRM, signal.SIG_IGN)


def running(numbers):
    while True:
        print("x" * 100_000)
