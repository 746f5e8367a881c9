"""Answers with lists within lists, deeper than recursion reaches."""


def running(numbers):
    value = []
    for _ in range(100_000):
        value = [value]
    return value
