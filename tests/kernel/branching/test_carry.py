"""What a forked child has of its parent, and what it must not touch; all in real forks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Process = Callable[..., list[Any]]


def test_buffered_text_is_written_once_and_each_side_writes_at_its_own_place(
    process: Process,
) -> None:
    (text,) = process(
        """
        file = open("text", "w")
        file.write("before;")
        in_branch(lambda: (file.write("branch"), file.close()))
        file.write("parent")
        file.close()
        told.append(open("text").read())
        """
    )
    assert text == "before;parent"  # the branch's six letters were overwritten by six of the parent


def test_a_file_that_only_a_frame_holds_is_flushed_too(process: Process) -> None:
    (seen,) = process(
        """
        def hold():
            with open("text", "w") as file:
                file.write("before;")
                yield

        held = hold()
        next(held)
        told.append(in_branch(lambda: open("text").read()))
        """
    )
    assert seen == "before;"


def test_reading_in_a_branch_does_not_move_the_parents_place(process: Process) -> None:
    branch, parent = process(
        """
        import tempfile
        file = tempfile.TemporaryFile("w+")  # which has no name any more
        file.write("".join(f"{number:04}\\n" for number in range(10_000)))
        file.seek(0)
        file.readline()
        told.append(in_branch(lambda: len(file.read())))
        told.append(len(file.read()))
        """
    )
    assert branch == parent == 49_995


def test_a_large_heap_costs_nothing_where_no_file_is_written(process: Process) -> None:
    """A million objects; with a file that only they could hold they would all be searched."""
    without, found = process(
        """
        heap = [[number] for number in range(1_000_000)]

        def measure():
            begun = time.thread_time()
            carry._flush(descriptors.table())
            return time.thread_time() - begun

        told.append(min(measure() for _ in range(5)))
        file = open("text", "w")
        told.append(min(measure() for _ in range(5)))
        """
    )
    assert without < 0.001
    assert found < 0.001  # as it is a variable of the session


def test_what_lies_in_a_pipe_is_there_for_both_sides(process: Process) -> None:
    told = process(
        """
        import multiprocessing
        fork = multiprocessing.get_context("fork")
        queue = fork.Queue()
        queue.put("kept")
        while not queue._reader.poll(1):
            pass

        def use():
            first = queue.get(timeout=20)
            queue.put("own")
            return first, queue.get(timeout=20)

        told.append(in_branch(use))
        told.append(queue.get(timeout=20))
        told.append(queue.empty())
        """
    )
    assert told == [["kept", "own"], "kept", True]


def test_a_queue_at_which_a_process_of_the_parent_waits_can_be_used(process: Process) -> None:
    """Who waits holds the queue's lock, and would hold the branch's copy of it for ever."""
    told = process(
        """
        import multiprocessing
        fork = multiprocessing.get_context("fork")
        queue = fork.Queue()
        waiting = fork.Process(target=queue.get, daemon=True)
        waiting.start()
        while queue._rlock.acquire(block=False):
            queue._rlock.release()

        def use():
            queue.put(7)
            return queue.get(timeout=20)

        told.append(in_branch(use))
        queue.put(8)
        waiting.join()
        """
    )
    assert told == [7]


def test_a_branch_cannot_reach_the_parents_processes(process: Process) -> None:
    branch, parent = process(
        """
        import subprocess
        cat = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

        def write():
            try:
                os.write(cat.stdin.fileno(), b"branch")
            except BrokenPipeError:
                return os.read(cat.stdout.fileno(), 10).decode()

        told.append(in_branch(write))
        told.append(cat.communicate(b"parent")[0].decode())
        """
    )
    assert branch == ""
    assert parent == "parent"


def test_a_branch_does_not_keep_the_connections_of_a_controller_open(process: Process) -> None:
    """In a kernel in which nbrefine itself runs; at their end its kernels end."""
    told = process(
        """
        import socket
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        foreign.add(theirs.fileno())  # as the checkpoint's own end is

        def behind():
            return [os.readlink(f"/proc/self/fd/{each.fileno()}") for each in (ours, theirs)]

        told.append(behind())
        told.append(in_branch(behind))
        """
    )
    (ours, theirs), (inherited, kept) = told
    assert inherited != ours
    assert kept == theirs


def test_a_branch_cannot_speak_over_the_parents_connection(process: Process, web: str) -> None:
    host, port = web.split(":")
    branch, parent = process(
        f"""
        import socket
        opened = socket.create_connection(("{host}", {port}))

        def speak():
            try:
                opened.sendall(b"nonsense")
            except BrokenPipeError:
                return opened.recv(10).decode()

        told.append(in_branch(speak))
        opened.sendall(b"GET / HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n")
        told.append(opened.recv(15).decode())
        """
    )
    assert branch == ""
    assert parent == "HTTP/1.1 200 OK"


def test_an_http_client_opens_a_connection_of_its_own(process: Process, web: str) -> None:
    """The one of httpx finds the old one closed, and so do those of urllib3 and requests."""
    told = process(
        f"""
        import httpx2
        client = httpx2.Client()

        def get():
            return client.get("http://{web}/").text

        told.append(get())
        told.append(in_branch(get))
        told.append(get())
        """
    )
    assert told == ["ok", "ok", "ok"]


def test_an_event_loop_that_does_not_run_can_be_used_by_both_sides(process: Process) -> None:
    told = process(
        """
        def use():
            async def main():
                reader, writer = await asyncio.open_unix_connection(sock=left)
                writer.write(b"x")
                await asyncio.sleep(0.01)
                return await loop.run_in_executor(None, abs, -3)

            import socket
            left, right = socket.socketpair()
            return loop.run_until_complete(asyncio.wait_for(main(), 20))

        told.append(in_branch(use))
        told.append(use())
        """
    )
    assert told == [3, 3]


def test_what_a_branch_registers_its_parent_does_not_see(process: Process) -> None:
    told = process(
        """
        import select, threading
        event = os.eventfd(0)
        poll = select.epoll()
        poll.register(event, select.EPOLLIN)

        def use():
            read, write = os.pipe()
            os.write(write, b"x")
            poll.register(read, select.EPOLLIN)
            os.eventfd_write(event, 1)
            return len(poll.poll(0))

        told.append(in_branch(use))
        told.append(len(poll.poll(0)))
        """
    )
    assert told == [2, 0]


def test_unnamed_shared_memory_is_the_branchs_own(process: Process) -> None:
    told = process(
        """
        import mmap, multiprocessing
        fork = multiprocessing.get_context("fork")
        number, block = fork.Value("i", 5), mmap.mmap(-1, 10)
        block[:3] = b"abc"

        def use():
            before = number.value, block[:3].decode()
            number.value, block[:3] = 6, b"xyz"
            child = fork.Process(target=lambda: setattr(number, "value", number.value + 1))
            child.start()
            child.join()
            return [*before, number.value, block[:3].decode()]

        told.append(in_branch(use))
        told.append([number.value, block[:3].decode()])
        """
    )
    assert told == [[5, "abc", 7, "xyz"], [5, "abc"]]


def test_a_branch_that_dies_with_a_lock_leaves_it_free(process: Process) -> None:
    """A semaphore lies in shared memory: tqdm would hang in the parent for ever."""
    told = process(
        """
        import multiprocessing
        lock = multiprocessing.get_context("fork").Lock()
        told.append(in_branch(lambda: lock.acquire(timeout=1)))
        told.append(lock.acquire(timeout=1))
        """
    )
    assert told == [True, True]


def test_thread_pools_work_and_what_they_had_not_finished_fails(process: Process) -> None:
    told = process(
        """
        import threading
        from concurrent.futures import CancelledError, ThreadPoolExecutor
        pool = ThreadPoolExecutor(1)
        begun, end = threading.Event(), threading.Event()
        running = pool.submit(lambda: (begun.set(), end.wait(), 7)[-1])
        waiting = pool.submit(abs, -8)
        begun.wait()

        def use():
            errors = [repr(each.exception(timeout=20)) for each in (running, waiting)]
            return [pool.submit(abs, -9).result(timeout=20), *errors]

        told.append(in_branch(use))
        end.set()
        told.append([running.result(timeout=20), waiting.result(timeout=20)])
        """
    )
    new, *errors = told[0]
    assert new == 9
    assert all("its worker belongs to the kernel" in each for each in errors)
    assert told[1] == [7, 8]


def test_process_pools_say_that_they_cannot_be_used(process: Process) -> None:
    told = process(
        """
        import multiprocessing
        from concurrent.futures import ProcessPoolExecutor
        fork = multiprocessing.get_context("fork")
        pool, executor = fork.Pool(1), ProcessPoolExecutor(1, mp_context=fork)
        waiting = pool.apply_async(time.sleep, (1,))
        executor.submit(abs, -1).result()

        def use():
            errors = []
            for attempt in (
                lambda: pool.map(abs, [-1]),
                lambda: waiting.get(timeout=20),
                lambda: executor.submit(abs, -1).result(timeout=20),
            ):
                try:
                    attempt()
                except Exception as error:
                    errors.append(type(error).__name__)
            with fork.Pool(1) as own:
                return [*errors, own.map(abs, [-2])]

        told.append(in_branch(use))
        told.append([pool.map(abs, [-3]), executor.submit(abs, -4).result(timeout=20)])
        pool.terminate()
        executor.shutdown()
        """
    )
    assert told == [["ValueError", "RuntimeError", "BrokenProcessPool", [2]], [[3], 4]]


def test_random_numbers_go_on_alike_and_identifiers_differ(process: Process) -> None:
    told = process(
        """
        import random, tempfile, uuid
        random.seed(1)
        tempfile.mktemp()

        def draw():
            return [random.random(), str(uuid.uuid4()), tempfile.mktemp()]

        told.append(in_branch(draw))
        told.append(draw())
        """
    )
    assert told[0][0] == told[1][0]
    assert told[0][1] != told[1][1]
    assert told[0][2] != told[1][2]


EXIT = """
import atexit, tempfile, weakref

class Thing:
    pass

def leave(adopted=False):
    "Fork, leave the child as an interpreter ends, and tell which files are there."
    carried = carry.Carried(foreign)
    pid = os.fork()
    if pid == 0:
        carried.restore()
        if adopted:
            carry.resume_exit_work()
        atexit.register(lambda: open("new-exit", "w"))
        weakref.finalize(thing, lambda: open("new-final", "w"))
        atexit._run_exitfuncs()
        os._exit(0)
    os.waitpid(pid, 0)
    names = ("exit", "final", "new-exit", "new-final")
    return [*(os.path.exists(name) for name in names), os.path.exists(folder.name)]

thing = Thing()
folder = tempfile.TemporaryDirectory()
atexit.register(lambda: open("exit", "w"))
weakref.finalize(thing, lambda: open("final", "w"))
"""


def test_the_parents_exit_work_is_not_done_by_a_branch_and_its_own_is(process: Process) -> None:
    told = process(f"{EXIT}\ntold.extend(leave())\nfolder.cleanup()")
    assert told == [False, False, True, True, True]


def test_an_adopted_branch_takes_over_the_finalizers(process: Process) -> None:
    told = process(f"{EXIT}\ntold.extend(leave(adopted=True))\nfolder.cleanup()")
    assert told == [False, True, True, True, False]
