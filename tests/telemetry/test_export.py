"""Export: spans that reach a collector over HTTP."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest
from fakes.telemetry import PARENT, TRACE

from glue import telemetry
from glue.errors import ConfigError


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("OpenTelemetry()", "pip install 'glue-agents[otel]'"),
        ("setup()", "pip install opentelemetry-sdk"),
    ],
)
def test_a_missing_package_is_reported_with_the_command_to_install_it(
    call: str, message: str
) -> None:
    code = (
        "import sys\n"
        "sys.modules['opentelemetry'] = None\n"
        "from glue import errors, telemetry\n"
        "try:\n"
        f"    telemetry.{call}\n"
        "except errors.ConfigError as error:\n"
        "    print(error)\n"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)

    assert message in done.stdout


SCRIPT = """
import glue
from glue import telemetry
from glue.testing import Script, calls

@glue.tool
def noop() -> str:
    'Do nothing.'
    return 'ok'

telemetry.setup()
for _ in range(5):
    glue.Agent(Script(calls('noop'), 'end'), tools=[noop]).run_sync('go')
"""


class Collector(BaseHTTPRequestHandler):
    status: ClassVar[int] = 200
    paths: ClassVar[list[str]] = []
    spans: ClassVar[list[str]] = []
    traces: ClassVar[list[str]] = []

    def do_POST(self) -> None:
        from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
            ExportTraceServiceRequest,
        )

        body = self.rfile.read(int(self.headers["content-length"]))
        self.paths.append(self.path)
        if self.path == "/v1/traces":
            request = ExportTraceServiceRequest.FromString(body)
            scopes = [
                scope for resource in request.resource_spans for scope in resource.scope_spans
            ]
            found = [span for scope in scopes for span in scope.spans]
            self.spans.extend(span.name for span in found)
            self.traces.extend(span.trace_id.hex() for span in found)
        self.send_response(self.status)
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        pass


def finished(
    command: list[str], endpoint: str, timeout: str = "1"
) -> subprocess.CompletedProcess[str]:
    environ = {
        **os.environ,
        "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint,
        "OTEL_EXPORTER_OTLP_TIMEOUT": timeout,
    }
    return subprocess.run(
        [sys.executable, *command], capture_output=True, text=True, env=environ, timeout=60
    )


GLUE_RUN = [
    "-c",
    "from glue.cli.app import main; main()",
    "run",
    "-q",
    "-m",
    "offline",
    "--otel",
    "hi",
]


@pytest.mark.parametrize(("command", "spans"), [(["-c", SCRIPT], 20), (GLUE_RUN, 2)])
def test_all_spans_are_sent_before_a_program_ends(command: list[str], spans: int) -> None:
    pytest.importorskip(
        "opentelemetry.exporter.otlp.proto.http", reason="the OTLP exporter is not installed"
    )
    Collector.spans.clear()
    Collector.paths.clear()
    with ThreadingHTTPServer(("127.0.0.1", 0), Collector) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        done = finished(command, f"http://127.0.0.1:{server.server_port}")
        server.shutdown()

    assert (done.returncode, done.stderr) == (0, "")
    assert len(Collector.spans) == spans
    assert set(Collector.paths) == {"/v1/traces", "/v1/metrics"}


class Refusing(Collector):
    status = 400


def test_a_collector_that_refuses_spans_causes_no_output() -> None:
    pytest.importorskip(
        "opentelemetry.exporter.otlp.proto.http", reason="the OTLP exporter is not installed"
    )
    with ThreadingHTTPServer(("127.0.0.1", 0), Refusing) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        done = finished(["-c", SCRIPT], f"http://127.0.0.1:{server.server_port}")
        server.shutdown()

    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


# Prints the name of the service, the timeouts of the exporters, and whether runs are traced.
CONFIGURED = """
import json, os
from opentelemetry import metrics, trace
from opentelemetry.exporter.otlp.proto.http import metric_exporter, trace_exporter

timeouts = []

def recording(exporter):
    def make(timeout):
        timeouts.append(timeout)
        return exporter(timeout=timeout)
    return make

metric_exporter.OTLPMetricExporter = recording(metric_exporter.OTLPMetricExporter)
trace_exporter.OTLPSpanExporter = recording(trace_exporter.OTLPSpanExporter)
import glue
from glue import telemetry
from glue.testing import Script

telemetry.setup()
if os.environ["OTEL_TRACES_EXPORTER"] == "console":
    glue.Agent(Script("hi")).run_sync("go")
name = trace.get_tracer_provider().resource.attributes["service.name"]
print(json.dumps([name, timeouts, os.environ["GLUE_OTEL"]]))
"""


@pytest.mark.parametrize(
    ("kind", "variables", "name", "timeouts"),
    [
        ("otlp", {"MY_TIMEOUT": "1", "OTEL_EXPORTER_OTLP_HEADERS": "a=b"}, "glue", [3.0, 3.0]),
        (
            "otlp",
            {"OTEL_SERVICE_NAME": "mine", "OTEL_EXPORTER_OTLP_TRACES_TIMEOUT": "1"},
            "mine",
            [None, None],
        ),
        ("console", {}, "glue", []),
    ],
)
def test_the_variables_of_the_standard_choose_the_exporters(
    kind: str, variables: dict[str, str], name: str, timeouts: list[float | None]
) -> None:
    pytest.importorskip(
        "opentelemetry.exporter.otlp.proto.http", reason="the OTLP exporter is not installed"
    )
    kept = {key: value for key, value in os.environ.items() if not key.startswith("OTEL_")}
    kinds = {f"OTEL_{signal}_EXPORTER": kind for signal in ("TRACES", "METRICS")}

    done = subprocess.run(
        [sys.executable, "-c", CONFIGURED],
        capture_output=True,
        text=True,
        env={**kept, **kinds, **variables},
        timeout=60,
    )

    assert json.loads(done.stdout) == [name, timeouts, "1"]
    for printed in ('"name": "invoke_agent"', "gen_ai.client.operation.duration"):
        assert (printed in done.stderr) == (kind == "console")


def test_an_unreachable_collector_causes_no_output() -> None:
    pytest.importorskip(
        "opentelemetry.exporter.otlp.proto.http", reason="the OTLP exporter is not installed"
    )
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]

    done = finished(["-c", SCRIPT], f"http://127.0.0.1:{port}", timeout="0.1")

    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_an_unknown_exporter_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "zipkin")

    with pytest.raises(ConfigError, match="OTEL_TRACES_EXPORTER must be otlp, console or none"):
        telemetry.setup()


AGENT = """
import glue
from glue.testing import Script, calls

@glue.tool(needs_permission=True)
def gated() -> str:
    'Ask first.'
    return 'ok'

agent = glue.Agent(Script(calls('gated'), 'end'), tools=[gated], name='served')
"""

META = {"_meta": {"traceparent": PARENT}}


class Served:
    """A JSON-RPC server that a test talks to over its standard input and output."""

    def __init__(self, folder: Path, *command: str, endpoint: str) -> None:
        (folder / "agent.py").write_text(AGENT)
        environ = {**os.environ, "GLUE_OTEL": "1", "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint}
        line = [sys.executable, "-c", "from glue.cli.app import main; main()", *command]
        self.process = subprocess.Popen(
            line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=folder, env=environ, text=True
        )
        self.permissions: list[dict[str, Any]] = []  # the requests for permission

    def send(self, **frame: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"jsonrpc": "2.0", **frame}) + "\n")
        self.process.stdin.flush()

    def ask(self, id: int, method: str, **params: Any) -> Any:
        self.send(id=id, method=method, params=params)
        assert self.process.stdout is not None
        for line in self.process.stdout:
            frame = json.loads(line)
            if frame.get("method") == "session/request_permission":
                self.permissions.append(frame["params"])
                selected = {"outcome": {"outcome": "selected", "optionId": "allow_once"}}
                self.send(id=frame["id"], result=selected)
            elif frame.get("id") == id and "method" not in frame:
                assert "result" in frame, frame
                return frame["result"]
        raise AssertionError("the server ended")

    def close(self) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.stdout.read()
        self.process.wait(30)
        self.process.stdout.close()


def through_acp(served: Served, folder: Path) -> None:
    served.ask(1, "initialize", protocolVersion=1)
    session = served.ask(2, "session/new", cwd=str(folder), mcpServers=[])["sessionId"]
    served.ask(
        3, "session/prompt", sessionId=session, prompt=[{"type": "text", "text": "go"}], **META
    )
    assert served.permissions[0]["_meta"]["traceparent"].startswith(f"00-{TRACE}-")


def through_mcp(served: Served, folder: Path) -> None:
    client = {"name": "test", "version": "1"}
    served.ask(1, "initialize", protocolVersion="2025-06-18", capabilities={}, clientInfo=client)
    served.send(method="notifications/initialized")
    served.ask(2, "tools/call", name="served", arguments={"prompt": "go"}, **META)


@pytest.mark.parametrize("server", ["acp", "mcp"])
def test_servers_continue_the_trace_of_a_request(server: str, tmp_path: Path) -> None:
    pytest.importorskip(
        "opentelemetry.exporter.otlp.proto.http", reason="the OTLP exporter is not installed"
    )
    Collector.spans.clear()
    Collector.traces.clear()
    with ThreadingHTTPServer(("127.0.0.1", 0), Collector) as collector:
        threading.Thread(target=collector.serve_forever, daemon=True).start()
        command = (
            ("acp", "agent.py", "--store", "store") if server == "acp" else ("mcp", "agent.py")
        )
        served = Served(tmp_path, *command, endpoint=f"http://127.0.0.1:{collector.server_port}")
        (through_acp if server == "acp" else through_mcp)(served, tmp_path)
        served.close()
        collector.shutdown()

    assert "invoke_agent served" in Collector.spans
    assert Collector.traces[Collector.spans.index("invoke_agent served")] == TRACE
