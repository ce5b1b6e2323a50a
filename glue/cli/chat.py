"""`glue chat`: a conversation in the terminal."""

from __future__ import annotations

import os
import queue
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import click
from anyio.from_thread import BlockingPortal, start_blocking_portal

from glue import slash
from glue.agent import Agent
from glue.cli.app import end_process, live_threads
from glue.cli.options import Sources, chat_options
from glue.cli.output import Printer, Screen, usage_line, usage_text
from glue.cli.permission import answer_of, keys, question
from glue.cli.run import ONE_SESSION, Run, describe, exit_code, open_session, screens
from glue.cli.sessions import last_session, open_store
from glue.errors import ConfigError, GlueError
from glue.limits import Outcome
from glue.messages import Usage, UserMessage
from glue.paths import state_dir
from glue.permission import Decision, PermissionRequest
from glue.result import RunResult
from glue.stores.memory import MemoryStore
from glue.stores.store import copy
from glue.text import one_line

if TYPE_CHECKING:
    from glue.session import Session


@click.command()
@click.argument("file", required=False, metavar="[FILE.py]")
@chat_options
@click.option("-v", "--verbose", count=True, help="Thinking and the results of tools too.")
def chat(file: str | None, **given: Any) -> None:
    """Talk to the agent of FILE.py, or to a model.

    Ctrl-C cancels the answer, a second one leaves. A line that ends in \\ goes on in the next; three quotes (\"\"\")
    begin and end a longer text. /help lists what else can be typed.
    """

    agent = None
    if file is not None:
        from glue.cli.agentfile import open_agent

        agent = open_agent(file)
    sys.exit(start(agent, given, path=file))


def command(chat: Chat, name: str, argument: str) -> None:
    """Do what was typed after a slash."""
    said = slash.answer(chat.session, name, argument)
    if said is not None:
        chat.note(said)
    elif name in _ACTIONS:
        _ACTIONS[name](chat, argument)
    else:
        chat.printer.note(f"glue: there is no /{one_line(name)}; /help lists what there is", "red")


def _help(chat: Chat, argument: str) -> None:
    for each in slash.COMMANDS:
        chat.note(f"{f'/{each.name} {each.argument}'.rstrip():<22} {each.help}")
    chat.note(r'A line that ends in \ goes on in the next; """ begins and ends a longer text.')
    chat.note("Ctrl-C cancels an answer; a second one leaves.")


def _usage(chat: Chat, rest: str) -> None:
    cost = "cost unknown" if chat.total.cost is None else f"${chat.total.cost:.4f}"
    count = len(chat.portal.call(chat.session.load))
    chat.note(f"{usage_text(chat.total)}, {cost}, {count} messages")


def _fork(chat: Chat, rest: str) -> None:
    before = chat.session
    messages = chat.portal.call(before.load)
    at = _place(messages, rest)
    chat.session = chat.portal.call(_forked, before, at)
    count = len(messages) if at is None else at
    if chat.kept:
        chat.kept = chat.session.id
    chat.note(f"forked {before.id} after {count} messages; you are in {chat.session.id}")


async def _forked(session: Any, at: int | None) -> Any:
    return await session.fork(at)


def _place(messages: tuple[Any, ...], rest: str) -> int | None:
    """Turn a number of prompts into a number of messages."""
    if not rest:
        return None
    prompts = [i for i, message in enumerate(messages) if isinstance(message, UserMessage) and message.origin == "user"]
    try:
        number = int(rest)
    except ValueError:
        raise ConfigError(f"/fork takes a number of prompts, not {rest!r}") from None
    number = number if number >= 0 else len(prompts) + number
    if not 0 <= number <= len(prompts):
        raise ConfigError(f"there are {len(prompts)} prompts; /fork takes a number up to that")
    return len(messages) if number == len(prompts) else prompts[number]


def _save(chat: Chat, name: str) -> None:
    if chat.kept and not name:
        chat.note(f"kept as {one_line(chat.kept)}")
        return
    named = name or chat.session.id
    before = chat.session

    async def save() -> None:
        if await before.load():
            await copy(before.store, before.id, chat.store, named)
        chat.session = before.reopen(named, chat.store)

    chat.portal.call(save)
    chat.kept = named
    chat.note(f"kept as {one_line(named)}; `glue chat -s {one_line(named)}` goes on with it")


_ACTIONS = {"usage": _usage, "fork": _fork, "save": _save, "help": _help}


MOST = 1000  # lines of history
QUOTES = '"""'


class LineReader:
    """Reads what a user types. On a terminal with readline: editing and history; elsewhere plain lines."""

    def __init__(self, out: Screen) -> None:
        self.out = out
        self.is_terminal = sys.stdin.isatty() and out.is_terminal
        self._interrupted = False
        self._history: Path | None = None
        if self.is_terminal:
            self._start()

    def read(self) -> str:
        """Read one entry; it may span lines. EOFError at the end."""
        line = self.ask("> ")
        self._interrupted = False
        self._remember(line)
        if line.strip().startswith(QUOTES):
            return self._block(line.strip()[len(QUOTES) :])
        while line.endswith("\\"):
            line = line[:-1] + "\n" + self.ask(". ")
        return line

    def ask(self, prompt: str) -> str:
        """Read one line."""
        if not self.is_terminal:
            line = sys.stdin.readline()
            if not line:
                raise EOFError
            return line.rstrip("\r\n")
        return input(self._painted(prompt))

    def interrupted(self) -> bool:
        """Note a Ctrl-C at the prompt; say whether it is the second in a row."""
        again, self._interrupted = self._interrupted, True
        self.end()
        return again

    def end(self) -> None:
        """Leave the line in which ^C stands."""
        if self.is_terminal:
            self.out.write("\n")

    def _block(self, first: str) -> str:
        lines = [first] if first else []
        if first.endswith(QUOTES):
            return first[: -len(QUOTES)]
        while True:
            line = self.ask(". ")
            if line.rstrip().endswith(QUOTES):
                rest = line.rstrip()[: -len(QUOTES)]
                return "\n".join((*lines, rest) if rest else lines)
            lines.append(line)

    def _painted(self, prompt: str) -> str:
        if not self.out.has_colour:
            return prompt
        # The marks tell readline what takes no room.
        return f"\x01\x1b[36m\x02{prompt}\x01\x1b[0m\x02"

    def _start(self) -> None:
        try:
            import readline
        except ImportError:  # a Python without it: plain lines
            return
        path = state_dir() / "chat_history"
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            if path.exists():
                readline.read_history_file(path)
            readline.set_history_length(MOST)
            readline.set_auto_history(False)  # an answer to a question is none
        except OSError:
            return  # a history is a comfort; a chat works without
        self._history = path

    def _remember(self, line: str) -> None:
        if self._history is None or not line.strip():
            return
        import readline

        readline.add_history(line)
        try:
            if not self._history.exists():
                os.close(os.open(self._history, os.O_CREAT | os.O_WRONLY, 0o600))
            readline.append_history_file(1, self._history)
        except OSError:
            self._history = None


def start(agent: Agent[Any, Any] | None, given: Mapping[str, Any], *, path: str | None = None) -> int:
    """Talk until the user leaves; give the exit code."""
    if given["session"] and given["resume"]:
        raise click.UsageError(ONE_SESSION)
    # SIGINT is for the main thread; asyncio in the other one must not take it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    before = live_threads()
    with start_blocking_portal() as portal:
        chat = Chat(agent, Sources(given, path=path, agent=agent), portal)
        try:
            with portal.wrap_async_context_manager(chat.run.connected()):
                portal.call(chat.begin)
                code = chat.loop()
        finally:
            portal.call(chat.agent.aclose)
    return end_process(code, before)


class Chat:
    def __init__(self, agent: Agent[Any, Any] | None, sources: Sources, portal: BlockingPortal) -> None:
        out, err = screens()
        self.sources, self.portal = sources, portal
        self.printer = Printer(out, err, verbose=sources.given["verbose"])
        self.reader = LineReader(out)
        self.inbox: queue.SimpleQueue[Any] = queue.SimpleQueue()  # questions, and results
        self.run = Run(agent, sources, self.printer, ask=self._ask if self.reader.is_terminal else None)
        self.agent = self.run.agent
        self.total = Usage(cost=0.0)
        self.session: Session[Any, Any]
        self.kept = ""  # where the conversation is kept, or nowhere

    async def begin(self) -> None:
        """Open the conversation: a named one from the store, else one in memory."""
        given = self.sources.given
        model = self.run.overrides()["model"]
        self.agent.open(model)  # a wrong name or a missing key is said now, not after the first prompt
        named = self.sources.find("store") or ""
        self.store = open_store(named)
        if given["session"] or given["resume"]:
            chosen = given["session"] or await last_session(self.store, named)
            self.session = open_session(self.agent, chosen, self.store, self.run.overrides())
            await self.session.load()
            self.kept = chosen
        else:
            self.session = self.agent.session(store=MemoryStore(), **self.run.overrides())

    def note(self, text: str) -> None:
        for line in text.splitlines():
            self.printer.note(line, "cyan")

    @property
    def model(self) -> str:
        model: Any = self.session.settings.model
        return str(model if isinstance(model, str) else model.name)

    def loop(self) -> int:
        """Read and answer, line by line."""

        if self.reader.is_terminal:
            kept = f", kept as {self.kept}" if self.kept else ""
            self.printer.note(f"{one_line(self.model)}{kept}; /help for help, Ctrl-D to leave")
        code = 0
        while True:
            try:
                text = self.reader.read()
            except EOFError:
                return code
            except KeyboardInterrupt:
                if self.reader.interrupted():
                    return code
                self.printer.note("(Ctrl-C again leaves)")
                continue
            name, argument = slash.parse(text)
            if name == "quit":
                return code
            if name:
                try:
                    command(self, name, argument)
                except (GlueError, ValueError, TypeError) as error:
                    self.printer.note(f"glue: {one_line(str(error))}", "red")
            elif text.strip():
                answered = self.turn(text)
                if answered is None:
                    return 130
                code = 0 if self.reader.is_terminal else answered

    def turn(self, text: str) -> int | None:
        """Say something and show the answer; None where the user interrupted twice."""
        self.portal.start_task_soon(self._prompt, text)
        interrupts = 0
        while True:
            try:
                item = self.inbox.get()
                if isinstance(item, _Question):
                    item.answer(self._answer(item.request))
                elif isinstance(item, BaseException):
                    return self._failed(item)
                else:
                    return self._ended(item)
            except KeyboardInterrupt:
                interrupts += 1
                self.reader.end()
                if interrupts > 1:
                    return None
                self.portal.call(self.session.cancel)

    def _ended(self, result: RunResult[Any]) -> int:
        self.total += result.usage
        if result.output is not None:
            from glue.cli.run import write_answer

            write_answer(result, self.printer)
        self.printer.settle()
        if result.outcome is Outcome.CANCELLED:
            self.printer.note("(cancelled; the conversation goes on from here)", "yellow")
        elif result.error is not None:
            self.printer.note(f"glue: {describe(result.error)}", "red")
        if result.notice:
            self.printer.note(f"glue: {result.notice}", "yellow")
        if self.sources.given["verbose"]:
            self.printer.note(usage_line(result))
        return exit_code(result)

    def _failed(self, error: BaseException) -> int:
        self.printer.settle()
        if not isinstance(error, GlueError):
            raise error
        self.printer.note(f"glue: {describe(error)}", "red")
        return 1

    # In the event loop ----------------------------------------------------------------------------

    async def _prompt(self, text: str) -> None:
        ended: RunResult[Any] | BaseException
        async with anyio.create_task_group() as group:
            if self.printer.spinner.is_on:
                group.start_soon(self.run.spin)
            try:
                ended = await self.session.prompt(text, on_event=self.printer, unwrap=False)
            except BaseException as error:  # the main thread waits for an end, whichever it is
                ended = error
                if not isinstance(error, Exception):
                    self.inbox.put(error)
                    raise
            finally:
                self.printer.spinner.stop()
                group.cancel_scope.cancel()
        self.inbox.put(ended)

    async def _ask(self, request: PermissionRequest) -> Decision:
        """Hand the question to the main thread and wait for its answer."""
        asked = _Question(request, anyio.Event(), self.portal)
        spinner = self.printer.spinner
        spinner.hide()
        was_on, spinner.is_on = spinner.is_on, False
        try:
            self.inbox.put(asked)
            await asked.event.wait()
        finally:
            spinner.is_on = was_on
            asked.is_over = True
        return asked.decision

    def _answer(self, request: PermissionRequest) -> Decision:
        err = self.printer.err
        self.printer.settle()
        err.write(question(request, err) + "\n")
        try:
            return answer_of(self.reader.ask("  " + keys(request)))
        except EOFError:
            err.write("\n")
            return answer_of("")


class _Question:
    def __init__(self, request: PermissionRequest, event: anyio.Event, portal: BlockingPortal) -> None:
        self.request, self.event, self.portal = request, event, portal
        self.decision = answer_of("")
        self.is_over = False

    def answer(self, decision: Decision) -> None:
        self.decision = decision
        self.portal.call(self.event.set)
