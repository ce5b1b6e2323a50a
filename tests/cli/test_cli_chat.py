"""The chat, driven as a person drives it: keys in, what stands on the screen out."""

from __future__ import annotations

import os
import pty
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from anyio.from_thread import start_blocking_portal

from glue import Agent, Usage, providers
from glue.cli.chat import Chat
from glue.cli.chat import chat as command
from glue.cli.options import Sources
from glue.testing import Script, say

GLUE = str(Path(sys.executable).parent / "glue")
SECONDS = 60.0  # until a busy machine has surely shown it

AGENT = '''\
import anyio

from glue import Agent, Done, TextDelta, tool
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
            yield TextDelta(text=" and goes on")
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
    """A terminal in a tmux server of its own."""

    def __init__(self, folder: Path, columns: int = 100) -> None:
        self.folder = folder
        self.socket = str(folder / "tmux")
        env = {"PATH": os.environ["PATH"], "HOME": str(folder), "LANG": "C.UTF-8", "PS1": "$ "}
        size = ("-x", str(columns), "-y", "50")
        self._run("-f", os.devnull, "new-session", "-d", *size, "-c", str(folder), "sh", env=env)

    def _run(self, *args: str, env: dict[str, str] | None = None) -> str:
        line = ["tmux", "-u", "-S", self.socket, *args]
        done = subprocess.run(line, capture_output=True, check=True, timeout=SECONDS, env=env, encoding="utf-8")
        return done.stdout

    def type(self, *keys: str) -> None:
        """Press keys: words are typed as they are, names such as Enter and C-c are keys."""
        line: list[str] = []
        for key in keys:
            special = key in ("Enter", "Up", "BSpace", "Tab") or (key[:2] in ("C-", "M-") and len(key) in (3, 7))
            line += [";"] if line else []
            line += ["send-keys", *(() if special else ("-l", "--")), key]
        self._run(*line)

    def paste(self, text: str) -> None:
        """Paste a text as a terminal does, in brackets."""
        (self.folder / "paste").write_text(text)
        self._run("load-buffer", str(self.folder / "paste"))
        self._run("paste-buffer", "-p")

    def screen(self) -> str:
        return self._run("capture-pane", "-p", "-S", "-200")

    def wait(self, *texts: str) -> str:
        """Look at the screen until it shows every text."""
        end = time.monotonic() + SECONDS
        while True:
            screen = self.screen()
            if all(text in screen for text in texts):
                return screen
            assert time.monotonic() < end, f"never showed {texts!r}:\n{screen}"

    def leave(self) -> None:
        """Leave the chat; what is typed before the shell is back would be lost."""
        self.type("/quit", "Enter")
        self.wait("> /quit\n#")

    def close(self) -> None:
        subprocess.run(["tmux", "-S", self.socket, "kill-server"], capture_output=True, check=False, timeout=SECONDS)


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Tmux]:
    if shutil.which("tmux") is None:
        pytest.skip("tmux is not installed")
    (tmp_path / "agent.py").write_text(AGENT)
    tmux = Tmux(tmp_path)
    tmux.wait("#")  # typed before the shell is ready, a command stands above its prompt
    yield tmux
    tmux.close()


@pytest.fixture
def chat(terminal: Tmux) -> Tmux:
    terminal.type(f"{GLUE} chat agent.py", "Enter")
    terminal.wait("/help for help", "\n>")
    return terminal


def test_an_answer_streams(chat: Tmux) -> None:
    chat.type("hello", "Enter")
    chat.wait("answer 1 to <hello>")

    chat.type("an endless one", "Enter")

    chat.wait("It begins and goes on")  # there, while the answer is far from done


def test_an_interrupt_cancels_the_turn_and_the_conversation_goes_on(chat: Tmux) -> None:
    chat.type("an endless one", "Enter")
    chat.wait("It begins")

    chat.type("C-c")
    chat.wait("(cancelled; the conversation goes on from here)")
    chat.type("hello again", "Enter")

    chat.wait("answer 2 to <hello again>")


def test_a_second_interrupt_leaves(chat: Tmux) -> None:
    chat.type("C-c")
    chat.wait("(Ctrl-C again leaves)\n>")

    chat.type("C-c")
    chat.wait("\n#")
    chat.type("echo left with $?", "Enter")

    chat.wait("left with 0")


def test_permission_is_asked_inline(chat: Tmux) -> None:
    chat.type("save one.txt", "Enter")
    chat.wait("? save one.txt", "[y]es, [n]o")
    chat.type("n", "Enter")
    chat.wait("✗ save(name=one.txt)  failed", "permission denied: save one.txt: the user said no")

    chat.type("save two.txt", "Enter")
    chat.wait("? save two.txt")
    chat.type("y", "Enter")
    chat.wait("· save(name=two.txt)  ok", "<saved two.txt>")


def test_a_permission_for_the_session_is_remembered(chat: Tmux) -> None:
    chat.type("save one.txt", "Enter")
    chat.wait("? save one.txt")
    chat.type("s", "Enter")
    chat.wait("<saved one.txt>")

    chat.type("save two.txt", "Enter")

    assert "? save two.txt" not in chat.wait("<saved two.txt>")


def test_an_interrupt_at_a_question_cancels_the_turn(chat: Tmux) -> None:
    chat.type("save one.txt", "Enter")
    chat.wait("? save one.txt", "[y]es, [n]o")

    chat.type("C-c")
    chat.wait("(cancelled; the conversation goes on from here)")
    chat.type("hello", "Enter")

    chat.wait("to <hello>")


def test_a_fork_goes_on_from_where_it_was_made(chat: Tmux) -> None:
    chat.type("one", "Enter")
    chat.wait("answer 1 to <one>")
    chat.type("two", "Enter")
    chat.wait("answer 2 to <two>")

    chat.type("/fork 1", "Enter")
    chat.wait("after 2 messages; you are in ")
    chat.type("another two", "Enter")

    chat.wait("answer 2 to <another two>")
    chat.type("/fork 9", "Enter")
    chat.wait("there are 2 prompts")


def test_a_saved_chat_can_be_continued(chat: Tmux) -> None:
    chat.type("one", "Enter")
    chat.wait("answer 1 to <one>")
    chat.type("/save notes", "Enter")
    chat.wait("kept as notes")
    chat.type("two", "Enter")
    chat.wait("answer 2 to <two>")
    chat.leave()

    chat.type(f"{GLUE} chat agent.py -c", "Enter")
    chat.wait("kept as notes; /help for help")
    chat.type("three", "Enter")

    chat.wait("answer 3 to <three>")


@pytest.fixture
def plain(terminal: Tmux) -> Tmux:
    """A chat where the extra is not installed."""
    for name in ("prompt_toolkit", "rich"):
        (terminal.folder / "lib").mkdir(exist_ok=True)
        (terminal.folder / "lib" / f"{name}.py").write_text("raise ImportError(__name__)\n")
    terminal.type(f"PYTHONPATH=lib {GLUE} chat agent.py", "Enter")
    terminal.wait("pip install 'glue-agents[chat]'", "\n>")
    return terminal


def test_without_the_extra_lines_are_edited_and_joined(plain: Tmux) -> None:
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


def test_prompts_of_many_lines_are_one_and_are_remembered(chat: Tmux) -> None:
    chat.type("helloo", "BSpace", "Enter")
    chat.wait("answer 1 to <hello>\n>")
    chat.paste("one\ntwo\nthree")
    chat.type("Enter")
    chat.wait("answer 2 to <one two three>\n>")
    chat.type("a", "M-Enter", "b", "Enter")
    chat.wait("> a\n. b", "answer 3 to <a b>")

    chat.leave()
    chat.type("clear", "Enter", f"{GLUE} chat agent.py", "Enter")
    chat.wait("script; /help for help", "\n>")
    chat.type("Up", "Up", "Up", "Up", "Up", "Enter")

    chat.wait("answer 1 to <one two three>")


def test_commands_and_files_are_completed_and_sent(chat: Tmux) -> None:
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


def test_markdown_is_rendered_and_nothing_in_it_is_lost(chat: Tmux) -> None:
    chat.type("**bold** `code` <b>tag</b> [text](https://evil.example)", "Enter")

    screen = chat.wait("answer 1 to <bold code <b>tag</b> text")
    assert "**" not in screen.partition("answer 1")[2]


def test_a_call_is_one_line_with_its_result_and_a_change_is_a_diff(chat: Tmux) -> None:
    (chat.folder / "a.txt").write_text("one\ntwo\n")

    chat.type("write a.txt", "Enter")
    chat.wait("? write_file a.txt", " one\n    -two\n    +three", "[y]es")
    chat.type("y", "Enter")

    chat.wait("· write_file(path=a.txt", "wrote it  (+1 lines)")


def test_conversations_are_begun_listed_resumed_and_compacted(chat: Tmux) -> None:
    chat.type("one", "Enter")
    chat.wait("answer 1 to <one>")
    chat.type("/save first", "Enter", "/new second", "Enter", "two", "Enter")
    chat.wait("kept as first", "a new conversation, kept as second", "answer 1 to <two>")
    chat.type("/tree", "Enter")
    chat.wait("* second", "  first")
    chat.type("/resume first", "Enter")
    chat.wait("first: 2 messages\n> one\nanswer 1 to <one>")
    chat.type("/compact", "Enter")
    chat.wait("2 messages are now one summary")
    chat.type("three", "Enter")

    chat.wait("answer 2 to <three>")


def test_an_interrupt_ends_a_compaction_and_not_the_chat(chat: Tmux) -> None:
    chat.type("an endless one", "Enter")
    chat.wait("It begins")
    chat.type("C-c")
    chat.wait("(cancelled; the conversation goes on from here)")

    chat.type("/compact", "Enter")
    chat.wait("compacting")
    chat.type("C-c")
    chat.wait("glue: the run was cancelled")
    chat.type("hello", "Enter")

    chat.wait("answer 2 to <hello>")


def test_a_resumed_chat_begins_with_a_recap(chat: Tmux) -> None:
    chat.type("one", "Enter")
    chat.wait("answer 1 to <one>")
    chat.type("/save first", "Enter")
    chat.wait("kept as first")
    chat.leave()
    chat.type("clear", "Enter", f"{GLUE} chat agent.py -s first", "Enter")

    chat.wait("first: 2 messages\n> one\nanswer 1 to <one>", "kept as first")


@pytest.mark.soak
@pytest.mark.parametrize("columns", [60, 80, 200])
def test_a_chat_at_every_width(tmp_path: Path, columns: int) -> None:
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
        tmux.wait("answer 1 to", "kept as wide")
        tmux.type("save one.txt", "Enter")
        tmux.wait("? save one.txt", "[y]es")
        tmux.type("y", "Enter")
        tmux.wait("answer 2 to <saved one.txt>")
        tmux.type("endless", "Enter")
        tmux.wait("It begins")
        tmux.type("C-c")
        screen = tmux.wait("(cancelled; the conversation goes on from here)")
    finally:
        tmux.close()
    assert "Traceback" not in screen
    assert "\ufffd" not in screen


def test_the_commands_of_a_chat(chat: Tmux) -> None:
    chat.type("/help", "Enter", "/tools", "Enter", "/model", "Enter", "/usage", "Enter", "/nonsense", "Enter")

    screen = chat.wait("/save", "- save (asks): Save a file.", "The model is script.", "0 messages", "no /nonsense")
    assert "Traceback" not in screen
    chat.type("/model nope", "Enter")
    chat.wait("unknown provider 'nope'")


def test_a_run_asks_at_the_terminal_too(terminal: Tmux) -> None:
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
    with subprocess.Popen(line, stdin=follower, stdout=follower, stderr=follower, env=env, cwd=tmp_path) as run:
        os.close(follower)
        seen = until(leader, b"> ")
        os.write(leader, b"hello\n")
        seen += until(leader, b"answer 1 to <hello>")
        os.write(leader, b"save a.txt\n")
        seen += until(leader, b"of save > ")
        os.write(leader, b"y\n")
        seen += until(leader, b"<saved a.txt>")
        os.write(leader, b"/quit\n")
        assert run.wait(SECONDS) == 0
    os.close(leader)

    assert b"\x1b" not in seen


def until(fd: int, text: bytes) -> bytes:
    """Read what a terminal shows until it shows a text."""
    seen = b""
    end = time.monotonic() + SECONDS
    while text not in seen:
        ready = select.select([fd], [], [], max(end - time.monotonic(), 0))[0]
        assert ready, f"never showed {text!r}: {seen!r}"
        seen += os.read(fd, 4096)
    return seen


def test_lines_from_a_pipe_are_answered_one_by_one(cli: Callable[..., Any]) -> None:
    Path("agent.py").write_text(AGENT)

    ran = cli("chat", "agent.py", input='one\n\nsave a.txt\n"""\na\nb\n"""\n/usage\n')

    assert ran.code == 0
    assert ran.out == (
        "answer 1 to <one>\n"
        "answer 2 to <permission denied: save a.txt: nobody can be asked here;"
        " --allow save allows it, --yes allows everything>\n"
        "answer 3 to <a\nb>\n"
    )
    assert "8 messages" in ran.err


def test_what_a_pipe_is_told_is_one_line_each(cli: Callable[..., Any]) -> None:
    for name in ("old", "new"):
        cli("run", "-m", "offline", "-s", name, f"the {name} one")

    ran = cli("chat", "-m", "offline", input="/help\n/tree\n/limits depth=3\n")

    lines = ran.err.splitlines()
    helps = [line for line in lines if line.startswith("/")]
    assert len({line.index(line.split("  ")[-1].lstrip()) for line in helps}) == 1
    assert [line.split()[0] for line in lines if line.endswith(" one")] == ["new", "old"]
    assert (
        "glue: there is no limit 'depth'; there are: max_turns, max_requests, token_budget, usd_budget, seconds"
        in lines
    )


def test_tokens_from_a_cache_fill_the_context_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_a_file_that_is_not_there_is_named(cli: Callable[..., Any]) -> None:
    ran = cli("chat", "-m", "offline", input="read @nothing.txt\n")

    assert (ran.code, "there is no file nothing.txt: the word is sent as it is" in ran.err) == (0, True)


def test_a_compaction_leaves_no_provider_open(cli: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(providers, "_registry", dict(providers._registry))
    Path("agent.py").write_text(COUNTED)

    done = cli("chat", "agent.py", input="one\ntwo\n/compact\nthree\n")

    assert done.code == 0
    assert "are now one summary" in done.err
    assert done.out.count("opened") == done.out.count("closed") == 1
