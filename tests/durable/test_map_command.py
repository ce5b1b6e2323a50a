"""`glue map` and its neighbours at the command line: outputs, exit codes, and one line for each mistake."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

AGENT = """
import glue
from glue import AssistantMessage, File, Image, Text, Usage
from glue.providers.offline import Offline

def rules(request):
    parts = request.messages[-1].content
    said = " ".join(part.text if isinstance(part, Text) else type(part).__name__ for part in parts)
    if "break" in said:
        raise glue.ProviderError("broken", kind="invalid_request", provider="offline")
    return AssistantMessage(content=(Text(text=f"<{said}>"),), usage=Usage(input=10, output=5, cost=0.25))

agent = glue.Agent(Offline(rules))
"""


@pytest.fixture
def work(cli: Callable[..., Any]) -> Callable[..., Any]:
    """Run `glue map` in a folder that holds an agent; the inputs are given as lines."""
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
    assert [(row["number"], row.get("id"), row["outcome"], row["text"], row["cost"]) for row in output()] == [
        (1, "x", "done", "<a>", 0.25),
        (3, None, "done", "<b>", 0.25),
    ]
    assert ran.err.startswith("2 rows: 2 done; 20 tokens in, 10 out, $0.5000; ")


def test_a_row_that_is_no_json_is_named_and_the_exit_code_says_so(work: Callable[..., Any]) -> None:
    ran = work('nope\n"b"\n"break"\n')

    assert ran.code == 1
    assert [row["outcome"] for row in output()] == ["invalid", "done", "failed"]
    assert ran.err.splitlines()[:2] == [
        "glue: line 1: no JSON: Expecting value at column 1",
        "glue: line 3: failed: offline: broken",
    ]


def test_many_bad_rows_are_counted_not_told_one_by_one(work: Callable[..., Any]) -> None:
    ran = work("nope\n" * 30)

    assert ran.err.count("no JSON") == 20
    assert "glue: and 10 more, all in the output" in ran.err


def test_quiet_says_nothing(work: Callable[..., Any]) -> None:
    assert work('"a"\n', "-q").err == ""


def test_a_template_may_be_a_file(work: Callable[..., Any]) -> None:
    Path("template.txt").write_text("Who is {name}?")

    work('{"name": "Ada"}\n', "--template", "@template.txt")

    assert output()[0]["text"] == "<Who is Ada?>"
    assert "cannot be read" in work('"a"', "--template", "@none", "--overwrite").err


def test_attachments_are_read_beside_the_inputs_and_nowhere_else(work: Callable[..., Any]) -> None:
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
    assert "line 2: attachment '../secret.txt' leads outside" in ran.err
    assert "line 4: attachment" in ran.err


def test_an_output_that_is_there_is_not_overwritten_unasked(work: Callable[..., Any]) -> None:
    work('"a"\n')
    before = Path("out.jsonl").read_text()

    ran = work('"b"\n')

    assert ran.code == 2
    assert "out.jsonl is there already; --resume goes on with it, --overwrite begins again" in ran.err
    assert Path("out.jsonl").read_text() == before
    assert work('"b"\n', "--overwrite").code == 0
    assert output()[0]["text"] == "<b>"


def test_a_state_without_its_output_is_not_lost_either(work: Callable[..., Any]) -> None:
    work('"a"\n')
    Path("out.jsonl").unlink()

    assert "out.jsonl.state.db is there already" in work('"a"\n').err
    assert work('"a"\n', "--resume").code == 0
    assert output()[0]["text"] == "<a>"


def test_the_inputs_are_not_written_over(work: Callable[..., Any]) -> None:
    ran = work('"a"\n', "-o", "./in.jsonl", "--overwrite")

    assert (ran.code, ran.err) == (2, "glue: -o in.jsonl is the file of the inputs; name another\n")
    assert Path("in.jsonl").read_text() == '"a"\n'


def test_a_spent_budget_has_its_exit_code_and_more_money_goes_on(work: Callable[..., Any]) -> None:
    ran = work('"a"\n"b"\n"c"\n', "--usd-budget", "0.5", "-n", "1")

    assert ran.code == 3
    assert "not all rows were run; --resume goes on" in ran.err
    assert [row["text"] for row in output()] == ["<a>", "<b>"]
    assert work('"a"\n"b"\n"c"\n', "--resume", "--usd-budget", "0.75").code == 0
    assert [row["text"] for row in output()] == ["<a>", "<b>", "<c>"]


def test_the_output_of_a_map_in_use_is_left_alone(work: Callable[..., Any]) -> None:
    from glue.stores.sqlite import hold

    work('"a"\n')
    state = Path("out.jsonl.state.db")
    lock = hold(state, "map")
    try:
        ran = work('"a"\n', "--overwrite")
    finally:
        lock.close()

    assert ran.code == 1
    assert ran.err.strip() == "glue: out.jsonl.state.db is in use by another map; one at a time writes an output"
    assert output()[0]["text"] == "<a>"


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--resume", "--overwrite"], "--resume and --overwrite exclude each other"),
        (["--queue", "q"], "--queue and --engine go together"),
        (["--rpm", "fast"], "--rpm must be a number above 0, or PROVIDER=NUMBER, not 'fast'"),
        (["--tpm", "openai=0"], "--tpm must be a number above 0, or PROVIDER=NUMBER, not 'openai=0'"),
        (["--resume"], "there is nothing to resume: out.jsonl.state.db does not exist"),
        (["--attachments", "nowhere"], "there is no folder nowhere"),
        (["--queue", "q", "--engine", "dbos+sqlite:///x.db", "--rpm", "1"], "give them to `glue worker`"),
    ],
)
def test_a_mistake_is_one_line(work: Callable[..., Any], args: list[str], said: str) -> None:
    ran = work('"a"\n', *args)

    assert ran.code == 2
    assert said in ran.err
    assert len(ran.err.splitlines()) == 1
    assert not Path("out.jsonl").exists()


def test_files_that_are_not_there_are_one_line(cli: Callable[..., Any]) -> None:
    Path("agent.py").write_text(AGENT)

    assert "there is no file in.jsonl" in cli("map", "agent.py", "in.jsonl", "-o", "out.jsonl").err
    assert "there is no file none.py" in cli("map", "none.py", "in.jsonl", "-o", "out.jsonl").err


def test_rows_may_come_from_stdin(work: Callable[..., Any], tmp_path: Path) -> None:
    command = [sys.executable, "-c", "from glue.cli.app import main; main()", "map", "agent.py", "-", "-o", "out.jsonl"]

    subprocess.run(command, input=b'"a"\n"b"\n', timeout=60, check=True, capture_output=True)

    assert [row["text"] for row in output()] == ["<a>", "<b>"]


SLOW = """
import anyio, glue
from glue.providers.offline import Offline

async def rules(request):
    if request.messages[-1].text == "slow":
        open("waiting", "w").close()
        await anyio.sleep(60)
    return "quick"

agent = glue.Agent(Offline(rules))
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_ends_what_is_under_way_and_resume_goes_on(tmp_path: Path, number: signal.Signals) -> None:
    (tmp_path / "agent.py").write_text(SLOW)
    (tmp_path / "in.jsonl").write_text('"a"\n"slow"\n"b"\n')
    command = [sys.executable, "-c", "from glue.cli.app import main; main()", "map", "agent.py", "in.jsonl"]
    command += ["-o", "out.jsonl", "-n", "1"]
    process = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    while not (tmp_path / "waiting").exists():
        assert process.poll() is None
    process.send_signal(number)
    _, err = process.communicate(timeout=60)

    assert process.returncode == 130
    assert "--resume goes on" in err
    (tmp_path / "agent.py").write_text(SLOW.replace("60", "0"))
    assert subprocess.run([*command, "--resume"], cwd=tmp_path, capture_output=True, timeout=60).returncode == 0
    lines = (tmp_path / "out.jsonl").read_text().splitlines()
    assert [json.loads(line)["text"] for line in lines] == ["quick"] * 3


def test_progress_says_how_far_how_fast_for_how_much_and_until_when(work: Callable[..., Any]) -> None:
    import io

    import glue
    from glue.cli.map import Progress
    from glue.cli.output import Screen
    from glue.durable import MapRow
    from glue.testing import Script, say

    job = glue.map(glue.Agent(Script(say("x"))), [])
    progress = Progress(Screen(io.StringIO()), job, 100, quiet=False)
    for number in range(1, 21):
        outcome = "done" if number > 2 else "failed"
        job.outcomes[outcome] += 1
        progress.add(MapRow(number=number, outcome=outcome, usage=glue.Usage(input=1, output=1, cost=0.5)))

    text = progress.text(progress._started + 10)

    assert text == "20 of 100 rows, 2.0/s, $10.00, 2 not complete, 40.0 s left"


# Without DBOS, which is an extra ------------------------------------------------------------------------


@pytest.fixture
def without_dbos(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "dbos", None)


@pytest.mark.usefixtures("without_dbos")
@pytest.mark.parametrize(
    "args",
    [
        ("map", "agent.py", "in.jsonl", "-o", "out.jsonl", "--queue", "q", "--engine", "dbos+sqlite:///q.db"),
        ("worker", "agent.py", "--queue", "q", "--engine", "dbos+sqlite:///q.db"),
        ("queue", "--engine", "dbos+sqlite:///q.db"),
    ],
)
def test_what_needs_dbos_names_the_extra(
    work: Callable[..., Any], cli: Callable[..., Any], args: tuple[str, ...]
) -> None:
    Path("in.jsonl").write_text('"a"\n')

    ran = cli(*args)

    assert ran.code == 2
    assert ran.err.strip() == "glue: durable runs need DBOS: pip install 'glue-agents[dbos]'"
    assert os.listdir() == ["agent.py", "in.jsonl"] or sorted(os.listdir()) == ["agent.py", "in.jsonl"]
