"""The pytest plugin: tests replay cassettes, and send no requests to real models by accident."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from glue.errors import ConfigError
from glue.testing.plugin import RequestGuard

TESTS = """
import os
import pytest
from glue import Agent
from glue.overrides import check_origin
from glue.errors import ConfigError

def ask(prompt):
    return Agent("offline").run_sync(prompt).text

@pytest.mark.glue_cassette
def test_same():
    assert "stand-in" in ask("hello")

@pytest.mark.glue_cassette("elsewhere")
def test_differs():
    assert ask(os.environ["PROMPT"])

@pytest.mark.glue_cassette
def test_fewer():
    for _ in range(int(os.environ["TIMES"])):
        ask("again")

@pytest.mark.glue_cassette
def test_missing():
    if os.environ["TIMES"] == "1":
        ask("never recorded")

@pytest.fixture
def guarded():
    assert check_origin.get() is not None

def test_plain(guarded):
    with pytest.raises(ConfigError, match="a test tried to reach https://api.openai.com"):
        Agent("openai:gpt-5-nano").run_sync("hello")

@pytest.fixture(scope="module")
async def shared():
    yield

@pytest.mark.anyio
async def test_async(shared):
    with pytest.raises(ConfigError, match="a test tried to reach https://api.openai.com"):
        await Agent("openai:gpt-5-nano").run("hello")

@pytest.mark.glue_live
@pytest.mark.anyio
async def test_live_after_a_runner_that_others_share(shared):
    check_origin.get()("https://api.openai.com")

@pytest.mark.glue_live
def test_live():
    check_origin.get()("https://api.openai.com")
"""


REPORTS = """
from glue.overrides import check_origin

def pytest_unconfigure():
    print("the guard ends with the test:", check_origin.get() is None)
"""


def run_pytest(folder: Path, *arguments: str, **environ: str) -> str:
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "--strict-markers",
        "-p",
        "glue.testing.plugin",
        "-p",
        "anyio",
        "--rootdir",
        str(folder),
        str(folder),
    ]
    loaded = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "OPENAI_API_KEY": "no" + "-key"}
    done = subprocess.run(
        [*command, *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, **loaded, **environ},
        cwd=folder,
    )
    return done.stdout


def test_marked_tests_record_and_replay_and_other_requests_are_blocked(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(TESTS)
    (tmp_path / "conftest.py").write_text(REPORTS)

    recorded = run_pytest(tmp_path, "--glue-record", PROMPT="one", TIMES="2")
    replayed = run_pytest(tmp_path, PROMPT="two", TIMES="1")

    assert "10 passed" in recorded
    assert "the guard ends with the test: True" in recorded
    files = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.jsonl"))
    assert files == [
        "cassettes/test_fewer/offline.jsonl",
        "cassettes/test_same/offline.jsonl",
        "elsewhere/offline.jsonl",
    ]
    assert "3 failed, 7 passed" in replayed
    assert "request 1 differs from request 1 of the cassette" in replayed
    assert "1 of 2 recorded requests were not sent" in replayed
    assert "does not exist; record it" in replayed
    assert "self.folder" not in replayed  # the failure is one line, without a traceback


@pytest.mark.parametrize(
    "origin", ["http://localhost:80", "http://127.0.0.1:1", "http://[::1]:9", "http://LOCALHOST"]
)
def test_requests_to_this_machine_are_allowed(origin: str) -> None:
    RequestGuard().check(origin)


@pytest.mark.parametrize(
    "origin", ["https://api.openai.com", "http://localhost.example.com", "http://127.evil.com"]
)
def test_requests_to_other_machines_are_blocked(origin: str) -> None:
    with pytest.raises(ConfigError, match="a test tried to reach"):
        RequestGuard().check(origin)


CASES = """
import pytest
from glue import Agent
from glue.evaluation import evaluate_sync

@pytest.mark.glue_cases("cases.jsonl")
@pytest.mark.parametrize("model", ["offline"])
def test_cases(case, model):
    evaluate_sync(Agent(model), [case]).assert_passed()
"""


def pytest_in(folder: Path) -> subprocess.CompletedProcess[str]:
    options = ["-v", "--strict-markers", "-p", "no:cacheprovider"]
    command = [sys.executable, "-m", "pytest", *options, "test_own.py"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120)


def test_each_case_of_a_file_is_a_test(tmp_path: Path) -> None:
    (tmp_path / "test_own.py").write_text(CASES)
    (tmp_path / "cases.jsonl").write_text(
        '{"id": "good", "prompt": "hi", "contains": "stand-in"}\n'
        '{"id": "bad", "prompt": "hi", "contains": "Oslo"}\n'
    )

    ran = pytest_in(tmp_path)

    assert "test_cases[good-offline] PASSED" in ran.stdout
    assert "test_cases[bad-offline] FAILED" in ran.stdout
    assert "bad: contains: the answer lacks 'Oslo'" in ran.stdout


def test_a_wrong_case_and_a_test_without_the_argument_are_errors_of_one_line(
    tmp_path: Path,
) -> None:
    (tmp_path / "cases.jsonl").write_text('{"prompt": "hi", "contain": "x"}')
    (tmp_path / "test_wrong.py").write_text(CASES)
    (tmp_path / "test_missing.py").write_text(CASES.replace("(case, model)", "(model)"))
    (tmp_path / "test_nameless.py").write_text(CASES.replace('"cases.jsonl"', ""))

    printed = run_pytest(tmp_path)

    start = "E   pytest.UsageError: "
    wrong = f"{start}{tmp_path}/cases.jsonl, line 1: contain: unknown name; there are: id, prompt"
    assert wrong in printed
    needs = "glue_cases needs a file, and the test needs an argument `case`"
    for name in ("missing", "nameless"):
        assert f"{start}test_{name}.py::test_cases: {needs}" in printed
