"""What a cell gives back, on a real ipykernel."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from nbrefine.errors import RunStopped
from nbrefine.kernel import Kernel
from nbrefine.outputs import CellResult, Display, Failure, Stream


def run(kernel: Kernel, source: str, **settings: Any) -> CellResult:
    return kernel.run(source, **settings).result()


def test_a_value_a_print_and_the_count_come_back(kernel: Kernel) -> None:
    result = run(kernel, "print('hello')\n6 * 7")
    assert result.status == "ok"
    assert result.outputs[0] == Stream("stdout", "hello\n")
    shown = result.outputs[1]
    assert isinstance(shown, Display)
    assert shown.text == "42"
    assert shown.execution_count == result.execution_count
    assert run(kernel, "pass").execution_count == (result.execution_count or 0) + 1


def test_times_are_in_order_and_in_utc(kernel: Kernel) -> None:
    timing = run(kernel, "1").timing
    assert timing.busy <= timing.input <= timing.reply
    assert timing.idle.endswith("Z")
    assert timing.seconds > 0


def test_an_error_is_a_value_with_its_traceback(kernel: Kernel) -> None:
    result = run(kernel, "before = 1\n1/0")
    assert result.status == "error"
    assert result.error is not None
    assert (result.error.ename, result.error.evalue) == ("ZeroDivisionError", "division by zero")
    assert "before = 1" in "".join(result.error.traceback) or "1/0" in result.text
    assert result.outputs == (result.error,)


def test_an_error_does_not_stop_the_cells_that_wait(kernel: Kernel) -> None:
    runs = [kernel.run("1/0"), kernel.run("'still here'")]
    assert [each.result().status for each in runs] == ["error", "ok"]


def test_streams_keep_the_order_in_which_they_were_written(kernel: Kernel) -> None:
    source = (
        "import sys\nfor n in range(3):\n    print(n, flush=True)\n"
        "    print(n, file=sys.stderr, flush=True)"
    )
    names = [output.name for output in run(kernel, source).outputs if isinstance(output, Stream)]
    assert names == ["stdout", "stderr"] * 3


def test_every_form_of_a_display_is_kept(kernel: Kernel) -> None:
    source = """
class Rich:
    def _repr_mimebundle_(self, include=None, exclude=None):
        return {'text/plain': 'p', 'text/html': '<b>h</b>', 'application/json': {'k': [1]},
                'image/svg+xml': '<svg/>', 'application/vnd.custom+json': {'v': 2}}
Rich()"""
    (shown,) = run(kernel, source).outputs
    assert isinstance(shown, Display)
    assert shown.data == {
        "text/plain": "p",
        "text/html": "<b>h</b>",
        "application/json": {"k": [1]},
        "image/svg+xml": "<svg/>",
        "application/vnd.custom+json": {"v": 2},
    }


def test_a_picture_arrives_as_base64(kernel: Kernel) -> None:
    # The smallest valid PNG header is enough for IPython to send the bytes as they are.
    source = (
        "from IPython.display import Image, display\n"
        "display(Image(data=b'\\x89PNG\\r\\n\\x1a\\n' + b'0' * 20, format='png'))"
    )
    (shown,) = run(kernel, source).outputs
    assert isinstance(shown, Display)
    assert str(shown.data["image/png"]).startswith("iVBORw0KGgo")


def test_a_display_is_updated_in_its_cell_and_from_a_later_one(kernel: Kernel) -> None:
    first = run(
        kernel,
        "from IPython.display import display, update_display\n"
        "display('one', display_id='bar')\nprint('x')\nupdate_display('two', display_id='bar')",
    )
    shown, stream = first.outputs
    assert isinstance(shown, Display)
    assert (shown.text, shown.display_id) == ("'two'", "bar")
    assert stream == Stream("stdout", "x\n")
    (later,) = run(kernel, "update_display('three', display_id='bar')").outputs
    assert isinstance(later, Display)
    assert (later.text, later.display_id) == ("'three'", "bar")


def test_clear_output_and_progress_bars_leave_what_a_reader_would_see(kernel: Kernel) -> None:
    source = (
        "from IPython.display import clear_output\nprint('gone')\nclear_output()\n"
        "for n in range(0, 101, 10):\n    print(f'\\r{n}%', end='', flush=True)\nprint()"
    )
    assert run(kernel, source).outputs == (Stream("stdout", "100%\n"),)


def test_what_a_pager_would_show_is_an_output(kernel: Kernel) -> None:
    assert "Return the number of items" in run(kernel, "len?").text


def test_output_of_children_and_of_file_descriptors_is_kept(kernel: Kernel) -> None:
    source = (
        "import os, sys, subprocess, time\n"
        "os.write(1, b'descriptor\\n')\nsubprocess.run(['echo', 'child'])\n"
        "!echo shell\n"
        "time.sleep(0.5)"
    )
    text = run(kernel, source).text
    assert all(word in text for word in ("descriptor", "child", "shell"))


def test_a_forked_child_prints_into_its_cell(kernel: Kernel) -> None:
    source = (
        "import os, time\npid = os.fork()\n"
        "if pid == 0:\n    print('from the child', flush=True); time.sleep(0.3); os._exit(0)\n"
        "os.waitpid(pid, 0); time.sleep(0.3)\nprint('from the parent')"
    )
    text = run(kernel, source).text
    assert "from the child" in text
    assert "from the parent" in text


def test_output_of_a_thread_after_its_cell_is_late_and_in_no_way_lost(
    kernel: Kernel, until: Callable[..., None]
) -> None:
    kernel.late().result()
    source = (
        "import threading, time\n"
        "def later():\n    time.sleep(0.3); print('LATE', flush=True)\n"
        "t = threading.Thread(target=later); t.start()"
    )
    assert run(kernel, source).outputs == ()
    found: list[Any] = []

    def take() -> bool:
        found.extend(kernel.late().result())
        return bool(found)

    until(take)
    assert found == [Stream("stdout", "LATE\n", late=True)]


def test_private_messages_that_come_late_are_no_outputs(
    kernel: Kernel, until: Callable[..., None]
) -> None:
    source = """
import threading
from IPython.display import clear_output, publish_display_data
def later():
    print('before', flush=True)
    publish_display_data({'application/vnd.nbrefine+json': 1}, metadata={'nbrefine': 'gone'})
    clear_output()
    print('after', flush=True)
threading.Timer(.2, later).start()"""
    kernel.late().result()
    run(kernel, source)
    text = ""

    def take() -> bool:
        nonlocal text
        text += "".join(output.text for output in kernel.late().result() if output.kind != "error")
        return "after" in text

    until(take)
    assert text == "before\nafter\n"


def test_late_output_stands_first_in_the_next_result(
    kernel: Kernel, until: Callable[..., None]
) -> None:
    run(kernel, "import threading\nthreading.Timer(0.2, lambda: print('LATE', flush=True)).start()")
    until(lambda: bool(kernel.core.late))
    assert run(kernel, "print('own')").outputs == (
        Stream("stdout", "LATE\n", late=True),
        Stream("stdout", "own\n"),
    )


@pytest.mark.parametrize(
    "value", ["'a' * 10**7", "bytes(10**7)", "{n: 'v' * 1000 for n in range(5000)}"]
)
def test_a_huge_value_is_cut_and_counted(kernel: Kernel, value: str) -> None:
    result = run(kernel, value)
    assert result.status == "ok"
    assert len(result.text) <= 500_001
    assert result.cut[0].where == "text/plain"
    assert result.cut[0].dropped > 400_000


def test_a_message_that_cannot_be_read_is_told_in_this_result_or_in_the_next(
    kernel: Kernel, until: Callable[..., None]
) -> None:
    send = (
        "k = get_ipython().kernel\n"
        "def forged():\n"
        "    k.iopub_thread.send_multipart([b'x', b'<IDS|MSG>', b'forged', *[b'{}'] * 4])\n"
    )
    told = ("a message could not be read: its signature is not the kernel's",)
    assert run(kernel, send + "forged(); forged()").notes == told
    assert run(kernel, "1").notes == ()
    run(kernel, send + "import threading; threading.Timer(0.2, forged).start()")
    until(lambda: kernel.core.link._notes)
    assert run(kernel, "1").notes == told
    assert run(kernel, "1").notes == ()


@pytest.mark.parametrize(
    "value",
    [
        "class W:\n    def _ipython_display_(self): print('shown')\nW()",
        "class R:\n    def __repr__(self): raise BaseException('no')\nR()",
    ],
    ids=["shows itself", "cannot be shown"],
)
def test_a_message_that_a_kernel_never_sent_is_not_taken_for_a_lost_one(
    kernel: Kernel, value: str
) -> None:
    assert run(kernel, value).notes == ()


def test_a_source_that_no_message_can_carry_is_run_with_replacements(kernel: Kernel) -> None:
    result = run(kernel, "print('\ud800 hi')")
    assert result.source == "print('\ufffd hi')"
    assert result.text == "\ufffd hi\n"


def test_lone_surrogates_lose_neither_output_nor_error(kernel: Kernel) -> None:
    printed = run(kernel, "print('\\ud800 hi')")
    assert printed.outputs == (Stream("stdout", "\ufffd hi\n"),)
    raised = run(kernel, "raise ValueError('bad \\ud800')")
    assert raised.error is not None
    assert (raised.error.ename, raised.error.evalue) == ("ValueError", "bad \ufffd")
    assert run(kernel, "'\\ud800'").status == "ok"


def test_input_is_refused_plainly_and_at_once(kernel: Kernel) -> None:
    result = run(kernel, "name = input('who? ')")
    assert result.error is not None
    assert result.error.ename == "StdinNotImplementedError"


def test_exit_is_noted_and_the_kernel_stays(kernel: Kernel) -> None:
    run(kernel, "kept = 1")
    result = run(kernel, "exit()")
    assert result.notes == ("exit() or quit() was called; the kernel stays",)
    assert run(kernel, "import time; time.sleep(0.5); kept").text == "1\n"
    assert run(kernel, "import sys; sys.exit(3)").error is not None
    assert run(kernel, "kept").text == "1\n"


@pytest.mark.parametrize(
    "vandalism",
    [
        "print = display = None",
        "__builtins__ = None",
        "get_ipython = None",
        "import builtins; builtins.print = None",
        "In = Out = _ = None",
        "import sys; sys.displayhook = None",
        "del __name__",
    ],
)
def test_a_vandalised_namespace_does_not_stop_the_kernel(vandalism: str) -> None:
    with Kernel.start() as kernel:
        run(kernel, vandalism)
        assert run(kernel, "x = 20 + 3").status == "ok"
        assert run(kernel, "assert x == 23").status == "ok"
        assert run(kernel, "assert x == 24").status == "error"


@pytest.mark.parametrize(
    "sabotage",
    [
        "import sys; sys.stdout = None",
        "import sys; sys.stdout.close()",
        "import sys; sys.stderr = 5",
    ],
)
def test_streams_that_a_cell_broke_are_restored_and_noted(kernel: Kernel, sabotage: str) -> None:
    (note,) = run(kernel, sabotage).notes
    assert "it is restored" in note
    assert (
        run(kernel, "import sys\nprint('back')\nprint('too', file=sys.stderr)").text
        == "back\ntoo\n"
    )
    assert run(kernel, "import os, time; os.write(1, b'fd'); time.sleep(.4)").text.startswith("fd")


def test_a_kernel_without_streams_that_answers_nothing_is_noticed_and_repaired() -> None:
    with Kernel.start() as kernel:
        run(kernel, "get_ipython().events.callbacks['post_execute'].clear()")
        run(kernel, "import sys; sys.stdout = None")
        mute = run(kernel, "print('lost')")
        assert mute.status == "error"
        assert mute.error is not None
        assert mute.error.ename == "NoReply"
        assert mute.notes == ("sys.stdout and sys.stderr were restored",)
        assert run(kernel, "print('back')").text == "back\n"


def test_on_output_sees_everything_in_order_and_as_it_comes(kernel: Kernel) -> None:
    pieces: list[str] = []
    first = threading.Event()

    def watch(output: object) -> None:
        assert isinstance(output, Stream)
        assert threading.current_thread().name != "nbrefine-portal"
        pieces.append(output.text)
        first.set()

    running = kernel.run(
        "import time\nprint('one', flush=True)\ntime.sleep(1)\nprint('two')", on_output=watch
    )
    assert first.wait(20)
    assert not running.done()
    running.result()
    assert "".join(pieces) == "one\ntwo\n"


def test_an_on_output_that_raises_costs_a_note_and_nothing_else(kernel: Kernel) -> None:
    def broken(output: object) -> None:
        raise ValueError("no")

    result = run(kernel, "print(1)", on_output=broken)
    assert result.text == "1\n"
    assert result.notes == ("on_output raised ValueError: no",)


def test_cells_run_one_at_a_time_in_the_order_they_were_asked_for(kernel: Kernel) -> None:
    run(kernel, "order = []")
    runs = [kernel.run(f"order.append({n})") for n in range(10)]
    assert all(each.result().ok for each in runs)
    assert run(kernel, "order").text == "[0, 1, 2, 3, 4, 5, 6, 7, 8, 9]\n"


def test_plain_threads_may_all_use_one_kernel(kernel: Kernel) -> None:
    with ThreadPoolExecutor(8) as pool:
        texts = pool.map(lambda n: run(kernel, str(n)).text, range(16))
        assert list(texts) == [f"{n}\n" for n in range(16)]


def test_a_foreign_event_loop_awaits_runs_and_uses_the_block() -> None:
    async def work() -> tuple[str, bool]:
        async with Kernel.start() as kernel:
            result = await kernel.run("6 * 7")
            return result.text, kernel.alive

    assert asyncio.run(work()) == ("42\n", True)


def test_two_kernels_run_side_by_side(kernel: Kernel) -> None:
    with Kernel.start() as other:
        # Each waits for a file that only the other writes: one after the other would not do.
        run(kernel, "import tempfile, pathlib; d = tempfile.mkdtemp(); d")
        folder = run(kernel, "print(d)").text.strip()
        template = (
            "import pathlib, time\nd = pathlib.Path({folder!r})\n(d / {mine!r}).touch()\n"
            "while not (d / {theirs!r}).exists(): time.sleep(.01)\n'met'"
        )
        runs = [
            kernel.run(template.format(folder=folder, mine="a", theirs="b"), timeout=30),
            other.run(template.format(folder=folder, mine="b", theirs="a"), timeout=30),
        ]
        assert [each.result().text for each in runs] == ["'met'\n", "'met'\n"]


def test_a_run_that_waits_can_be_taken_back_and_the_running_one_is_untouched(
    kernel: Kernel,
) -> None:
    run(kernel, "touched = False")
    running = kernel.run("import time; time.sleep(1); 'done'")
    waiting = kernel.run("touched = True")
    waiting.stop()
    with pytest.raises(RunStopped):
        waiting.result(20)
    assert running.result().text == "'done'\n"
    assert run(kernel, "touched").text == "False\n"


def test_private_messages_reach_their_callback_and_no_output(kernel: Kernel) -> None:
    from nbrefine._portal import Run

    told: list[Any] = []
    source = (
        "from IPython.display import publish_display_data\n"
        "for nonce in ('mine', 'theirs'):\n"
        "    publish_display_data({'application/vnd.nbrefine+json': {'from': nonce}},"
        " metadata={'nbrefine': nonce})\n"
        "publish_display_data({'application/vnd.nbrefine+json': {}, 'text/plain': 'public'})\n"
    )
    result = Run(
        kernel.core.execute(source, timeout=30, store_history=False, private=("mine", told.append))
    ).result()
    assert told == [{"from": "mine"}]
    assert [output.text for output in result.outputs if isinstance(output, Display)] == ["public"]


def test_code_without_history_leaves_no_trace(kernel: Kernel) -> None:
    from nbrefine._portal import Run

    before = run(kernel, "len(In)")
    run(kernel, "'marker'")
    Run(kernel.core.execute("40 + 2", timeout=30, store_history=False)).result()
    after = run(kernel, "_, len(In)")
    assert after.text == f"('marker', {int(before.text) + 2})\n"
    assert after.execution_count == (before.execution_count or 0) + 2


def test_secrets_of_the_controller_are_redacted_and_not_in_the_kernel(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SOME_API_KEY", "abcdefgh-12345678")
    with Kernel.start(env={"GIVEN_TOKEN": "on-purpose"}) as kernel:
        assert run(kernel, "import os; os.environ.get('SOME_API_KEY')").outputs == ()
        assert run(kernel, "os.environ['GIVEN_TOKEN']").text == "'on-purpose'\n"
        assert run(kernel, "print('abcdefgh-' + '12345678')").text == "[redacted:SOME_API_KEY]\n"
        raised = run(kernel, "raise ValueError('abcdefgh-' + '12345678')").error
        assert raised is not None
        assert raised.evalue == "[redacted:SOME_API_KEY]"


def test_seed_cwd_and_arguments_reach_the_process(tmp_path: Any) -> None:
    with Kernel.start(
        cwd=tmp_path, seed=7, arguments=("--InteractiveShell.xmode=Plain",)
    ) as kernel:
        source = (
            "import os\nprint(os.getcwd(), os.environ['PYTHONHASHSEED'])\n"
            "print(get_ipython().InteractiveTB.mode)"
        )
        assert run(kernel, source).text == f"{tmp_path} 7\nPlain\n"


def test_the_kernel_tells_what_it_is(kernel: Kernel) -> None:
    info = kernel.info
    assert (info.name, info.language, info.implementation) == ("python3", "python", "ipython")
    assert info.owned
    assert run(kernel, "import os; os.getpid()").text == f"{info.pid}\n"


def test_a_flood_of_pool_workers_that_cannot_start_is_interrupted_and_shown(kernel: Kernel) -> None:
    source = (
        "import multiprocessing as mp\ndef f(x): return x\n"
        "mp.get_context('spawn').Pool(2).map(f, [1])"
    )
    result = run(kernel, source, timeout=6)
    assert result.status == "timeout"
    assert "AttributeError" in result.text
    assert run(kernel, "'alive'").text.endswith("'alive'\n")


def test_failures_of_the_reply_alone_become_outputs(kernel: Kernel) -> None:
    """An error that IPython cannot publish still has its reply."""
    source = "get_ipython()._showtraceback = lambda *a: None\n1/0"
    result = run(kernel, source)
    run(kernel, "del get_ipython().__dict__['_showtraceback']")
    assert result.status == "error"
    assert any(isinstance(output, Failure) for output in result.outputs)


def test_a_long_frame_is_told_by_its_ends_and_its_shape(shared_kernel: Kernel) -> None:
    shared_kernel.run("%reset -f\nimport pandas as pd").result()
    text = shared_kernel.run("pd.DataFrame({'n': range(1000), 'm': 2.5})").result().text
    lines = text.splitlines()
    assert lines[-1] == "[1000 rows x 2 columns]"
    assert (lines[1].split(), lines[-3].split()) == (["0", "0", "2.5"], ["999", "999", "2.5"])
    assert len(lines) < 20
