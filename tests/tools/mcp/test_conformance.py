"""The published conformance suite of MCP, against the client and against `glue mcp`."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from socket import create_server

import pytest
from fakes.mcp_conformance import conformance_server

pytestmark = [
    pytest.mark.soak,
    pytest.mark.skipif(shutil.which("npm") is None, reason="npm is missing"),
]
TESTS = Path(__file__).parents[2]
STABLE, NEXT = "0.1.16", "0.2.0-alpha.12"

# Scenarios that do not apply to the client, with the reason.
NOT_CLIENT = {
    "auth/2025-03-26-oauth-metadata-backcompat": "its issuer is not its address, which is refused",
    "auth/cross-app-access-complete-flow": "an extension for companies with their own sign-in",
}
# Scenarios that do not apply to `glue mcp`, with the reason.
NOT_SERVER = {
    "tools-call-audio": "glue has no audio",
    "tools-call-sampling": "tools of an agent ask the model of the agent",
    "tools-call-elicitation": "tools of an agent ask no questions",
    "elicitation-sep1034-defaults": "tools of an agent ask no questions",
    "elicitation-sep1330-enums": "tools of an agent ask no questions",
    "resources-read-text": "needs an address test://; resources are glue://",
    "resources-read-binary": "needs an address test://; resources are glue://",
    "resources-templates-read": "needs an address test://; resources are glue://",
    "resources-subscribe": "files are not watched",
    "resources-unsubscribe": "files are not watched",
    "prompts-get-with-args": "prompts of a catalog are texts without arguments",
    "prompts-get-embedded-resource": "prompts of a catalog are texts",
    "prompts-get-with-image": "prompts of a catalog are texts",
}


class Suite:
    """An installed version of the suite; it needs a newer node than many machines have."""

    def __init__(self, folder: Path, version: str) -> None:
        packages = [f"@modelcontextprotocol/conformance@{version}", "node@22"]
        folder.mkdir()
        (folder / "package.json").write_text('{"private": true}')
        install = ["npm", "install", "--no-audit", "--no-fund", *packages]
        done = subprocess.run(install, cwd=folder, capture_output=True, timeout=300)
        if done.returncode:
            pytest.skip(f"npm could not fetch the suite: {done.stderr.decode()[-200:]}")
        self.folder, modules = folder, folder / "node_modules"
        entry = modules / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"
        self._command = [str(modules / ".bin" / "node"), str(entry)]

    def run(self, *arguments: str, timeout: float = 120) -> str:
        """Run a command of the suite and return its output without colours."""
        done = subprocess.run(
            [*self._command, *arguments],
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=timeout,
        )
        return re.sub(r"\x1b\[[0-9;]*m", "", done.stdout + done.stderr)

    def scenarios(self) -> list[tuple[str, str]]:
        """Return the scenarios for clients, with the versions of the protocol of each."""
        part = self.run("list").partition("Client scenarios")[2].partition("\n\n")[0]
        return re.findall(r"^  - (\S+) \[(.*)\]", part, re.MULTILINE)


@pytest.fixture(scope="module")
def suites(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Suite]:
    folder = tmp_path_factory.mktemp("conformance")
    return {version: Suite(folder / version, version) for version in (STABLE, NEXT)}


@pytest.mark.parametrize(
    ("version", "protocol"), [(STABLE, ""), (NEXT, "2026-07-28")], ids=["stable", "2026-07-28"]
)
def test_the_client_passes_every_scenario_that_applies(
    suites: dict[str, Suite],
    version: str,
    protocol: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    program = tmp_path / "client"
    program.write_text(
        f'#!/bin/sh\ncd {TESTS} && exec {sys.executable} -m fakes.mcp_conformance "$@"\n'
    )
    program.chmod(0o755)
    suite, failed = suites[version], {}
    chosen = [name for name, versions in suite.scenarios() if protocol in versions]

    for name in chosen:
        said = suite.run("client", "--command", str(program), "--scenario", name)
        if "OVERALL: PASSED" not in said and name not in NOT_CLIENT:
            failed[name] = said[-2000:]

    left_out = len(NOT_CLIENT.keys() & {*chosen})
    total = len(chosen) - left_out
    with capsys.disabled():
        print(f"\nclient, suite {version}: {total - len(failed)} of {total}", end="")
    assert failed == {}


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """Serve an agent as `glue mcp` does, but without a token, which the suite cannot send."""
    import uvicorn

    app = conformance_server(folder).streamable_http_app(host="127.0.0.1")
    with create_server(("127.0.0.1", 0)) as listener:
        server = uvicorn.Server(uvicorn.Config(app, log_level="error", lifespan="on"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/mcp"
        server.should_exit = server.force_exit = True
        thread.join(10)


def test_the_server_passes_every_scenario_that_applies(
    suites: dict[str, Suite], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with served(tmp_path) as url:
        said = suites[STABLE].run("server", "--url", url, timeout=300)

    results = dict(re.findall(r"^[✓✗] (\S+): \d+ passed, (\d+) failed", said, re.MULTILINE))
    failed = {name for name, count in results.items() if count != "0"}
    with capsys.disabled():
        print(f"\nserver: {len(results) - len(failed)} of {len(results) - len(NOT_SERVER)}", end="")
    assert len(results) >= 30
    assert failed == {*NOT_SERVER}
