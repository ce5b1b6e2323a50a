"""`glue doctor`: checks of the machine, and connections only on request."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

import glue
from glue.cli.doctor import checks
from glue.tools.sandbox import BACKENDS, View, find_backend

Cli = Callable[..., Any]


BODY = (
    b'data: {"choices": [{"index": 0, "delta": {"content": "ok"}, "finish_reason": "stop"}]}'
    b"\n\ndata: [DONE]\n\n"
)


REPLY = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: %d\r\n\r\n%s" % (
    len(BODY),
    BODY,
)


def test_a_healthy_machine_has_no_faults(cli: Cli) -> None:
    ran = cli("doctor")
    names = [line.split()[1] for line in ran.out.splitlines()]

    assert ran.code == 0, ran.out
    for name in (
        "python",
        "glue",
        "http",
        "settings",
        "keys",
        "model",
        "git",
        "sandbox",
        "store",
        "proxy",
        "certificates",
    ):
        assert name in names


@pytest.mark.parametrize(
    ("variable", "value", "error"),
    [
        ("GLUE_MODEL", "nope:x", "unknown provider 'nope'"),
        ("GLUE_MAX_TURNS", "many", "max_turns must be a whole number"),
        ("GROQ_API_KEY", "abcdefgh\n", "GROQ_API_KEY has a space, a line end"),
        (
            "HTTPS_PROXY",
            "proxy:80",
            "HTTPS_PROXY is not a URL; a proxy must look like http://host:port",
        ),
        (
            "SSL_CERT_FILE",
            "/nonexistent/ca.pem",
            "SSL_CERT_FILE is /nonexistent/ca.pem; there is no such file; unset or correct",
        ),
        ("SSL_CERT_FILE", "/", "SSL_CERT_FILE is /; there is no such file; unset or correct"),
        ("SSL_CERT_DIR", "/etc/passwd", "SSL_CERT_DIR is /etc/passwd; there is no such folder"),
        ("PATH", "/nonexistent", "git"),
    ],
)
def test_a_wrong_variable_is_a_fault_with_advice(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, variable: str, value: str, error: str
) -> None:
    monkeypatch.setenv(variable, value)

    ran = cli("doctor")
    bad = [line for line in ran.out.splitlines() if line.startswith("!!")]

    assert ran.code == 1
    assert any(error in line for line in bad), bad


def test_a_damaged_store_is_a_fault(stored: Cli) -> None:
    folder = Path(os.environ["HOME"]) / ".local/state/glue/sessions"
    (folder / "broken.jsonl").write_bytes(b"\x00\x00\x00\n")

    ran = stored("doctor")

    assert ran.code == 1
    assert "1 file in the store is not a session" in ran.out


def test_servers_are_connected_to_only_on_request(
    cli: Cli, loopback: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = loopback(REPLY)
    monkeypatch.setenv("GROQ_API_KEY", "not" + "-a-key")
    monkeypatch.setenv("GROQ_BASE_URL", server.url)

    quiet = cli("doctor")
    before = server.connections
    reached, failed = cli("doctor", "--reach"), cli("doctor", "--provider", "llamacpp")

    assert (quiet.code, before) == (0, 0)
    assert "ok  reach groq     responds" in reached.out
    assert server.seen == []
    assert failed.code == 1
    assert "!!  reach llamacpp" in failed.out


def test_the_sandbox_is_named_or_its_absence(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def line() -> str:
        lines: list[str] = cli("doctor").out.splitlines()
        return next(line for line in lines if " sandbox " in line)

    best = find_backend()
    assert (best.name if best is not None else "none: commands") in line()
    for name in BACKENDS:
        monkeypatch.setitem(BACKENDS, name, Missing())

    assert line().startswith("--  sandbox        none: commands that you allow have all your")


class Missing:
    """A backend that does not work on this machine."""

    name, note = "missing", ""

    def works(self) -> bool:
        return False

    def wrap(self, argv: Sequence[str], root: str, view: View) -> list[str]:
        raise AssertionError("it does not work")


def report(cli: Cli, *args: str) -> dict[str, str]:
    """Return the lines of the report by the names of their checks, each with its mark."""
    lines = [line.partition("  ") for line in cli("doctor", *args).out.splitlines()]
    return {rest[:14].rstrip(): f"{mark} {rest[15:]}" for mark, _, rest in lines}


@pytest.fixture
def default_certificates(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove the variables that name certificates."""
    for name in ("SSL_CERT_FILE", "SSL_CERT_DIR"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.usefixtures("default_certificates")
def test_a_machine_without_settings_and_keys_gets_hints(cli: Cli) -> None:
    found = report(cli)

    store = Path(os.environ["HOME"]) / ".local/state/glue/sessions"
    assert found["settings"] == "ok none"
    assert found["keys"].startswith("-- none set; set a key such as ANTHROPIC_API_KEY, or use")
    assert found["model"] == "-- no default; set GLUE_MODEL or a key, or use -m"
    assert found["store"] == f"ok {store}, not created yet"
    assert found["proxy"] == "ok none set"
    assert found["certificates"] == "ok the default ones"
    assert found["terminal"] == "ok utf-8"
    assert found["python"] == f"ok {sys.version.split()[0].rstrip('+')}"


@pytest.mark.usefixtures("default_certificates")
def test_settings_keys_the_store_and_the_network_are_named(
    stored: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GLUE_SECONDS", "9")
    monkeypatch.setenv("GROQ_API_KEY", "not" + "-a-key")
    monkeypatch.setenv("https_proxy", "http://me:secret@proxy.example:80")
    monkeypatch.setenv("HTTPS_PROXY", "nonsense")
    monkeypatch.setenv("NO_PROXY", "localhost")
    monkeypatch.setenv("SSL_CERT_DIR", "/etc")
    store = Path(os.environ["HOME"]) / ".local/state/glue/sessions"

    found = report(stored)

    assert found["settings"] == "ok seconds from GLUE_SECONDS"
    assert found["keys"] == "ok GROQ_API_KEY (groq)"
    assert found["model"].startswith("ok groq")
    assert found["model"].endswith(" by default")
    assert found["store"] == f"ok {store}, 2 sessions, all readable"
    assert found["proxy"] == "ok HTTPS_PROXY proxy.example:80, NO_PROXY localhost"
    assert found["certificates"] == "ok SSL_CERT_DIR /etc"
    assert "is not a URL" not in stored("doctor").out


@pytest.mark.parametrize("value", ["ftp://host:1", "http://", "http://[", "host:80"])
def test_a_proxy_is_the_url_of_a_server(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    monkeypatch.setenv("ALL_PROXY", value)

    ran = cli("doctor")

    line = "!!  proxy          ALL_PROXY is not a URL; a proxy must look like http://host:port"
    assert line in ran.out.splitlines()
    assert ran.code == 1


def test_the_store_of_the_settings_is_checked(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GLUE_STORE", "kept/here")
    assert report(cli)["store"] == "ok kept/here, not created yet"

    cli("run", "-m", "offline", "-s", "one", "hi")
    assert report(cli)["store"] == "ok kept/here, 1 session, all readable"

    monkeypatch.setenv("GLUE_STORE", "postgresql://me:secret@127.0.0.1:1/db")
    assert report(cli)["store"].startswith("!! cannot be read; ")


@pytest.mark.parametrize(
    ("printed", "line"),
    [
        ("git version 2.29.9", "!! 2.29.9; git 2.30 or newer is needed"),
        ("git version 1.99", "!! 1.99; git 2.30 or newer is needed"),
        ("git version 2.30.0 (x)", "ok 2.30.0"),
        ("git version 3.1", "ok 3.1"),
        ("nothing", "!! {path} prints 'nothing\\n'; install git 2.30 or newer"),
    ],
)
def test_an_old_git_is_a_fault(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, printed: str, line: str
) -> None:
    program = tmp_path / "bin" / "git"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\necho '{printed}'\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent), prepend=os.pathsep)

    assert report(cli)["git"] == line.format(path=program)


def test_a_git_that_does_not_run_is_a_fault(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "bin" / "git"
    program.parent.mkdir()
    program.write_text("#!/nonexistent/shell\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent), prepend=os.pathsep)

    assert report(cli)["git"].startswith(f"!! {program} does not run; ")


def test_a_sandbox_with_gaps_is_a_hint(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in BACKENDS:
        monkeypatch.setitem(BACKENDS, name, Leaky())

    line = report(cli)["sandbox"]

    assert line.startswith("-- leaky: it has a hole; for a stricter sandbox, ")
    monkeypatch.setattr(Leaky, "note", "")
    assert report(cli)["sandbox"] == "ok leaky"


CLASH = (
    "glueviz and glue-agents both contain a package `glue`; "
    "install each in its own virtual environment"
)


@pytest.mark.parametrize(
    ("packages", "shown"),
    [
        (
            {"glue-agents": "1.2", "httpcore": "1.0", "sniffio": "1.3"},
            [("glue", "1.2 in {folder}", ""), ("http", "httpcore 1.0", "")],
        ),
        (
            {"glue-agents": "1.2", "httpcore": "1.0", "httpcore2": "2.0"},
            [
                ("glue", "1.2 in {folder}", ""),
                ("http", "httpcore2 2.0", ""),
                ("http", "sniffio is not installed", "pip install sniffio"),
            ],
        ),
        (
            {"glueviz": "0.9", "sniffio": "1.3"},
            [
                (
                    "glue",
                    "glue-agents is not installed; glue runs from {folder}",
                    "pip install -e '{above}'",
                ),
                (
                    "clash",
                    "glueviz 0.9 is installed in the same environment",
                    CLASH,
                ),
                ("http", "httpcore is not installed", "pip install httpcore"),
            ],
        ),
    ],
)
def test_missing_packages_and_a_clash_are_reported(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    packages: dict[str, str],
    shown: list[tuple[str, str, str]],
) -> None:
    for name, version in packages.items():
        folder = tmp_path / f"{name.replace('-', '_')}-{version}.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(f"Name: {name}\nVersion: {version}\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    folder = Path(glue.__file__).parent

    found = [check for check in checks(False, ()) if check.name in ("glue", "clash", "http")]

    assert [(each.name, each.found, each.advice) for each in found] == [
        (name, text.format(folder=folder), advice.format(above=folder.parent))
        for name, text, advice in shown
    ]
    assert [each.is_fault for each in found if each.name == "glue"] == ["glue-agents" in packages]


def test_a_terminal_that_cannot_show_all_characters_is_a_hint(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO(), "ascii"))

    *_, last = checks(False, ())

    assert last == ("terminal", "ascii", "set PYTHONIOENCODING=utf-8 to see all characters", False)


@pytest.mark.parametrize(
    ("name", "address", "fault"),
    [
        ("groq", "http://127.0.0.77", "127.0.0.77:80: "),
        ("groq", "https://127.0.0.77", "127.0.0.77:443: "),
        ("groq", "http://127.0.0.77:1", "127.0.0.77:1: "),
        ("groq", "nonsense", "groq: "),
    ],
)
def test_a_server_that_does_not_respond_is_named_with_its_port(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, name: str, address: str, fault: str
) -> None:
    monkeypatch.setenv("GROQ_BASE_URL", address)

    ran = cli("doctor", "--provider", name)

    (line,) = [line for line in ran.out.splitlines() if "  reach " in line]
    assert line.startswith(f"!!  reach {name}     {fault}")
    assert line.endswith("; check the network, the proxy and the address")
    assert ran.code == 1


def test_a_proxy_is_reached_instead_of_the_server(
    cli: Cli, loopback: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy = loopback(REPLY)
    monkeypatch.setenv("GROQ_BASE_URL", "https://groq.example")
    monkeypatch.setenv("HTTPS_PROXY", proxy.url)

    found = report(cli, "--provider", "groq", "--provider", "offline")

    assert found["reach groq"] == found["reach offline"] == "ok responds"
    assert proxy.seen == []


def test_an_unknown_provider_is_refused_before_the_report(cli: Cli) -> None:
    ran = cli("doctor", "--provider", "nobody")

    assert (ran.code, ran.out) == (2, "")
    assert "unknown provider 'nobody'" in ran.err


class Leaky:
    """A backend that works, with a gap."""

    name, note = "leaky", "it has a hole"

    def works(self) -> bool:
        return True

    def wrap(self, argv: Sequence[str], root: str, view: View) -> list[str]:
        raise AssertionError("no command is run")
