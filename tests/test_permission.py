"""Permission: policies that allow and refuse tool calls."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import unicodedata
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest
from fakes.commands import CODE, FILES, HIDDEN, ORDINARY, lines

import glue
from glue.context import Spending
from glue.testing import Script, call
from glue.toolnames import registered_tool_names
from glue.tools import fs, git, shell


def request(
    action: str = "write", target: str = "a", session: str = "s"
) -> glue.permission.PermissionRequest:
    return glue.permission.PermissionRequest(
        tool="save", action=action, target=target, arguments={}, session_id=session
    )


ran: list[str] = []


@glue.tool(needs_permission="write", target="path")
async def save(path: str = "default.txt", text: str = "") -> str:
    ran.append(path)
    return "saved"


async def invoke(tool: glue.Tool[..., Any], arguments: Any, policy: Any) -> glue.ToolResult:
    asked = call(tool.name, arguments, id="c1")
    context: glue.Context[Any] = glue.Context(
        call=asked,
        host=glue.context.Host(permission=policy, session_id="s"),
        cancel=glue.Cancel(),
        spending=Spending(),
        report=lambda *said: None,
    )
    ran.clear()
    return await tool.invoke(asked, context)


class Policy:
    def __init__(self, answer: Any) -> None:
        self.answer = answer
        self.seen: list[glue.permission.PermissionRequest] = []

    def decide(self, request: glue.permission.PermissionRequest) -> Any:
        self.seen.append(request)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


@pytest.mark.parametrize("pattern", [".", "?", "*.", "a"])
def test_a_call_without_a_target_is_not_matched_by_the_name_of_a_folder(pattern: str) -> None:
    allowed = glue.Rules(allow=[f"write:{pattern}"])
    denied = glue.Rules(deny=[f"write:{pattern}"], otherwise=glue.AllowAll())

    assert not decision_of(allowed, request(target="")).allowed
    assert decision_of(denied, request(target="")).allowed
    assert decision_of(glue.Rules(allow=["write:*"]), request(target="")).allowed
    assert not decision_of(
        glue.Rules(deny=["write:*"], otherwise=glue.AllowAll()), request(target="")
    ).allowed


@pytest.mark.parametrize(
    ("target", "allow", "deny"),
    [
        ("docs/a", True, True),
        ("docs/../src/a", False, True),
        ("docs/./a", True, True),
        ("./docs/a", False, True),
        ("src/../docs/a", False, True),
        ("src/a", False, False),
    ],
)
def test_a_path_with_dots_is_allowed_only_if_both_of_its_spellings_are(
    target: str, allow: bool, deny: bool
) -> None:
    allowing = glue.Rules(allow=["write:docs/*"])
    denying = glue.Rules(deny=["write:docs/*"], otherwise=glue.AllowAll())

    assert decision_of(allowing, request(target=target)).allowed is allow
    assert decision_of(denying, request(target=target)).allowed is not deny


def shell_request(command: str | tuple[str, ...]) -> glue.permission.PermissionRequest:
    touched = glue.permission.PermissionTarget(text=str(command), command=command)
    return glue.permission.PermissionRequest(
        tool="shell", action="shell", target=str(command), arguments={}, touched=touched
    )


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ("git status", ""),
        (
            "git status | head",
            "the rule 'shell:git *' does not allow it: the line is not one plain command",
        ),
        (
            "git log > out",
            "the rule 'shell:git *' does not allow it: the line is not one plain command",
        ),
        ("gitk | head", "no rule allows it"),
        ("head | git log", "no rule allows it"),
        ("gits tatus", "no rule allows it"),
        ("", "no rule allows it"),
    ],
)
def test_the_reason_of_a_refused_command_names_the_rule_that_almost_allows_it(
    command: str, reason: str
) -> None:
    decision = decision_of(glue.Rules(allow=["shell:git *"]), shell_request(command))

    assert (decision.allowed, decision.reason) == (not reason, reason)


def decision_of(
    policy: glue.permission.Permission, asked: glue.permission.PermissionRequest
) -> glue.permission.Decision:
    decision = policy.decide(asked)
    assert isinstance(decision, glue.permission.Decision)
    return decision


async def test_a_call_without_a_policy_is_refused() -> None:
    result = await invoke(save, {"path": "a.txt"}, None)

    assert result.is_error
    assert result.text == "permission denied: write a.txt: no permission policy is set"
    assert ran == []


async def test_a_policy_gets_the_tool_its_target_and_its_arguments() -> None:
    policy = Policy(glue.allow())

    result = await invoke(save, {"path": "a.txt", "text": "hello"}, policy)

    assert result.text == "saved"
    assert policy.seen == [
        glue.permission.PermissionRequest(
            tool="save",
            action="write",
            target="a.txt",
            arguments={"path": "a.txt", "text": "hello"},
            call_id="c1",
            session_id="s",
        )
    ]


async def test_the_target_is_the_default_of_an_omitted_argument() -> None:
    policy = Policy(glue.allow())

    await invoke(save, {}, policy)

    assert policy.seen[0].target == "default.txt"


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (glue.deny("not today"), "permission denied: write a: not today"),
        (glue.deny(), "permission denied: write a"),
        (False, "permission denied: write a"),
        (None, "permission denied: write a: the policy answered None, which is not a decision"),
        ("yes", "permission denied: write a: the policy answered 'yes', which is not a decision"),
        (
            OSError("no terminal"),
            "save: permission denied, because the permission policy failed: no terminal",
        ),
    ],
)
async def test_any_answer_except_true_or_a_decision_is_a_refusal(answer: Any, text: str) -> None:
    result = await invoke(save, {"path": "a"}, Policy(answer))

    assert result.is_error
    assert result.text == text
    assert ran == []


async def test_a_call_is_refused_if_its_target_function_fails() -> None:
    @glue.tool(needs_permission=True, target=lambda arguments: str(arguments["nothing"]))
    def one(path: str) -> None:
        ran.append(path)

    result = await invoke(one, {"path": "a"}, glue.AllowAll())

    assert result.is_error
    assert ran == []


async def test_the_action_is_the_name_of_the_tool_by_default() -> None:
    @glue.tool(needs_permission=True)
    def one() -> str:
        return "ran"

    policy = Policy(True)

    assert (await invoke(one, {}, policy)).text == "ran"
    assert policy.seen[0].action == "one"


async def test_a_policy_is_not_asked_about_invalid_arguments() -> None:
    policy = Policy(True)

    assert (await invoke(save, {"path": 3}, policy)).is_error
    assert policy.seen == []


@pytest.mark.parametrize(
    ("rules", "allowed"),
    [
        (glue.Rules(), False),
        (glue.Rules(allow=["write"]), True),
        (glue.Rules(allow=["write:docs/*"]), True),
        (glue.Rules(allow=["write:src/*"]), False),
        (glue.Rules(allow=["w*"]), True),
        (glue.Rules(allow=["write"], deny=["write:docs/*"]), False),
        (glue.Rules(allow=["Write"]), False),
        (glue.Rules(otherwise=glue.AllowAll()), True),
        (glue.Rules(deny=["write"], otherwise=glue.AllowAll()), False),
    ],
)
async def test_rules_decide_by_action_and_target(rules: glue.Rules, allowed: bool) -> None:
    result = await invoke(save, {"path": "docs/a.md"}, rules)

    assert result.is_error is not allowed


@pytest.mark.parametrize(
    ("path", "allowed"),
    [
        ("docs/a.md", True),
        ("docs/./a.md", True),
        ("docs/../a.md", False),
        ("docs/../b.md", False),
        ("c//d.md", False),
    ],
)
async def test_rules_normalize_a_target_that_is_a_path(path: str, allowed: bool) -> None:
    rules = glue.Rules(allow=["write:docs/*", "write:c//*"], deny=["write:b.md", "write:c/d.md"])

    assert (await invoke(save, {"path": path}, rules)).is_error is not allowed


def test_a_rule_allows_an_address_whose_slashes_are_not_those_of_a_path() -> None:
    rules = glue.Rules(allow=["fetch:https://example.com/*"])

    for address, allowed in (
        ("https://example.com/a", True),
        ("https://example.com/a/../b", False),
        ("https://other.com/a", False),
    ):
        assert decision_of(rules, request("fetch", address)).allowed is allowed


@pytest.mark.parametrize(
    ("folds", "name", "allowed"),
    [
        (True, "DOCS/Stra\u00dfe", True),
        (True, "docs/STRASSE", True),
        (False, "docs/stra\u00dfe", True),
        (False, "Docs/stra\u00dfe", False),
        (False, "docs/strasse", False),
    ],
)
def test_rules_ignore_case_only_on_a_file_system_that_ignores_case(
    folds: bool, name: str, allowed: bool
) -> None:
    touched = glue.permission.PermissionTarget(text=name, paths=(name,), folds=folds)
    asked = replace(request(target=name), touched=touched)

    assert decision_of(glue.Rules(allow=["write:docs/stra\u00dfe"]), asked).allowed is allowed


def test_a_refused_file_is_not_called_a_command() -> None:
    decision = decision_of(glue.Rules(allow=["write:docs/*"]), request(target="src/a"))

    assert decision == glue.deny("no rule allows it")


def test_the_reason_of_the_rules_replaces_an_empty_reason_of_the_policy_behind_them() -> None:
    def decide(otherwise: glue.permission.Permission) -> glue.permission.Decision:
        rules = glue.Rules(allow=["shell:git *"], otherwise=otherwise)
        return decision_of(rules, shell_request("git status | head"))

    near = "the rule 'shell:git *' does not allow it: the line is not one plain command"
    assert decide(glue.permission.DenyAll()) == glue.deny(near)
    assert decide(glue.permission.DenyAll("never")) == glue.deny("never")
    assert decide(glue.AllowAll()) == glue.allow()


@pytest.mark.parametrize(
    ("rule", "action", "matches"),
    [
        ("mcp-question", "mcp-question:files", True),
        ("mcp-question:files", "mcp-question:files", True),
        ("mcp-question:f*", "mcp-question:files", True),
        ("mcp-question:mail", "mcp-question:files", False),
        ("mcp-question:files", "mcp-sampling:files", False),
        ("mcp-*", "mcp-question:files", False),
        ("*", "mcp-question:files", False),
        ("*", "write", True),
    ],
)
def test_a_rule_that_allows_the_questions_of_a_server_names_their_action(
    rule: str, action: str, matches: bool
) -> None:
    assert decision_of(glue.Rules(allow=[rule]), request(action)).allowed is matches


@pytest.mark.parametrize("rule", ["mcp-question", "mcp-*", "*"])
def test_a_rule_with_a_wildcard_forbids_the_questions_of_a_server(rule: str) -> None:
    rules = glue.Rules(deny=[rule], otherwise=Policy(glue.allow()))

    assert (
        decision_of(rules, request("mcp-question:files")).reason == f"the rule {rule!r} forbids it"
    )
    other = glue.Rules(deny=["mcp-sampling"], otherwise=Policy(glue.allow()))
    assert decision_of(other, request("mcp-question:files")).allowed


def test_a_blank_in_the_name_of_a_program_does_not_make_two_words_of_it() -> None:
    person = Policy(glue.allow())
    rules = glue.Rules(deny=["shell:my tool"], otherwise=person)

    assert not decision_of(rules, shell_request(("my", "tool"))).allowed
    assert decision_of(rules, shell_request(("my tool", "x"))).allowed
    assert len(person.seen) == 1


async def test_a_remembered_decision_ignores_the_order_of_the_arguments() -> None:
    asked, ask = asker(glue.allow("target"), glue.deny())
    policy = glue.Ask(ask)

    for arguments in ({"a": 1, "b": 2}, {"b": 2, "a": 1}, {"a": 2, "b": 1}):
        decision = await policy.decide(replace(request(), arguments=arguments))
        assert decision.allowed is (arguments["a"] == 1)

    assert [each.arguments["a"] for each in asked] == [1, 2]


def test_a_policy_that_defers_or_refuses_every_call_states_its_reason() -> None:
    assert glue.permission.DeferAll("ask Ann").decide(request()) == glue.defer("ask Ann")
    assert glue.permission.DenyAll("never").decide(request()) == glue.deny("never")


def asker(*answers: Any) -> tuple[list[glue.permission.PermissionRequest], Any]:
    asked: list[glue.permission.PermissionRequest] = []

    def ask(request: glue.permission.PermissionRequest) -> Any:
        asked.append(request)
        return answers[len(asked) - 1]

    return asked, ask


@pytest.mark.parametrize(
    ("scope", "again"),
    [
        ("call", {"same": True, "target": True, "session": True, "action": True}),
        ("target", {"same": False, "target": True, "session": False, "action": True}),
        ("session", {"same": False, "target": False, "session": True, "action": True}),
        ("always", {"same": False, "target": False, "session": False, "action": True}),
    ],
)
async def test_a_decision_is_remembered_for_its_scope(scope: Any, again: dict[str, bool]) -> None:
    others = {
        "same": request(),
        "target": request(target="b"),
        "session": request(session="other"),
        "action": request(action="delete"),
    }
    for name, other in others.items():
        asked, ask = asker(glue.allow(scope), glue.deny())
        policy = glue.Ask(ask)

        assert (await policy.decide(request())).allowed
        second = await policy.decide(other)

        assert (len(asked) == 2) is again[name], name
        assert second.allowed is not again[name], name


async def test_a_refusal_is_remembered_until_forget_is_called() -> None:
    asked, ask = asker(glue.deny("never", "always"), True)
    policy = glue.Ask(ask)

    assert not (await policy.decide(request())).allowed
    assert (await policy.decide(request(target="b"))).reason == "never"
    policy.forget()
    assert (await policy.decide(request())).allowed
    assert len(asked) == 2


async def test_one_question_is_asked_at_a_time_and_waiting_calls_use_its_answer() -> None:
    open_questions: list[int] = []
    asked: list[str] = []

    async def ask(request: glue.permission.PermissionRequest) -> glue.permission.Decision:
        asked.append(request.target)
        open_questions.append(1)
        assert len(open_questions) == 1
        await anyio.lowlevel.checkpoint()
        open_questions.pop()
        return glue.allow("always" if request.action == "write" else "call")

    policy = glue.Ask(ask)
    async with anyio.create_task_group() as tasks:
        for target in "abc":
            tasks.start_soon(policy.decide, request(target=target))
            tasks.start_soon(policy.decide, request(action="delete", target=target))

    assert len(asked) == 4


async def test_a_plain_callback_runs_in_a_thread() -> None:
    threads: list[int] = []

    def ask(request: glue.permission.PermissionRequest) -> bool:
        threads.append(threading.get_ident())
        return True

    assert (await glue.Ask(ask).decide(request())).allowed
    assert threads != [threading.get_ident()]


async def test_waiting_for_an_answer_can_be_cancelled() -> None:
    async def ask(request: glue.permission.PermissionRequest) -> bool:
        await anyio.sleep_forever()
        return True

    with anyio.CancelScope() as scope:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(invoke, save, {"path": "a"}, glue.Ask(ask))
            await anyio.lowlevel.checkpoint()
            await anyio.lowlevel.checkpoint()
            scope.cancel()

    assert scope.cancelled_caught
    assert ran == []


async def test_a_callback_that_blocks_does_not_delay_a_cancellation() -> None:
    asked, gate, answered = threading.Event(), threading.Event(), threading.Event()

    def ask(request: glue.permission.PermissionRequest) -> bool:
        asked.set()
        gate.wait(30)
        answered.set()
        return True

    with anyio.CancelScope() as scope:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(invoke, save, {"path": "a"}, glue.Ask(ask))
            await anyio.to_thread.run_sync(asked.wait, 30)
            scope.cancel()
    late = answered.is_set()
    gate.set()

    assert scope.cancelled_caught
    assert not late
    assert ran == []


async def test_waiting_for_an_answer_does_not_count_towards_the_timeout() -> None:
    gate = anyio.Event()

    @glue.tool(needs_permission=True, timeout=0.001)
    async def quick() -> str:
        return "in time"

    async def ask(request: glue.permission.PermissionRequest) -> bool:
        gate.set()
        await anyio.sleep(0.01)
        return True

    assert (await invoke(quick, {}, glue.Ask(ask))).text == "in time"
    assert gate.is_set()


def test_one_policy_may_serve_several_event_loops() -> None:
    async def ask(request: glue.permission.PermissionRequest) -> bool:
        return True

    policy = glue.Ask(ask)

    assert anyio.run(policy.decide, request(), backend="asyncio").allowed
    assert anyio.run(policy.decide, request(), backend="trio").allowed


# Files and commands -------------------------------------------------------------------------------


def writer(root: Path) -> dict[str, glue.Tool[..., Any]]:
    return {tool.name: tool for tool in fs.tools(root, write=True)}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for folder in ("docs", "src", ".github"):
        (tmp_path / folder).mkdir()
    (tmp_path / "src/main.py").write_text("x = 1\n")
    (tmp_path / "docs/link.md").symlink_to("../src/main.py")
    (tmp_path / "docs/inner").symlink_to("../src")
    return tmp_path


DOCS = glue.Rules(allow=["write_file:docs/*", "edit_file:docs/*"])


@pytest.mark.parametrize(
    ("path", "allowed"),
    [
        ("docs/a.md", True),
        ("./docs//a.md", True),
        ("docs/new/folder/a.md", True),
        ("{root}/docs/a.md", True),
        ("src/../docs/a.md", True),
        ("docs/../src/evil.py", False),
        ("docs/inner/evil.py", False),
        ("docs/link.md", False),
        ("docs/../../outside", False),
        ("docs", False),
        ("src/main.py", False),
    ],
)
async def test_rules_are_compared_with_the_path_after_resolving_links(
    project: Path, path: str, allowed: bool
) -> None:
    before = (project / "src/main.py").read_text()

    given = {"path": path.replace("{root}", str(project)), "content": "new\n"}
    result = await invoke(writer(project)["write_file"], given, DOCS)

    assert result.is_error is not allowed
    assert (project / "src/main.py").read_text() == before
    assert not (project / "src/evil.py").exists()


@pytest.mark.parametrize(
    "path",
    [
        ".github/x",
        "./.github/x",
        "docs/../.github/x",
        ".github//x",
        ".github/./x",
        "{root}/.github/x",
    ],
)
async def test_a_denied_path_is_refused_in_every_spelling(project: Path, path: str) -> None:
    policy = glue.Rules(deny=["write_file:.github/*"], otherwise=glue.AllowAll())

    given = {"path": path.replace("{root}", str(project)), "content": ""}
    result = await invoke(writer(project)["write_file"], given, policy)

    assert "forbids it" in result.text
    assert not (project / ".github/x").exists()


async def test_rules_are_compared_with_the_link_and_with_its_target(project: Path) -> None:
    edit = writer(project)["edit_file"]
    given = {"path": "docs/link.md", "old": "x = 1", "new": "x = 2"}
    for rule in ("edit_file:docs/*", "edit_file:src/*"):
        assert (await invoke(edit, given, glue.Rules(allow=[rule]))).is_error
        result = await invoke(edit, given, glue.Rules(deny=[rule], otherwise=glue.AllowAll()))
        assert "forbids it" in result.text


async def test_a_folder_replaced_by_a_link_after_the_question_is_not_written_to(
    project: Path,
) -> None:
    class Swap:
        def decide(self, request: glue.permission.PermissionRequest) -> glue.permission.Decision:
            assert request.target == "docs/new.py"
            (project / "docs/link.md").unlink()
            (project / "docs/inner").unlink()
            (project / "docs").rmdir()
            (project / "docs").symlink_to("src")
            return glue.allow()

    result = await invoke(
        writer(project)["write_file"], {"path": "docs/new.py", "content": "x"}, Swap()
    )

    assert "no longer leads to the permitted file" in result.text
    assert not (project / "src/new.py").exists()


@pytest.mark.parametrize("tool", ["write_file", "shell"])
async def test_the_shown_target_contains_no_control_characters(tmp_path: Path, tool: str) -> None:
    (asks,) = (
        each
        for each in [*fs.tools(tmp_path, write=True), shell.tool(tmp_path, sandbox="off")]
        if each.name == tool
    )
    asked, ask = asker(False)
    text = "docs\x1b[2K\r\u202eok"
    arguments = {"path": text, "content": "x"} if tool == "write_file" else {"command": text}

    await invoke(asks, arguments, glue.Ask(ask))

    assert asked[0].target.isprintable()
    assert json.dumps(text) in asked[0].target


GIT = glue.Rules(allow=["shell:git *"])  # gives everything away: git runs any program


@pytest.mark.parametrize(
    ("command", "allowed"),
    [
        ("git log", True),
        ("  git\tlog --oneline", True),
        ("git log 'a; b'", True),
        ("'git' log", False),
        (["git", "log"], True),
        ("git diff src/*.py", False),
        ("git log; rm -rf .", False),
        ("git log && rm x", False),
        ("git log | sh", False),
        ("git log &", False),
        ("git log\nrm x", False),
        ("git log $(rm x)", False),
        ("git log `rm x`", False),
        ("git log $HOME", False),
        ("git log > x", False),
        ("git log < x", False),
        ("PAGER=evil git log", False),
        ("git *", False),
        ("git log \x01", False),
        ("git add" + " x" * 600, False),  # too many words to check
        ("gitx log", False),
        ("'git log' x", False),
        ("git log 'open", False),
        (["sh", "-c", "git log"], False),
    ],
)
async def test_a_shell_rule_allows_one_plain_command(
    tmp_path: Path, command: Any, allowed: bool
) -> None:
    asked = shell.tool(tmp_path).target({"command": command})  # type: ignore[operator]
    made = glue.permission.PermissionRequest(
        tool="shell", action="shell", target=asked.text, arguments={}, touched=asked
    )

    assert GIT.decide(made).allowed is allowed  # type: ignore[union-attr]


def verdict(command: Any, deny: str, *, allow: tuple[str, ...] = ("shell",)) -> str:
    """Return whether rules allow, refuse or ask about a command."""
    touched = glue.permission.PermissionTarget(text="x", command=command)
    made = glue.permission.PermissionRequest(
        tool="shell", action="shell", target="x", arguments={}, touched=touched
    )
    person = Policy(glue.deny("asked"))
    decision = glue.Rules(allow=allow, deny=[deny], otherwise=person).decide(made)
    assert isinstance(decision, glue.permission.Decision)
    if person.seen:
        return "asked"
    return "allowed" if decision.allowed else "refused"


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("zap x", "refused"),
        ("zap" + " x" * 400, "refused"),
        ("\tzap  x", "refused"),
        ("/bin/zap x", "refused"),
        (("zap", "x"), "refused"),
        ("zap" + " x" * 600, "asked"),
        ("env zap x", "asked"),
        ("man zap", "asked"),
        ("ls -l", "allowed"),
        ("ls | head", "asked"),
        (("ls", "-l"), "allowed"),
        (("sh", "-c", "$x"), "asked"),
    ],
)
def test_a_denied_command_is_refused_and_a_doubtful_line_is_asked_about(
    command: Any, expected: str
) -> None:
    assert verdict(command, "shell:zap *") == expected


def test_no_line_that_runs_a_denied_program_is_allowed() -> None:
    """In 235 spellings, and in all but one of 27 programs that take code."""
    hidden, code = lines(HIDDEN), lines(CODE)

    allowed = [line for line in hidden if verdict(line, "shell:zap *") == "allowed"]
    through_code = [line for line in code if verdict(line, "shell:zap *") == "allowed"]

    assert (len(hidden), allowed) == (235, [])
    assert (len(code), through_code) == (27, ["perl -e 'exec(chr(122).q(ap))'"])
    # What a file contains, no rule can see: the documentation says so.
    assert "allowed" in {verdict(line, "shell:zap *") for line in lines(FILES)}


def test_questions_about_ordinary_lines_have_a_cause() -> None:
    """Of 100 ordinary lines, 4 of 50 are asked about, and 34 of the 50 that mention the program."""
    ordinary = lines(ORDINARY)

    asked = {line for line in ordinary if verdict(line, "shell:zap *") == "asked"}

    assert len(ordinary) == 100
    assert not any(verdict(line, "shell:zap *") == "refused" for line in ordinary)
    assert [line for line in ordinary[:50] if line in asked] == [
        "cd src && ls",
        "pytest -q 2>&1 | tail -20",
        "git log --oneline | head -5",
        "ls *.py",
    ]
    assert sum(line in asked for line in ordinary[50:]) == 34
    assert all("zap" in line for line in asked.intersection(ordinary[50:]))


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the lines use Linux programs")
@pytest.mark.parametrize("text", [HIDDEN, CODE, FILES], ids=["hidden", "code", "files"])
def test_the_lines_of_the_lists_really_run_the_program(tmp_path: Path, text: str) -> None:
    step = int(os.environ.get("GLUE_LINES", "9"))  # 1 runs every line
    prepare_folder(tmp_path)
    chosen = lines(text)[::step]

    harmless = [line for line in chosen if not runs_program(tmp_path, line)]

    # Not every machine has every program.
    assert len(harmless) <= len(chosen) / 3, harmless


def prepare_folder(folder: Path) -> None:
    """Create the files that the lines use."""
    (folder / "bin").mkdir()
    program = folder / "bin/zap"
    program.write_text('#!/bin/sh\necho ran >> "$LOG"\n')
    program.chmod(0o755)
    (folder / "bin/zip").symlink_to("zap")
    files = {
        "script": "#!/bin/sh\nzap x\n",
        "names": "zap x\n",
        "Makefile": "p:\n\tzap x\n",
        "script.mk": "p:\n\tzap x\n",
        "script.py": "import os\nos.system('zap x')\n",
        "script.pl": "system('zap x');\n",
        "script.awk": 'BEGIN { system("zap x") }\n',
        "script.sed": "1e zap x\n",
    }
    for name, text in files.items():
        (folder / name).write_text(text)
    (folder / "script").chmod(0o755)
    subprocess.run(["git", "init", "-q", folder], check=True)
    subprocess.run(["git", "-C", folder, "config", "alias.p", "!zap x"], check=True)


def runs_program(folder: Path, line: str) -> bool:
    """Run a line in bash; return whether it ran zap."""
    log = folder / "log"
    log.unlink(missing_ok=True)
    env = {"PATH": f"{folder}/bin:/usr/bin:/bin:/usr/sbin:/sbin", "LOG": str(log)}
    subprocess.run(
        ["bash", "-c", line],
        cwd=folder,
        env={**env, "HOME": str(folder)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=30,
        check=False,
    )
    return log.exists()


@pytest.mark.parametrize(
    ("rule", "command", "expected"),
    [
        ("rm", "rm x", "refused"),
        ("rm", "/bin/rm x", "refused"),
        ("rm *secret*", "rm x", "allowed"),
        ("rm *secret*", "rm a/secrets", "refused"),
        ("rm *secret*", "rm a/sec*", "asked"),  # only the shell knows which files match
        ("rm *--force", "rm" + " x" * 600 + " --force", "asked"),
        ("git push*", "git push origin", "refused"),
        ("git push*", "git -C . push origin", "asked"),
        ("git push*", "git log | head", "allowed"),  # all words are visible
        ("git push*", "git pu''sh", "refused"),
        ("git push*", "git pu\\sh", "asked"),
        ("git push*", "git log; git push", "asked"),
        ("*", "ls", "refused"),
        ("r*", "ls 'r?'", "asked"),
        ("g++ *", "nice g++ x", "asked"),
        ("rm *", "env PAGER=x git log", "asked"),
    ],
)
def test_a_denied_pattern_of_several_words_asks_if_all_occur(
    rule: str, command: str, expected: str
) -> None:
    assert verdict(command, f"shell:{rule}") == expected


@pytest.mark.parametrize(
    ("rules", "command", "reason"),
    [
        ({"deny": ["shell:rm *"]}, "rm x", "the rule 'shell:rm *' forbids it"),
        (
            {"deny": ["shell:rm *"]},
            "env rm x",
            "the rule 'shell:rm *' may forbid it: the line contains rm",
        ),
        (
            {"deny": ["shell:rm *"]},
            "ls | head",
            "the rule 'shell:rm *' may forbid it: the line is not one plain command",
        ),
        (
            {"deny": ["shell:git push*"]},
            "ls '$x'",
            "the rule 'shell:git push*' may forbid it: special characters may hide a command",
        ),
        (
            {"deny": ["shell:rm *"]},
            "env PAGER=x git log",
            (
                "the rule 'shell:rm *' may forbid it: "
                "the line sets PAGER, which can make a program run code"
            ),
        ),
        (
            {"allow": ["shell:git log *"]},
            "git log | head",
            "the rule 'shell:git log *' does not allow it: the line is not one plain command",
        ),
        ({"allow": ["shell:git log *"]}, "make", "no rule allows it"),
    ],
)
async def test_a_refusal_states_the_reason_to_the_model_and_to_the_person(
    tmp_path: Path, rules: dict[str, Any], command: str, reason: str
) -> None:
    tool = shell.tool(tmp_path, sandbox="off")
    asked, ask = asker(False)

    result = await invoke(tool, {"command": command}, glue.Rules(**rules))
    await invoke(tool, {"command": command}, glue.Rules(**rules, otherwise=glue.Ask(ask)))

    assert result.text == f"permission denied: shell {command} [no sandbox]: {reason}"
    assert [each.reason for each in asked if each.reason] in ([], [reason])
    assert bool(asked) is not reason.endswith(" forbids it")


async def test_a_line_that_is_not_one_plain_command_is_left_to_a_person(tmp_path: Path) -> None:
    tool = shell.tool(tmp_path, sandbox="off")
    asked, ask = asker(True)

    result = await invoke(
        tool,
        {"command": "echo $(echo a)"},
        glue.Rules(deny=["shell:rm *"], otherwise=glue.Ask(ask)),
    )

    assert result.text == "a\n[exit code 0]"
    assert asked[0].target.partition(" [")[0] == "echo $(echo a)"
    without_a_person: list[glue.permission.Permission] = [
        glue.permission.DenyAll(),
        glue.AllowAll(),
        glue.Rules(allow=["shell"]),
        glue.Rules(otherwise=glue.AllowAll()),
    ]
    for otherwise in without_a_person:
        policy = glue.Rules(allow=["shell"], deny=["shell:rm *"], otherwise=otherwise)
        assert (await invoke(tool, {"command": "echo $(echo a)"}, policy)).is_error


@pytest.mark.parametrize(
    "rules", [{"allow": ["wirte_file"]}, {"deny": ["shel:rm *"]}, {"deny": ["read_file"]}]
)
async def test_a_rule_that_can_never_apply_is_rejected(
    tmp_path: Path, rules: dict[str, Any]
) -> None:
    agent = glue.Agent(
        Script("done"), tools=fs.tools(tmp_path, write=True), permission=glue.Rules(**rules)
    )

    with pytest.raises(
        glue.errors.ConfigError, match=r"the rule '.*' (names no known tool|has no effect)"
    ):
        await agent.run("x")


async def test_rules_may_name_tools_of_sub_agents_and_registered_tools(
    tmp_path: Path,
) -> None:
    inner = glue.Agent(Script("done"), tools=[save], name="inner")
    rules = glue.Rules(allow=["write", "shell:ls", "edit_*"])
    agent = glue.Agent(Script("done"), tools=[inner.as_tool()], permission=rules)

    assert (await agent.run("x")).text == "done"


def test_the_names_of_all_tools_of_glue_are_registered(tmp_path: Path) -> None:
    made = [
        *fs.tools(tmp_path, write=True),
        *git.tools(tmp_path, trust=True),
        *shell.tools(tmp_path),
    ]

    assert {tool.name for tool in made} <= registered_tool_names()


async def test_a_remembered_decision_applies_only_to_the_same_file_or_command(
    tmp_path: Path,
) -> None:
    asked, ask = asker(*[glue.allow("target")] * 9)
    policy = glue.Ask(ask)
    run = shell.tool(tmp_path, sandbox="off")
    (tmp_path / "sub").mkdir()
    (tmp_path / "a").write_text("")

    for given in (
        {"command": "true"},
        {"command": "true", "timeout": 9},
        {"command": "true", "cwd": "sub"},
        {"command": "true", "background": True},
        {"command": "true", "background": True},
    ):
        await invoke(run, given, policy)
    assert len(asked) == 3  # the folder and the background count, the timeout does not
    for path in ("a", "./a", "sub/../a", "b"):
        await invoke(writer(tmp_path)["write_file"], {"path": path, "content": path}, policy)
    assert len(asked) == 5


async def test_decisions_compare_long_arguments_completely() -> None:
    asked, ask = asker(glue.allow("target"), glue.deny())
    policy = glue.Ask(ask)

    def made(text: str) -> glue.permission.PermissionRequest:
        return glue.permission.PermissionRequest(
            tool="m", action="m", target=text[:500], arguments={"text": text}
        )

    assert (await policy.decide(made("x" * 600 + "safe"))).allowed
    assert not (await policy.decide(made("x" * 600 + "evil"))).allowed
    assert len(asked) == 2


async def test_a_decision_for_a_session_applies_to_its_sub_agents_only() -> None:
    def run(id: str, session: str, parent: Any = None) -> glue.Context[Any]:
        host = glue.context.Host(run_id=id, session_id=session, parent=parent, permission=policy)
        asked = call("save", {"path": "a"}, id="c")
        return glue.Context(
            call=asked,
            host=host,
            cancel=glue.Cancel(),
            spending=Spending(),
            report=lambda *said: None,
        )

    asked, ask = asker(*[glue.allow("session")] * 9)
    policy = glue.Ask(ask)
    mine = run("r1", "mine")
    for context in (mine, run("r2", "", parent=mine), run("r3", "mine")):
        assert not (await save.invoke(context.call, context)).is_error
    assert len(asked) == 1
    for context in (
        run("r4", "yours"),
        run("r5", "", parent=run("r6", "yours")),
        run("r7", ""),
        run("r8", ""),
    ):
        await save.invoke(context.call, context)
    assert len(asked) == 4


async def test_a_request_contains_the_lines_that_will_change(project: Path) -> None:
    asked, ask = asker(False, False, False)
    policy = glue.Ask(ask)
    tools = writer(project)

    await invoke(
        tools["edit_file"], {"path": "src/main.py", "old": "x = 1", "new": "x = 2"}, policy
    )
    await invoke(tools["write_file"], {"path": "src/main.py", "content": "x = 1\ny = 2\n"}, policy)
    await invoke(
        tools["edit_file"], {"path": "src/main.py", "old": "not there", "new": "x"}, policy
    )

    previews = [made.touched.preview.split("\n")[1:] if made.touched else [] for made in asked]
    assert previews == [["-x = 1", "+x = 2", " "], [" x = 1", "+y = 2", " "], []]


@pytest.mark.parametrize("tool", ["write_file", "edit_file"])
async def test_a_file_saved_while_the_person_decides_is_asked_about_again(
    project: Path, tool: str
) -> None:
    file = project / "src/main.py"
    shown: list[str] = []

    def ask(request: glue.permission.PermissionRequest) -> bool:
        assert request.touched is not None
        shown.append(request.touched.preview)
        if len(shown) == 1:
            file.write_text("x = 1\ny = 'saved meanwhile'\n")
        return len(shown) < 3

    given = {"path": "src/main.py", "content": "x = 2\n", "old": "x = 1", "new": "x = 2"}
    names = ("path", "content") if tool == "write_file" else ("path", "old", "new")
    result = await invoke(
        writer(project)[tool], {name: given[name] for name in names}, glue.Ask(ask)
    )

    assert not result.is_error
    assert len(shown) == 2
    assert "saved meanwhile" not in shown[0]
    assert "saved meanwhile" in shown[1]
    assert file.read_text().startswith("x = 2\n")
    assert ("saved meanwhile" in file.read_text()) is (tool == "edit_file")


async def test_a_file_created_while_the_person_decides_is_not_replaced(project: Path) -> None:
    def ask(request: glue.permission.PermissionRequest) -> bool:
        if (project / "new.txt").exists():
            return False
        (project / "new.txt").write_text("of another program")
        return True

    result = await invoke(
        writer(project)["write_file"], {"path": "new.txt", "content": "mine"}, glue.Ask(ask)
    )

    assert result.is_error
    assert (project / "new.txt").read_text() == "of another program"


async def test_a_file_that_changes_all_the_time_is_not_written(project: Path) -> None:
    asked: list[int] = []

    def ask(request: glue.permission.PermissionRequest) -> bool:
        asked.append(1)
        (project / "src/main.py").write_text(f"x = {len(asked)}0\n")
        return True

    result = await invoke(
        writer(project)["write_file"], {"path": "src/main.py", "content": "mine"}, glue.Ask(ask)
    )

    assert "changes again and again" in result.text
    assert len(asked) == 5
    assert (project / "src/main.py").read_text() == "x = 50\n"


async def test_an_error_of_the_tool_is_not_called_a_denied_permission(project: Path) -> None:
    result = await invoke(
        writer(project)["write_file"], {"path": "src/main.py/below", "content": ""}, Policy(True)
    )

    assert result.text == "'src/main.py/below': not a directory"


class FoldingRoot(fs.Root):
    """A root on a volume that ignores case and Unicode forms, as macOS has by default."""

    def _stat(self, name: str) -> os.stat_result | None:
        for entry in os.listdir(self.fd):
            if glue.permission.fold_name(entry) == glue.permission.fold_name(name):
                return super()._stat(entry)
        return None


@pytest.mark.parametrize(
    "path",
    [".github/x", ".GitHub/x", ".GITHUB/x", unicodedata.normalize("NFD", "café/x"), "CAFÉ/x"],
)
async def test_a_denied_path_is_refused_in_every_case_if_the_volume_folds_names(
    project: Path, path: str
) -> None:
    policy = glue.Rules(
        deny=["write_file:.github/*", "write_file:café/*"], otherwise=glue.AllowAll()
    )
    write = next(
        tool for tool in fs.tools(FoldingRoot(project), write=True) if tool.name == "write_file"
    )

    result = await invoke(write, {"path": path, "content": ""}, policy)

    assert "forbids it" in result.text


async def test_rules_distinguish_case_if_the_volume_does(project: Path) -> None:
    class Exact(fs.Root):
        def _stat(self, name: str) -> os.stat_result | None:
            return super()._stat(name) if name in os.listdir(self.fd) else None

    policy = glue.Rules(deny=["write_file:.github/*"], otherwise=glue.AllowAll())
    write = next(tool for tool in fs.tools(Exact(project), write=True) if tool.name == "write_file")

    result = await invoke(write, {"path": "docs/.GITHUB", "content": ""}, policy)

    assert not result.is_error


@glue.tool(needs_permission=True)
async def risky() -> str:
    return "ran with permission"


@pytest.mark.parametrize(
    ("policy", "tried"),
    [
        (None, True),
        (glue.Ask(lambda request: True), True),
        (glue.permission.DeferAll(), True),
        (glue.Rules(otherwise=glue.Ask(lambda request: True)), True),
        (glue.Rules(deny=["risky"], otherwise=glue.Ask(lambda request: True)), False),
        (glue.Rules(allow=["risky"]), False),
        (glue.AllowAll(), False),
        (glue.permission.DenyAll(), False),
        (glue.Rules(), False),
    ],
)
async def test_a_tool_is_tried_without_permission_only_if_a_person_would_be_asked(
    policy: Any, tried: bool
) -> None:
    async def trial(arguments: Any) -> str:
        return "tried"

    risky.trial = trial
    try:
        result = await invoke(risky, {}, policy)
    finally:
        risky.trial = None

    assert (result.text == "tried") is tried


async def test_a_remembered_answer_needs_no_trial_and_a_failed_trial_is_asked_about() -> None:
    tries: list[int] = []

    async def trial(arguments: Any) -> None:
        tries.append(1)

    asked, ask = asker(glue.allow("always"))
    policy = glue.Ask(ask)
    risky.trial = trial
    try:
        results = [await invoke(risky, {}, policy) for _ in range(2)]
    finally:
        risky.trial = None

    assert [result.text for result in results] == ["ran with permission"] * 2
    assert (len(tries), len(asked)) == (1, 1)


async def test_the_rules_of_an_inner_policy_are_checked_too() -> None:
    rules = glue.Rules(allow=["save"], otherwise=glue.Rules(deny=["svae"]))

    with pytest.raises(glue.errors.ConfigError, match="the rule 'svae' names no known tool"):
        rules.check([save])


async def test_rules_pass_a_decision_to_the_policy_that_remembers_it() -> None:
    asked, ask = asker(glue.deny())
    rules = glue.Rules(allow=["other"], otherwise=glue.Ask(ask))

    rules.remember(request(), glue.allow("always"))
    decided: Any = rules.decide(request())

    assert (await decided).allowed
    assert asked == []
