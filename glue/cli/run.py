"""`glue run`: run an agent file, or a model with ready-made tools, once."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager, redirect_stdout
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeGuard

import anyio
import click

from glue.agent import Agent
from glue.cli.app import end_process, live_threads
from glue.cli.options import Sources, read_attachment, read_prompt, run_options, unread_pipe
from glue.cli.output import EventWriter, Printer, Screen, answer_of, is_interactive, keys, question, usage_line
from glue.context import Cancel
from glue.errors import ConfigError, GlueError, ProviderError
from glue.events import RunResult, error_to_json, join, result_to_json
from glue.limits import Outcome
from glue.permission import Decision, PermissionRequest
from glue.provider import Provider
from glue.tasks import background
from glue.text import clean_text, one_line

if TYPE_CHECKING:
    from anyio.abc import TaskGroup, TaskStatus

    from glue.cli.runs import RunLog
    from glue.session import Session
    from glue.stores.store import Store
    from glue.tools.mcp import Servers


@click.command()
@click.argument("words", nargs=-1, metavar="[FILE.py] PROMPT...")
@run_options
def run(words: tuple[str, ...], **given: Any) -> None:
    """Run the agent of FILE.py, or without one a model, with PROMPT.

    PROMPT is words, @FILE for a file's content, - for stdin; without any, stdin is read.

    \b
    glue run hello.py "Weather in Toronto?"
    glue run -m groq --tools fs,git "What changed last week?"
    git diff | glue run "Explain this:" -
    """
    agent, path = None, None
    if words and words[0].endswith(".py") and not words[0].startswith("@"):
        from glue.cli.agentfile import open_agent

        path, words = words[0], words[1:]
        agent = open_agent(path)
    sys.exit(execute(agent, words, given, path=path))


def check_session(given: Mapping[str, Any]) -> None:
    """Refuse what names no conversation, or two."""
    if given["session"] == "":
        raise click.UsageError("--session needs a name")
    if given["session"] and given["resume"]:
        raise click.UsageError("--session names the conversation, --continue takes the last: give one of them")


def execute(
    agent: Agent[Any, Any] | None, words: Sequence[str], given: Mapping[str, Any], *, path: str | None = None
) -> int:
    """Run an agent, or a model by name where there is none; give the exit code."""
    _check(given)
    before = live_threads()
    prompt = (*read_prompt(words), *(read_attachment(each) for each in given.get("attach") or ()))
    sources = Sources(given, path=path, agent=agent)
    out, err = Screen(sys.stdout), Screen(sys.stderr)
    quiet = given["quiet"] or given["as_json"]
    printer = Printer(out, err, quiet=quiet, verbose=given["verbose"], stream=out.is_terminal)
    if words and not given["quiet"] and "-" not in words and unread_pipe():
        printer.note("note: stdin was not read, as a prompt was given; add - to the prompt to include it", "yellow")
    if given.get("otel"):
        from glue.telemetry import setup

        setup()
    if given["verbose"] > 1:
        log_to(err)
    with ExitStack() as stack:
        if given["as_json"]:
            stack.enter_context(redirect_stdout(sys.stderr))  # what a tool prints is no event
        sent = wrap = None
        if given["show_wire"]:
            from glue.cli.runs import print_requests

            def write(text: str) -> None:
                printer.note(clean_text(text) if err.is_terminal else text, "cyan")

            sent = stack.enter_context(print_requests(write, curl=given["as_curl"]))
        if given["record"] or given["replay"]:
            from glue.cli.runs import record_to, replay_from

            wrap = stack.enter_context(record_to(given["record"]) if given["record"] else replay_from(given["replay"]))
        run = Run(sources, printer, wrap)
        try:
            result = anyio.run(run.attended, prompt)
        except GlueError as error:
            if run.log is not None:
                run.log.end({"type": "error", "error": error_to_json(error)})
            raise
        if sent is not None and not sent:
            printer.note("nothing went over a wire: this provider has none", "cyan")
    return end_process(run.finish(result), before)


def _check(given: Mapping[str, Any]) -> None:
    check_session(given)
    if given["as_curl"] and not given["show_wire"]:
        raise click.UsageError("--as-curl needs --show-wire")
    if given["record"] and given["replay"]:
        raise click.UsageError("--record and --replay exclude each other")
    if given["quiet"] and given["verbose"]:
        raise click.UsageError("--quiet and --verbose exclude each other")


def log_to(err: Screen) -> None:
    """Write the log of the package to stderr."""
    import logging

    handler = logging.StreamHandler(err.file)
    handler.setFormatter(logging.Formatter("%(name)s: %(message)s"))
    logger = logging.getLogger("glue")
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)


class Run:
    """An agent with what the command line says of it."""

    def __init__(self, sources: Sources, printer: Printer, wrap: Callable[[Provider], Provider] | None = None) -> None:
        self.sources, self.printer, self.wrap = sources, printer, wrap
        self.session_id = ""
        self.log: RunLog | None = None  # where `log` is set
        self.servers: Servers | None = None  # of --mcp, while they are connected
        self.cancel = Cancel()
        self.options = sources.options(self._ask if is_interactive() else None)
        self.agent = sources.agent
        if self.agent.output is not None or self.options.output is not None:
            printer.stream = False  # the object is printed at the end, whole
        if self.agent.deps_type is not None:
            wanted = self.agent.deps_type.__name__
            raise ConfigError(f"this agent needs deps ({wanted}), which a command line cannot give; run it from code")

    def overrides(self) -> dict[str, Any]:
        """Give what goes before the agent's own settings, the tools of connected servers included."""
        model: Any = self.options.model or self.agent.settings.model
        if self.wrap is not None and not isinstance(model, str):
            model = self.wrap(model)
        connected = self.servers.tools if self.servers is not None else ()
        return replace(self.options, model=model, tools=(*(self.options.tools or ()), *connected)).given()

    @asynccontextmanager
    async def connected(self) -> AsyncIterator[None]:
        """Connect the MCP servers of --mcp, where it names any, for as long as the block lasts."""
        config = self.sources.given.get("mcp")
        if not config:
            yield
            return
        from glue.tools.mcp import connect

        async with connect(config) as self.servers:
            yield

    async def attended(self, prompt: Any) -> RunResult[Any]:
        """Run while the spinner turns and Ctrl-C is listened for."""
        async with self.spinning() as tasks:
            await tasks.start(cancel_on_signal, self.cancel.cancel, self.printer.settle)
            try:
                async with self.connected():
                    return await self._prompt(prompt)
            finally:
                with anyio.CancelScope(shield=True):
                    await self.agent.aclose()

    async def _prompt(self, prompt: Any) -> RunResult[Any]:
        given = self.sources.given
        if self.sources.find("log"):
            from glue.cli.runs import RunLog

            self.log = RunLog()
        shown = EventWriter(self.printer.out.write) if given["as_json"] else self.printer
        options: dict[str, Any] = {"on_event": join((shown, self.log)), "cancel": self.cancel, "unwrap": False}
        if not given["session"] and not given["resume"]:
            return await self.agent.run(prompt, **self.overrides(), **options)
        from glue.stores import open_store

        session = await self.session(open_store(self.sources.find("store") or ""))
        self.session_id = session.id
        return await session.prompt(prompt, **options)

    async def session(self, store: Store) -> Session[Any, Any]:
        """Open the conversation that --session names, or the last one."""
        from glue.cli.sessions import last_session

        name = self.sources.given["session"] or await last_session(store, self.sources.find("store") or "")
        try:
            return self.agent.session(name, store=store, **self.overrides())
        except ValueError as error:  # a name that no store can keep
            raise ConfigError(str(error)) from None

    def finish(self, result: RunResult[Any]) -> int:
        """Write the answer and what else there is to say; give the exit code."""
        given, printer = self.sources.given, self.printer
        last = {**result_to_json(result, self.session_id), "exit_code": exit_code(result)}
        if self.log is not None:
            self.log.end(last)
        if given["as_json"]:
            EventWriter(printer.out.write).write(last)
        else:
            write_answer(result, printer)
            if result.error is not None:
                printer.note(f"glue: {explain(result.error)}", "red")
        if result.notice and not given["quiet"]:
            printer.note(f"glue: {result.notice}", "yellow")
        if given["usage"]:
            printer.note(usage_line(result), "dim")
        return exit_code(result)

    @asynccontextmanager
    async def spinning(self) -> AsyncIterator[TaskGroup]:
        """Let the spinner turn beside a block, which may start other tasks too."""
        spinner = self.printer.spinner

        async def turn() -> None:
            while True:
                await anyio.sleep(0.12)
                spinner.tick()

        async with background() as tasks:
            if spinner.is_on:
                tasks.start_soon(turn)
            try:
                yield tasks
            finally:
                spinner.stop()

    async def _ask(self, request: PermissionRequest) -> Decision:
        """Ask at the terminal; once the run is cancelled, what is typed is for the shell."""
        from select import select

        spinner, err = self.printer.spinner, self.printer.err
        self.printer.settle()
        was_on, spinner.is_on = spinner.is_on, False
        try:
            with terminal_echo(True):
                err.write(question(request, err) + "\n" + err.paint(keys(request), "yellow"))
                self.printer.open = "err"
                while not select([sys.stdin], [], [], 0)[0]:
                    await anyio.sleep(0.05)
                line = os.read(sys.stdin.fileno(), 4096).decode("utf-8", "replace")
                self.printer.open = "" if line else "err"  # the user's Enter has ended the line
                return answer_of(line)
        finally:
            spinner.is_on = was_on


async def cancel_on_signal(
    cancel: Callable[[], object], leave: Callable[[], object], *, task_status: TaskStatus[None]
) -> None:
    """Cancel at the first Ctrl-C or SIGTERM; at the second, leave what does not let itself be cancelled."""
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        task_status.started()
        await anext(signals)
        cancel()
        await anext(signals)
        leave()
        os._exit(Outcome.CANCELLED.exit_code)


@contextmanager
def terminal_echo(shown: bool) -> Iterator[None]:
    """Let the terminal show what is typed, or not: typed ahead, it would stand in the middle of an answer."""
    import termios

    fd = sys.stdin.fileno()
    before = termios.tcgetattr(fd)
    changed = [*before]
    changed[3] = changed[3] | termios.ECHO if shown else changed[3] & ~termios.ECHO
    if changed == before:
        yield  # touching it would stop a run in the background
        return
    termios.tcsetattr(fd, termios.TCSANOW, changed)
    try:
        yield
    finally:
        termios.tcsetattr(fd, termios.TCSANOW, before)


def explain(error: Exception) -> str:
    """Say what went wrong, and what to look at where a server refused a key or knows no such model."""
    from glue.providers import lookup

    text = one_line(str(error))
    if not is_mistake(error):
        return text
    try:
        row = lookup(error.provider)
    except ConfigError:  # an object of the program's own
        return text
    used = next((key for key in row.key if os.environ.get(key)), "")
    if error.kind == "not_found":
        return f"{text}; `glue models {row.name} --server` lists its models"
    return f"{text}; is {used} right?" if used else text


def is_mistake(error: Exception | None) -> TypeGuard[ProviderError]:
    """Tell whether a wrong key, model or address is to blame: the user's to mend, as any wrong name is."""
    return isinstance(error, ProviderError) and error.kind in ("auth", "not_found")


def exit_code(result: RunResult[Any]) -> int:
    """Give the code of the outcome, or that of a user's mistake."""
    return 2 if is_mistake(result.error) and result.outcome is Outcome.FAILED else result.outcome.exit_code


def write_answer(result: RunResult[Any], printer: Printer) -> None:
    if result.output is not None:
        from glue.codec import to_plain

        printer.settle()
        printer.out.write(json.dumps(to_plain(result.output), indent=2, ensure_ascii=printer.out.is_dumb) + "\n")
    elif not printer.wrote and result.text:
        text = clean_text(result.text)
        printer.out.write(text if text.endswith("\n") else text + "\n")
    else:
        printer.settle()
