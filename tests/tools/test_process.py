"""Tests of running a child process within bounds."""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from glue.errors import ToolError
from glue.tasks import StopFlag, in_stoppable_thread
from glue.tools.process import run
from glue.tools.process_group import find_marked


def python(code: str, **options: Any) -> Any:
    given: dict[str, Any] = {"env": {}, "cwd": "/", "deadline": 20.0, "cap": 1000, **options}
    return run([sys.executable, "-S", "-c", code], **given)


def test_a_child_that_prints_too_much_is_killed() -> None:
    done = python("while True: print('x' * 100)", cap=1000)

    assert (done.reason, len(done.out), done.code) == ("cap", 1000, -9)


def test_run_does_not_wait_for_a_grandchild_that_keeps_the_pipe_open(tmp_path: Path) -> None:
    code = (
        "import subprocess\nsubprocess.Popen(['sleep', '60'], start_new_session=True)\nprint('x')\n"
    )

    done = python(code)

    assert (done.reason, done.out) == ("", b"x\n")


def test_a_child_that_closes_its_pipes_is_still_stopped_at_the_deadline() -> None:
    done = python("import os, time; os.close(1); os.close(2); time.sleep(60)", deadline=0.5)

    assert done.reason == "deadline"
    assert done.seconds >= 0.5


def test_output_is_never_longer_than_the_cap() -> None:
    done = python("print('x' * 500_000)", cap=100_000)

    assert (done.reason, len(done.out)) == ("cap", 100_000)


def test_a_stopped_child_is_killed_before_it_ends_by_itself(tmp_path: Path) -> None:
    stop, waiting = StopFlag(), "import time; print('begun', flush=True); time.sleep(15)"

    def cancel(block: bytes) -> bool:
        stop.set()
        return True

    done = python(f"{waiting}; open('ended', 'w')", cwd=str(tmp_path), sink=cancel, stop=stop)

    assert (done.reason, done.code, done.out) == ("cancelled", -9, b"")
    assert not (tmp_path / "ended").exists()


def test_a_sink_that_has_enough_ends_the_child() -> None:
    blocks: list[bytes] = []

    def take(block: bytes) -> bool:
        blocks.append(block)
        return False

    done = python("while True: print('x' * 100)", sink=take)

    assert (done.reason, len(blocks)) == ("enough", 1)


def test_a_child_that_ends_by_itself_has_its_code_and_no_reason() -> None:
    done = python("import sys; print('out'); print('err', file=sys.stderr); sys.exit(3)")

    assert (done.code, done.out, done.err, done.reason) == (3, b"out\n", b"err\n", "")
    assert done.left == ()
    assert 0 < done.seconds < 20


def test_errors_are_added_to_the_output_only_if_merged() -> None:
    code = "import sys; sys.stderr.write('err')"

    assert (python(code, merged=True).out, python(code, merged=True).err) == (b"err", b"")
    assert (python(code).out, python(code).err) == (b"", b"err")


def test_only_the_first_64_kib_of_errors_are_kept() -> None:
    done = python("import sys; sys.stderr.write('e' * 200_000); print('done')")

    assert (done.out, done.err, done.reason) == (b"done\n", b"e" * 64 * 1024, "")


def test_output_of_exactly_the_cap_ends_the_child() -> None:
    done = python("import sys, time; sys.stdout.write('x' * 10); sys.stdout.flush()", cap=10)

    assert (done.reason, done.out) == ("cap", b"x" * 10)


def test_output_just_below_the_cap_is_complete() -> None:
    done = python("print('x' * 8)", cap=10)

    assert (done.reason, done.out, done.code) == ("", b"x" * 8 + b"\n", 0)


def test_a_marked_child_may_clean_up_after_sigterm_and_its_escaped_children_are_killed(
    tmp_path: Path,
) -> None:
    mark = f"GLUE_TEST={os.urandom(8).hex()}"
    name, _, value = mark.partition("=")
    # The escaped child prints, because its mark is not visible before it runs.
    escaped = [sys.executable, "-c", "import time; print('ready', flush=True); time.sleep(61)"]
    code = (
        "import signal, subprocess, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: (time.sleep(0.1), sys.exit(7)))\n"
        f"subprocess.Popen({escaped!r}, start_new_session=True)\n"
        "time.sleep(60)\n"
    )
    stop = StopFlag()

    def cancel(block: bytes) -> bool:
        stop.set()
        return True

    env = {name: value, "PATH": os.environ["PATH"]}
    done = python(code, env=env, sink=cancel, stop=stop, mark=mark)

    assert (done.reason, done.code) == ("cancelled", 7)
    assert done.left == (" ".join(escaped),)
    assert find_marked(mark) == {}


def test_a_child_without_a_mark_is_killed_without_warning(tmp_path: Path) -> None:
    code = (
        "import signal, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: open('warned', 'w'))\n"
        "print('ready', flush=True)\n"
        "time.sleep(60)\n"
    )

    done = python(code, cwd=str(tmp_path), sink=lambda block: False)

    assert (done.reason, done.code) == ("enough", -9)
    assert not (tmp_path / "warned").exists()


def test_large_input_and_output_do_not_block_each_other() -> None:
    done = python(
        "import sys; sys.stdout.write(sys.stdin.read())", feed=b"y" * 500_000, cap=1_000_000
    )

    assert done.out == b"y" * 500_000


def test_a_thread_that_still_feeds_a_child_does_not_keep_the_program_alive() -> None:
    feeding: list[threading.Thread] = []

    def look(block: bytes) -> bool:
        feeding.extend(each for each in threading.enumerate() if each.name == "glue-feed")
        return False

    python("import time; print('x', flush=True); time.sleep(60)", feed=b"y" * 1_000_000, sink=look)

    assert [each.daemon for each in feeding] == [True]
    for each in feeding:
        each.join(20)


def test_a_child_without_input_reads_from_dev_null() -> None:
    done = python("import os, stat; print(stat.S_ISCHR(os.fstat(0).st_mode))")

    assert done.out == b"True\n"


def test_a_child_inherits_no_descriptors() -> None:
    done = python(
        "import os; print(len(os.listdir('/proc/self/fd')) if os.path.isdir('/proc') else 4)"
    )

    assert int(done.out) <= 4


def test_the_memory_of_a_child_is_limited() -> None:
    if not sys.platform.startswith("linux"):
        pytest.skip("only Linux can limit another process")
    done = python("import time; time.sleep(0.2); x = bytearray(500_000_000)", memory=200_000_000)

    assert b"MemoryError" in done.err


async def test_an_error_in_a_stoppable_thread_is_raised_unchanged() -> None:
    def fail(stop: StopFlag) -> str:
        raise ToolError("as it is")

    with pytest.raises(ToolError, match="as it is"):
        await in_stoppable_thread(fail)
