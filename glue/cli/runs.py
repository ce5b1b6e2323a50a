"""Records of runs: the log and `glue runs`, cassettes and `glue replay`, requests and `--show-wire`."""

from __future__ import annotations

import json
import os
import shlex
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from glue.cli.options import permission_options
from glue.cli.output import EventWriter, Printer, Screen, json_option, print_rows
from glue.errors import ConfigError, ReplayError
from glue.paths import state_dir
from glue.provider import Provider
from glue.secrets import MASK, mask_secrets
from glue.text import count, one_line

if TYPE_CHECKING:
    from glue.providers.http import Sent
    from glue.testing.cassette import Cassette

MOST = 1000  # runs that are kept; older ones are removed


def runs_dir() -> Path:
    return state_dir() / "runs"


class RunLog(EventWriter):
    """One file of the log: the events of a run, and how it ended."""

    def __init__(self) -> None:
        folder = runs_dir()
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        for old in sorted(folder.glob("*.jsonl"))[: -MOST or None]:
            old.unlink(missing_ok=True)
        now = time.time_ns()
        day = time.strftime("%Y%m%d-%H%M%S", time.localtime(now // 10**9))
        name = f"{day}-{now % 10**9:09d}-{os.urandom(2).hex()}.jsonl"
        fd = os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        self._file = open(fd, "w", encoding="utf-8")  # noqa: SIM115 - it lasts as long as the run
        super().__init__(self._file.write)

    def end(self, value: Mapping[str, Any]) -> None:
        self.write(value)
        self._file.close()


@click.command()
@click.option("-n", "--limit", default=20, show_default=True, type=click.IntRange(min=1), help="Runs, at most.")
@json_option
def runs(limit: int, as_json: bool) -> None:
    """List the last runs: when, model, outcome, tokens, cost and prompt. `glue view last` shows one.

    Runs are logged where `glue config set log true` or GLUE_LOG=1 says so.
    """
    print_rows(
        [summary(path) for path in reversed(log_files()[-limit:])],
        ("when?", "outcome", "model?", ">tokens", ">cost", "prompt…"),
        lambda run: (run["at"], run["outcome"], run["model"], run["tokens"], run["cost"], run["prompt"]),
        as_json,
        "no runs are logged; `glue config set log true` switches the log on",
    )


def log_files() -> list[Path]:
    """Give the files of the log, the oldest first."""
    return sorted(runs_dir().glob("*.jsonl"))


def find_run(named: str) -> Path:
    """Find a run by `last`, or by the name of its file."""
    files = log_files()
    found = files[-1:] if named == "last" else [path for path in files if path.stem == named]
    if not found:
        hint = "; `glue config set log true` switches the log on" if not files else ""
        raise ConfigError(f"there is no logged run {named!r} in {runs_dir()}{hint}")
    return found[0]


def summary(path: Path) -> dict[str, Any]:
    seen: dict[str, Any] = {}
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        kind = line[10:].partition('"')[0]
        if kind in ("prompt", "message_end", "result", "error"):
            with suppress(ValueError, RecursionError):  # cut off by a kill
                seen[kind] = json.loads(line)
    prompt, end = seen.get("prompt") or {}, seen.get("result") or seen.get("error") or {}
    reply = (seen.get("message_end") or {}).get("message") or {}
    stamp = path.stem
    row = {"id": stamp, "at": f"{stamp[:4]}-{stamp[4:6]}-{stamp[6:8]} {stamp[9:11]}:{stamp[11:13]}"}
    try:
        parts, usage, cost = (prompt.get("message") or {}).get("content") or (), end.get("usage") or {}, end.get("cost")
        said = " ".join(part.get("text", f"[{part.get('type')}]") for part in parts)
        named = ":".join(filter(None, (reply.get("provider"), reply.get("model"))))
        return row | {
            "model": named or str(prompt.get("model") or ""),
            "outcome": str(end.get("outcome") or ("failed" if end else "cut off")),
            "tokens": int(usage.get("input") or 0) + int(usage.get("output") or 0),
            "cost": None if cost is None else float(cost),
            "prompt": one_line(said, 200),
        }
    except (AttributeError, TypeError, ValueError, OverflowError):
        return row | {"model": "", "outcome": "damaged", "tokens": 0, "cost": None, "prompt": ""}


# Cassettes ----------------------------------------------------------------------------------------


@click.command()
@click.argument("cassette", type=click.Path(dir_okay=False))
@click.argument("file", required=False, metavar="[FILE.py]")
@click.argument("words", nargs=-1, metavar="[PROMPT...]")
@click.option("-v", "--verbose", is_flag=True, help="Thinking and the results of tools too.")
@permission_options
def replay(cassette: str, file: str | None, words: tuple[str, ...], verbose: bool, **permissions: Any) -> None:
    """Play what a model said in CASSETTE, as made by --record.

    With FILE.py the agent runs again, its tools too, and must ask what it asked then; PROMPT is the recorded one
    if left out. A request that differs is an error that shows the first difference.
    """
    exchanges = _load(cassette).exchanges
    try:
        if file is None:
            _print_exchanges(exchanges, verbose)
            return
        words = words or (first_prompt(exchanges, cassette),)
    except (LookupError, TypeError, AttributeError) as error:
        raise ConfigError(f"{cassette} is damaged: {error!r}") from error
    from glue.cli.agentfile import open_agent
    from glue.cli.run import execute, run

    given = run.make_context("run", []).params | permissions | {"replay": cassette, "verbose": int(verbose)}
    sys.exit(execute(open_agent(file), words, given, path=file))


def _print_exchanges(exchanges: Iterable[Mapping[str, Any]], verbose: bool) -> None:
    printer = Printer(Screen(sys.stdout), Screen(sys.stderr), verbose=verbose)
    for exchange in exchanges:
        reply: dict[str, Any] = next((event["message"] for event in exchange["events"] if event["type"] == "done"), {})
        asked = exchange["request"].get("messages", ())
        name = f" {reply.get('provider')}:{reply.get('model')}" if reply.get("model") else ""
        printer.note(one_line(f"request {exchange['number']}:{name}, {count(len(asked), 'message')}"))
        for message in asked[-3:] if verbose else ():
            if message.get("role") == "tool":
                printer.note(one_line(f"  {message.get('name')}: {json.dumps(message.get('content'))}", 300))
        for event in exchange["events"]:
            if event["type"] == "text":
                printer.text(event["text"])
            elif event["type"] == "thinking" and verbose:
                printer.thinking(event["text"])
        for part in reply.get("content", ()):
            if part.get("type") == "tool_call":
                printer.note(f"· {one_line(part['name'])} {one_line(part['arguments'], 200)}")
        if exchange.get("error"):
            printer.note(f"✗ {one_line(exchange['error']['message'], 300)}", "red")
    printer.settle()


class _NamedReplay:
    """A replay under the name of the provider that was recorded, so that requests are made as they were."""

    def __init__(self, replay: Provider, name: str) -> None:
        from glue.providers import capabilities

        self.stream, self.capabilities = replay.stream, capabilities(name)
        self.name = self.capabilities.provider


@contextmanager
def record_to(path: str) -> Iterator[Callable[[Provider], Provider]]:
    """Record all that agents ask by name; what is given handles a provider that has none."""
    from glue.providers import new
    from glue.testing.cassette import Cassette, Recorder, use_provider

    cassette = Cassette(path)
    with use_provider(cache(lambda name: Recorder(new(name), cassette))):
        yield lambda provider: Recorder(provider, cassette)


@contextmanager
def replay_from(path: str) -> Iterator[Callable[[Provider], Provider]]:
    """Answer all that agents ask from a cassette."""
    from glue.testing.cassette import Replay, use_provider

    replay = Replay(_load(path), by="hash")
    with use_provider(lambda name: _NamedReplay(replay, name)):
        yield lambda provider: replay


def _load(path: str) -> Cassette:
    from glue.testing.cassette import Cassette

    try:
        return Cassette.load(path)
    except ReplayError as error:
        raise ConfigError(str(error)) from error


def first_prompt(exchanges: Sequence[Mapping[str, Any]], path: str) -> str:
    """Give the text of the prompt that began the recorded run."""
    messages = exchanges[0]["request"].get("messages", ()) if exchanges else ()
    asked = [message for message in messages if message.get("role") == "user"]
    parts = asked[-1]["content"] if asked else ()
    text = "".join(part.get("text", "") for part in parts if part.get("type") == "text")
    if not text:
        raise ConfigError(f"{path} holds no prompt; give one")
    return text.replace("@", "@@", 1) if text.startswith("@") else text


# Requests -----------------------------------------------------------------------------------------

_OWN = ("host", "content-length", "accept-encoding", "user-agent")  # curl writes its own


@contextmanager
def print_requests(write: Callable[[str], object], *, curl: bool = False) -> Iterator[list[Sent]]:
    """Write every request that is sent while this is open; the list says what went."""
    from glue.providers.http import on_request

    seen: list[Sent] = []

    def observe(sent: Sent) -> None:
        headers = tuple((name, str(mask_secrets(value))) for name, value in sent.headers)
        sent = replace(sent, headers=headers, body=str(mask_secrets(sent.body)))
        seen.append(sent)
        write(as_curl(sent) if curl else as_text(sent))

    token = on_request.set(observe)
    try:
        yield seen
    finally:
        on_request.reset(token)


def as_text(sent: Sent) -> str:
    """Write a request to be read: the body is indented where it is JSON."""
    try:
        body = json.dumps(json.loads(sent.body), indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):
        body = sent.body
    return "\n".join((f"{sent.method} {sent.url}", *(f"{name}: {value}" for name, value in sent.headers), "", body))


def as_curl(sent: Sent) -> str:
    """Write a request as a command that sends it again; the key is taken from its variable."""
    variable = key_variable(sent.url)
    lines = [f"curl -N {shlex.quote(sent.url)}"]
    for name, value in sent.headers:
        if name in _OWN:
            continue
        line = f"{name}: {value}"
        if MASK in line and variable:
            lines.append("-H " + f'"${variable}"'.join(shlex.quote(part) if part else "" for part in line.split(MASK)))
        else:
            lines.append(f"-H {shlex.quote(line)}")
    return " \\\n  ".join((*lines, f"--data-raw {shlex.quote(sent.body)}"))


def key_variable(url: str) -> str:
    """Name the variable whose key goes to an address, or "" where none is known."""
    from glue.providers import find_base_url, known, lookup

    for name in known():
        row = lookup(name)
        variable = next((key for key in row.key if os.environ.get(key)), "")
        with suppress(ConfigError):  # one that has no address yet
            if variable and row.wire and url.startswith(find_base_url(row, os.environ).rstrip("/")):
                return variable
    return ""
