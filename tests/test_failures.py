"""Tests of how exceptions in the code of users are reported."""

from __future__ import annotations

import logging
import re
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Protocol

import pytest
from fakes.pages import FILE
from fakes.zygote import Zygote

import glue
from glue.failures import failure_result
from glue.testing import Script, call, calls

SCRIPT = '''
import glue
import glue.errors
from glue.testing import Script, call, calls


def helper(number):
    return 1 / number


@glue.tool
def divide(number: int) -> float:
    """Divide one by a number."""
    return helper(number)


@glue.tool
def refuse() -> str:
    """Refuse."""
    raise glue.ToolError("not today")


@glue.tool
def escape() -> str:
    """Leave the folder."""
    raise glue.errors.UnsafePath("../x is outside")


@glue.tool
def open_safely() -> str:
    """Open a missing file below the folder."""
    from glue.tools import safe_open
    return safe_open(".", "missing.txt").read().decode()


@glue.tool
def open_plainly() -> str:
    """Open a missing file."""
    return open("missing.txt").read()


def parse(text):
    import json
    return json.loads(text)


@glue.tool
def broken() -> str:
    """Parse broken JSON."""
    return parse("{")


def listener(event):
    raise KeyError("lost")


class Guard:
    def before(self, step):
        raise LookupError("no guard")


TOOLS = [divide, refuse, escape, broken, open_safely, open_plainly]
'''


class RunScript(Protocol):
    """Runs the script and these last lines; returns the lines on stderr, and stdout."""

    def __call__(self, last: str) -> tuple[list[str], str]: ...


@pytest.fixture
def run_script(tmp_path: Path, zygote: Zygote) -> RunScript:
    def run(last: str) -> tuple[list[str], str]:
        path = tmp_path / "app.py"
        path.write_text(SCRIPT + last)
        code, out, errors = zygote.run([sys.executable, "-c", FILE, str(path)], tmp_path)
        assert code == 0, errors
        return errors.splitlines(), out

    return run


def one_call(name: str, arguments: str = "{}", options: str = "") -> str:
    return (
        f'agent = glue.Agent(Script(calls(call("{name}", {arguments})), "ok"), tools=TOOLS)\n'
        f'print(agent.run_sync("go"{options}).text)\n'
    )


def test_a_bug_in_a_tool_is_one_line_on_stderr_with_the_users_file_and_line(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(SCRIPT + one_call("divide", "{'number': 0}"))

    ran = subprocess.run(
        [sys.executable, "app.py"], cwd=tmp_path, capture_output=True, text=True, check=True
    )

    place = f"{tmp_path / 'app.py'}:8"
    assert ran.stderr.splitlines() == [
        f"glue: tool divide raised ZeroDivisionError: division by zero ({place})",
    ]
    assert ran.stdout == "ok\n"


def test_the_line_names_the_users_frame_and_not_the_librarys(run_script: RunScript) -> None:
    err, _ = run_script(one_call("broken"))

    assert len(err) == 1
    assert err[0].startswith("glue: tool broken raised JSONDecodeError: ")
    assert err[0].endswith("app.py:44)")


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("refuse", "{}"),
        ("escape", "{}"),
        ("open_safely", "{}"),
        ("divide", "{'number': 'x'}"),
        ("unknown", "{}"),
    ],
)
def test_a_refusal_prints_nothing(run_script: RunScript, name: str, arguments: str) -> None:
    err, out = run_script(one_call(name, arguments))

    assert err == []
    assert out == "ok\n"


def test_a_missing_file_that_a_tool_opens_itself_is_reported(run_script: RunScript) -> None:
    err, out = run_script(one_call("open_plainly"))

    assert len(err) == 1
    assert err[0].startswith("glue: tool open_plainly raised FileNotFoundError: ")
    assert out == "ok\n"


def test_with_logging_configured_only_the_log_has_the_bug_with_its_traceback(
    run_script: RunScript,
) -> None:
    configure = "import logging\nlogging.basicConfig()\n"

    err, _ = run_script(configure + one_call("divide", "{'number': 0}"))

    assert err[0] == "WARNING:glue.tools:tool divide raised ZeroDivisionError"
    assert err[1] == "Traceback (most recent call last):"
    assert err[-1] == "ZeroDivisionError: division by zero"
    assert not [line for line in err if line.startswith("glue: ")]


def test_a_listener_that_fails_on_every_event_is_reported_once(run_script: RunScript) -> None:
    err, out = run_script(one_call("divide", "{'number': 1}", options=", on_event=listener"))

    assert len(err) == 1
    assert err[0].startswith("glue: listener listener raised KeyError: 'lost' (")
    assert out == "ok\n"


def test_a_hook_that_fails_is_reported_by_its_name(run_script: RunScript) -> None:
    err, _ = run_script(one_call("divide", "{'number': 1}", options=", hooks=[Guard()]"))

    assert len(err) == 1
    assert err[0].startswith("glue: hook Guard.before raised LookupError: no guard (")


def test_control_characters_of_a_message_do_not_reach_the_terminal(run_script: RunScript) -> None:
    last = (
        "@glue.tool\ndef paint() -> str:\n    '''Paint.'''\n"
        '    raise ValueError("\\x1b[31mred\\nand more")\n\nTOOLS.append(paint)\n'
    )

    err, _ = run_script(last + one_call("paint"))

    assert len(err) == 1
    assert "\x1b" not in err[0]
    assert "and more" in err[0]


async def test_the_model_and_the_event_get_the_error(caplog: pytest.LogCaptureFixture) -> None:
    @glue.tool
    def divide(number: int) -> float:
        """Divide."""
        return 1 / number

    agent = glue.Agent(Script(calls(call("divide", {"number": 0})), "ok"), tools=[divide])
    with caplog.at_level(logging.WARNING, "glue"):
        result = await agent.run("go")

    answer = next(each for each in result.messages if isinstance(each, glue.ToolMessage))
    assert answer.text == "ZeroDivisionError: division by zero"
    assert "Traceback" in caplog.text


async def test_a_sqlite_connection_of_another_thread_is_logged_with_advice(
    caplog: pytest.LogCaptureFixture,
) -> None:
    db = sqlite3.connect(":memory:")

    @glue.tool
    def ask() -> str:
        """Ask the database."""
        return str(db.execute("SELECT 1").fetchall())

    result = await glue.Agent(Script(calls("ask"), "done"), tools=[ask]).run("go")

    db.close()
    assert result.text == "done"
    assert "check_same_thread=False" in caplog.text


def test_a_note_is_printed_once_if_logging_is_not_configured(
    tmp_path: Path, zygote: Zygote
) -> None:
    code = "import glue; from glue.failures import warn_once; warn_once('a'); warn_once('a')"

    assert zygote.run([sys.executable, "-c", code], tmp_path) == (0, "", "glue: a\n")


REPORTS = """
import logging
import re
import sqlite3
import sys
import threading
from glue.failures import report_bug, show_notices_yourself, warn_of_notice, warn_once


def caught(function):
    try:
        function()
    except Exception as error:
        return error


def title(text):
    print(text, file=sys.stderr, flush=True)


title("twice, then once")
for _ in range(2):
    report_bug("tool a", ValueError("bad"))
for _ in range(2):
    report_bug("tool b", ValueError("bad"), once=True)
title("without a message")
report_bug("tool c", KeyError())
title("of a group")
report_bug("tool d", ExceptionGroup("many", [TypeError("first"), ValueError("second")]))
title("of a system error without a traceback")
report_bug("tool d", OSError("gone"))
title("without stderr")
stderr, sys.stderr = sys.stderr, None
report_bug("tool e", ValueError("bad"))
warn_once("note of e")
sys.stderr = stderr
title("a connection of another thread")
db, errors = sqlite3.connect(":memory:"), []
thread = threading.Thread(target=lambda: errors.append(caught(lambda: db.execute("SELECT 1"))))
thread.start()
thread.join()
report_bug("tool f", errors[0].with_traceback(None))
db.close()
title("another error of a database")
report_bug("tool f", sqlite3.OperationalError("no such table"))
report_bug("tool f", ValueError("not in the same thread"))
title("notices")
warn_of_notice("no model wrote this")
warn_of_notice("no model wrote this")
show_notices_yourself()
warn_of_notice("no model wrote that")
title("handlers of the root do not get the warnings")
logging.basicConfig(format="root: %(message)s")
logging.getLogger("glue").propagate = False
report_bug("tool g", ValueError("bad"))
warn_once("note of g")
logging.getLogger("glue").propagate = True
title("logged")
report_bug("tool h", KeyError("lost"))
warn_once("note of h: 100 %")
title("switched off")
logging.getLogger("glue").setLevel(logging.ERROR)
report_bug("tool i", ValueError("bad"))
warn_once("note of i")
"""


def test_each_report_is_printed_or_logged_or_switched_off(tmp_path: Path, zygote: Zygote) -> None:
    code, _, errors = zygote.run([sys.executable, "-c", REPORTS], tmp_path)

    assert code == 0, errors
    sections = re.split(r"^([a-z, ]+)$\n", errors, flags=re.MULTILINE)[1:]
    found = dict(zip(sections[::2], sections[1::2], strict=True))
    assert "check_same_thread=False" in found.pop("a connection of another thread")
    assert found == {
        "twice, then once": "glue: tool a raised ValueError: bad\n" * 2
        + "glue: tool b raised ValueError: bad\n",
        "without a message": "glue: tool c raised KeyError\n",
        "of a group": "glue: tool d raised TypeError: first\n",
        "of a system error without a traceback": "",
        "without stderr": "",
        "another error of a database": (
            "glue: tool f raised OperationalError: no such table\n"
            "glue: tool f raised ValueError: not in the same thread\n"
        ),
        "notices": "glue: no model wrote this\n",
        "handlers of the root do not get the warnings": (
            "glue: tool g raised ValueError: bad\nglue: note of g\n"
        ),
        "logged": "root: tool h raised KeyError\nKeyError: 'lost'\nroot: note of h: 100 %\n",
        "switched off": "",
    }


def test_an_error_without_a_name_of_its_function_is_one_of_a_tool_call(
    caplog: pytest.LogCaptureFixture,
) -> None:
    result = failure_result(ValueError("bad"))

    assert (result.text, result.is_error) == ("ValueError: bad", True)
    assert result.traceback == "ValueError: bad\n"
    assert caplog.messages == ["a tool call raised ValueError"]
    assert failure_result(glue.ToolError("not today"), "tool a").text == "not today"
