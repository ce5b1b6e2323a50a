"""`glue chat`: a conversation in the terminal."""

from __future__ import annotations

import re
import signal
import sys
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Any, TypeVar

import click
from anyio.from_thread import BlockingPortal, start_blocking_portal

from glue import slash
from glue.agent import Agent
from glue.cli.agentfile import open_agent
from glue.cli.approval import ask_yes_or_no
from glue.cli.clipboard import copy_text
from glue.cli.inputs import picture_paths, read_part
from glue.cli.kept import CHAT_DAYS, CHAT_NAME, new_chat_name, old_chats
from glue.cli.linereader import LineReader
from glue.cli.options import Sources, chat_options, describe_confinement
from glue.cli.printer import Printer, usage_line
from glue.cli.process import exit_code_despite_threads, live_threads, terminal_echo
from glue.cli.run import (
    Run,
    check_session,
    exit_code,
    explain,
    reached_limit,
    write_answer,
)
from glue.cli.screen import Screen, is_interactive
from glue.cli.sessions import sort_by_tree
from glue.cli.waiting import shown, waiting_lines, with_command
from glue.compaction import INTRODUCTION, PROMPT, render
from glue.context import Cancel
from glue.errors import ConfigError, GlueError
from glue.installing import install_command
from glue.limits import Outcome
from glue.listeners import join
from glue.messages import AssistantMessage, Message, ToolMessage, Usage, UserMessage, user
from glue.project import find_checkout, load_project
from glue.provider import capabilities
from glue.providers.template import knows_tools
from glue.result import RunResult, error_to_json, result_to_json
from glue.stores import open_store, store_name
from glue.stores.memory import MemoryStore
from glue.stores.store import copy
from glue.text import clean_text, count, cut, format_dollars, one_line

if TYPE_CHECKING:
    from glue.session import Session

T = TypeVar("T")


@click.command()
@click.argument("file", required=False, metavar="[FILE.py]")
@chat_options
@click.option("--no-save", is_flag=True, help="Keep the chat only in memory; do not store it.")
@click.option(
    "-v",
    "--verbose",
    count=True,
    help="Print thinking, tool results and the usage of each answer too.",
)
def chat(file: str | None, **given: Any) -> None:
    """Chat with the agent of FILE.py, or with a model.

    Chats are stored: -c continues the last one, `glue sessions` lists them. Chats without a name
    are deleted after 90 days (the setting chat_days). Inside a checkout, the model gets its
    AGENTS.md and skills. Ctrl-C cancels the answer, a second Ctrl-C leaves. /help
    lists the slash commands. The extra [chat] adds line editing, history, completion, Markdown and
    a status line.
    """
    agent = open_agent(file) if file is not None else None
    check_session(given)
    if given["no_save"] and (given["session"] or given["resume"]):
        raise click.UsageError(
            "--no-save cannot be used with --session or --continue, because these options store "
            "the chat; leave out --no-save, or the other option"
        )
    if given["project"] is None and (agent is None or agent.project is None):
        top = find_checkout()
        given["project"] = top is not None and bool(load_project(top).prompt)
    # The main thread handles SIGINT, not the event loop in the other thread.
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
    sys.exit(exit_code_despite_threads(code, before))


class _Left(Exception):
    """The user pressed Ctrl-C twice during a run, which ends the chat."""


class Chat:
    """A chat in the terminal: it reads prompts, runs the agent and prints the answers.

    The event loop runs in another thread, which `portal` calls.
    """

    def __init__(self, sources: Sources, portal: BlockingPortal) -> None:
        self.sources, self.portal = sources, portal
        out, err, verbose = Screen(sys.stdout), Screen(sys.stderr), sources.given["verbose"]
        self.notes: list[str] = []  # shown before the first prompt
        self.notice = ""  # of the last answer; the same notice is not shown again
        self.code = 0  # the exit code of the last run; 0 in a terminal
        self.reader = LineReader(out)
        self.printer = Printer(out, err, verbose=verbose, results=self.reader.is_terminal)
        if self.reader.is_terminal and not out.is_dumb:
            try:
                # Loads prompt_toolkit and rich, optional dependencies.
                from glue.cli.console import Editor, MarkdownPrinter
            except ImportError:
                self.notes.append(
                    "history, completion and Markdown are not installed; "
                    f"{install_command('chat')} adds them"
                )
            else:
                self.reader = Editor(
                    out, self.status, lambda: [each.id for each in portal.call(self.store.list)]
                )
                self.printer = MarkdownPrinter(out, err, verbose=verbose, results=True)
        self.run = Run(sources, self.printer)
        self.agent = self.run.agent
        self.requests, self.total = 0, Usage(cost=0.0)
        self.context = 0  # tokens of the last request and its reply
        self.session: Session[Any, Any]
        self.saved_as = ""  # the name of the session in the store; "" if it is only in memory

    def status(self) -> str:
        """Return the status line: model, share of the context window, tokens, cost, session."""
        words = [slash.model_name(self.session)]
        window = capabilities(self.agent.open(self.session.settings.model or "")).window
        if self.context and window:
            words.append(f"context {100 * self.context / window:.0f} % of {window:,}")
        total = self.total
        if total.total:
            words.append(f"{total.input:,} in, {total.output:,} out")
            words += [format_dollars(total.cost)] if total.cost is not None else []
        words += [f"saved as {self.saved_as}"] if self.saved_as else []
        return cut(one_line(" · ".join(words)), self.printer.out.width - 1)

    def recap(self) -> None:
        """Print the session's name, message count, last prompt and the start of its last answer."""
        loaded = self.portal.call(self.session.load)
        messages = [message for message in loaded if not message.excluded]
        prompts = [message.text for message in messages if _is_prompt(message)]
        answers = [message.text for message in messages if isinstance(message, AssistantMessage)]
        answers = [text for text in answers if text.strip()]
        self.note(f"{one_line(self.session.id)}: {len(messages)} messages")
        if prompts:
            self.printer.note("> " + one_line(prompts[-1], self.printer.err.width - 3))
        if answers:
            lines = clean_text(answers[-1]).strip().splitlines()
            for line in lines[:8]:
                self.printer.note(cut(line, self.printer.err.width - 1))
            if len(lines) > 8:
                command = f"`glue sessions show {one_line(self.session.id)}`"
                self.printer.note(f"… {len(lines) - 8} more lines; {command}")

    async def begin(self) -> None:
        """Open the store and a session; before a new stored chat, delete chats that are too old.

        The options name a stored session, or else a new session is opened. With --no-save, the new
        session is in memory, and nothing is deleted. Raise GlueError if the model's name is wrong
        or its key is missing.
        """
        given = self.sources.given
        # Report a wrong model or a missing key now, not after the first prompt.
        provider = self.agent.open(self.run.overrides()["model"])
        self.store = open_store(self.sources.find("store") or "")
        if given["session"] or given["resume"]:
            self.session = await self.run.session(self.store)
            await self.session.load()
            self.saved_as = self.session.id
        elif given["no_save"]:
            self.session = self.agent.session(store=MemoryStore(), **self.run.overrides())
        else:
            await self._keep_chat()
        if self.sources.project:
            self.notes.append(
                f"the model gets {self.sources.project}; --no-project leaves out these files"
            )
        if self.session.settings.tools and await knows_tools(provider) is False:
            model = one_line(slash.model_name(self.session))
            self.notes.append(
                f"the chat template of {model} does not support tools, so the model will "
                "not call any tool; choose another model, or use --no-tools"
            )

    async def _keep_chat(self) -> None:
        """Delete stored chats that are too old, then set `session` to a new session in the store.

        If the store cannot be used, add a note and open a session in memory.
        """
        days = self.sources.find("chat_days")
        days = CHAT_DAYS if days is None else days
        try:
            found = await self.store.list()
            for info in old_chats(found, days):
                await self.store.delete(info.id)
        except (GlueError, OSError) as error:
            self.notes.append(
                f"this chat is not stored, because the store failed: {one_line(str(error))}"
            )
            self.session = self.agent.session(store=MemoryStore(), **self.run.overrides())
            return
        if not old_chats(found, 0):  # said once: with the first chat
            where = store_name(self.sources.find("store") or "")
            self.notes.append(
                f"chats are kept in {where} for {count(days, 'day')}; /save NAME keeps this chat "
                "for good, --no-save keeps no chat"
            )
        self.saved_as = new_chat_name()
        self.session = self.agent.session(self.saved_as, store=self.store, **self.run.overrides())

    def note(self, text: str, colour: str = "cyan") -> None:
        """Write a text on stderr; on a terminal, wrap its lines between words."""
        err = self.printer.err
        width = max(err.width - 1, 20) if err.is_terminal else len(text) + 1
        for line in text.splitlines():
            pieces = wrap(line, width, subsequent_indent="    ", break_on_hyphens=False)
            for piece in pieces or [""]:
                self.printer.note(piece, colour)

    def fail(self, error: object) -> None:
        """Write an error message on stderr; the chat continues."""
        self.note(f"glue: {one_line(str(error))}", "red")

    def loop(self) -> int:
        """Answer prompts and slash commands until the user leaves; return the exit code."""
        if self.reader.is_terminal:
            model = one_line(slash.model_name(self.session))
            saved = f", saved as {self.saved_as}" if self.saved_as else ""
            self.printer.note(f"{model}{saved}; /help for help, Ctrl-D to leave")
            for tool in self.run.overrides()["tools"]:
                if confinement := getattr(tool, "confinement", ""):
                    self.note(f"{tool.spec.name}: {describe_confinement(confinement)}")
        for text in self.notes:
            self.note(text)
        if self.reader.is_terminal and self.saved_as and self.portal.call(self.session.load):
            self.recap()
        if self.answer_waiting() is None:
            return 130
        while True:
            try:
                text = self.reader.read()
            except EOFError:
                return self.code
            except KeyboardInterrupt:
                if self.reader.echoes_interrupt:
                    self.reader.end()
                if self.reader.was_interrupted:
                    return self.code
                self.reader.was_interrupted = True
                self.printer.note("(Ctrl-C again leaves)")
                continue
            name, argument = slash.parse(text)
            if name == "quit":
                return self.code
            try:
                if name:
                    self.command(name, argument)
                elif text.strip():
                    self._keep_code(self.turn(text))
            except _Left:
                return 130
            except (GlueError, ValueError, TypeError) as error:
                if not name:
                    raise
                self.fail(error)

    def _keep_code(self, code: int | None) -> None:
        """Store the exit code of a run for the end of the chat; raise _Left after two Ctrl-C."""
        if code is None:
            raise _Left
        self.code = 0 if self.reader.is_terminal else code

    def turn(self, text: str) -> int | None:
        """Send a prompt and show the answer; return the exit code, or None after two Ctrl-C.

        The prompt is not sent if a file cannot be read, or if a call still waits for an answer.
        """
        named = [Path(name).expanduser() for name in re.findall(r"(?<!\S)@(\S+)", text)]
        pictures = picture_paths(text)
        for path in pictures:
            self.note(f"the picture {one_line(path.name)} is attached to this prompt")
        named += pictures
        try:
            parts = [read_part(str(path)) for path in named if path.is_file()]
            for path in named:
                if not path.is_file():
                    why = "is not a file" if path.exists() else "does not exist"
                    name = one_line(str(path))
                    self.note(f"@{name} is sent as text, because this path {why}", "yellow")
        except ConfigError as error:
            self.fail(error)
            return 2
        if self.portal.call(self.session.pending):
            code = self.answer_waiting()
            if code is None or self.portal.call(self.session.pending):
                self.note(
                    "the prompt was not sent, because a tool call waits for an answer", "yellow"
                )
                return code
        return self._turn(self._prompt, text, *parts)

    def _turn(
        self, work: Callable[..., Awaitable[Any]], *args: Any, later: Collection[str] = ()
    ) -> int | None:
        """Start a run, wait and show how it ended; return its exit code, or None after two Ctrl-C.

        If the run pauses, ask the user about its waiting calls, except the calls whose ids are in
        `later`.
        """
        with terminal_echo(False) if self.reader.is_terminal else nullcontext():
            ended = self._wait(work, *args)
        if isinstance(ended, RunResult):
            code = self._show(ended)
            return self.answer_waiting(later) if ended.pending else code
        self.printer.settle()
        if ended is None:
            return None
        if not isinstance(ended, GlueError):
            raise ended
        self.fail(ended)
        return 1

    def answer_waiting(self, later: Collection[str] = ()) -> int | None:
        """Ask the user about waiting calls, if any, and continue the run; return the exit code.

        Calls whose ids are in `later` are not asked about. Without a terminal, print the commands
        that answer the calls. Return None after two Ctrl-C.
        """
        calls = self.portal.call(self.session.pending)
        if not calls:
            return 0
        self.printer.settle()
        if not is_interactive():
            options = ["--store", self.sources.find("store")] if self.sources.find("store") else []
            for line in waiting_lines(calls, self.saved_as, options):
                self.printer.note(line, "yellow")
            return Outcome.PAUSED.exit_code
        decisions: dict[str, Any] = {}
        err = self.printer.err
        for call in calls:
            if call.id in later:
                continue
            err.line(shown(call, err))
            try:
                decision = ask_yes_or_no(call, err)
            except KeyboardInterrupt:
                self.reader.end()
                break
            if decision is not None:
                decisions[call.id] = decision
        if decisions:
            undecided = [call.id for call in calls if call.id not in decisions]
            return self._turn(self._resume, decisions, later=undecided)
        waiting = count(len(calls), "call")
        self.note(f"you have not decided about {waiting}; the next prompt asks again", "yellow")
        return Outcome.PAUSED.exit_code

    def _wait(self, work: Callable[..., Awaitable[T]], *args: Any) -> T | None:
        """Run `work` in the event loop's thread; return its result, or None after two Ctrl-C.

        The first Ctrl-C cancels the work; the second returns without waiting for its end.
        """
        cancel = self.run.cancel = Cancel()

        def interrupt(*_: object) -> None:
            if cancel.cancelled:
                raise KeyboardInterrupt
            cancel.cancel()

        # A handler, because an exception could also be raised while the work is being started.
        before = signal.signal(signal.SIGINT, interrupt)
        try:
            return self.portal.start_task_soon(work, *args).result()
        except KeyboardInterrupt:
            return None
        finally:
            signal.signal(signal.SIGINT, before)

    async def _resume(
        self, decisions: Mapping[str, Any] | None = None
    ) -> RunResult[Any] | BaseException:
        return await self._logged(None, partial(self.session.resume, decisions=decisions))

    async def _prompt(self, text: str, *parts: Any) -> RunResult[Any] | BaseException:
        prompt: Any = [text, *parts]
        try:
            if self.run.servers is not None:
                found = await self.run.servers.prompt(text)
                if not isinstance(found, str):  # the messages of an MCP server's prompt
                    prompt = found
            messages = with_command(prompt, self.sources)
        except Exception as error:
            return error
        return await self._logged(messages, partial(self.session.run, messages))

    async def _logged(
        self, prompt: Any, work: Callable[..., Awaitable[RunResult[Any]]]
    ) -> RunResult[Any] | BaseException:
        """Await `work`, print and log its events, and return its result or the error it raised."""
        try:
            self.run.start_log(prompt)
            async with self.run.spinning():
                result = await work(
                    on_event=join((self.printer, self.run.log)),
                    cancel=self.run.cancel,
                    unwrap=False,
                )
            self.run.end_log(
                {**result_to_json(result, self.saved_as), "exit_code": exit_code(result)}
            )
            return result
        except (Exception, SystemExit, KeyboardInterrupt) as error:
            self.run.end_log({"type": "error", "error": error_to_json(error)})
            return error  # if raised here, a tool's sys.exit would end the event loop of the chat

    def _show(self, result: RunResult[Any]) -> int:
        self.requests += result.requests
        self.total += result.usage
        replies = [each for each in result.messages if isinstance(each, AssistantMessage)]
        usages = [reply.usage for reply in replies if reply.usage]
        self.context = usages[-1].total if usages else self.context
        if result.output is not None:
            write_answer(result, self.printer)
        self.printer.settle()
        if result.outcome is Outcome.CANCELLED:
            self.printer.note("(cancelled; you can continue from here)", "yellow")
        elif result.error is not None and result.outcome is not Outcome.PAUSED:
            limit = reached_limit(result.error)
            advice = f"/limits {limit}=N raises the limit, /continue resumes the run"
            self.fail(explain(result.error, advice))
        if result.notice and result.notice != self.notice:
            self.note(f"glue: {result.notice}", "yellow")
        self.notice = result.notice
        if self.sources.given["verbose"]:
            self.printer.note(usage_line(result))
        return exit_code(result)

    # Slash commands -------------------------------------------------------------------------------

    def command(self, name: str, argument: str) -> None:
        """Run a slash command; print its reply, or an error if the command is unknown."""
        reply = self.portal.call(
            slash.answer, self.session, name, argument, self.requests, self.total
        )
        if reply is not None:
            self.note(reply)
        elif hasattr(self, f"do_{name}"):
            getattr(self, f"do_{name}")(argument)
        else:
            self.fail(f"unknown command /{name}; /help lists the commands")

    def do_help(self, argument: str) -> None:
        """Print the slash commands and the keys."""
        usages = {f"/{each.name} {each.argument}".rstrip(): each.help for each in slash.COMMANDS}
        width = max(map(len, usages))
        for usage, text in usages.items():
            self.note(f"{usage:<{width}}  {text}")
        self.note(self.reader.help)
        self.note(
            "@FILE attaches a file. The path of a picture attaches the picture. Ctrl-C cancels an "
            "answer, and a second Ctrl-C ends the chat."
        )

    def do_continue(self, argument: str) -> None:
        """Continue a run that stopped early, without a new prompt."""
        self._keep_code(self._turn(self._resume))

    def do_undo(self, argument: str) -> None:
        """Exclude the last prompt and its answer from later requests; offer the prompt for editing.

        The excluded messages stay in the store.
        """
        session = self.session
        messages = self.portal.call(session.load)
        at = [index for index, message in enumerate(messages) if _is_prompt(message)]
        if not at:
            raise ConfigError("there is no prompt to remove")
        undone = [message for message in messages[at[-1] :] if not message.excluded]

        async def exclude() -> None:
            async with session.store.log(session.id) as log:
                await log.exclude([message.id for message in undone])

        self.portal.call(exclude)
        self.session = session.reopen(session.id, session.store)
        self.reader.draft = undone[0].text
        changed = any(isinstance(message, ToolMessage) for message in undone)
        self.note(
            f"removed: {one_line(undone[0].text, 60)}"
            + ("; the effects of its tools are not undone" if changed else "")
        )

    def do_copy(self, argument: str) -> None:
        """Copy the last answer to the clipboard."""
        messages = self.portal.call(self.session.load)
        replies = [
            message.text
            for message in messages
            if isinstance(message, AssistantMessage)
            and message.text.strip()
            and not message.excluded
        ]
        if not replies:
            raise ConfigError("there is no answer to copy")
        used = copy_text(clean_text(replies[-1]), self.printer.out)
        if not used:
            raise ConfigError(
                "the answer cannot be copied: no program such as xclip works, and stdout is not a "
                "terminal that can copy"
            )
        self.note(f"copied {count(len(replies[-1]), 'character')} ({used})")

    def do_fork(self, rest: str) -> None:
        """Continue in a copy of the session, with all of its prompts or the first N.

        A negative N leaves out the last -N prompts.
        """
        before = self.session
        messages = self.portal.call(before.load)
        at = [index for index, message in enumerate(messages) if _is_prompt(message)]
        prompts = len(at)
        at.append(len(messages))
        try:
            number = int(rest or prompts)
        except ValueError:
            raise ConfigError(f"/fork takes a number of prompts, not {rest!r}") from None
        number = number if number >= 0 else prompts + number
        if not 0 <= number <= prompts:
            raise ConfigError(
                f"/fork takes a number from -{prompts} to {prompts}, because the session has "
                f"{count(prompts, 'prompt')}"
            )
        name = new_chat_name() if CHAT_NAME.fullmatch(before.id) else ""
        self.session = self.portal.call(before.fork, at[number] if rest else None, name)
        if self.saved_as:
            self.saved_as = self.session.id
        self.note(
            f"forked {before.id} after {at[number]} messages;"
            f" this chat continues in session {self.session.id}"
        )

    def do_save(self, name: str) -> None:
        """Store a copy of the session as `name` and use it; delete an automatically named original.

        The original is deleted if it is in the same store and its name was automatic. If no name is
        given and the session is stored already, only print its name.
        """
        if self.saved_as and not name:
            self.note(f"saved as {one_line(self.saved_as)}")
            return
        named = name or self.session.id
        before = self.session

        async def save() -> None:
            if await before.load():
                await copy(before.store, before.id, self.store, named)
            self.session = before.reopen(named, self.store)
            if before.store is self.store and CHAT_NAME.fullmatch(before.id) and named != before.id:
                await self.store.delete(before.id)  # the chat was kept under an automatic name

        self.portal.call(save)
        self.saved_as = named
        self.note(f"saved as {one_line(named)}; `glue chat -s {one_line(named)}` continues it")

    def do_new(self, name: str) -> None:
        """Start a new session; store it if it has a name or the previous session is stored."""
        before = self.session
        is_stored = bool(self.saved_as or name)
        store = self.store if is_stored else MemoryStore()
        self.session = before.reopen(name or new_chat_name(), store)
        self.saved_as = self.session.id if is_stored else ""
        self.requests, self.total = 0, Usage(cost=0.0)
        saved = f", saved as {one_line(self.saved_as)}" if self.saved_as else ""
        last = "the previous session was not saved"
        if before.store is self.store:
            last = f"/resume {one_line(before.id)} returns to the previous session"
        self.note(f"new session{saved}; {last}")

    def do_resume(self, name: str) -> None:
        """Continue a stored session and ask about its pending calls. Without a name, list sessions.

        Raise ConfigError if no session has the name.
        """
        if not name:
            self.do_tree("")
            self.note("/resume NAME continues a session")
            return
        if name not in {info.id for info in self.portal.call(self.store.list)}:
            raise ConfigError(f"unknown session {name!r}; /tree lists the sessions")
        self.session = self.session.reopen(name, self.store)
        self.saved_as = name
        self.requests, self.total = 0, Usage(cost=0.0)
        self.recap()
        self._keep_code(self.answer_waiting())

    def do_tree(self, argument: str) -> None:
        """Print the names of the 50 newest stored sessions, with forks below their parents."""
        found = self.portal.call(self.store.list)
        for depth, info in sort_by_tree(found[:50]):
            mark = "*" if info.id == self.saved_as else " "
            line = f"{mark} {'  ' * depth}{one_line(info.id)}  {one_line(info.title)}"
            self.printer.note(cut(line, self.printer.err.width - 1), "cyan")
        if not found:
            self.note("no sessions are stored; /save stores this one")

    def do_compact(self, argument: str) -> None:
        """Ask the model for a summary; later requests contain it instead of the messages so far.

        The messages stay in the transcript. Raise ConfigError if a call waits for an answer, or if
        the model writes no summary.
        """
        session = self.session
        if self.portal.call(session.pending):
            raise ConfigError(
                "a tool call waits for an answer, so the session cannot be compacted now"
            )

        async def compact() -> str:
            messages = [message for message in await session.load() if not message.excluded]
            if len(messages) < 2:
                return "the session has nothing to compact yet"
            # The chat's own provider, which is closed when the chat ends.
            model = session.agent.open(session.settings.model or "")
            agent = Agent(model, instructions=PROMPT, max_tokens=2_000)
            async with self.run.spinning():
                self.printer.progress.start("compacting")
                result = await agent.run(render(messages), cancel=self.run.cancel, unwrap=False)
            self.requests += result.requests
            self.total += result.usage
            if result.error is not None or not result.text.strip():
                raise result.error or ConfigError("the model wrote no summary; nothing has changed")
            async with session.store.log(session.id) as log:
                await log.exclude([message.id for message in messages])
                await log.append(user(INTRODUCTION + result.text, origin="summary"))
            return (
                f"{len(messages)} messages are now one summary of {len(result.text):,} characters"
            )

        self.note(self._wait(compact) or "the compaction was cancelled; nothing has changed")
        self.session = session.reopen(session.id, session.store)


def _is_prompt(message: Message) -> bool:
    """Return whether a message is a prompt of the user that is not excluded from requests."""
    return isinstance(message, UserMessage) and message.origin == "user" and not message.excluded
