"""`glue map`: outputs, exit codes and error messages."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from trio.testing import MockClock

import glue
from glue.cli.map import Progress
from glue.cli.screen import Screen
from glue.durable import MapRow
from glue.stores.locks import hold
from glue.testing import Script, say

AGENT = """
import glue
from glue import AssistantMessage, File, Image, Text, Usage
from glue.providers.offline import Offline

def rules(request):
    parts = request.messages[-1].content
    said = " ".join(part.text if isinstance(part, Text) else type(part).__name__ for part in parts)
    if "break" in said:
        raise glue.errors.ProviderError("broken", kind="invalid_request", provider="offline")
    usage = Usage(input=10, output=5, cost=0.25)
    return AssistantMessage(content=(Text(text=f"<{said}>"),), usage=usage)

agent = glue.Agent(Offline(rules))
"""


@pytest.fixture
def work(cli: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that runs `glue map` with these input lines, in a folder with an agent."""
    Path("agent.py").write_text(AGENT)

    def run(lines: str, *args: str) -> Any:
        Path("in.jsonl").write_text(lines)
        return cli("map", "agent.py", "in.jsonl", "-o", "out.jsonl", *args)

    return run


def output() -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path("out.jsonl").read_text().splitlines()]


def test_each_line_of_input_is_a_line_of_output(work: Callable[..., Any]) -> None:
    ran = work('{"prompt": "a", "id": "x"}\n\n"b"\n')

    assert ran.code == 0
    assert ran.out == ""
    assert [
        (row["number"], row.get("id"), row["outcome"], row["text"], row["cost"]) for row in output()
    ] == [
        (1, "x", "done", "<a>", 0.25),
        (3, None, "done", "<b>", 0.25),
    ]
    assert ran.err.startswith("2 rows: 2 done; 20 tokens in, 10 out, $0.5000; ")


def test_invalid_and_failed_rows_are_reported_and_set_the_exit_code(
    work: Callable[..., Any],
) -> None:
    ran = work('nope\n"b"\n"break"\n')

    assert ran.code == 1
    assert [row["outcome"] for row in output()] == ["invalid", "done", "failed"]
    assert ran.err.splitlines()[:2] == [
        "glue: line 1: not valid JSON: Expecting value at column 1",
        "glue: line 3: failed: offline: broken",
    ]


def test_only_the_first_20_bad_rows_are_reported(work: Callable[..., Any]) -> None:
    ran = work("nope\n" * 30)

    assert ran.err.count("not valid JSON") == 20
    assert "glue: and 10 more incomplete rows; the output has all of them" in ran.err


def test_quiet_prints_nothing(work: Callable[..., Any]) -> None:
    assert work('"a"\n', "-q").err == ""


def test_a_template_may_be_a_file(work: Callable[..., Any]) -> None:
    Path("template.txt").write_text("Who is {name}?")

    work('{"name": "Ada"}\n', "--template", "@template.txt")

    assert output()[0]["text"] == "<Who is Ada?>"
    assert "cannot be read" in work('"a"', "--template", "@none", "--overwrite").err


def test_attachments_outside_the_folder_of_the_inputs_are_rejected(
    work: Callable[..., Any],
) -> None:
    Path("note.txt").write_text("a note")
    Path("dot.png").write_bytes(b"png")
    Path("../secret.txt").write_text("secret")

    ran = work(
        '{"prompt": "see", "attachments": ["note.txt", "dot.png"]}\n'
        '{"prompt": "x", "attachments": ["../secret.txt"]}\n'
        '{"prompt": "x", "attachments": ["/etc/passwd"]}\n'
        '{"prompt": "x", "attachments": ["none.txt"]}\n'
    )

    assert output()[0]["text"] == "<see a note Image>"
    assert [row["outcome"] for row in output()[1:]] == ["invalid"] * 3
    assert "line 2: attachment '../secret.txt' is outside" in ran.err
    assert "line 4: attachment" in ran.err
    assert "none.txt cannot be read: No such file or directory\n" in ran.err


def test_an_existing_output_is_overwritten_only_if_asked(work: Callable[..., Any]) -> None:
    work('"a"\n')
    before = Path("out.jsonl").read_text()

    ran = work('"b"\n')

    assert ran.code == 2
    assert "out.jsonl exists already; --resume continues it, --overwrite starts again" in ran.err
    assert Path("out.jsonl").read_text() == before
    assert work('"b"\n', "--overwrite").code == 0
    assert output()[0]["text"] == "<b>"


def test_an_existing_state_file_without_output_is_not_overwritten(work: Callable[..., Any]) -> None:
    work('"a"\n')
    Path("out.jsonl").unlink()

    assert "out.jsonl.state.db exists already" in work('"a"\n').err
    assert work('"a"\n', "--resume").code == 0
    assert output()[0]["text"] == "<a>"


def test_a_map_with_a_spent_budget_exits_with_3_and_can_be_resumed(
    work: Callable[..., Any],
) -> None:
    ran = work('"a"\n"b"\n"c"\n', "--usd-budget", "0.5", "-n", "1")

    assert ran.code == 3
    assert "some rows were not run; continue the map with --resume and a larger budget" in ran.err
    assert [row["text"] for row in output()] == ["<a>", "<b>"]
    assert work('"a"\n"b"\n"c"\n', "--resume", "--usd-budget", "0.75").code == 0
    assert [row["text"] for row in output()] == ["<a>", "<b>", "<c>"]


def test_the_output_of_a_running_map_is_not_overwritten(work: Callable[..., Any]) -> None:
    work('"a"\n')
    state = Path("out.jsonl.state.db")
    lock = hold(state, "map")
    try:
        ran = work('"a"\n', "--overwrite")
    finally:
        lock.close()

    assert ran.code == 1
    assert (
        ran.err.strip()
        == "glue: out.jsonl.state.db is in use by another map; wait for it or use another output"
    )
    assert output()[0]["text"] == "<a>"


def test_resume_begins_if_there_is_nothing_to_resume(work: Callable[..., Any]) -> None:
    assert work('"a"\n', "--resume").code == 0

    assert [row["text"] for row in output()] == ["<a>"]


@pytest.mark.parametrize(
    ("args", "error"),
    [
        (["--resume", "--overwrite"], "--resume and --overwrite exclude each other"),
        (["--queue", "q"], "--queue and --engine must be used together"),
        (["--rpm", "fast"], "--rpm must be a number above 0, or PROVIDER=NUMBER, not 'fast'"),
        (["--rpm", "opnai=5"], "unknown provider 'opnai'; did you mean openai?"),
        (
            ["--tpm", "openai=0"],
            "--tpm must be a number above 0, or PROVIDER=NUMBER, not 'openai=0'",
        ),
        (["--attachments", "nowhere"], "the folder nowhere does not exist"),
        *(
            (
                ["--queue", "q", "--engine", "sqlite:///x.db", *option],
                f"with a queue, {option[0]} is an option of `glue worker`, not of `glue map`",
            )
            for option in (["--rpm", "1"], ["--concurrency", "3"], ["--model", "x"], ["--yes"])
        ),
    ],
)
def test_a_wrong_option_is_reported_in_one_line(
    work: Callable[..., Any], args: list[str], error: str
) -> None:
    ran = work('"a"\n', *args)

    assert ran.code == 2
    assert error in ran.err
    assert len(ran.err.splitlines()) == 1
    assert not Path("out.jsonl").exists()


def test_a_map_without_rows_says_so(work: Callable[..., Any]) -> None:
    assert work("").err.startswith("0 rows; ")

    spent = work('"a"\n', "--token-budget", "0", "--overwrite")
    assert spent.code == 3
    assert "some rows were not run; continue the map with --resume and a larger budget" in spent.err


def test_inputs_may_come_from_a_pipe(cli: Callable[..., Any]) -> None:
    os.mkfifo("in.pipe")
    Path("agent.py").write_text(AGENT)
    writer = threading.Thread(target=lambda: Path("in.pipe").write_text('"a"\n"b"\n'))
    writer.start()

    assert cli("map", "agent.py", "in.pipe", "-o", "out.jsonl").code == 0

    writer.join()
    assert [row["text"] for row in output()] == ["<a>", "<b>"]
    assert "is a folder" in cli("map", "agent.py", ".", "-o", "out.jsonl").err


def test_missing_files_are_reported(cli: Callable[..., Any]) -> None:
    Path("agent.py").write_text(AGENT)

    assert (
        "the file in.jsonl does not exist"
        in cli("map", "agent.py", "in.jsonl", "-o", "out.jsonl").err
    )
    assert (
        "the file none.py does not exist"
        in cli("map", "none.py", "in.jsonl", "-o", "out.jsonl").err
    )
    Path("in.jsonl").write_text('"a"\n')
    assert (
        "the folder nowhere does not exist"
        in cli("map", "agent.py", "in.jsonl", "-o", "nowhere/out.jsonl").err
    )
    assert "File '.' is a directory" in cli("map", "agent.py", "in.jsonl", "-o", ".").err


def test_the_output_cannot_replace_the_inputs(cli: Callable[..., Any]) -> None:
    Path("agent.py").write_text(AGENT)
    Path("in.jsonl").write_text('"a"\n')

    ran = cli("map", "agent.py", "in.jsonl", "-o", "./in.jsonl", "--overwrite")

    assert (ran.code, ran.err) == (
        2,
        "glue: in.jsonl is the input file; choose another file for the results\n",
    )
    assert Path("in.jsonl").read_text() == '"a"\n'


def test_rows_may_come_from_stdin(work: Callable[..., Any], tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-c",
        "from glue.cli.app import main; main()",
        "map",
        "agent.py",
        "-",
        "-o",
        "out.jsonl",
    ]

    subprocess.run(command, input=b'"a"\n"b"\n', timeout=60, check=True, capture_output=True)

    assert [row["text"] for row in output()] == ["<a>", "<b>"]


SLOW = """
import sys, anyio, glue
from glue.providers.offline import Offline

async def rules(request):
    if request.messages[-1].text == "slow":
        print("waiting", file=sys.stderr, flush=True)
        await anyio.sleep(60)
    return "quick"

agent = glue.Agent(Offline(rules))
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_map_can_be_resumed(
    tmp_path: Path, zygote: Any, number: signal.Signals
) -> None:
    (tmp_path / "agent.py").write_text(SLOW)
    (tmp_path / "in.jsonl").write_text('"a"\n"slow"\n"b"\n')
    main = "from glue.cli.app import main; main()"
    command = [sys.executable, "-c", main, "map", "agent.py", "in.jsonl", "-o", "out.jsonl"]
    command += ["-n", "1"]
    process = zygote.start(command, tmp_path)
    with process.stdin, process.stdout, process.stderr:
        assert b"waiting\n" in process.stderr  # reads up to this line
        process.send_signal(number)
        err = process.stderr.read().decode()

    assert process.wait() == 130
    assert "continue the map with --resume" in err
    (tmp_path / "agent.py").write_text(SLOW.replace("60", "0"))
    assert zygote.run([*command, "--resume"], tmp_path)[0] == 0
    lines = (tmp_path / "out.jsonl").read_text().splitlines()
    assert [json.loads(line)["text"] for line in lines] == ["quick"] * 3


def test_progress_shows_rows_speed_cost_and_remaining_time(
    work: Callable[..., Any],
) -> None:
    job = glue.map(glue.Agent(Script(say("x"))), [])
    progress = Progress(Screen(io.StringIO()), job, 100, store="state.db", quiet=False)
    for number in range(1, 21):
        outcome = "done" if number > 2 else "failed"
        job.outcomes[outcome] += 1
        progress.add(
            MapRow(number=number, outcome=outcome, usage=glue.Usage(input=1, output=1, cost=0.5))
        )

    text = progress.text(progress._started + 10)

    assert text == "20 of 100 rows, 2.0/s, $10.00, 2 not complete, 40.0 s left"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def progress_text(
    rows: int, total: int | None, seconds: float, *, reused: int = 0, file: Any = None
) -> str:
    """Return the progress line of a map with these rows, after some seconds."""
    job = glue.map(glue.Agent(Script(say("x"))), [])
    job.reused = reused
    screen = Screen(file or io.StringIO(), {"TERM": "xterm"})
    progress = Progress(screen, job, total, store="state.db", quiet=False)
    for number in range(1, rows + 1):
        job.outcomes["done"] += 1
        progress.add(MapRow(number=number, outcome="done", usage=glue.Usage(cost=0.0)))
    return progress.text(progress._started + seconds)


@pytest.mark.parametrize(
    ("rows", "total", "seconds", "reused", "shown"),
    [
        (0, 10, 5, 0, "0 of 10 rows, 0.0/min, $0.0000"),
        (5, 10, 5, 5, "5 of 10 rows, 0.0/min, $0.0000"),
        (5, None, 5, 0, "5 rows, 1.0/s, $0.0000"),
        (59, None, 60, 0, "59 rows, 59.0/min, $0.0000"),
        (2, 4, 120, 0, "2 of 4 rows, 1.0/min, $0.0000, 2 m 0 s left"),
        (6, 10, 5, 1, "6 of 10 rows, 1.0/s, $0.0000, 4.0 s left"),
    ],
)
def test_the_speed_counts_only_rows_that_this_process_ran(
    rows: int, total: int | None, seconds: float, reused: int, shown: str
) -> None:
    assert progress_text(rows, total, seconds, reused=reused) == shown


@pytest.mark.parametrize(
    ("rows", "total", "bar"),
    [
        (0, 8, "[--------------------] 0 of 8 rows"),
        (3, 8, "[#######-------------] 3 of 8 rows"),
        (5, 8, "[############--------] 5 of 8 rows"),
        (8, 8, "[####################] 8 of 8 rows"),
        (9, 8, "[####################] 9 of 8 rows"),
        (3, None, "3 rows"),
        (0, 0, "0 of 0 rows"),
    ],
)
def test_a_terminal_gets_a_bar_of_20_marks(rows: int, total: int | None, bar: str) -> None:
    assert progress_text(rows, total, 1, file=Terminal()).startswith(f"{bar}, ")


@pytest.mark.parametrize(
    "anyio_backend", [("trio", {"clock": MockClock(autojump_threshold=0)})], ids=["trio"]
)
@pytest.mark.parametrize(("passed", "lines"), [(0, 0), (31, 1)])
async def test_without_a_terminal_a_line_of_progress_is_added_every_30_seconds(
    passed: float, lines: int
) -> None:
    file = io.StringIO()
    job = glue.map(glue.Agent(Script(say("x"))), [])
    progress = Progress(Screen(file, {}), job, 3, store="state.db", quiet=False)
    progress._last_line -= passed

    with anyio.move_on_after(1):
        await progress.redraw()

    assert file.getvalue().count("glue: 0 of 3 rows, ") == file.getvalue().count("\n") == lines


def test_the_end_names_requests_without_a_reply_and_repeated_notices() -> None:
    file = io.StringIO()
    job = glue.map(glue.Agent(Script(say("x"))), [])
    progress = Progress(Screen(file, {}), job, 3, store="state.db", quiet=False)

    for number, requests in ((1, 1), (2, 0), (3, 1)):
        job.outcomes["done"] += 1
        notice = "left out" if requests else ""
        row = MapRow(number=number, outcome="done", lost=requests, notice=notice)
        progress.add(row)
    progress.end()

    first, *others = file.getvalue().splitlines()
    assert first.startswith("3 rows: 3 done; 0 tokens in, 0 out, $0.0000; ")
    lost = (
        "a killed process left 2 requests without a reply; the provider may have charged for them"
    )
    assert others == ["glue: 2 rows: left out", f"glue: {lost}"]


PAUSING = """
import glue
from glue.testing import Repeat, Script, call, calls

@glue.tool(needs_permission=True)
def deploy(version: str) -> str:
    "Deploy a version."
    return f"{version} is live"

def rules(request):
    if len(request.messages) > 1:
        return request.messages[-1].text
    if request.messages[0].text == "b":
        return "no deployment"
    return calls(call("deploy", {"version": "1.4"}, id="c1"))

agent = glue.Agent(Script(Repeat(rules)), tools=[deploy])
"""


def test_a_map_with_rows_that_wait_exits_with_6_and_continues_after_the_answer(
    cli: Callable[..., Any],
) -> None:
    Path("agent.py").write_text(PAUSING)
    Path("in.jsonl").write_text('"a"\n"b"\n')
    command = ("map", "agent.py", "in.jsonl", "-o", "out.jsonl")

    ran = cli(*command, "--on-question", "defer")
    again = cli(*command, "--resume")

    assert (ran.code, again.code) == (6, 6)
    assert "line 1: paused: " in ran.err
    assert "`glue sessions pending row-1 --store out.jsonl.state.db` shows the calls" in ran.err
    assert "1 done, 1 paused" in ran.err or "1 paused, 1 done" in ran.err
    store = ("--store", "out.jsonl.state.db")
    answered = cli("sessions", "answer", "row-1", "--allow", "--agent", "agent.py", *store)
    assert answered.code == 0, answered.err
    assert cli(*command, "--resume").code == 0
    assert [row["text"] for row in output()] == ["1.4 is live", "no deployment"]


def test_without_a_terminal_a_question_is_denied_by_default(cli: Callable[..., Any]) -> None:
    Path("agent.py").write_text(PAUSING)
    Path("in.jsonl").write_text('"a"\n')

    assert cli("map", "agent.py", "in.jsonl", "-o", "out.jsonl").code == 0
    assert "no user can be asked" in output()[0]["text"]


@pytest.mark.parametrize("option", [("--patience", "5"), ("--on-question", "defer")])
def test_options_of_a_worker_are_refused_for_a_map_on_a_queue(
    work: Callable[..., Any], option: tuple[str, str]
) -> None:
    ran = work('"a"\n', "--queue", "q", "--engine", "sqlite:///q.db", *option)

    assert ran.code == 2
    assert f"with a queue, {option[0]} is an option of `glue worker`" in ran.err


def test_a_map_without_a_key_is_refused_before_the_first_row(cli: Callable[..., Any]) -> None:
    cli("new", "mine.py", "-t", "structured")
    Path("in.jsonl").write_text('{"prompt": "a"}\n{"prompt": "b"}\n')

    ran = cli("map", "mine.py", "in.jsonl", "-o", "out.jsonl")

    assert (ran.code, ran.err.count("\n")) == (2, 1)
    assert "set GLUE_MODEL, or a key such as ANTHROPIC_API_KEY" in ran.err
    assert not Path("out.jsonl").exists()


def test_a_map_with_the_stand_in_that_the_user_names_says_so(cli: Callable[..., Any]) -> None:
    cli("new", "mine.py", "-t", "structured")
    Path("in.jsonl").write_text('{"prompt": "a"}\n{"prompt": "b"}\n')

    ran = cli("map", "mine.py", "in.jsonl", "-o", "out.jsonl", "-m", "offline")

    assert ran.code == 0
    assert "glue: 2 rows: the offline stand-in answered, not a model" in ran.err
    rows = [json.loads(line) for line in Path("out.jsonl").read_text().splitlines()]
    assert all("not a model" in row["notice"] for row in rows)
