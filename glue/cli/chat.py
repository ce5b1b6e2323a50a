"""`glue chat`: a conversation in the terminal."""

from __future__ import annotations

import queue
import re
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from textwrap import wrap
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
from glue.cli.prompt import read_part
from glue.cli.run import ONE_SESSION, Run, describe, exit_code, open_session, screens
from glue.cli.sessions import last_session, open_store
from glue.compaction import INTRODUCTION, PROMPT, render
from glue.errors import ConfigError, GlueError
from glue.events import RunResult
from glue.limits import Outcome
from glue.messages import AssistantMessage, Usage, UserMessage, new_id, user
from glue.permission import Decision, PermissionRequest
from glue.provider import capabilities
from glue.stores.memory import MemoryStore
from glue.stores.store import copy, lineage
from glue.text import clean_text, cut, one_line

if TYPE_CHECKING:
    from glue.session import Session


@click.command()
@click.argument("file", required=False, metavar="[FILE.py]")
@chat_options
@click.option("-v", "--verbose", count=True, help="Thinking and the results of tools too.")
def chat(file: str | None, **given: Any) -> None:
    """Talk to the agent of FILE.py, or to a model.

    Ctrl-C cancels the answer, a second one leaves. /help lists what can be typed. With the extra [chat] there are
    editing, history, completion, Markdown and a status line; without it, plain lines.
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
        chat.note(f"{f'/{each.name} {each.argument}'.rstrip():<14}  {each.help}")
    chat.note(chat.reader.help)
    chat.note("@FILE sends a file along. Ctrl-C cancels an answer; a second one leaves.")


def _usage(chat: Chat, rest: str) -> None:
    cost = "cost unknown" if chat.total.cost is None else f"${chat.total.cost:.4f}"
    count = len(chat.portal.call(chat.session.load))
    chat.note(f"{usage_text(chat.total)}, {cost}, {count} messages")


def _fork(chat: Chat, rest: str) -> None:
    before = chat.session
    messages = chat.portal.call(before.load)
    at = _place(messages, rest)
    chat.session = chat.portal.call(before.fork, at)
    count = len(messages) if at is None else at
    if chat.kept:
        chat.kept = chat.session.id
    chat.note(f"forked {before.id} after {count} messages; you are in {chat.session.id}")


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


def _new(chat: Chat, name: str) -> None:
    before = chat.session
    kept = bool(chat.kept)
    chat.session = before.reopen(name or new_id(), chat.store if kept or name else MemoryStore())
    chat.kept = chat.session.id if kept or name else ""
    chat.total = Usage(cost=0.0)
    chat.note(f"a new conversation{f', kept as {one_line(chat.kept)}' if chat.kept else ''}; {chat.left(before)}")


def _resume(chat: Chat, name: str) -> None:
    if not name:
        _tree(chat, "")
        chat.note("/resume NAME goes on with one of them")
        return
    if name not in {info.id for info in chat.portal.call(chat.store.list)}:
        raise ConfigError(f"there is no conversation {name!r}; /tree lists them")
    chat.session = chat.session.reopen(name, chat.store)
    chat.kept = name
    chat.total = Usage(cost=0.0)
    chat.recap()


def _tree(chat: Chat, argument: str) -> None:
    """List the stored conversations, forks below their parents."""
    found = chat.portal.call(chat.store.list)
    for depth, info in lineage(found[:50]):
        mark = "*" if info.id == chat.kept else " "
        line = f"{mark} {'  ' * depth}{one_line(info.id)}  {one_line(info.title)}"
        chat.printer.note(cut(line, chat.printer.err.width - 1), "cyan")
    if not found:
        chat.note("no conversations are kept; /save keeps this one")


def _compact(chat: Chat, argument: str) -> None:
    """Put a summary in the place of the conversation so far; the messages stay in the transcript, excluded."""
    session = chat.session

    async def compact() -> str:
        live = [message for message in await session.load() if not message.excluded]
        if len(live) < 2:
            return ""
        helper: Agent[Any, Any] = Agent(session.settings.model, instructions=PROMPT, max_tokens=2_000)  # type: ignore[arg-type]
        result = await helper.run(render(live), unwrap=False)
        chat.total += result.usage
        if result.error is not None or not result.text.strip():
            raise result.error or ConfigError("the model gave no summary; nothing has changed")
        async with session.store.log(session.id) as log:
            await log.exclude([message.id for message in live])
            await log.append(user(INTRODUCTION + result.text, origin="summary"))
        return f"{len(live)} messages are now one summary of {len(result.text):,} characters"

    chat.note(chat.portal.call(compact) or "there is nothing to compact yet")
    chat.session = session.reopen(session.id, session.store)


_ACTIONS = {
    "usage": _usage,
    "fork": _fork,
    "save": _save,
    "new": _new,
    "resume": _resume,
    "tree": _tree,
    "compact": _compact,
    "help": _help,
}
QUOTES = '"""'


class LineReader:
    """Reads plain lines: without the extra [chat], on a dumb terminal, and from a pipe."""

    help = f"A line that ends in \\ goes on in the next; {QUOTES} begins and ends a longer text."

    def __init__(self, out: Screen) -> None:
        self.out = out
        self.is_terminal = sys.stdin.isatty() and out.is_terminal
        self._interrupted = False
        if self.is_terminal and not out.is_dumb:
            with suppress(ImportError):  # it edits the line, and takes a paste of many lines as one
                import readline

                readline.parse_and_bind("set enable-bracketed-paste on")

    def read(self) -> str:
        """Read one entry; it may span lines. EOFError at the end."""
        line = self.ask("> ")
        self._interrupted = False
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
        # The marks tell readline what takes no room.
        return input(f"\x01\x1b[36m\x02{prompt}\x01\x1b[0m\x02" if self.out.has_colour else prompt)

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
        self.hint = ""
        self.sources, self.portal = sources, portal
        self.reader, self.printer = self._terminal(out, err, sources.given["verbose"])
        self.inbox: queue.SimpleQueue[Any] = queue.SimpleQueue()  # questions, and results
        self.run = Run(agent, sources, self.printer, ask=self._ask if self.reader.is_terminal else None)
        self.agent = self.run.agent
        self.total = Usage(cost=0.0)
        self.context = 0  # tokens of the last request and its answer
        self.session: Session[Any, Any]
        self.kept = ""  # where the conversation is kept, or nowhere

    def _terminal(self, out: Screen, err: Screen, verbose: int) -> tuple[Any, Printer]:
        """Give what reads and what writes: the editor of the extra [chat], or plain lines."""
        plain = LineReader(out)
        if plain.is_terminal and not out.is_dumb:
            try:
                from glue.cli.console import Editor, MarkdownPrinter
            except ImportError:
                self.hint = "; pip install 'glue-agents[chat]' for history, completion and Markdown"
            else:
                printer = MarkdownPrinter(out, err, verbose=verbose, results=True)
                return Editor(out, self.status, self._session_names), printer
        return plain, Printer(out, err, verbose=verbose, results=plain.is_terminal)

    def _session_names(self) -> list[str]:
        return [info.id for info in self.portal.call(self.store.list)]

    def status(self) -> str:
        """Say in one line: model, context used, tokens, cost."""
        if not hasattr(self, "session"):
            return ""
        words = [self.model]
        window = capabilities(self.agent.open(self.session.settings.model or "")).window
        if self.context and window:
            words.append(f"context {100 * self.context / window:.0f} % of {window:,}")
        total = self.total
        if total.total:
            words.append(f"{total.input:,} in, {total.output:,} out")
            words += [f"${total.cost:.4f}"] if total.cost is not None else []
        words += [f"kept as {self.kept}"] if self.kept else []
        return cut(one_line("  ·  ".join(words)), self.printer.out.width - 1)

    def left(self, session: Session[Any, Any]) -> str:
        return f"/resume {one_line(session.id)} goes back" if session.store is self.store else "the last one is gone"

    def recap(self) -> None:
        """Show the last exchange of a conversation that goes on."""
        messages = [message for message in self.portal.call(self.session.load) if not message.excluded]
        asked = next((m for m in reversed(messages) if isinstance(m, UserMessage) and m.origin == "user"), None)
        said = next((m for m in reversed(messages) if isinstance(m, AssistantMessage) and m.text.strip()), None)
        self.note(f"{one_line(self.session.id)}: {len(messages)} messages")
        if asked is not None:
            self.printer.note("> " + one_line(asked.text, self.printer.err.width - 3))
        if said is not None:
            lines = clean_text(said.text).strip().splitlines()
            for line in lines[:8]:
                self.printer.note(cut(line, self.printer.err.width - 1))
            if len(lines) > 8:
                self.printer.note(f"… {len(lines) - 8} more lines; `glue sessions show {one_line(self.session.id)}`")

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
        """Write lines of our own, wrapped at words."""
        for line in text.splitlines():
            for piece in wrap(line, max(self.printer.err.width - 1, 20), subsequent_indent="    ") or [""]:
                self.printer.note(piece, "cyan")

    @property
    def model(self) -> str:
        model: Any = self.session.settings.model
        return str(model if isinstance(model, str) else model.name)

    def loop(self) -> int:
        """Read and answer, line by line."""

        if self.reader.is_terminal:
            kept = f", kept as {self.kept}" if self.kept else ""
            self.printer.note(f"{one_line(self.model)}{kept}; /help for help, Ctrl-D to leave{self.hint}")
            if self.kept and self.portal.call(self.session.load):
                self.recap()
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
        try:
            parts = [read_part(str(path)) for path in mentioned_files(text)]
        except ConfigError as error:
            self.printer.note(f"glue: {one_line(str(error))}", "red")
            return 2
        with silent_keys() if self.reader.is_terminal else nullcontext():
            return self._attend([text, *parts])

    def _attend(self, prompt: list[Any]) -> int | None:
        self.portal.start_task_soon(self._prompt, prompt)
        interrupts = 0
        while True:
            try:
                item = self.inbox.get()
                if isinstance(item, _Question):
                    with silent_keys(echo=True):
                        decision = self._decision(item.request)
                    item.answer(decision)
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
        last = next((m for m in reversed(result.messages) if isinstance(m, AssistantMessage) and m.usage), None)
        if last is not None and last.usage is not None:
            self.context = last.usage.input + (last.usage.cache_read or 0) + last.usage.output
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

    async def _prompt(self, prompt: list[Any]) -> None:
        ended: RunResult[Any] | BaseException
        async with anyio.create_task_group() as group:
            if self.printer.spinner.is_on:
                group.start_soon(self.run.spin)
            try:
                first = prompt[0] if self.run.servers is None else await self.run.servers.prompt(prompt[0])
                said = [first, *prompt[1:]] if isinstance(first, str) else first  # a server's prompt is messages
                ended = await self.session.prompt(said, on_event=self.printer, unwrap=False)
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

    def _decision(self, request: PermissionRequest) -> Decision:
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


@contextmanager
def silent_keys(*, echo: bool = False) -> Iterator[None]:
    """Let the terminal show nothing of what is typed ahead: it would stand in the middle of the answer."""
    import termios

    fd = sys.stdin.fileno()
    try:
        before = termios.tcgetattr(fd)
    except termios.error:
        yield
        return
    changed = [*before]
    changed[3] = (changed[3] | termios.ECHO) if echo else (changed[3] & ~termios.ECHO)
    termios.tcsetattr(fd, termios.TCSANOW, changed)
    try:
        yield
    finally:
        termios.tcsetattr(fd, termios.TCSANOW, before)


def mentioned_files(text: str) -> list[Path]:
    """Give the files that a prompt names as @FILE."""
    return [path for name in re.findall(r"(?<!\S)@(\S+)", text) if (path := Path(name).expanduser()).is_file()]
