"""`glue doctor`: checks of the machine, and connections only on request."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

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

    assert line().startswith("--  sandbox        none: commands that you allow can do what you can")


class Missing:
    """A backend that does not work on this machine."""

    name, note = "missing", ""

    def works(self) -> bool:
        return False

    def wrap(self, argv: Sequence[str], root: str, view: View) -> list[str]:
        raise AssertionError("it does not work")
