"""`glue run` and `Agent.cli`: run an agent, or a model with built-in tools, once."""

from __future__ import annotations

import json
import logging
import os
import shlex
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, redirect_stdout
from pathlib import Path
from select import select
from typing import TYPE_CHECKING, Any, TypeGuard

import anyio
import click

from glue.agent import Agent
from glue.cli.agentfile import open_agent
from glue.cli.app import run_command
from glue.cli.inputs import has_unread_pipe, read_attachment, read_prompt
from glue.cli.keys import used_variable
from glue.cli.options import Sources, run_options
from glue.cli.printer import EventWriter, Printer, usage_line
from glue.cli.process import (
    cancel_on_signal,
    exit_code_despite_threads,
    live_threads,
    terminal_echo,
)
from glue.cli.runs import RunLog
from glue.cli.screen import Screen, is_interactive
from glue.codec import to_plain
from glue.context import Cancel
from glue.decision import PendingCall
from glue.errors import (
    BudgetExceeded,
    ConfigError,
    GlueError,
    MaxTurnsExceeded,
    ProviderError,
    RunPaused,
)
from glue.failures import show_notices_yourself
from glue.limits import Outcome
from glue.listeners import join
from glue.messages import Request
from glue.permission import Decision, PermissionRequest, defer
from glue.provider import Provider, close
from glue.providers import lookup, new
from glue.result import RunResult, error_to_json, result_to_json
from glue.settings import prompt_messages
from glue.stores import open_store, store_name
from glue.tasks import background
from glue.text import clean_text, one_line

if TYPE_CHECKING:
    from anyio.abc import TaskGroup

    from glue.session import Session
    from glue.stores.store import Store
    from glue.tools.mcp import Question, Servers


@click.command()
@click.argument("words", nargs=-1, metavar="[FILE.py] PROMPT...")
@run_options
def run(words: tuple[str, ...], **given: Any) -> None:
    """Run the agent of FILE.py with PROMPT. Without FILE.py, run a model.

    PROMPT is words, @FILE for the content of a file, and - for stdin. Without PROMPT, stdin is
    read.

    \b
    glue run hello.py "Weather in Toronto?"
    glue run -m groq --tools fs,git "What changed last week?"
    git diff | glue run "Explain this:" -
    """
    agent, path = None, None
    if words and words[0].endswith(".py") and not words[0].startswith("@"):
        path, words = words[0], words[1:]
        agent = open_agent(path)
    sys.exit(execute(agent, words, given, path=path))


def run_agent(agent: Agent[Any, Any], *, prompt: str = "") -> None:
    """Read the program's command line, run the agent, and exit with the code of the outcome.

    This is `Agent.cli`. `prompt` is used if the command line has no prompt and stdin has no data.
    """
    default_prompt = prompt
    file = getattr(sys.modules.get("__main__"), "__file__", None) or ""
    path = file if os.path.isfile(file) else None  # inside a zipapp there is no such file

    @click.command(context_settings={"help_option_names": ["-h", "--help"]})
    @click.argument("prompt", nargs=-1)
    @run_options
    def command(prompt: tuple[str, ...], **given: Any) -> None:
        """Run the agent with PROMPT: words, @FILE for the content of a file, - for stdin.

        Without PROMPT, stdin is read.
        """
        if default_prompt and not prompt and not has_unread_pipe():
            prompt = (default_prompt,)
        sys.exit(execute(agent, prompt, given, path=path))

    if agent.name:
        command.help = (command.help or "").replace("the agent", f"the agent {agent.name}", 1)
    run_command(command, None, os.path.basename(sys.argv[0]) or "agent")


def check_session(given: Mapping[str, Any]) -> None:
    """Raise UsageError for an empty session name, or for --session together with --continue."""
    if given["session"] == "":
        raise click.UsageError("--session needs a name")
    if given["session"] and given["resume"]:
        raise click.UsageError(
            "--session names a session, --continue takes the most recent one; use one of them"
        )


def execute(
    agent: Agent[Any, Any] | None,
    words: Sequence[str],
    given: Mapping[str, Any],
    *,
    path: str | None = None,
) -> int:
    """Read the prompt and the options, run an agent, print the result, return the exit code.

    If `agent` is None, the options name a model and tools.
    """
    _check(given)
    before = live_threads()
    prompt = (*read_prompt(words), *(read_attachment(each) for each in given.get("attach") or ()))
    sources = Sources(given, path=path, agent=agent)
    out, err = Screen(sys.stdout), Screen(sys.stderr)
    quiet = given["quiet"] or given["as_json"]
    printer = Printer(out, err, quiet=quiet, verbose=given["verbose"], stream=out.is_terminal)
    if words and not given["quiet"] and "-" not in words and has_unread_pipe():
        printer.note(
            "note: stdin was not read, because a prompt was given; add - to the prompt to read it",
            "yellow",
        )
    if given.get("otel"):
        from glue.telemetry import setup  # an optional dependency

        setup()
    if given["verbose"] > 1:
        _log_to(err)
    with ExitStack() as stack:
        if given["as_json"]:
            # Tools may print; only events go to stdout.
            stack.enter_context(redirect_stdout(sys.stderr))
        sent = wrap = None
        if given["show_wire"]:
            from glue.cli.wire import print_requests  # loads the HTTP client

            def write(text: str) -> None:
                printer.note(clean_text(text) if err.is_terminal else text, "cyan")

            sent = stack.enter_context(print_requests(write, curl=given["as_curl"]))
        if given["record"] or given["replay"]:
            from glue.cli.cassette import record_to, replay_from  # few runs need it

            wrap = stack.enter_context(
                record_to(given["record"]) if given["record"] else replay_from(given["replay"])
            )
        run = Run(sources, printer, wrap)
        code = run_to_the_end(run, prompt)
        if sent is not None and not sent:
            printer.note(
                "--show-wire printed nothing, because the run sent no HTTP request", "cyan"
            )
    return exit_code_despite_threads(code, before)


def run_to_the_end(
    run: Run, prompt: Any = None, *, decisions: Mapping[str, Any] | None = None
) -> int:
    """Start `run`, or resume it with `decisions`; print the result and return the exit code.

    The decisions answer the pending calls of a paused run.
    """
    try:
        result = anyio.run(run.attended, prompt, decisions)
    except RunPaused as error:  # a new prompt, but calls of the session wait
        return run.refuse(error)
    except GlueError as error:
        run.end_log({"type": "error", "error": error_to_json(error)})
        raise
    return run.finish(result)


def _check(given: Mapping[str, Any]) -> None:
    check_session(given)
    if given["as_curl"] and not given["show_wire"]:
        raise click.UsageError("--as-curl needs --show-wire; add --show-wire")
    if given["record"] and given["replay"]:
        raise click.UsageError("--record and --replay exclude each other; use one of them")
    if given["quiet"] and given["verbose"]:
        raise click.UsageError("--quiet and --verbose exclude each other; use one of them")


def _log_to(err: Screen) -> None:
    """Write the log messages of glue to stderr, debug messages included."""
    handler = logging.StreamHandler(err.file)
    handler.setFormatter(logging.Formatter("%(name)s: %(message)s"))
    logger = logging.getLogger("glue")
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)


class Run:
    """A run of the command line: the agent, its settings, and the printer that shows its events.

    `wrap` replaces a provider object by one that records or replays. If `defers` is true and no
    user can be asked, permission questions wait in the session.
    """

    def __init__(
        self,
        sources: Sources,
        printer: Printer,
        wrap: Callable[[Provider], Provider] | None = None,
        *,
        defers: bool = False,
    ) -> None:
        show_notices_yourself()
        self.sources, self.printer, self.wrap = sources, printer, wrap
        self.session_id = ""
        self.log: RunLog | None = None  # set if the setting `log` is on
        self.servers: Servers | None = None  # of --mcp, while they are connected
        self.buffered: Provider | None = None  # the failover list of --buffer, once it is opened
        self.cancel = Cancel()
        ask = self._ask if is_interactive() else None
        self.settings = sources.overrides(ask or (_defer if defers else None))
        self.output = sources.output()
        self.agent = sources.agent
        if self.agent.output is not None or self.output is not None:
            printer.stream = False  # the output object is printed at the end
        if self.agent.deps_type is not None:
            wanted = self.agent.deps_type.__name__
            raise ConfigError(
                f"this agent needs deps of the type {wanted}, which a command line cannot pass; "
                "run the agent from Python"
            )

    def overrides(self) -> dict[str, Any]:
        """Return the settings that override the agent's; add MCP tools, and prepare the model.

        With --buffer, a model name becomes a failover list that holds back each reply until it is
        complete; the list is opened once. With a cassette, a provider object is wrapped.
        """
        model: Any = self.settings.get("model") or self.agent.settings.model
        if self.sources.given.get("buffer") and isinstance(model, str):
            self.buffered = self.buffered or new(model, buffer=True)
            model = self.buffered
        if self.wrap is not None and not isinstance(model, str):
            model = self.wrap(model)
        connected = self.servers.tools if self.servers is not None else ()
        tools = (*(self.settings.get("tools") or ()), *connected)
        return {**self.settings, "model": model, "tools": tools}

    @asynccontextmanager
    async def connected(self) -> AsyncIterator[None]:
        """Connect to the MCP servers of --mcp, if any, and disconnect after the `with` block."""
        config = self.sources.given.get("mcp")
        if not config:
            yield
            return
        from glue.tools.mcp import connect  # few runs use MCP servers

        elicit = self._elicit if is_interactive() else None
        async with connect(config, elicit=elicit) as self.servers:
            yield

    async def attended(
        self, prompt: Any, decisions: Mapping[str, Any] | None = None
    ) -> RunResult[Any]:
        """Run a prompt, or resume a run with `decisions`; close the agent and return the result.

        A spinner is shown, and Ctrl-C cancels the run.
        """
        async with self.spinning() as tasks:
            await tasks.start(cancel_on_signal, self.cancel.cancel, self.printer.settle)
            try:
                async with self.connected():
                    return await self._prompt(prompt, decisions)
            finally:
                with anyio.CancelScope(shield=True):
                    await close(self.buffered)
                    await self.agent.aclose()

    async def _prompt(self, prompt: Any, decisions: Mapping[str, Any] | None) -> RunResult[Any]:
        given = self.sources.given
        self.start_log(prompt)
        shown = EventWriter(self.printer.out.write) if given["as_json"] else self.printer
        options: dict[str, Any] = {
            "on_event": join((shown, self.log)),
            "cancel": self.cancel,
            "unwrap": False,
        }
        if not given["session"] and not given["resume"]:
            options["output"] = self.output
            return await self.agent.run(prompt, **self.overrides(), **options)
        session = await self.session(open_store(self.sources.find("store") or ""))
        self.session_id = session.id
        if decisions is not None:
            if self.output is not None:  # `resume` takes the output type of the session
                settings = {**self.overrides(), "output": self.output}
                session = type(session)(
                    self.agent, session.id, store=session.store, settings=settings
                )
            return await session.resume(decisions=decisions, **options)
        from glue.cli.waiting import with_command  # loads the file tools

        return await session.run(with_command(prompt, self.sources), output=self.output, **options)

    def start_log(self, prompt: Any) -> None:
        """Open the log file of the run, if the setting `log` is on."""
        if not self.sources.find("log"):
            return
        model: Any = self.overrides()["model"]
        name = model if isinstance(model, str) else model.name
        said = prompt_messages(prompt) if prompt is not None else ()
        agent = self.agent.name or Path(self.sources.path or "").stem
        self.log = RunLog(agent, Request(model=name, messages=said))

    def end_log(self, value: Mapping[str, Any]) -> None:
        """Write `value`, the result or error of the run, to its log file and close the file.

        Nothing is written if the run is not logged.
        """
        if self.log is not None:
            self.log.end(value)
            self.log = None

    async def session(self, store: Store) -> Session[Any, Any]:
        """Return the session that --session names, or else the most recent session of `store`.

        Raise ConfigError if the name is invalid, or if there is no session to continue.
        """
        name = self.sources.given["session"] or await self._last_session(store)
        try:
            return self.agent.session(name, store=store, **self.overrides())
        except ValueError as error:  # a name that no store accepts
            raise ConfigError(str(error)) from None

    async def _last_session(self, store: Store) -> str:
        found = await store.list()
        if not found:
            where = store_name(self.sources.find("store") or "")
            raise ConfigError(
                f"no session to continue in {where}; "
                "`glue chat` and `glue run -s NAME` store sessions"
            )
        return found[0].id

    def finish(self, result: RunResult[Any]) -> int:
        """Print answer, errors, notices and usage, end the log of the run, return the exit code."""
        given, printer = self.sources.given, self.printer
        last = {**result_to_json(result, self.session_id), "exit_code": exit_code(result)}
        if result.pending:
            last["pending"] = [to_plain(call) for call in result.pending]
        self.end_log(last)
        if given["as_json"]:
            EventWriter(printer.out.write).write(last)
        else:
            write_answer(result, printer)
            if result.outcome is Outcome.PAUSED:
                self.print_waiting(result.pending)
            elif result.error is not None:
                printer.note(f"glue: {explain(result.error, self._advice(result.error))}", "red")
        if result.notice and not given["quiet"]:
            printer.note(f"glue: {result.notice}", "yellow")
        if given["usage"]:
            printer.note(usage_line(result), "dim")
        return exit_code(result)

    def _advice(self, error: Exception) -> str:
        """Return how to continue a run that reached a limit.

        If the run is not stored, return how to raise the limit and how to store the next run.
        """
        option = f"--{reached_limit(error).replace('_', '-')}"
        if not self.session_id:
            return f"{option} N raises the limit; a run with -s NAME is stored and can be continued"
        name = shlex.quote(one_line(self.session_id))
        return f'continue with -s {name} {option} N "Continue."'

    def refuse(self, error: RunPaused) -> int:
        """Print the pending calls that block a prompt, end the log, and return the exit code."""
        code = Outcome.PAUSED.exit_code
        waiting = [to_plain(call) for call in error.pending]
        last = {"type": "error", "error": error_to_json(error), "exit_code": code}
        last["pending"] = waiting
        self.end_log(last)
        if self.sources.given["as_json"]:
            EventWriter(self.printer.out.write).write(last)
        else:
            self.print_waiting(error.pending)
        return code

    def print_waiting(self, calls: Sequence[PendingCall]) -> None:
        """Print each pending call on stderr, and if the run is stored, the command to answer it."""
        from glue.cli.waiting import waiting_lines  # loads the file tools

        store = self.sources.before_code.get("store")
        options = ["--store", store] if store else []
        session = self.session_id or self.sources.given["session"] or ""
        head, *lines = waiting_lines(calls, session, options)
        self.printer.note(f"glue: {head}", "yellow")
        for line in lines:
            self.printer.note(line, "")

    @asynccontextmanager
    async def spinning(self) -> AsyncIterator[TaskGroup]:
        """Redraw the spinner during a `with` block; yield a task group for other tasks."""
        progress = self.printer.progress

        async def redraw() -> None:
            while True:
                await anyio.sleep(0.12)
                progress.tick()

        async with background() as tasks:
            if progress.is_on:
                tasks.start_soon(redraw)
            try:
                yield tasks
            finally:
                progress.stop()

    async def _ask(self, request: PermissionRequest) -> Decision:
        """Ask the user for permission in the terminal, and return the decision."""
        from glue.cli.approval import choices, parse_answer, question  # loads the file tools

        err = self.printer.err
        shown = question(request, err) + "\n" + err.paint(choices(request), "yellow")
        return parse_answer(await self._read_line(shown))

    async def _elicit(self, asked: Question) -> dict[str, Any] | None:
        """Show the user a question from an MCP server; return the answers, or None if declined."""
        from glue.cli.elicitation import ask  # few runs use MCP servers

        return await ask(asked, self._read_line, self.printer.err)

    async def _read_line(self, shown: str) -> str:
        """Write a question to the terminal; return the user's line, or "" at the end of input.

        Stdin is read only when a line is ready. If the run is cancelled before, keys that the user
        has typed go to the shell.
        """
        progress = self.printer.progress
        self.printer.settle()
        was_on, progress.is_on = progress.is_on, False
        try:
            with terminal_echo(True):
                self.printer.err.write(shown)
                self.printer.open = "err"
                while not select([sys.stdin], [], [], 0)[0]:
                    await anyio.sleep(0.05)
                line = os.read(sys.stdin.fileno(), 4096).decode("utf-8", "replace")
                self.printer.open = "" if line else "err"  # the user's Enter has ended the line
                return line
        finally:
            progress.is_on = was_on


async def _defer(request: PermissionRequest) -> Decision:
    return defer()


def reached_limit(error: Exception | None) -> str:
    """Return the name of the limit that an error reports, such as "max_turns"; "" if none."""
    if isinstance(error, MaxTurnsExceeded):
        return f"max_{error.kind}"
    if isinstance(error, BudgetExceeded):
        return {"usd": "usd_budget", "tokens": "token_budget"}.get(error.kind, error.kind)
    return ""


def explain(error: Exception, advice: str = "") -> str:
    """Return the text of an error on one line, with a hint if the key or the model is wrong.

    If the error reports a limit, `advice` replaces its advice, which is for Python programs.
    """
    text = one_line(str(error))
    if advice and reached_limit(error):
        return f"{text.partition(';')[0]}; {advice}"
    if not is_user_mistake(error):
        return text
    try:
        entry = lookup(error.provider)
    except ConfigError:  # a provider object of the user's program
        return text
    used = used_variable(entry)
    if error.kind == "not_found":
        return f"{text}; `glue models {entry.name} --server` lists its models"
    return f"{text}; is {used} right?" if used else text


def is_user_mistake(error: Exception | None) -> TypeGuard[ProviderError]:
    """Return whether `error` means that the key, model or address of a provider is wrong."""
    return isinstance(error, ProviderError) and error.kind in ("auth", "not_found")


def exit_code(result: RunResult[Any]) -> int:
    """Return the exit code of a result; 2 if the key, the model or the address is wrong."""
    if is_user_mistake(result.error) and result.outcome is Outcome.FAILED:
        return 2
    return result.outcome.exit_code


def write_answer(result: RunResult[Any], printer: Printer) -> None:
    """Print the output object of a result as JSON, else the text, unless the text was streamed.

    After a streamed text, end its last line.
    """
    if result.output is not None:
        printer.settle()
        output = to_plain(result.output)
        printer.out.write(json.dumps(output, indent=2, ensure_ascii=printer.out.is_dumb) + "\n")
    elif not printer.wrote and result.text:
        text = clean_text(result.text)
        printer.out.write(text if text.endswith("\n") else text + "\n")
    else:
        printer.settle()
