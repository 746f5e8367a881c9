"""Ignores every signal that can be ignored, and never answers."""
import signal

for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
    try:
        signal.signal(number, signal.SIG_IGN)
    except OSError:
        pass


def running(numbers):
    while True:
        pass
