"""Tests of running a child process within bounds."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from glue.errors import ToolError
from glue.tasks import StopFlag, in_stoppable_thread
from glue.tools.process import run


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
    subprocess.run(["true"], check=True)


def test_a_child_that_closes_its_pipes_is_still_stopped_at_the_deadline() -> None:
    done = python("import os, time; os.close(1); os.close(2); time.sleep(60)", deadline=0.5)

    assert done.reason == "deadline"


def test_large_input_and_output_do_not_block_each_other() -> None:
    done = python(
        "import sys; sys.stdout.write(sys.stdin.read())", feed=b"y" * 500_000, cap=1_000_000
    )

    assert done.out == b"y" * 500_000


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
