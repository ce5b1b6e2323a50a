"""`glue chat`: a conversation in the terminal."""

from __future__ import annotations

import re
import signal
import sys
from collections.abc import Awaitable, Callable
from contextlib import nullcontext, suppress
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Any, TypeVar

import click
from anyio.from_thread import BlockingPortal, start_blocking_portal

from glue import slash
from glue.agent import Agent
from glue.cli.app import end_process, live_threads
from glue.cli.options import Sources, chat_options, read_part
from glue.cli.output import Printer, Screen, usage_line
from glue.cli.run import Run, check_session, exit_code, explain, terminal_echo, write_answer
from glue.cli.sessions import sort_by_tree
from glue.compaction import INTRODUCTION, PROMPT, render
from glue.context import Cancel
from glue.errors import ConfigError, GlueError
from glue.events import RunResult
from glue.limits import Outcome
from glue.messages import AssistantMessage, Usage, UserMessage, new_id, user
from glue.provider import capabilities
from glue.stores import open_store
from glue.stores.memory import MemoryStore
from glue.stores.store import copy
from glue.text import clean_text, cut, dollars, one_line

if TYPE_CHECKING:
    from concurrent.futures import Future

    from glue.session import Session

T = TypeVar("T")


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
    check_session(given)
    # SIGINT is for the main thread; asyncio in the other one must not take it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    before = live_threads()
    with start_blocking_portal() as portal:
        chat = Chat(Sources(given, path=file, agent=agent), portal)
        try:
            with portal.wrap_async_context_manager(chat.run.connected()):
                portal.call(chat.begin)
                code = chat.loop()
        finally:
            portal.call(chat.agent.aclose)
    sys.exit(end_process(code, before))


QUOTES = '"""'


class LineReader:
    """Reads plain lines: without the extra [chat], on a dumb terminal, and from a pipe."""

    echoes_interrupt = True  # ^C is left standing at the prompt
    help = f"A line that ends in \\ goes on in the next; {QUOTES} begins and ends a longer text."

    def __init__(self, out: Screen) -> None:
        self.out = out
        self.is_terminal = sys.stdin.isatty() and out.is_terminal
        self.was_interrupted = False  # by the Ctrl-C right before
        if self.is_terminal and not out.is_dumb:
            with suppress(ImportError):  # it edits the line, and takes a paste of many lines as one
                import readline

                readline.parse_and_bind("set enable-bracketed-paste on")

    def read(self) -> str:
        """Read one entry; it may span lines. EOFError at the end."""
        line = self._line("> ")
        self.was_interrupted = False
        if not line.strip().startswith(QUOTES):
            while line.endswith("\\"):
                line = line[:-1] + "\n" + self._line(". ")
            return line
        text = line.strip().removeprefix(QUOTES)
        while not text.rstrip().endswith(QUOTES):
            text += "\n" + self._line(". ")
        return text.rstrip().removesuffix(QUOTES).strip("\n")

    def _line(self, prompt: str) -> str:
        if not self.is_terminal:
            line = sys.stdin.readline()
            if not line:
                raise EOFError
            return line.rstrip("\r\n")
        # The marks tell readline what takes no room.
        return input(f"\x01\x1b[36m\x02{prompt}\x01\x1b[0m\x02" if self.out.has_colour else prompt)

    def end(self) -> None:
        """Leave the line in which ^C stands."""
        if self.is_terminal:
            self.out.write("\n")


class Chat:
    def __init__(self, sources: Sources, portal: BlockingPortal) -> None:
        self.sources, self.portal = sources, portal
        out, err, verbose = Screen(sys.stdout), Screen(sys.stderr), sources.given["verbose"]
        self.hint = ""
        self.reader = LineReader(out)
        self.printer = Printer(out, err, verbose=verbose, results=self.reader.is_terminal)
        if self.reader.is_terminal and not out.is_dumb:
            try:
                from glue.cli.console import Editor, MarkdownPrinter
            except ImportError:
                self.hint = "; pip install 'glue-agents[chat]' for history, completion and Markdown"
            else:
                self.reader = Editor(out, self.status, lambda: [each.id for each in portal.call(self.store.list)])
                self.printer = MarkdownPrinter(out, err, verbose=verbose, results=True)
        self.run = Run(sources, self.printer)
        self.agent = self.run.agent
        self.requests, self.total = 0, Usage(cost=0.0)
        self.context = 0  # tokens of the last request and its answer
        self.session: Session[Any, Any]
        self.kept = ""  # where the conversation is kept, or nowhere

    def status(self) -> str:
        """Say in one line: model, context used, tokens, cost."""
        words = [slash.model_name(self.session)]
        window = capabilities(self.agent.open(self.session.settings.model or "")).window
        if self.context and window:
            words.append(f"context {100 * self.context / window:.0f} % of {window:,}")
        total = self.total
        if total.total:
            words.append(f"{total.input:,} in, {total.output:,} out")
            words += [dollars(total.cost)] if total.cost is not None else []
        words += [f"kept as {self.kept}"] if self.kept else []
        return cut(one_line("  ·  ".join(words)), self.printer.out.width - 1)

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
        self.store = open_store(self.sources.find("store") or "")
        if given["session"] or given["resume"]:
            self.session = await self.run.session(self.store)
            await self.session.load()
            self.kept = self.session.id
        else:
            self.session = self.agent.session(store=MemoryStore(), **self.run.overrides())

    def note(self, text: str, colour: str = "cyan") -> None:
        """Write lines of our own, on a terminal wrapped at words."""
        width = max(self.printer.err.width - 1, 20) if self.printer.err.is_terminal else len(text) + 1
        for line in text.splitlines():
            for piece in wrap(line, width, subsequent_indent="    ", break_on_hyphens=False) or [""]:
                self.printer.note(piece, colour)

    def fail(self, error: object) -> None:
        self.note(f"glue: {one_line(str(error))}", "red")

    def loop(self) -> int:
        """Read and answer, line by line."""
        if self.reader.is_terminal:
            kept = f", kept as {self.kept}" if self.kept else ""
            self.printer.note(
                f"{one_line(slash.model_name(self.session))}{kept}; /help for help, Ctrl-D to leave{self.hint}"
            )
            if self.kept and self.portal.call(self.session.load):
                self.recap()
        code = 0
        while True:
            try:
                text = self.reader.read()
            except EOFError:
                return code
            except KeyboardInterrupt:
                if self.reader.echoes_interrupt:
                    self.reader.end()
                if self.reader.was_interrupted:
                    return code
                self.reader.was_interrupted = True
                self.printer.note("(Ctrl-C again leaves)")
                continue
            name, argument = slash.parse(text)
            if name == "quit":
                return code
            if name:
                try:
                    self.command(name, argument)
                except (GlueError, ValueError, TypeError) as error:
                    self.fail(error)
            elif text.strip():
                answered = self.turn(text)
                if answered is None:
                    return 130
                code = 0 if self.reader.is_terminal else answered

    def turn(self, text: str) -> int | None:
        """Say something and show the answer; None where the user interrupted twice."""
        named = [Path(name).expanduser() for name in re.findall(r"(?<!\S)@(\S+)", text)]
        try:
            parts = [read_part(str(path)) for path in named if path.is_file()]
            for path in named:
                if not path.is_file():
                    self.note(f"there is no file {one_line(str(path))}: the word is sent as it is", "yellow")
        except ConfigError as error:
            self.fail(error)
            return 2
        with terminal_echo(False) if self.reader.is_terminal else nullcontext():
            ended = self._wait(self._prompt, text, *parts)
        if isinstance(ended, RunResult):
            return self._show(ended)
        self.printer.settle()
        if ended is None:
            return None
        if not isinstance(ended, GlueError):
            raise ended
        self.fail(ended)
        return 1

    def _wait(self, work: Callable[..., Awaitable[T]], *args: Any) -> T | None:
        """Wait for what runs in the event loop; the first Ctrl-C cancels it, after the second there is no answer."""
        cancel = self.run.cancel = Cancel()
        ended: Future[T] = self.portal.start_task_soon(work, *args)
        while True:
            try:
                return ended.result()
            except KeyboardInterrupt:
                self.reader.end()
                if cancel.cancelled:
                    return None
                cancel.cancel()

    async def _prompt(self, text: str, *parts: Any) -> RunResult[Any] | BaseException:
        try:
            async with self.run.spinning():
                first = text if self.run.servers is None else await self.run.servers.prompt(text)
                said = [first, *parts] if isinstance(first, str) else first  # a server's prompt is messages
                return await self.session.prompt(said, on_event=self.printer, cancel=self.run.cancel, unwrap=False)
        except (Exception, SystemExit, KeyboardInterrupt) as error:
            return error  # raised here, a tool's sys.exit would end the event loop under the chat

    def _show(self, result: RunResult[Any]) -> int:
        self.requests += result.requests
        self.total += result.usage
        usages = [each.usage for each in result.messages if isinstance(each, AssistantMessage) and each.usage]
        self.context = usages[-1].total if usages else self.context
        if result.output is not None:
            write_answer(result, self.printer)
        self.printer.settle()
        if result.outcome is Outcome.CANCELLED:
            self.printer.note("(cancelled; the conversation goes on from here)", "yellow")
        elif result.error is not None:
            self.fail(explain(result.error))
        if result.notice:
            self.note(f"glue: {result.notice}", "yellow")
        if self.sources.given["verbose"]:
            self.printer.note(usage_line(result))
        return exit_code(result)

    # Slash commands -------------------------------------------------------------------------------

    def command(self, name: str, argument: str) -> None:
        """Do what was typed after a slash."""
        said = self.portal.call(slash.answer, self.session, name, argument, self.requests, self.total)
        if said is not None:
            self.note(said)
        elif hasattr(self, f"do_{name}"):
            getattr(self, f"do_{name}")(argument)
        else:
            self.fail(f"there is no /{name}; /help lists what there is")

    def do_help(self, argument: str) -> None:
        typed = {f"/{each.name} {each.argument}".rstrip(): each.help for each in slash.COMMANDS}
        width = max(map(len, typed))
        for text, told in typed.items():
            self.note(f"{text:<{width}}  {told}")
        self.note(self.reader.help)
        self.note("@FILE sends a file along. Ctrl-C cancels an answer; a second one leaves.")

    def do_fork(self, rest: str) -> None:
        """Go on in a copy, of all or of the first so many prompts."""
        before = self.session
        messages = self.portal.call(before.load)
        at = [i for i, each in enumerate(messages) if isinstance(each, UserMessage) and each.origin == "user"]
        prompts = len(at)
        at.append(len(messages))
        try:
            number = int(rest or prompts)
        except ValueError:
            raise ConfigError(f"/fork takes a number of prompts, not {rest!r}") from None
        number = number if number >= 0 else prompts + number
        if not 0 <= number <= prompts:
            raise ConfigError(f"there are {prompts} prompts; /fork takes a number up to that")
        self.session = self.portal.call(before.fork, at[number] if rest else None)
        if self.kept:
            self.kept = self.session.id
        self.note(f"forked {before.id} after {at[number]} messages; you are in {self.session.id}")

    def do_save(self, name: str) -> None:
        if self.kept and not name:
            self.note(f"kept as {one_line(self.kept)}")
            return
        named = name or self.session.id
        before = self.session

        async def save() -> None:
            if await before.load():
                await copy(before.store, before.id, self.store, named)
            self.session = before.reopen(named, self.store)

        self.portal.call(save)
        self.kept = named
        self.note(f"kept as {one_line(named)}; `glue chat -s {one_line(named)}` goes on with it")

    def do_new(self, name: str) -> None:
        before = self.session
        kept = bool(self.kept)
        self.session = before.reopen(name or new_id(), self.store if kept or name else MemoryStore())
        self.kept = self.session.id if kept or name else ""
        self.requests, self.total = 0, Usage(cost=0.0)
        left = f"/resume {one_line(before.id)} goes back" if before.store is self.store else "the last one is gone"
        self.note(f"a new conversation{f', kept as {one_line(self.kept)}' if self.kept else ''}; {left}")

    def do_resume(self, name: str) -> None:
        if not name:
            self.do_tree("")
            self.note("/resume NAME goes on with one of them")
            return
        if name not in {info.id for info in self.portal.call(self.store.list)}:
            raise ConfigError(f"there is no conversation {name!r}; /tree lists them")
        self.session = self.session.reopen(name, self.store)
        self.kept = name
        self.requests, self.total = 0, Usage(cost=0.0)
        self.recap()

    def do_tree(self, argument: str) -> None:
        """List the stored conversations, forks below their parents."""
        found = self.portal.call(self.store.list)
        for depth, info in sort_by_tree(found[:50]):
            mark = "*" if info.id == self.kept else " "
            line = f"{mark} {'  ' * depth}{one_line(info.id)}  {one_line(info.title)}"
            self.printer.note(cut(line, self.printer.err.width - 1), "cyan")
        if not found:
            self.note("no conversations are kept; /save keeps this one")

    def do_compact(self, argument: str) -> None:
        """Put a summary in the place of the conversation so far; the messages stay in the transcript, excluded."""
        session = self.session

        async def compact() -> str:
            live = [message for message in await session.load() if not message.excluded]
            if len(live) < 2:
                return "there is nothing to compact yet"
            model = session.agent.open(session.settings.model or "")  # the chat's own, which closes with it
            agent = Agent(model, instructions=PROMPT, max_tokens=2_000)
            async with self.run.spinning():
                self.printer.spinner.start("compacting")
                result = await agent.run(render(live), cancel=self.run.cancel, unwrap=False)
            self.requests += result.requests
            self.total += result.usage
            if result.error is not None or not result.text.strip():
                raise result.error or ConfigError("the model gave no summary; nothing has changed")
            async with session.store.log(session.id) as log:
                await log.exclude([message.id for message in live])
                await log.append(user(INTRODUCTION + result.text, origin="summary"))
            return f"{len(live)} messages are now one summary of {len(result.text):,} characters"

        self.note(self._wait(compact) or "cancelled; nothing has changed")
        self.session = session.reopen(session.id, session.store)
