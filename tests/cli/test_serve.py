"""`glue serve`: the address of the page, and who may reach it."""

from __future__ import annotations

import json
import re
import signal
import socket
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from glue.cli.options import Sources
from glue.cli.serve import _rules

Cli = Callable[..., Any]
OPEN = urllib.request.build_opener(urllib.request.ProxyHandler({})).open


MAIN = [sys.executable, "-c", "from glue.cli.app import main; main()"]


@pytest.fixture
def serve(agent: str, zygote: Any) -> Iterator[Callable[..., Any]]:
    """Return a function that starts `glue serve` in a process and returns the process."""
    opened = []

    def start(*options: str) -> Any:
        opened.append(zygote.start([*MAIN, "serve", agent, "--no-open", *options], Path.cwd()))
        return opened[-1]

    yield start
    for process in opened:
        process.send_signal(signal.SIGINT)
        process.wait()
        for stream in (process.stdin, process.stdout, process.stderr):
            stream.close()


@pytest.fixture
def address(serve: Callable[..., Any]) -> Iterator[str]:
    """Serve an agent with a store, and yield the address that the command prints."""
    server = serve("--store", "chats.db")
    try:
        yield server.stdout.readline().decode().strip()
    finally:
        server.send_signal(signal.SIGINT)
        errors = server.stderr.read()
        assert b"Traceback" not in errors
        assert b"conversations are stored in chats.db; Ctrl-C ends the server\n" in errors


def test_the_printed_address_opens_the_page_and_others_do_not(address: str) -> None:
    base, _, token = address.partition("/?token=")
    assert base.startswith("http://127.0.0.1:")
    assert int(base.rpartition(":")[2]) > 1023  # a free port
    assert re.fullmatch(r"[\w-]{32}", token)  # 24 random bytes

    by_name = {"Host": base.removeprefix("http://").replace("127.0.0.1", "localhost")}
    for headers in ({}, by_name):
        with OPEN(urllib.request.Request(address, headers=headers), timeout=30) as answer:
            assert b"<html" in answer.read()
    with pytest.raises(urllib.error.HTTPError, match="403"):
        OPEN(f"{base}/?token=wrong", timeout=30)
    elsewhere = urllib.request.Request(address, headers={"Host": "evil.example"})
    with pytest.raises(urllib.error.HTTPError, match="403"):
        OPEN(elsewhere, timeout=30)


def test_on_all_addresses_the_page_is_reached_by_any_name_with_the_token(
    serve: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GLUE_SERVE_TOKEN", "from-the-environment")

    server = serve("--host", "0.0.0.0")

    printed = server.stdout.readline().decode().strip().replace("0.0.0.0", "127.0.0.1")
    named = {"Host": "desk.example.com"}
    with OPEN(urllib.request.Request(printed, headers=named), timeout=30) as answer:
        page = answer.read()
    with pytest.raises(urllib.error.HTTPError, match="403"):
        wrong = printed.replace("from-the-environment", "wrong")
        OPEN(urllib.request.Request(wrong, headers=named), timeout=30)
    assert printed.endswith("/?token=from-the-environment")
    assert b"<html" in page


def has_ipv6() -> bool:
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            return True
    except OSError:
        return False


needs_ipv6 = pytest.mark.skipif(not has_ipv6(), reason="the machine has no IPv6 loopback")


@pytest.mark.parametrize(
    ("host", "name"),
    [
        ("127.0.0.2", "127.0.0.2"),
        pytest.param("::1", "[::1]", marks=needs_ipv6),
        pytest.param("0:0::1", "[::1]", marks=needs_ipv6),
    ],
)
def test_the_page_of_another_host_is_reached_by_the_name_of_that_host(
    host: str, name: str, serve: Callable[..., Any]
) -> None:
    server = serve("--host", host, "--token", "t0ken")

    printed = server.stdout.readline().decode().strip()
    with OPEN(printed, timeout=30) as answer:
        page = answer.read()
    elsewhere = urllib.request.Request(printed, headers={"Host": "evil.example"})
    with pytest.raises(urllib.error.HTTPError, match="403"):
        OPEN(elsewhere, timeout=30)
    assert printed.startswith(f"http://{name}:")
    assert b"<html" in page


def test_a_prompt_is_answered_and_stored(address: str) -> None:
    base, _, token = address.partition("/?token=")
    body = json.dumps({"session": "s", "prompt": "hello"}).encode()
    headers = {"x-glue-token": token, "content-type": "application/json"}

    with OPEN(urllib.request.Request(f"{base}/run", body, headers), timeout=30) as answer:
        text = answer.read().decode()

    assert '"outcome": "done"' in text
    assert Path("chats.db").exists()


@pytest.mark.parametrize(("option", "shown"), [("--allow", "saved a.txt"), ("--deny", "denied")])
def test_several_rules_can_be_given(option: str, shown: str, serve: Callable[..., Any]) -> None:
    server = serve("--store", "chats.db", option, "save", option, "read_file")
    base, _, token = server.stdout.readline().decode().strip().partition("/?token=")
    body = json.dumps({"session": "s", "prompt": "save"}).encode()
    headers = {"x-glue-token": token, "content-type": "application/json"}

    with OPEN(urllib.request.Request(f"{base}/run", body, headers), timeout=30) as answer:
        text = answer.read().decode()

    assert shown in text


def test_another_host_needs_a_token(cli: Cli, agent: str) -> None:
    ran = cli("serve", agent, "--host", "0.0.0.0")

    assert ran.code == 2
    assert "--host needs --token" in ran.err


def test_a_port_in_use_is_one_line(cli: Cli, agent: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ran = cli("serve", agent, "--port", str(port))

    assert ran.code == 2
    assert f"cannot listen on 127.0.0.1:{port}" in ran.err
    assert "choose another --port" in ran.err


def test_rules_of_flags_and_environment_apply(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GLUE_MODEL", "offline")
    assert _rules(Sources({})) is None
    monkeypatch.setenv("GLUE_DENY", "shell")

    rules = _rules(Sources({"allow": ("edit_file",), "deny": ("write_file",)}))

    assert rules is not None
    assert (rules.allowed, rules.denied) == (("edit_file",), ("write_file", "shell"))
