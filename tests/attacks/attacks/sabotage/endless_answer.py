"""Writes an answer that does not end into every descriptor: None, dropped again, and so on."""
import os
import threading
import time


def write(name):
    while True:
        os.write(name, b"N0" * 1000)


for name in os.listdir("/proc/self/fd"):
    if int(name) > 2:
        threading.Thread(target=write, args=(int(name),)).start()

time.sleep(5)  # or its end would be told before its answer is read
