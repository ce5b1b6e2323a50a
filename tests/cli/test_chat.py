"""`glue chat`: keys typed into a terminal, and the text on its screen."""

from __future__ import annotations

import base64
import json
import os
import pty
import re
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.from_thread import start_blocking_portal

from glue import Agent, FileStore, Usage
from glue.cli.chat import Chat
from glue.cli.chat import chat as command
from glue.cli.options import Sources
from glue.providers import capabilities, registry
from glue.stores.memory import MemoryStore
from glue.stores.store import copy
from glue.testing import Script, say
from glue.tools.sandbox import find_backend

GLUE = str(Path(sys.executable).parent / "glue")
SECONDS = 60.0  # a timeout that is long enough for a busy machine

AGENT = '''\
import anyio

from glue import Agent, tool
from glue.provider import Done, TextDelta
from glue.testing import Script, call, calls, repeat, say


@tool(needs_permission=True, target="name")
def save(name: str) -> str:
    """Save a file.

    Args:
        name: of the file
    """
    return f"saved {name}"


@tool(needs_permission=True, target="path")
def write_file(path: str, content: str) -> str:
    """Write a file."""
    return "wrote it\\nwhole"


class Model(Script):
    async def stream(self, request):
        if "endless" in request.messages[-1].text:
            yield TextDelta(text="It begins")
            yield TextDelta(text=" and continues")
            await anyio.sleep_forever()
        async for event in super().stream(request):
            yield event


def answer(request):
    last = request.messages[-1]
    if last.text.startswith("save") and type(last).__name__ == "UserMessage":
        return calls(call("save", {"name": last.text.split()[1]}))
    if last.text.startswith("write") and type(last).__name__ == "UserMessage":
        return calls(call("write_file", {"path": "a.txt", "content": "one\\nthree\\n"}))
    asked = sum(type(message).__name__ == "UserMessage" for message in request.messages)
    return say(f"answer {asked} to <{last.text}>", chunk=3)


agent = Agent(Model(repeat(answer)), tools=[save, write_file])
'''


class Tmux:
    """A terminal in its own tmux server."""

    def __init__(self, folder: Path, columns: int = 100) -> None:
        self.folder = folder
        self.socket = str(folder / "tmux")
        env = {"PATH": os.environ["PATH"], "HOME": str(folder), "LANG": "C.UTF-8", "PS1": "$ "}
        env |= {name: os.environ[name] for name in ("PYTHONPATH",) if name in os.environ}
        size = ("-x", str(columns), "-y", "50")
        self._run("-f", os.devnull, "new-session", "-d", *size, "-c", str(folder), "sh", env=env)
        os.mkfifo(folder / "output")
        self._output = os.open(folder / "output", os.O_RDWR | os.O_NONBLOCK)
        self._run("pipe-pane", f"exec cat >'{folder}/output'")

    def _run(self, *args: str, env: dict[str, str] | None = None) -> str:
        line = ["tmux", "-u", "-S", self.socket, *args]
        done = subprocess.run(
            line, capture_output=True, check=True, timeout=SECONDS, env=env, encoding="utf-8"
        )
        return done.stdout

    def type(self, *keys: str) -> None:
        """Type words and press keys; names such as Enter and C-c are keys."""
        line: list[str] = []
        for key in keys:
            special = key in ("Enter", "Up", "BSpace", "Tab") or (
                key[:2] in ("C-", "M-") and len(key) in (3, 7)
            )
            line += [";"] if line else []
            line += ["send-keys", *(() if special else ("-l", "--")), key]
        self._run(*line)

    def paste(self, text: str) -> None:
        """Paste a text as a terminal does, with bracketed paste."""
        (self.folder / "paste").write_text(text)
        self._run("load-buffer", str(self.folder / "paste"))
        self._run("paste-buffer", "-p")

    def screen(self) -> str:
        return self._run("capture-pane", "-p", "-S", "-200")

    def wait(self, *texts: str) -> str:
        """Return the screen as soon as it shows every text; fail after a timeout."""
        end = time.monotonic() + SECONDS
        while True:
            screen = self.screen()
            if all(text in screen for text in texts):
                return screen
            # tmux updates the screen before it sends the output through the pipe.
            ready = select.select([self._output], [], [], max(end - time.monotonic(), 0))[0]
            assert ready, f"never showed {texts!r}:\n{screen}"
            os.read(self._output, 65536)

    def leave(self) -> None:
        """Leave the chat and wait for the shell, because keys typed earlier would be lost."""
        self.type("/quit", "Enter")
        self.wait("> /quit\n#")

    def close(self) -> None:
        subprocess.run(
            ["tmux", "-S", self.socket, "kill-server"],
            capture_output=True,
            check=False,
            timeout=SECONDS,
        )
        os.close(self._output)


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Tmux]:
    if shutil.which("tmux") is None:
        pytest.skip("tmux is not installed")
    (tmp_path / "agent.py").write_text(AGENT)
    tmux = Tmux(tmp_path)
    tmux.wait("#")  # a command that is typed earlier is echoed above the prompt
    yield tmux
    tmux.close()


@pytest.fixture
def chat(terminal: Tmux) -> Tmux:
    terminal.type(f"{GLUE} chat agent.py", "Enter")
    terminal.wait("/help for help", "\n>")
    return terminal


def test_an_answer_is_streamed(chat: Tmux) -> None:
    chat.type("hello", "Enter")
    chat.wait("answer 1 to <hello>")

    chat.type("an endless one", "Enter")

    chat.wait("It begins and continues")  # while the answer is not complete


def test_an_interrupt_cancels_the_answer_but_not_the_chat(chat: Tmux) -> None:
    chat.type("an endless one", "Enter")
    chat.wait("It begins")

    chat.type("C-c")
    chat.wait("(cancelled; you can continue from here)")
    chat.type("hello again", "Enter")

    chat.wait("answer 2 to <hello again>")


def test_a_second_interrupt_leaves_the_chat(chat: Tmux) -> None:
    chat.type("C-c")
    chat.wait("(Ctrl-C again leaves)\n>")

    chat.type("C-c")
    chat.wait("\n#")
    chat.type("echo left with $?", "Enter")

    chat.wait("left with 0")


def test_the_user_is_asked_for_permission(chat: Tmux) -> None:
    chat.type("save one.txt", "Enter")
    chat.wait("? save one.txt", "[y]es, [n]o")
    chat.type("n", "Enter")
    chat.wait("✗ save(name=one.txt)  failed", "permission denied: save one.txt: the user said no")

    chat.type("save two.txt", "Enter")
    chat.wait("? save two.txt")
    chat.type("y", "Enter")
    chat.wait("· save(name=two.txt)  ok", "<saved two.txt>")


def test_the_chat_and_the_question_name_the_sandbox(terminal: Tmux) -> None:
    best = find_backend()
    shown = f"sandbox: {best.name}, no network" if best is not None else "no sandbox"
    text = AGENT.replace('"save", {"name": last.text.split()[1]}', '"shell", {"command": "ls"}')
    (terminal.folder / "agent.py").write_text(text)

    terminal.type(f"{GLUE} chat agent.py --tools shell", "Enter")
    terminal.wait("/help for help", f"shell: {shown}", "\n>")
    terminal.type("save it", "Enter")
    terminal.wait(f"? shell ls [{shown}]", "[y]es, [n]o")
    terminal.type("y", "Enter")
    terminal.wait("agent.py", "[exit code 0]")


def test_a_permission_for_the_session_is_remembered(chat: Tmux) -> None:
    chat.type("save one.txt", "Enter")
    chat.wait("? save one.txt")
    chat.type("s", "Enter")
    chat.wait("<saved one.txt>")

    chat.type("save two.txt", "Enter")

    assert "? save two.txt" not in chat.wait("<saved two.txt>")


def test_an_interrupt_at_a_permission_question_cancels_the_answer(chat: Tmux) -> None:
    chat.type("save one.txt", "Enter")
    chat.wait("? save one.txt", "[y]es, [n]o")

    chat.type("C-c")
    chat.wait("(cancelled; you can continue from here)")
    chat.type("hello", "Enter")

    chat.wait("to <hello>")


def test_a_paused_session_shows_its_waiting_calls_and_asks(terminal: Tmux) -> None:
    command = f"{GLUE} run agent.py -s work --on-question defer 'save one.txt'"
    terminal.type(f"{command}; {GLUE} chat agent.py -s work", "Enter")
    terminal.wait("glue sessions answer work", "? save one.txt", "[l]ater")

    terminal.type("l", "Enter")
    terminal.wait("you have not decided about 1 call; the next prompt asks again\n>")
    terminal.type("hello", "Enter")
    terminal.wait("the next prompt asks again\n> hello\n? save one.txt")
    terminal.type("y", "Enter")

    terminal.wait("<saved one.txt>", "to <hello>")


def test_a_waiting_call_is_answered_in_the_terminal(terminal: Tmux) -> None:
    command = f"{GLUE} run agent.py -s work --on-question defer 'save one.txt'"
    terminal.type(f"{command}; {GLUE} sessions answer work", "Enter")
    terminal.wait("? save one.txt", "[l]ater")

    terminal.type("n", "Enter")

    terminal.wait("permission denied: save one.txt: the user said no", "answer 1 to")


def test_a_fork_continues_from_the_chosen_prompt(chat: Tmux) -> None:
    chat.type("one", "Enter")
    chat.wait("answer 1 to <one>")
    chat.type("two", "Enter")
    chat.wait("answer 2 to <two>")

    chat.type("/fork 1", "Enter")
    chat.wait("after 2 messages; this chat continues in")
    chat.type("another two", "Enter")

    chat.wait("answer 2 to <another two>")
    chat.type("/fork 9", "Enter")
    chat.wait("/fork takes a number from -2 to 2, because the session has 2 prompts")
    chat.type("/fork -1", "Enter")
    chat.wait("after 2 messages; this chat continues in")


def test_a_saved_chat_can_be_continued(chat: Tmux) -> None:
    chat.type("one", "Enter")
    chat.wait("answer 1 to <one>")
    chat.type("/save notes", "Enter")
    chat.wait("saved as notes")
    chat.type("two", "Enter")
    chat.wait("answer 2 to <two>")
    chat.leave()

    chat.type(f"{GLUE} chat agent.py -c", "Enter")
    chat.wait("saved as notes; /help for help")
    chat.type("three", "Enter")

    chat.wait("answer 3 to <three>")


@pytest.fixture
def plain(terminal: Tmux) -> Tmux:
    """Start a chat without the extra [chat] installed."""
    for name in ("prompt_toolkit", "rich"):
        (terminal.folder / "lib").mkdir(exist_ok=True)
        (terminal.folder / "lib" / f"{name}.py").write_text("raise ImportError(__name__)\n")
    terminal.type(f"PYTHONPATH=lib${{PYTHONPATH:+:$PYTHONPATH}} {GLUE} chat agent.py", "Enter")
    terminal.wait("[chat]' adds", "\n>")
    return terminal


def test_without_the_extra_a_prompt_can_span_lines(plain: Tmux) -> None:
    plain.type("helloo", "BSpace", "Enter")
    plain.wait("answer 1 to <hello>")
    plain.type("Up", "Enter")
    plain.wait("answer 2 to <hello>")

    plain.type("first\\", "Enter", "second", "Enter")
    plain.wait("answer 3 to <first\nsecond>")
    plain.type('"""', "Enter", "a", "Enter", 'b"""', "Enter")
    plain.wait("answer 4 to <a\nb>\n>")
    plain.paste("one\ntwo\nthree")
    plain.type("Enter")

    plain.wait("answer 5 to <one\ntwo\nthree>")


def test_prompts_of_several_lines_are_sent_whole_and_stored_in_the_history(chat: Tmux) -> None:
    chat.type("helloo", "BSpace", "Enter")
    chat.wait("answer 1 to <hello>\n>")
    chat.paste("one\ntwo\nthree")
    chat.type("Enter")
    chat.wait("answer 2 to <one\ntwo\nthree>\n>")
    chat.type("a", "M-Enter", "b", "Enter")
    chat.wait("> a\n. b", "answer 3 to <a\nb>\n>")
    chat.type("C-r", "two")
    chat.wait("> one\n. two\n. three", "I-search backward: two")
    chat.type("C-g")

    chat.leave()
    chat.type("clear", "Enter", f"{GLUE} chat agent.py", "Enter")
    chat.wait("/help for help", "\n>")
    chat.type("Up", "Up", "Up", "Up", "Up", "Enter")

    chat.wait("answer 1 to <one\ntwo\nthree>")


def test_commands_and_files_are_completed(chat: Tmux) -> None:
    (chat.folder / "a note.txt").write_text("skipped")
    (chat.folder / "notes.txt").write_text("what it holds")

    chat.type("/us", "Tab")
    chat.wait("> /usage")
    chat.type("Enter")
    chat.wait("0 messages\n>")
    chat.type("read @no", "Tab")
    chat.wait("> read @notes.txt")
    chat.type("Enter")

    chat.wait("what it holds")


def test_markdown_is_rendered_and_html_is_shown_as_text(chat: Tmux) -> None:
    chat.type("**bold** `code` <b>tag</b> [text](https://evil.example)", "Enter")

    screen = chat.wait("answer 1 to <bold code <b>tag</b> text")
    assert "**" not in screen.partition("answer 1")[2]


def test_a_call_is_printed_with_its_result_and_a_change_as_a_diff(chat: Tmux) -> None:
    (chat.folder / "a.txt").write_text("one\ntwo\n")

    chat.type("write a.txt", "Enter")
    chat.wait("? write_file a.txt", " one\n    -two\n    +three", "[y]es")
    chat.type("y", "Enter")

    chat.wait("· write_file(path=a.txt", "wrote it  (+1 lines)")


def test_sessions_are_started_listed_resumed_and_compacted(chat: Tmux) -> None:
    chat.type("one", "Enter")
    chat.wait("answer 1 to <one>")
    chat.type("/save first", "Enter", "/new second", "Enter", "two", "Enter")
    chat.wait("saved as first", "new session, saved as second", "answer 1 to <two>")
    chat.type("/tree", "Enter")
    chat.wait("* second", "  first")
    chat.type("/resume first", "Enter")
    chat.wait("first: 2 messages\n> one\nanswer 1 to <one>")
    chat.type("/compact", "Enter")
    chat.wait("2 messages are now one summary")
    chat.type("three", "Enter")

    chat.wait("answer 2 to <three>")


def test_an_interrupt_cancels_a_compaction_but_not_the_chat(chat: Tmux) -> None:
    chat.type("an endless one", "Enter")
    chat.wait("It begins")
    chat.type("C-c")
    chat.wait("(cancelled; you can continue from here)")

    chat.type("/compact", "Enter")
    chat.wait("compacting")
    chat.type("C-c")
    chat.wait("glue: the run was cancelled")
    chat.type("hello", "Enter")

    chat.wait("answer 2 to <hello>")


def test_a_resumed_chat_shows_the_last_prompt_and_answer(chat: Tmux) -> None:
    chat.type("one", "Enter")
    chat.wait("answer 1 to <one>")
    chat.type("/save first", "Enter")
    chat.wait("saved as first")
    chat.leave()
    chat.type("clear", "Enter", f"{GLUE} chat agent.py -s first", "Enter")

    chat.wait("first: 2 messages\n> one\nanswer 1 to <one>", "saved as first")


@pytest.mark.soak
@pytest.mark.parametrize("columns", [60, 80, 200])
def test_a_chat_works_at_every_width(tmp_path: Path, columns: int) -> None:
    if shutil.which("tmux") is None:
        pytest.skip("tmux is not installed")
    (tmp_path / "agent.py").write_text(AGENT)
    tmux = Tmux(tmp_path, columns)
    try:
        tmux.type(f"{GLUE} chat agent.py -s wide", "Enter")
        tmux.wait("/help for help", "\n>")
        tmux.type("/help", "Enter", "/tools", "Enter")
        tmux.wait("/compact", "save (asks)")
        tmux.type("日本語のテキスト " * 12, "Enter")
        tmux.wait("answer 1 to", "saved as wide")
        tmux.type("save one.txt", "Enter")
        tmux.wait("? save one.txt", "[y]es")
        tmux.type("y", "Enter")
        tmux.wait("answer 2 to <saved one.txt>")
        tmux.type("endless", "Enter")
        tmux.wait("It begins")
        tmux.type("C-c")
        screen = tmux.wait("(cancelled; you can continue from here)")
    finally:
        tmux.close()
    assert "Traceback" not in screen
    assert "\ufffd" not in screen


def test_slash_commands_print_their_result(chat: Tmux) -> None:
    chat.type(
        "/help",
        "Enter",
        "/tools",
        "Enter",
        "/model",
        "Enter",
        "/usage",
        "Enter",
        "/nonsense",
        "Enter",
    )

    screen = chat.wait(
        "/save",
        "- save (asks): Save a file.",
        "The model is script.",
        "0 messages",
        "unknown command /nonsense",
    )
    assert "Traceback" not in screen
    chat.type("/model nope", "Enter")
    chat.wait("unknown provider 'nope'")


def test_a_run_asks_for_permission_in_the_terminal(terminal: Tmux) -> None:
    terminal.type(f"{GLUE} run agent.py save one.txt", "Enter")
    terminal.wait("? save one.txt", "[y]es, [n]o")

    terminal.type("y", "Enter")
    terminal.wait("<saved one.txt>")
    terminal.type(f"{GLUE} run agent.py save two.txt", "Enter")
    terminal.wait("? save two.txt")
    terminal.type("C-c")
    terminal.wait("glue: the run was cancelled")
    terminal.type("echo left with $?", "Enter")

    assert "Fatal" not in terminal.wait("left with 130")


# Without tmux -------------------------------------------------------------------------------------


def test_a_dumb_terminal_gets_plain_text(tmp_path: Path) -> None:
    (tmp_path / "agent.py").write_text(AGENT)
    leader, follower = pty.openpty()
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "TERM": "dumb"}
    line = [GLUE, "chat", "agent.py"]
    with subprocess.Popen(
        line, stdin=follower, stdout=follower, stderr=follower, env=env, cwd=tmp_path
    ) as run:
        os.close(follower)
        seen = until(leader, b"> ")
        os.write(leader, b"hello\n")
        seen += until(leader, b"answer 1 to <hello>")
        os.write(leader, b"save a.txt\n")
        seen += until(leader, b"every save > ")
        os.write(leader, b"y\n")
        seen += until(leader, b"<saved a.txt>")
        os.write(leader, b"/quit\n")
        assert run.wait(SECONDS) == 0
    os.close(leader)

    assert b"\x1b" not in seen


def until(fd: int, text: bytes) -> bytes:
    """Read the output of a terminal until it contains a text, and return it."""
    seen = b""
    end = time.monotonic() + SECONDS
    while text not in seen:
        ready = select.select([fd], [], [], max(end - time.monotonic(), 0))[0]
        assert ready, f"never showed {text!r}: {seen!r}"
        seen += os.read(fd, 4096)
    return seen


def test_a_terminal_is_greeted_and_does_not_echo_keys_during_an_answer(
    cli: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("agent.py").write_text(
        "import sys, termios\nfrom glue import Agent\nfrom glue.testing import Script, repeat\n"
        "def answer(request):\n"
        "    mode = termios.tcgetattr(sys.stdin.fileno())\n"
        "    return 'echo' if mode[3] & termios.ECHO else 'no echo'\n"
        "agent = Agent(Script(repeat(answer)))\n"
    )
    monkeypatch.setenv("TERM", "dumb")
    leader, follower = pty.openpty()
    os.write(leader, b"hello\n/quit\n")

    with open(follower) as typed, open(follower, "w", closefd=False) as shown:
        monkeypatch.setattr(sys, "stdin", typed)
        monkeypatch.setattr(sys, "stdout", shown)
        with pytest.raises(SystemExit):
            command.main(["agent.py", "-s", "notes"], standalone_mode=False)
        seen = until(leader, b"echo\r\n")
    os.close(leader)

    assert b"no echo" in seen
    assert "script, saved as notes; /help for help, Ctrl-D to leave\n" in capsys.readouterr().err


def test_each_line_of_a_pipe_is_answered(cli: Callable[..., Any]) -> None:
    Path("agent.py").write_text(AGENT)

    ran = cli("chat", "agent.py", input='one\n\nsave a.txt\n"""\na\nb\n"""\n/usage\n')

    assert ran.code == 0
    assert ran.out == (
        "answer 1 to <one>\n"
        "answer 2 to <permission denied: save a.txt: no user can be asked;"
        " --allow save allows it, --yes allows everything>\n"
        "answer 3 to <a\nb>\n"
    )
    assert "8 messages" in ran.err


def test_slash_commands_from_a_pipe_print_unwrapped_lines(cli: Callable[..., Any]) -> None:
    for name in ("old", "new"):
        cli("run", "-m", "offline", "-s", name, f"the {name} one")

    ran = cli("chat", "-m", "offline", input="/help\n/tree\n/limits depth=3\n")

    lines = ran.err.splitlines()
    helps = [line for line in lines if line.startswith("/")]
    assert len({line.index(line.split("  ")[-1].lstrip()) for line in helps}) == 1
    assert [line.split()[0] for line in lines if line.endswith(" one")] == ["new", "old"]
    assert (
        "glue: there is no limit 'depth'; there are: max_turns, max_requests, token_budget, "
        "usd_budget, seconds"
    ) in lines


def test_cached_tokens_are_counted_once_in_the_context(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    given = command.make_context("chat", ["-m", "offline"]).params
    used = Usage(input=100, cache_read=80, output=10)
    result = Agent(Script(say("hello", usage=used))).run_sync("hi")

    with start_blocking_portal() as portal:
        chat = Chat(Sources(given), portal)
        chat._show(result)

    assert chat.context == 110


COUNTED = """\
from glue import Agent
from glue.providers import register
from glue.testing import Script, repeat, say

class Model(Script):
    async def aclose(self):
        print("closed")

def make(model, **options):
    print("opened")
    return Model(repeat(say("a summary")))

register("counted", make, model="one")
agent = Agent("counted:one")
"""


@pytest.mark.parametrize(
    ("name", "why"), [("nothing.txt", "does not exist"), ("folder", "is not a file")]
)
def test_a_word_that_names_no_file_is_sent_as_text(
    cli: Callable[..., Any], name: str, why: str
) -> None:
    Path("folder").mkdir()

    ran = cli("chat", "-m", "offline", input=f"read @{name}\n")

    assert ran.code == 0
    assert f"@{name} is sent as text, because this path {why}\n" in ran.err


def test_a_compaction_uses_the_provider_of_the_chat(
    cli: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "_registry", dict(registry._registry))
    Path("agent.py").write_text(COUNTED)

    done = cli("chat", "agent.py", input="one\ntwo\n/compact\nthree\n")

    assert done.code == 0
    assert "are now one summary" in done.err
    assert done.out.count("opened") == done.out.count("closed") == 1


def sessions(cli: Callable[..., Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(cli("sessions", "--json").out)
    return found


def test_a_chat_is_kept_and_continued(cli: Callable[..., Any]) -> None:
    Path("agent.py").write_text(AGENT)

    first = cli("chat", "agent.py", input="one\n")
    again = cli("chat", "agent.py", "-c", input="two\n")

    (kept,) = sessions(cli)
    assert re.fullmatch(r"chat-\d{8}-[0-9a-f]{6}", kept["id"])
    assert kept["title"] == "one"
    assert "chats are kept in" in first.err
    assert "for 90 days" in first.err
    assert again.out == "answer 2 to <two>\n"
    assert "chats are kept" not in cli("chat", "agent.py", input="three\n").err  # said once


def test_a_chat_with_no_save_is_not_kept(cli: Callable[..., Any]) -> None:
    Path("agent.py").write_text(AGENT)

    ran = cli("chat", "agent.py", "--no-save", input="one\n")

    assert ran.out == "answer 1 to <one>\n"
    assert sessions(cli) == []
    assert cli("chat", "--no-save", "-c").code == 2


def test_old_chats_are_removed_but_named_ones_are_not(
    cli: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("agent.py").write_text(AGENT)
    cli("chat", "agent.py", input="forgotten\n")
    cli("chat", "agent.py", input="named\n/save notes\n")
    monkeypatch.setenv("GLUE_CHAT_DAYS", "0")

    cli("chat", "agent.py", input="")

    assert [each["id"] for each in sessions(cli)] == ["notes"]


def test_a_store_that_is_a_file_is_refused(cli: Callable[..., Any]) -> None:
    Path("agent.py").write_text(AGENT)
    Path("store").write_text("not a folder")

    ran = cli("chat", "agent.py", "--store", "store", input="one\n")

    assert ran.code == 2
    assert "the store store is a file; name a folder" in ran.err


def test_a_limit_in_a_chat_names_the_commands_that_continue(cli: Callable[..., Any]) -> None:
    Path("agent.py").write_text(AGENT)
    typed = "save a.txt\n/limits max_turns=4\n/continue\n"

    ran = cli("chat", "agent.py", "-y", "--max-turns", "0", input=typed)

    assert ran.code == 0
    assert (
        "glue: max_turns reached: 0 of 0; /limits max_turns=N raises the limit, /continue"
        in ran.err
    )
    assert ran.out == "answer 1 to <saved a.txt>\n"


def test_undo_takes_back_the_last_prompt_and_its_answer(cli: Callable[..., Any]) -> None:
    Path("agent.py").write_text(AGENT)

    ran = cli("chat", "agent.py", "-y", input="one\nsave a.txt\n/undo\ntwo\n/undo\n/undo\n/undo\n")

    assert "removed: save a.txt; the effects of its tools are not undone" in ran.err
    assert "answer 2 to <two>" in ran.out
    assert "removed: one\n" in ran.err
    assert "glue: there is no prompt to remove" in ran.err


def test_copy_without_a_clipboard_is_an_error(
    cli: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")

    ran = cli("chat", "-m", "offline", input="/copy\nhi\n/copy\n")

    assert "glue: there is no answer to copy" in ran.err
    assert "glue: the answer cannot be copied: no program such as xclip works" in ran.err


PICTURE = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


def test_a_picture_is_attached_by_its_path(cli: Callable[..., Any]) -> None:
    Path("a b.png").write_bytes(PICTURE)
    Path("agent.py").write_text(
        "from glue import Agent\nfrom glue.testing import Script, repeat\n"
        "def answer(request):\n"
        "    return ' '.join(type(part).__name__ for part in request.messages[-1].content)\n"
        "agent = Agent(Script(repeat(answer)))\n"
    )

    ran = cli("chat", "agent.py", input="What is in 'a b.png'?\nand in a\\ b.png.\nin c.png?\n")

    assert ran.out == "Text Image\nText Image\nText\n"
    assert ran.err.count("the picture a b.png is attached to this prompt\n") == 2


def test_a_local_model_whose_template_has_no_tools_is_reported(
    cli: Callable[..., Any], loopback: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = b'{"capabilities": ["completion"]}'
    server = loopback(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body))
    monkeypatch.setenv("OLLAMA_BASE_URL", f"{server.url}/v1")

    ran = cli("chat", "-m", "ollama:tiny", "--tools", "fs", input="")
    without = cli("chat", "-m", "ollama:tiny", input="")

    assert "the chat template of ollama:tiny does not support tools" in ran.err
    assert "does not support tools" not in without.err


def test_an_interrupted_answer_is_shown_once_and_leaves_no_spinner(chat: Tmux) -> None:
    chat.type("an endless one", "Enter")
    chat.wait("It begins and continues")

    chat.type("C-c")
    chat.wait("(cancelled; you can continue from here)")
    chat.type("hello", "Enter")

    screen = chat.wait("answer 2 to <hello>")
    assert screen.count("It begins") == 1
    assert "thinking" not in screen


def test_single_line_breaks_of_an_answer_are_kept(chat: Tmux) -> None:
    chat.type("roses", "M-Enter", "violets", "Enter")

    chat.wait("answer 1 to <roses\nviolets>")


def test_undo_offers_the_prompt_for_editing(chat: Tmux) -> None:
    chat.type("hellp", "Enter")
    chat.wait("answer 1 to <hellp>")

    chat.type("/undo", "Enter")
    chat.wait("removed: hellp\n> hellp")
    chat.type("BSpace", "o", "Enter")

    chat.wait("answer 1 to <hello>")


def test_the_editor_writes_a_prompt(terminal: Tmux) -> None:
    editor = terminal.folder / "editor"
    editor.write_text('#!/bin/sh\necho "from the editor" > "$1"\n')
    editor.chmod(0o755)
    terminal.type(f"EDITOR={editor} {GLUE} chat agent.py", "Enter")
    terminal.wait("/help for help", "\n>")

    terminal.type("C-x", "C-e")

    terminal.wait("answer 1 to <from the editor>")


PRICED = """\
from glue import Agent, Usage
from glue.testing import Script, repeat, say

used = Usage(input=100, output=10, cost=0.5)

def answer(request):
    if {"one", "fail"} <= set(request.messages[-1].text.split()):
        return say("", usage=used)
    asked = sum(type(message).__name__ == "UserMessage" for message in request.messages)
    return say(f"answer {asked}", usage=used)

agent = Agent(Script(repeat(answer), name="acme", model="big"))
"""


def test_usage_is_added_up_over_the_prompts_and_a_summary_of_a_session(
    cli: Callable[..., Any],
) -> None:
    Path("agent.py").write_text(PRICED)

    ran = cli("chat", "agent.py", input="one\ntwo\n/usage\n/compact\n/usage\n/new other\n/usage\n")

    shown = [line for line in ran.err.splitlines() if " messages" in line and "tokens" in line]
    assert shown == [
        "2 requests, 200 tokens in, 20 out, $1.00, 4 messages",
        "3 requests, 300 tokens in, 30 out, $1.50, 5 messages",
        "0 requests, 0 tokens in, 0 out, $0.0000, 0 messages",
    ]
    assert "4 messages are now one summary of 8 characters\n" in ran.err


def test_a_summary_may_have_2000_tokens(cli: Callable[..., Any]) -> None:
    Path("agent.py").write_text(
        "from glue import Agent\nfrom glue.testing import Script, repeat\n"
        "agent = Agent(Script(repeat(lambda request: 'x' * (request.max_tokens or 1))))\n"
    )

    ran = cli("chat", "agent.py", input="hello\n/compact\n")

    assert "2 messages are now one summary of 2,000 characters\n" in ran.err


def test_a_session_of_less_than_two_messages_is_not_compacted(cli: Callable[..., Any]) -> None:
    Path("agent.py").write_text(PRICED)

    empty = cli("chat", "agent.py", input="/compact\n")
    cli("chat", "agent.py", "-s", "s", input="one\n")
    two = cli("chat", "agent.py", "-s", "s", input="/compact\n/compact\n")

    assert empty.err.endswith("\nthe session has nothing to compact yet\n")
    assert two.err.endswith(
        "2 messages are now one summary of 8 characters\nthe session has nothing to compact yet\n"
    )


def test_a_failed_compaction_changes_nothing_but_the_usage(cli: Callable[..., Any]) -> None:
    Path("agent.py").write_text(PRICED)

    ran = cli("chat", "agent.py", input="one\nnever fail\n/compact\n/usage\n")

    assert ran.err.endswith(
        "glue: acme: the model sent an empty reply\n"
        "3 requests, 300 tokens in, 30 out, $1.50, 4 messages\n"
    )


@pytest.mark.parametrize(
    ("argument", "answers"), [("", 4), ("1", 2), ("0", 1), ("-1", 3), ("3", 4), ("-3", 1)]
)
def test_a_fork_has_all_prompts_or_the_first_or_all_but_the_last(
    cli: Callable[..., Any], argument: str, answers: int
) -> None:
    Path("agent.py").write_text(PRICED)

    ran = cli("chat", "agent.py", input=f"a\nb\nc\n/fork {argument}\nd\n/save\n")

    assert ran.out.splitlines()[-1] == f"answer {answers}"
    first, second = sessions(cli)
    assert f"forked {second['id']} after {2 * (answers - 1)} messages;" in ran.err
    assert f"this chat continues in session {first['id']}\n" in ran.err
    assert ran.err.endswith(f"saved as {first['id']}\n")
    assert first["parent"] == second["id"]
    assert re.fullmatch(r"chat-\d{8}-[0-9a-f]{6}", first["id"])


@pytest.mark.parametrize(
    ("argument", "fault"),
    [
        ("2", "/fork takes a number from -1 to 1, because the session has 1 prompt"),
        ("-2", "/fork takes a number from -1 to 1, because the session has 1 prompt"),
        ("x", "/fork takes a number of prompts, not 'x'"),
    ],
)
def test_a_fork_of_other_prompts_is_refused(
    cli: Callable[..., Any], argument: str, fault: str
) -> None:
    Path("agent.py").write_text(PRICED)

    ran = cli("chat", "agent.py", input=f"a\n/fork {argument}\nb\n")

    assert f"glue: {fault}\n" in ran.err
    assert ran.out == "answer 1\nanswer 2\n"
    assert len(sessions(cli)) == 1


def test_a_saved_chat_gets_its_name_and_a_second_name_is_a_copy(cli: Callable[..., Any]) -> None:
    Path("agent.py").write_text(PRICED)

    ran = cli("chat", "agent.py", input="a\n/save notes\nb\n/save\n/save copy\nc\n")

    assert "saved as notes; `glue chat -s notes` continues it\nsaved as notes\n" in ran.err
    assert {each["id"] for each in sessions(cli)} == {"notes", "copy"}
    assert cli("chat", "agent.py", "-s", "notes", input="d\n").out == "answer 3\n"
    assert cli("chat", "agent.py", "-s", "copy", input="d\n").out == "answer 4\n"


def test_a_chat_that_is_not_kept_can_be_saved(cli: Callable[..., Any]) -> None:
    Path("agent.py").write_text(PRICED)

    ran = cli("chat", "agent.py", "--no-save", input="a\n/new\nb\n/save notes\nc\n")

    assert "new session; the previous session was not saved\n" in ran.err
    assert [each["id"] for each in sessions(cli)] == ["notes"]
    assert ran.out == "answer 1\nanswer 1\nanswer 2\n"


def test_a_new_session_is_stored_if_the_previous_one_is(cli: Callable[..., Any]) -> None:
    Path("agent.py").write_text(PRICED)

    ran = cli(
        "chat", "agent.py", "-s", "old", input="a\n/new\nb\n/new named\nc\n/resume old\nd\n/save\n"
    )

    assert ran.out == "answer 1\nanswer 1\nanswer 1\nanswer 2\n"
    (unnamed,) = {each["id"] for each in sessions(cli)} - {"old", "named"}
    assert "; /resume old returns to the previous session\n" in ran.err
    assert f"new session, saved as named; /resume {unnamed} returns" in ran.err
    assert "old: 2 messages\n> a\nanswer 1\n" in ran.err
    assert ran.err.endswith("saved as old\n")


def test_without_a_name_sessions_are_listed_and_an_unknown_name_is_refused(
    cli: Callable[..., Any],
) -> None:
    Path("agent.py").write_text(PRICED)

    ran = cli("chat", "agent.py", "-s", "old", input="a\n/resume\n/resume other\n/nonsense\n")

    assert "* old  a\n/resume NAME continues a session\n" in ran.err
    assert "glue: unknown session 'other'; /tree lists the sessions\n" in ran.err
    assert "glue: unknown command /nonsense; /help lists the commands\n" in ran.err


def test_a_chat_without_stored_sessions_shows_the_way_to_store_one(
    cli: Callable[..., Any],
) -> None:
    ran = cli("chat", "-m", "offline", "--no-save", input="/tree\n")

    assert (ran.code, ran.out) == (0, "")
    assert "no sessions are stored; /save stores this one\n" in ran.err


def test_the_usage_of_each_run_is_printed_only_if_verbose(cli: Callable[..., Any]) -> None:
    Path("agent.py").write_text(PRICED)

    verbose, plain = (cli("chat", "agent.py", *flag, input="a\n") for flag in (("-v",), ()))

    assert "100 tokens in, 10 out, $0.5000, 1 request, " in verbose.err
    assert "tokens" not in plain.err


def test_waiting_calls_of_a_chat_in_a_pipe_are_printed_and_block_a_prompt(
    cli: Callable[..., Any],
) -> None:
    Path("agent.py").write_text(AGENT)
    options = ("--on-question", "defer", "--store", "kept", "-s", "s")
    cli("run", "agent.py", *options, "save a.txt")

    ran = cli("chat", "agent.py", "--store", "kept", "-s", "s", input="hello\n/compact\n")

    assert ran.err.count("paused: 1 call waits in session s; answer with --allow, --deny") == 2
    assert " --store kept --allow\n" in ran.err
    assert "the prompt was not sent, because a tool call waits for an answer\n" in ran.err
    assert "a tool call waits for an answer, so the session cannot be compacted now\n" in ran.err
    assert (ran.code, ran.out) == (6, "")


def test_a_tool_that_exits_ends_the_chat_and_its_log(
    cli: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GLUE_LOG", "1")
    Path("agent.py").write_text(
        "import sys\nfrom glue import Agent, tool\nfrom glue.testing import Script, call, calls\n"
        "@tool\ndef leave() -> str:\n    'Leave.'\n    sys.exit(3)\n"
        "agent = Agent(Script(calls(call('leave'))), tools=[leave])\n"
    )

    ran = cli("chat", "agent.py", input="go\nnever read\n")

    assert ran.code == 3
    (run,) = json.loads(cli("runs", "--json").out)
    assert (run["outcome"], run["prompt"], run["agent"]) == ("failed", "go", "agent")


def test_an_output_object_is_printed_as_json(cli: Callable[..., Any]) -> None:
    Path("agent.py").write_text(
        "from dataclasses import dataclass\nfrom glue import Agent\n"
        "from glue.testing import Script, call, calls, repeat\n"
        "@dataclass\nclass Team:\n    name: str\n"
        "final = calls(call('final_answer', {'name': 'red'}))\n"
        "agent = Agent(Script(repeat(final)), output=Team)\n"
    )

    ran = cli("chat", "agent.py", input="which?\nand now?\n")

    assert ran.out == '{\n  "name": "red"\n}\n' * 2


def test_a_notice_that_is_repeated_is_shown_once(cli: Callable[..., Any]) -> None:
    ran = cli("chat", "-m", "offline", "--no-save", input="a\nb\nc\n")

    notices = [line for line in ran.err.splitlines() if line.startswith("glue:")]
    assert len(notices) == 1
    assert notices[0].startswith("glue: the offline stand-in answered, not a model; ")


def test_a_resumed_answer_is_cut_to_eight_lines_of_the_width_of_the_terminal(
    cli: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    Path("agent.py").write_text(
        "from glue import Agent\nfrom glue.testing import Script, repeat\n"
        "agent = Agent(Script(repeat(lambda request: request.messages[-1].text)))\n"
    )
    lines = "\\\n".join(str(number) * 50 for number in range(9))
    cli("chat", "agent.py", "-s", "long", input=f"{lines}\n")
    cli("chat", "agent.py", "-s", "short", input="\\\n".join("12345678") + "\n")

    ran = cli("chat", "agent.py", "--no-save", input="/resume long\n/resume short\n")

    assert ran.err.splitlines() == [
        "long: 2 messages",
        "> " + "0" * 36 + "…",
        *(str(number) * 38 + "…" for number in range(8)),
        "… 1 more lines; `glue sessions show long`",
        "short: 2 messages",
        "> 1 2 3 4 5 6 7 8",
        *"12345678",
    ]


def test_a_call_of_an_external_tool_pauses_a_chat_in_a_pipe(cli: Callable[..., Any]) -> None:
    Path("agent.py").write_text(
        "from glue import Agent, tool\nfrom glue.testing import Script, call, calls\n"
        "@tool(external=True)\ndef look_up(query: str) -> str:\n    'Look up.'\n"
        "agent = Agent(Script(calls(call('look_up', {'query': 'x'}, id='c1'))), tools=[look_up])\n"
    )

    ran = cli("chat", "agent.py", "-s", "s", input="go\n")

    assert ran.code == 6
    assert ran.err.splitlines()[-3:] == [
        "paused: 1 call waits in session s; answer with --allow, --deny REASON or --result TEXT:",
        "  c1: look_up (this tool is external: pass its result to resume())",
        "    glue sessions answer s c1 --result TEXT",
    ]


def test_lines_about_sessions_and_prompts_fit_the_terminal(
    cli: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")

    ran = cli("chat", "-m", "offline", "-s", "s", input=f"{'x' * 70}\n/tree\n/undo\n")

    tree, removed = (line for line in ran.err.splitlines() if "xxx" in line)
    assert tree == "* s  " + "x" * 33 + "…"
    assert removed == "removed: " + "x" * 59 + "…"


def test_the_tree_lists_the_50_newest_sessions(cli: Callable[..., Any]) -> None:
    store = MemoryStore()
    Agent(Script("hi")).session("s", store=store).run_sync("hello")

    async def copies() -> None:
        for number in range(51):
            await copy(store, "s", FileStore("kept"), f"s{number}")

    anyio.run(copies)

    ran = cli("chat", "-m", "offline", "--store", "kept", "--no-save", input="/tree\n")

    assert ran.err.count("  hello\n") == 50


@pytest.mark.parametrize(
    ("cost", "shown"), [(0.25, "99,000 in, 1,000 out · $0.2500"), (None, "99,000 in, 1,000 out")]
)
def test_the_status_line_shows_the_context_the_tokens_and_the_cost(
    cli: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, cost: float | None, shown: str
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("GROQ_API_KEY", "not" + "-a-key")
    given = command.make_context("chat", ["-m", "groq", "-s", "notes"]).params
    used = Usage(input=99_000, output=1_000, cost=cost)
    result = Agent(Script(say("hello", usage=used))).run_sync("hi")

    with start_blocking_portal() as portal:
        chat = Chat(Sources(given), portal)
        portal.call(chat.begin)
        before = chat.status()
        chat._show(result)
        after = chat.status()
        monkeypatch.setenv("COLUMNS", "40")
        narrow = chat.status()
        portal.call(chat.agent.aclose)

    window = capabilities("groq").window
    assert window is not None
    context = f"context {100_000 / window:.0%} of {window:,}".replace("%", " %")
    assert before == "groq · saved as notes"
    assert after == f"groq · {context} · {shown} · saved as notes"
    assert narrow == f"{after[:38]}…"  # the last column stays empty


def test_the_last_answer_is_copied_with_a_program(
    cli: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("agent.py").write_text(PRICED)
    (tmp_path / "pbcopy").write_text(f"#!/bin/sh\n/bin/cat > {tmp_path / 'copied'}\n")
    (tmp_path / "pbcopy").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    for name in ("WAYLAND_DISPLAY", "DISPLAY", "TMUX"):
        monkeypatch.delenv(name, raising=False)

    ran = cli("chat", "agent.py", input="a\nb\n/copy\n")

    assert ran.err.endswith("copied 8 characters (pbcopy)\n")
    assert (tmp_path / "copied").read_text() == "answer 2"


def test_a_prompt_with_a_file_that_cannot_be_read_is_not_sent(cli: Callable[..., Any]) -> None:
    Path("agent.py").write_text(PRICED)
    Path("data.bin").write_bytes(b"\xff\xfe")

    ran = cli("chat", "agent.py", input="read @data.bin\n")

    assert (ran.code, ran.out) == (2, "")
    assert ran.err.splitlines()[-1].startswith(
        "glue: @data.bin is neither UTF-8 text nor a PDF nor an image ("
    )


def test_a_chat_that_has_nothing_to_continue_exits_with_1(cli: Callable[..., Any]) -> None:
    ran = cli("chat", "-m", "offline", "--no-save", input="/continue\n")

    assert ran.code == 1
    assert ran.err.endswith("glue: there is nothing to resume: the transcript is empty\n")
