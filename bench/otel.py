"""The cost of telemetry, and a run that is sent to a real backend over OTLP and read back.

    python bench/otel.py                                      # CPU per turn and delta, on and off
    python bench/otel.py PYTHON [--keep SECONDS] [--screenshot FILE]

`make otel` runs the second form. PYTHON is an interpreter with arize-phoenix; this interpreter
needs glue, the OpenTelemetry SDK and the OTLP exporter.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

RUN = """
import glue
from glue import telemetry
from glue.providers import with_failover
from glue.testing import Script, call, calls, fail, say

USAGE = glue.Usage(input=1200, output=80, cache_read=900, reasoning=20, cost=0.0042)

@glue.tool
def weather(city: str) -> str:
    'Return the current weather in a city.'
    return f'{city}: 21 degrees, dry'

@glue.tool
def broken() -> str:
    'Fail.'
    raise LookupError('no such thing')

telemetry.setup()
advice = Script(say('Take a coat.', usage=USAGE), model='gpt-4o-mini', name='openai')
child = glue.Agent(advice, name='advisor')
first = Script(fail('quota', 'no money left'), model='claude-haiku-4-5', name='anthropic')
second = Script(
    calls(call('weather', {'city': 'Toronto'}), call('weather', {'city': 'Oslo'}), call('broken'),
          call('advisor', {'prompt': 'What to wear?'}), usage=USAGE),
    say('Toronto is dry, ', stop='max_tokens', usage=USAGE),
    say('Oslo too.', usage=USAGE),
    model='gpt-4o', name='openai')
tools = [weather, broken, child.as_tool()]
agent = glue.Agent(with_failover(first, second), tools=tools, name='forecast')
print(agent.session('demo').run_sync('Weather in Toronto and Oslo?').text)
"""


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("python", nargs="?")
    parser.add_argument(
        "--keep", type=float, default=0.0, help="keep the backend running for so many seconds"
    )
    parser.add_argument("--screenshot", default="")
    given = parser.parse_args()
    cost()
    if given.python:
        backend(given.python, given.keep, given.screenshot)


def cost(rounds: int = 7, turns: int = 200, deltas: int = 20_000) -> None:
    """Print the CPU time of a turn and of a delta with and without telemetry, and their ratio.

    Each figure is the best of several rounds.
    """
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

    import glue
    from glue.telemetry import OpenTelemetry
    from glue.testing import Script, calls, say

    class Nowhere(SpanExporter):
        def export(self, spans: Any) -> SpanExportResult:
            return SpanExportResult.SUCCESS

    @glue.tool
    async def noop() -> str:
        """Do nothing."""
        return "ok"

    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(Nowhere()))
    limits = glue.Limits(max_turns=None, max_requests=None, repeat_halt=None)
    works = {
        "turn": (turns, lambda: Script(*[calls("noop") for _ in range(turns)], "end")),
        "delta": (deltas, lambda: Script(say("x" * deltas, chunk=1))),
    }
    for name, (count, script) in works.items():
        best: dict[str, float] = {}
        for _ in range(rounds):
            for kind, telemetry in (
                ("off", False),
                ("on", OpenTelemetry(tracer_provider=provider)),
            ):
                agent = glue.Agent(script(), tools=[noop], limits=limits, telemetry=telemetry)
                began = time.process_time()
                agent.run_sync("go", unwrap=False)
                spent = (time.process_time() - began) / count
                best[kind] = min(best.get(kind, spent), spent)
        ratio = best["on"] / best["off"]
        off, on = (f"{1e6 * best[kind]:.1f} us {kind}" for kind in ("off", "on"))
        print(f"one {name}: {off}, {on}, ratio {ratio:.2f}")
    provider.shutdown()


def backend(python: str, keep: float, screenshot: str) -> None:
    with tempfile.TemporaryDirectory() as folder, socket.socket() as one, socket.socket() as two:
        one.bind(("127.0.0.1", 0))
        two.bind(("127.0.0.1", 0))
        port, grpc = one.getsockname()[1], two.getsockname()[1]
        one.close()
        two.close()
        base = f"http://127.0.0.1:{port}"
        environ = {
            **os.environ,
            "PHOENIX_WORKING_DIR": folder,
            "PHOENIX_HOST": "127.0.0.1",
            "PHOENIX_PORT": str(port),
            "PHOENIX_GRPC_PORT": str(grpc),
            "PHOENIX_TELEMETRY_ENABLED": "false",
        }
        command = [python, "-m", "phoenix.server.main", "serve"]
        server = subprocess.Popen(
            command, env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            wait(server, f"{base}/healthz")
            show(send(base), base, screenshot)
            time.sleep(keep)
        finally:
            server.terminate()
            server.wait(30)


def wait(server: subprocess.Popen[bytes], url: str) -> None:
    for _ in range(240):
        if server.poll() is not None:
            sys.exit(f"the backend ended with {server.returncode}")
        try:
            urllib.request.urlopen(url, timeout=5).close()
            return
        except OSError:
            time.sleep(0.5)
    sys.exit("the backend did not start")


def send(base: str) -> list[dict[str, Any]]:
    """Run an agent that sends traces to the backend; return its spans from the backend's API."""
    environ = {
        **os.environ,
        "OTEL_EXPORTER_OTLP_ENDPOINT": base,
        "OTEL_METRICS_EXPORTER": "none",
        "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": "true",
    }
    subprocess.run([sys.executable, "-c", RUN], env=environ, check=True)
    for _ in range(60):
        spans: list[dict[str, Any]] = get(f"{base}/v1/projects/default/spans?limit=100")["data"]
        if any(span["name"] == "invoke_agent forecast" for span in spans):
            return spans
        time.sleep(0.5)
    sys.exit("the trace did not arrive")


def get(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=30) as answer:
        return json.load(answer)


def show(spans: list[dict[str, Any]], base: str, screenshot: str) -> None:
    children: dict[str | None, list[dict[str, Any]]] = {}
    known = {span["context"]["span_id"] for span in spans}
    for span in sorted(spans, key=lambda span: span["start_time"]):
        parent = span.get("parent_id")
        children.setdefault(parent if parent in known else None, []).append(span)

    def lines(parent: str | None, depth: int) -> None:
        for span in children.get(parent, ()):
            attributes = span["attributes"]
            tokens = [attributes.get(f"gen_ai.usage.{name}_tokens") for name in ("input", "output")]
            counted = f" {tokens[0]} in, {tokens[1]} out" if None not in tokens else ""
            cost = attributes.get("glue.usage.cost")
            status = "" if span["status_code"] != "ERROR" else f" {attributes.get('error.type')}"
            print(
                "  " * depth + span["name"] + counted + (f", {cost} USD" if cost else "") + status
            )
            lines(span["context"]["span_id"], depth + 1)

    lines(None, 0)
    names = sorted(span["name"] for span in spans)
    wanted = ["chat claude-haiku-4-5", *["chat gpt-4o"] * 3, "chat gpt-4o-mini"]
    wanted += ["execute_tool advisor", "execute_tool broken", *["execute_tool weather"] * 2]
    wanted += ["invoke_agent advisor", "invoke_agent forecast"]
    if names != wanted or len(children[None]) != 1:
        sys.exit(f"the backend has other spans than were sent: {names}")
    trace = spans[0]["context"]["trace_id"]
    print(f"one trace of {len(spans)} spans: {base}/redirects/traces/{trace}")
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if screenshot and browser:
        command = [
            browser,
            "--headless",
            "--no-sandbox",
            "--window-size=1600,1100",
            "--virtual-time-budget=20000",
        ]
        url = f"{base}/redirects/traces/{trace}"
        subprocess.run(
            [*command, f"--screenshot={screenshot}", url],
            capture_output=True,
            timeout=120,
            check=True,
        )
        print(f"{screenshot}: {Path(screenshot).stat().st_size} bytes")


if __name__ == "__main__":
    main()
