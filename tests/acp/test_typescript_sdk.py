"""`glue acp` driven by the TypeScript SDK, and every frame checked against the SDK's schema."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

pytestmark = [
    pytest.mark.soak,
    pytest.mark.skipif(
        shutil.which("npm") is None or shutil.which("node") is None, reason="node or npm is missing"
    ),
]

AGENT = """
import sys
from glue import FileStore
from glue.acp.editor import ready_agent
from glue.acp.server import serve
from glue.cli.servers import run, take_stdout
streams = take_stdout()
import anyio
from glue.providers import register
from glue.testing import Script, call, calls, fail, repeat, say
from glue import ToolMessage, Usage, UserMessage
from glue.provider import TextDelta

def step(request):
    prompts = [message for message in request.messages if isinstance(message, UserMessage)]
    asked = next(prompt.text for prompt in reversed(prompts) if prompt.origin == "user")
    after = isinstance(request.messages[-1], ToolMessage)
    if asked == "long": return say("x", stop="max_tokens", thinking="hm")
    if asked == "turns":
        return calls(call("list_dir", {"path": ".", "offset": len(request.messages)}))
    if asked == "bad": return say("no", stop="refusal")
    if asked == "fail": return fail("overloaded")
    if after: return say("done", usage=Usage(input=10, output=2, cost=0.01))
    if asked == "edit": return calls(
        call("write_file", {"path": "a.txt", "content": "one\\ntwo\\n"}),
        call("edit_file", {"path": "a.txt", "old": "two", "new": "2"}),
        call("read_file", {"path": "a.txt", "offset": 1}),
        call("plan", {"steps": [{"content": "all", "status": "completed"}]}),
        call("grep", {"pattern": "["}),
    )
    if asked == "run": return calls(call("shell", {"command": "echo hi"}))
    return say("hello")

from glue.provider import Capabilities

class Model:
    capabilities = Capabilities(window=128_000)
    name = "scripted"
    script = Script(repeat(step))
    async def stream(self, request):
        if request.messages[-1].text == "wait":
            yield TextDelta(text="first ")
            await anyio.sleep_forever()
        async for event in self.script.stream(request):
            yield event

register("scripted", lambda model, **options: Model())
run(serve, ready_agent("scripted", "coding"), *streams, FileStore(sys.argv[1]))
"""

DRIVER = """
import { spawn } from "node:child_process";
import { appendFileSync, writeFileSync } from "node:fs";
import { PassThrough, Readable, Writable } from "node:stream";
import * as acp from "@agentclientprotocol/sdk";

const [folder, ...command] = JSON.parse(process.argv[2]);
const child = spawn(command[0], command.slice(1), { stdio: ["pipe", "pipe", "inherit"] });
const sent = new PassThrough(), got = new PassThrough();
sent.on("data", (data) => appendFileSync("sent.log", data));
child.stdout.on("data", (data) => appendFileSync("got.log", data));
sent.pipe(child.stdin);
child.stdout.pipe(got);

const kinds = new Set(), seen = {};
let choice = "allow_once", onFirstText = () => {}, onQuestion = () => {};
const app = acp.client({ name: "test" });
app.onNotification("session/update", ({ params }) => {
  kinds.add(params.update.sessionUpdate);
  if (params.update.sessionUpdate === "agent_message_chunk") onFirstText();
});
app.onRequest("session/request_permission", async () => {
  onQuestion();
  if (choice === "never") return new Promise(() => {});
  if (choice === "cancelled") return { outcome: { outcome: "cancelled" } };
  return { outcome: { outcome: "selected", optionId: choice } };
});
app.onRequest("fs/read_text_file", async () => ({ content: "from the editor" }));
app.onRequest("fs/write_text_file", async ({ params }) => {
  writeFileSync(params.path, params.content);
  return {};
});
app.onRequest("terminal/create", async () => ({ terminalId: "t1" }));
app.onRequest("terminal/wait_for_exit", async () => ({ exitCode: 0 }));
app.onRequest("terminal/output", async () => ({ output: "hi", truncated: false }));
app.onRequest("terminal/release", async () => ({}));
app.onRequest("terminal/kill", async () => ({}));

const stream = acp.ndJsonStream(Writable.toWeb(sent), Readable.toWeb(got));
await app.connectWith(stream, async (agent) => {
  const clientCapabilities = { fs: { readTextFile: true, writeTextFile: true }, terminal: true };
  const protocolVersion = acp.PROTOCOL_VERSION;
  const hello = await agent.request("initialize", { protocolVersion, clientCapabilities });
  seen.version = hello.protocolVersion;
  const _meta = { limits: { max_turns: 2 } };
  const { sessionId } = await agent.request("session/new", { cwd: folder, mcpServers: [], _meta });
  const say = (text) =>
    agent.request("session/prompt", { sessionId, prompt: [{ type: "text", text }] });
  const stop = async (text) => (await say(text)).stopReason;
  const error = async (text) => say(text).then(() => "no error", (error) => error.code);
  const cancel = () => agent.notify("session/cancel", { sessionId });

  for (const text of ["hi", "long", "turns", "bad"]) seen[text] = await stop(text);
  seen.fail = await error("fail");

  let first = new Promise((resolve) => { onFirstText = resolve; });
  let waiting = stop("wait");
  await first;
  const queued = stop("hi"); // a second prompt waits for the first one
  await cancel();
  seen.cancelled = await waiting;
  seen.queued = await queued;
  waiting = stop("wait");
  await cancel();
  seen.behind = await waiting;
  await cancel();
  seen.late = await stop("hi");

  seen.edit = await stop("edit");
  for (choice of ["allow_once", "reject_once", "cancelled"]) {
    seen[`chose ${choice}`] = await stop("run");
  }
  choice = "never";
  first = new Promise((resolve) => { onQuestion = resolve; });
  waiting = stop("run");
  await first;
  await cancel();
  seen.asking = await waiting;
  choice = "allow_once";

  await agent.request("session/set_mode", { sessionId, modeId: "allow" });
  const option = { sessionId, configId: "mode", value: "ask" };
  seen.options = (await agent.request("session/set_config_option", option)).configOptions.length;
  seen.limits = await stop("/limits max_turns=9");
  seen.listed = (await agent.request("session/list", { cwd: folder })).sessions.length;
  await agent.request("session/close", { sessionId });
  seen.closed = await error("hi");
  await agent.request("session/load", { sessionId, cwd: folder, mcpServers: [] });
  await agent.request("session/resume", { sessionId, cwd: folder });
  seen.resumed = await stop("hi");
  const unknown = agent.request("session/unheard_of", { sessionId });
  seen.unknown = await unknown.then(() => 0, (error) => error.code);
});
seen.kinds = [...kinds].sort();
console.log(JSON.stringify(seen));
child.stdin.end();
child.on("exit", (code) => process.exit(code ?? 1));
"""


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the SDK with npm and return its folder."""
    folder = tmp_path_factory.mktemp("npm")
    (folder / "package.json").write_text('{"private": true, "type": "module"}')
    command = ["npm", "install", "--no-audit", "--no-fund", "@agentclientprotocol/sdk@2"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)
    if done.returncode:
        pytest.skip(f"npm could not fetch the SDK: {done.stderr.strip().splitlines()[-1:]}")
    return folder


@pytest.fixture(scope="module")
def driven(package: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Run the driver once and return the answers that it recorded."""
    folder = tmp_path_factory.mktemp("work")
    (package / "driver.mjs").write_text(DRIVER)
    command = [str(folder), sys.executable, "-c", AGENT, str(tmp_path_factory.mktemp("store"))]
    run = ["node", "driver.mjs", json.dumps(command)]
    done = subprocess.run(run, cwd=package, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    seen: dict[str, Any] = json.loads(done.stdout)
    return seen


def test_prompts_end_with_the_expected_stop_reasons_and_errors(driven: dict[str, Any]) -> None:
    wanted = {
        "version": 1,
        "hi": "end_turn",
        "long": "max_tokens",
        "turns": "max_turn_requests",
        "bad": "refusal",
        "fail": -32603,
        "cancelled": "cancelled",
        "behind": "cancelled",
        "late": "end_turn",
        "queued": "cancelled",
    }

    assert {name: driven[name] for name in wanted} == wanted


def test_edits_permissions_options_and_loading(driven: dict[str, Any]) -> None:
    wanted = {
        "edit": "end_turn",
        "chose allow_once": "end_turn",
        "chose reject_once": "end_turn",
        "chose cancelled": "end_turn",
        "asking": "cancelled",
        "options": 6,
        "limits": "end_turn",
        "listed": 1,
        "closed": -32002,
        "resumed": "end_turn",
        "unknown": -32601,
    }

    assert {name: driven[name] for name in wanted} == wanted
    assert driven["kinds"] == [
        "agent_message_chunk",
        "agent_thought_chunk",
        "available_commands_update",
        "config_option_update",
        "current_mode_update",
        "plan",
        "session_info_update",
        "tool_call",
        "tool_call_update",
        "usage_update",
        "user_message_chunk",
    ]


def test_every_frame_fits_the_published_schema_without_extra_keys(
    driven: dict[str, Any], package: Path
) -> None:
    schema = json.loads(
        (package / "node_modules/@agentclientprotocol/sdk/schema/v1/schema.json").read_text()
    )
    closed = close(schema)
    results = {
        made["x-method"]: name
        for name, made in schema["$defs"].items()
        if made.get("x-side") == "agent" and name.endswith("Response")
    }
    asked = {
        made["x-method"]: name
        for name, made in schema["$defs"].items()
        if made.get("x-side") in ("client", "protocol") and not name.endswith("Response")
    }
    methods = {
        frame["id"]: frame["method"]
        for frame in map(json.loads, (package / "sent.log").read_text().splitlines())
        if "method" in frame and "id" in frame
    }

    @cache
    def validator(name: str) -> Draft202012Validator:
        return Draft202012Validator(
            {"$ref": f"#/$defs/{name}", "unevaluatedProperties": False, "$defs": closed["$defs"]}
        )

    lines = (package / "got.log").read_text().splitlines()
    checked = []
    for frame in map(json.loads, lines):
        if "method" in frame:
            name, body = asked[frame["method"]], frame["params"]
        elif "error" in frame:
            name, body = "Error", frame["error"]
        else:
            name, body = results[methods[frame["id"]]], frame["result"]
        if name == "InitializeResponse":
            # Forks are in the unstable part of the protocol, which this schema leaves out.
            assert body["agentCapabilities"]["sessionCapabilities"].pop("fork") == {}
        validator(name).validate(body)
        checked.append(name)
    assert len(checked) == len(lines) > 100
    assert len(set(checked)) > 15
    wrong = {"stopReason": "end_turn", "extra": 1}
    assert not validator("PromptResponse").is_valid(wrong)
    nested = {
        "sessionId": "s",
        "update": {"sessionUpdate": "usage_update", "used": 1, "size": 1, "extra": 1},
    }
    assert not validator("SessionNotification").is_valid(nested)


# A schema without any of these keys accepts every value.
RESTRICTING = {"$ref", "allOf", "anyOf", "oneOf", "properties", "type"}


def close(schema: Any) -> Any:
    """Return a copy of a schema that forbids keys that it does not name, at every level."""
    if isinstance(schema, list):
        return [close(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    made = {name: close(each) for name, each in schema.items()}
    for place in ("properties", "items"):
        held = made.get(place)
        if place == "properties" and isinstance(held, dict):
            made[place] = {name: _closed(each) for name, each in held.items()}
        elif isinstance(held, dict):
            made[place] = _closed(held)
    return made


def _closed(schema: Any) -> Any:
    if (
        not isinstance(schema, dict)
        or not RESTRICTING & schema.keys()
        or schema.get("additionalProperties") is True
    ):
        return schema
    return {**schema, "unevaluatedProperties": False}


ACPX_AGENT = """
import glue
from glue.testing import Script, call, calls
from glue.tools import fs

steps = calls(call('write_file', {'path': 'made.txt', 'content': 'hello'}))
agent = glue.Agent(Script(steps, 'written'), tools=fs.tools('.', write=True))
"""


@pytest.mark.parametrize(("flag", "written"), [("--approve-all", True), ("--deny-all", False)])
def test_the_command_line_client_acpx_can_approve_and_deny(
    package: Path, tmp_path: Path, flag: str, written: bool
) -> None:
    done = subprocess.run(
        ["npm", "install", "--no-audit", "--no-fund", "acpx"],
        cwd=package,
        capture_output=True,
        timeout=300,
    )
    if done.returncode:
        pytest.skip(f"npm could not fetch acpx: {done.stderr.decode()[-200:]}")
    (tmp_path / "agent.py").write_text(ACPX_AGENT)
    (tmp_path / "glue").write_text(
        f"#!/bin/sh\nexec {sys.executable} -c 'from glue.cli.app import main; main()' \"$@\"\n"
    )
    (tmp_path / "glue").chmod(0o755)
    agent = f"{tmp_path}/glue acp {tmp_path}/agent.py --store {tmp_path}/store"
    command = [
        str(package / "node_modules/.bin/acpx"),
        "--agent",
        agent,
        "--cwd",
        str(tmp_path),
        flag,
    ]
    environ = {**os.environ, "HOME": str(tmp_path)}

    ran = subprocess.run(
        [*command, "exec", "write a file"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env=environ,
        timeout=120,
    )

    assert ran.returncode == (0 if written else ran.returncode), ran.stderr
    assert "written" in ran.stdout
    assert (tmp_path / "made.txt").exists() == written
