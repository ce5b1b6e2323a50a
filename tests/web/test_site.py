"""`glue.web.app`: the live page, its guard, its questions and its pending calls."""

from __future__ import annotations

import re
from typing import Any

import anyio
import pytest
from fakes.web import Answer, fetch

import glue
from glue.permission import Decision, DeferAll, PermissionRequest
from glue.stores import MemoryStore
from glue.testing import Script, call, calls, fail, repeat, say
from glue.view.html import escape
from glue.web import app

SCRIPT = "<script>alert(1)</script>"
ran: list[str] = []


@pytest.fixture(autouse=True)
def forget() -> None:
    ran.clear()


@glue.tool(needs_permission=True, target="path")
def save(path: str, content: str = "") -> str:
    """Save a file."""
    ran.append(path)
    return f"saved {path}"


@glue.tool
async def wait() -> str:
    """Wait for ever."""
    ran.append("waits")
    try:
        await anyio.sleep_forever()
    finally:
        ran.append("ended")
    return ""


def reply(request: glue.Request) -> Any:
    last = request.messages[-1]
    if isinstance(last, glue.ToolMessage):
        return say(f"Result: {last.text} {SCRIPT}", chunk=4)
    if "save" in last.text:
        return calls(call("save", {"path": "a.txt", "content": SCRIPT}, id="c1"))
    if "wait" in last.text:
        return calls(call("wait", id="w1"))
    return f"You said: {last.text}"


def site(**settings: Any) -> Any:
    permission = settings.pop("agent_permission", None)
    agent = glue.Agent(
        Script(repeat(reply)), tools=[save, wait], name="demo", permission=permission
    )
    return app(agent, store=settings.pop("store", MemoryStore()), **settings)


async def run(made: Any, prompt: str, **more: Any) -> Answer:
    return await fetch(made, "/run", {"session": "s", "prompt": prompt}, **more)


def kinds(answer: Answer) -> list[str]:
    return [message["type"] for message in answer.data]


async def test_the_page_loads_nothing_and_allows_only_its_own_scripts() -> None:
    answer = await fetch(site(), "/?session=new")

    html = answer.body.decode()
    policy = answer.headers["content-security-policy"]
    assert answer.status == 200
    assert "default-src 'none'" in policy
    assert "connect-src 'self'" in policy
    assert "frame-ancestors 'none'" in policy
    assert len(re.findall(r"'sha256-[^']+'", policy)) == 3  # one style, two scripts
    assert "there are no messages yet" in html
    assert not re.search(r"""(?:src|href)=["']?(?:https?:)?//""", html)
    assert answer.headers["referrer-policy"] == "no-referrer"


async def test_a_run_streams_text_and_articles_and_is_stored() -> None:
    made = site()

    answer = await run(made, "hello <b>")

    assert kinds(answer)[0] == "article"
    assert "text" in kinds(answer)
    assert answer.data[-1] == {"type": "end", "outcome": "done", "notice": ""}
    listed = (await fetch(made, "/sessions?q=hello")).json
    assert listed["count"] == 1
    assert 'data-session="s"' in listed["html"]
    assert "hello &lt;b&gt;" in listed["html"]
    shown = (await fetch(made, "/transcript?session=s")).json
    assert "You said: hello &lt;b&gt;" in shown["body"]
    assert (await fetch(made, "/sessions?q=absent")).json["count"] == 0


@pytest.mark.parametrize(("choice", "done"), [("allow", ["a.txt"]), ("deny", [])])
async def test_a_question_is_shown_and_answered_in_the_page(choice: str, done: list[str]) -> None:
    made = site()

    async def respond(message: Any) -> None:
        if message["type"] == "question":
            assert SCRIPT not in message["html"]
            assert f'data-question="{message["id"]}"' in message["html"]
            body = {"question": message["id"], "answer": choice, "text": "not today"}
            assert (await fetch(made, "/answer", body)).status == 200
            assert (await fetch(made, "/answer", body)).status == 409  # answered once

    answer = await run(made, "save it", on_data=respond)

    assert "question" in kinds(answer)
    assert ran == done
    assert answer.data[-1]["outcome"] == "done"
    assert SCRIPT not in "".join(m.get("html", "") for m in answer.data)


@pytest.mark.parametrize("wrong", ["perhaps", "result", None])
async def test_a_question_can_be_answered_after_an_invalid_answer(wrong: Any) -> None:
    made = site()

    async def respond(message: Any) -> None:
        if message["type"] == "question":
            refused = await fetch(made, "/answer", {"question": message["id"], "answer": wrong})
            assert refused.status == 400
            assert "answer must be allow, target, session" in refused.json["error"]
            body = {"question": message["id"], "answer": "allow"}
            assert (await fetch(made, "/answer", body)).status == 200

    await run(made, "save it", on_data=respond)

    assert ran == ["a.txt"]


async def test_rules_decide_before_the_page_is_asked() -> None:
    made = site(permission=glue.Rules(allow=["save:a.*"]))

    answer = await run(made, "save it")

    assert ran == ["a.txt"]
    assert "question" not in kinds(answer)


async def test_a_policy_that_has_no_rules_is_used_as_it_is() -> None:
    class OnlyText:
        def decide(self, request: PermissionRequest) -> Decision:
            return glue.allow() if request.target.endswith(".txt") else glue.deny("no text")

    answer = await run(site(permission=OnlyText()), "save it")

    assert ran == ["a.txt"]
    assert "question" not in kinds(answer)


@pytest.mark.parametrize("permission", [glue.Rules(allow=["wait"]), glue.AllowAll()])
async def test_the_policy_of_the_agent_decides_if_no_rule_does(permission: Any) -> None:
    made = site(permission=permission, agent_permission=DeferAll("later"))

    answer = await run(made, "save it")

    assert ran == []
    assert answer.data[-1] == {"type": "end", "outcome": "paused", "notice": ""}


async def test_rules_decide_before_the_policy_of_the_agent() -> None:
    denied = site(permission=glue.Rules(deny=["save"]), agent_permission=glue.AllowAll())
    allowed = site(permission=glue.Rules(allow=["save"]), agent_permission=DeferAll("later"))

    await run(denied, "save it")
    assert ran == []

    await run(allowed, "save it")
    assert ran == ["a.txt"]


@glue.tool(needs_permission=True, target="path")
def patch(path: str, old: str = "", new: str = "", lines: list[int] | None = None) -> str:
    """Replace a text."""
    return "patched"


async def question_about(**arguments: Any) -> str:
    """Return the HTML of the question whether `patch` may run."""
    script = Script(calls(call("patch", arguments, id="c1")), "done")
    made = app(glue.Agent(script, tools=[patch]), store=MemoryStore())
    shown: list[str] = []

    async def refuse(message: Any) -> None:
        if message["type"] == "question":
            shown.append(message["html"])
            await fetch(made, "/answer", {"question": message["id"], "answer": "deny"})

    await run(made, "patch it", on_data=refuse)
    [html] = shown
    return html


async def test_a_question_offers_four_answers() -> None:
    html = await question_about(path="a.txt", lines=[3, 4])

    labels = re.findall(r'data-answer="(\w+)">([^<]+)</button>', html)
    assert labels == [
        ("allow", "allow"),
        ("target", "always allow this target"),
        ("session", "allow every patch in this conversation"),
        ("deny", "deny"),
    ]
    assert '<pre class="raw" dir="auto">\na.txt</pre>' in html
    assert re.findall("<h4>(.+?)</h4>", html) == ["lines"]
    assert '<h4>lines</h4><pre class="raw" dir="auto">\n[\n  3,\n  4\n]</pre>' in html


async def test_a_question_shows_a_change_as_a_diff_and_not_as_arguments() -> None:
    html = await question_about(path="a.txt", old="same\n<a>", new="same\n<b>")

    rows = re.findall(r'<span class="(\w+)">(.*?)\n</span>', html)
    assert rows == [
        ("hunk", "@@ -1,2 +1,2 @@"),
        ("same", " same"),
        ("minus", "-&lt;a&gt;"),
        ("plus", "+&lt;b&gt;"),
    ]
    assert "<h4>" not in html
    assert "more line" not in html


@pytest.mark.parametrize(("added", "note"), [(199, ""), (200, "… 1 more line<")])
async def test_a_question_shows_200_lines_of_a_diff(added: int, note: str) -> None:
    html = await question_about(path="a.txt", old="", new="x\n" * added)

    assert html.count('<span class="plus">') == 199
    assert note in html
    assert ("more line" in html) == bool(note)


async def test_a_question_names_the_characters_that_reorder_a_target() -> None:
    html = await question_about(path="a\u202egpj.exe")

    assert "a⟨U+202E⟩gpj.exe" in html


async def test_a_question_whose_run_has_ended_cannot_be_answered() -> None:
    made = site()
    asked: list[str] = []

    async def stop(message: Any) -> None:
        if message["type"] == "question":
            asked.append(message["id"])
            await fetch(made, "/stop", {"session": "s"})

    await run(made, "save it", on_data=stop)
    late = await fetch(made, "/answer", {"question": asked[0], "answer": "allow"})

    assert late.status == 409
    assert ran == []


async def test_a_transcript_says_whether_its_session_is_running() -> None:
    made = site()
    seen: list[bool] = []

    async def look(message: Any) -> None:
        if "waits" in ran and not seen:
            seen.append((await fetch(made, "/transcript?session=s")).json["running"])
            await fetch(made, "/stop", {"session": "s"})

    await run(made, "wait", on_data=look)

    assert seen == [True]
    assert (await fetch(made, "/transcript?session=s")).json["running"] is False


async def test_a_running_call_is_shown_as_running() -> None:
    made = site()

    async def stop(message: Any) -> None:
        if message["type"] == "article" and "in progress</b>" in message["html"] and "waits" in ran:
            assert (await fetch(made, "/stop", {"session": "s"})).json == {"stopped": True}

    answer = await run(made, "wait", on_data=stop)

    assert answer.data[-1]["outcome"] == "cancelled"
    assert ran == ["waits", "ended"]
    assert (await fetch(made, "/stop", {"session": "s"})).json == {"stopped": False}


async def test_a_closed_page_ends_the_run_and_frees_the_session() -> None:
    made = site()

    await run(made, "wait", hang_up_at="in progress</b>")
    again = await run(made, "hello")

    assert ran in (["waits", "ended"], [])
    assert again.data[-1]["outcome"] == "done"


async def test_a_second_prompt_during_a_run_is_refused() -> None:
    made = site()
    seen: list[int] = []

    async def prompt_again(message: Any) -> None:
        if "waits" in ran and not seen:
            seen.append((await run(made, "hello")).status)
            await fetch(made, "/stop", {"session": "s"})

    await run(made, "wait", on_data=prompt_again)

    assert seen == [409]


class SlowStore(MemoryStore):
    """A store whose first reading waits until `released` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.reads, self.released = 0, anyio.Event()

    async def list(self) -> Any:
        self.reads += 1
        if self.reads == 1:
            await self.released.wait()
        return await super().list()


async def test_two_prompts_at_once_start_one_run() -> None:
    store = SlowStore()
    made = site(store=store)
    answers: list[Answer] = []

    async def prompt() -> None:
        answers.append(await run(made, "hello"))
        store.released.set()

    async with anyio.create_task_group() as group:
        group.start_soon(prompt)
        group.start_soon(prompt)

    assert [answer.status for answer in answers] == [409, 200]
    assert answers[1].data[-1]["outcome"] == "done"


async def test_a_pending_call_is_shown_and_continues_after_a_decision() -> None:
    store = MemoryStore()
    made = site(store=store, agent_permission=DeferAll("an editor decides"))

    paused = await run(made, "save it")
    shown = (await fetch(made, "/transcript?session=s")).json
    body = {"session": "s", "call": "c1", "answer": "allow"}
    continued = await fetch(made, "/decide", body)

    assert paused.data[-1]["outcome"] == "paused"
    assert shown["pending"] == 1
    assert "This call waits for an approval" in shown["body"]
    assert "an editor decides" in shown["body"]
    assert ran == ["a.txt"]
    assert continued.data[-1]["outcome"] == "done"
    assert (await fetch(made, "/transcript?session=s")).json["pending"] == 0


@pytest.mark.parametrize(
    ("headers", "path"),
    [
        ({}, "/"),
        ({"x-glue-token": "wrong"}, "/"),
        ({"origin": "http://evil.example"}, "/?token=secret"),
        ({"origin": "null"}, "/?token=secret"),
        ({"host": "evil.example"}, "/?token=secret"),
        ({"sec-fetch-site": "cross-site"}, "/?token=secret"),
        ({"sec-fetch-site": "same-site"}, "/?token=secret"),
    ],
)
async def test_a_request_without_token_or_from_elsewhere_is_refused(
    headers: dict[str, str], path: str
) -> None:
    made = site(token="secret", hosts=["127.0.0.1:80"])

    refused = await fetch(made, path, headers=headers)
    good = await fetch(made, "/?token=secret", headers={"origin": "http://127.0.0.1:80"})

    assert refused.status == 403
    assert b"<html" not in refused.body
    assert good.status == 200


@pytest.mark.parametrize(
    ("headers", "path", "status"),
    [
        ({"sec-fetch-site": "none"}, "/?token=secret", 200),
        ({"sec-fetch-site": "same-origin"}, "/?token=secret", 200),
        ({"x-glue-token": "secret"}, "/", 200),
        ({"x-glue-token": "wrong"}, "/?token=secret", 403),
        ({"x-glue-token": "sécret"}, "/", 403),
        ({"origin": "https://127.0.0.1:80"}, "/?token=secret", 200),
        ({"origin": "127.0.0.1:80"}, "/?token=secret", 403),
    ],
)
async def test_a_page_of_the_same_origin_with_the_token_is_accepted(
    headers: dict[str, str], path: str, status: int
) -> None:
    made = site(token="secret", hosts=["127.0.0.1:80"])

    assert (await fetch(made, path, headers=headers)).status == status


async def test_every_answer_has_the_headers_that_isolate_the_page() -> None:
    made = site()

    for path, body in (("/", None), ("/sessions", None), ("/stop", {}), ("/absent", None)):
        headers = (await fetch(made, path, body)).headers
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["cross-origin-opener-policy"] == "same-origin"
        assert headers["cross-origin-resource-policy"] == "same-origin"
        assert headers["content-security-policy"].endswith("; frame-ancestors 'none'")
    assert (await fetch(made, "/")).headers["cache-control"] == "no-store"


async def test_other_connections_than_http_go_to_the_app_inside() -> None:
    sent: list[Any] = []
    messages = iter([{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}])

    async def receive() -> Any:
        return next(messages)

    async def send(message: Any) -> None:
        sent.append(message["type"])

    await site(token="secret")({"type": "lifespan", "app": None, "state": {}}, receive, send)

    assert sent == ["lifespan.startup.complete", "lifespan.shutdown.complete"]


async def test_thinking_and_texts_are_streamed_as_they_arrive() -> None:
    script = Script(say("It rains.", thinking="Hm.", chunk=5))
    made = app(glue.Agent(script), store=MemoryStore())

    answer = await run(made, "weather?")

    shown = [(m["type"], m["text"]) for m in answer.data if "text" in m]
    assert shown == [("thinking", "Hm."), ("text", "It ra"), ("text", "ins.")]


@pytest.mark.parametrize(
    ("step", "end"),
    [
        (fail("auth", "bad key"), ("failed", "script: bad key")),
        (say("cut", stop="max_tokens"), ("truncated", "The answer is incomplete")),
    ],
)
async def test_the_end_of_a_run_says_why_it_ended(step: Any, end: tuple[str, str]) -> None:
    limits = glue.Limits(continuation_max_attempts=0)
    made = app(glue.Agent(Script(step), limits=limits), store=MemoryStore())

    last = (await run(made, "hi")).data[-1]

    assert (last["type"], last["outcome"]) == ("end", end[0])
    assert end[1] in last["notice"]


async def test_a_session_that_another_writer_has_ends_the_run_with_a_notice() -> None:
    store = MemoryStore()

    async with store.log("s"):
        answer = await run(site(store=store), "hi")

    [end] = answer.data
    assert (end["type"], end["outcome"]) == ("end", "failed")
    assert "session 's'" in end["notice"]


@pytest.mark.parametrize(
    ("text", "reason"), [("", "the user said no"), ("not today", "not today"), (None, "the user")]
)
async def test_a_denial_has_the_reason_of_the_user(text: Any, reason: str) -> None:
    made = site(store=MemoryStore(), agent_permission=DeferAll())
    await run(made, "save it")

    body = {"session": "s", "call": "c1", "answer": "deny", "text": text}
    continued = await fetch(made, "/decide", body)

    assert ran == []
    assert continued.data[-1]["outcome"] == "done"
    shown = (await fetch(made, "/transcript?session=s")).json["body"]
    assert f"permission denied: save a.txt: {reason}" in shown


async def test_an_allowed_session_is_not_asked_about_again() -> None:
    made = site()
    asked: list[str] = []

    async def allow(message: Any) -> None:
        if message["type"] == "question":
            asked.append(message["id"])
            body = {"question": message["id"], "answer": "session"}
            assert (await fetch(made, "/answer", body)).status == 200

    await run(made, "save it", on_data=allow)
    assert (len(asked), ran) == (1, ["a.txt"])


@pytest.mark.parametrize("body", [b"[]", {}, {"question": ""}, {"question": "x"}])
async def test_a_bad_answer_is_a_400_with_a_reason(body: Any) -> None:
    answer = await fetch(site(), "/answer", body)

    assert answer.status == 400
    assert answer.json["error"]


async def test_the_field_for_the_prompt_names_the_model_and_the_session() -> None:
    named = await fetch(site(), "/?session=<s>")
    unnamed = await fetch(app(glue.Agent(Nameless())), "/")

    assert b'placeholder="Ask script (Enter sends, ' in named.body
    assert b'<div id="live" data-session="&lt;s&gt;">' in named.body
    assert b'placeholder="Ask the agent (Enter' in unnamed.body


class Nameless(Script):
    """A provider whose name is empty."""

    def __init__(self) -> None:
        super().__init__("hi", name="")


async def test_a_refusal_names_the_allowed_hosts_and_shortens_the_given_host() -> None:
    made = site(hosts=["b.example:80", "a.example:80"])

    refused = await fetch(made, "/", headers={"host": "x" * 100})

    given = "x" * 79 + "\\u2026"
    known = "use a.example:80, b.example:80"
    assert refused.body.decode() == f"the host '{given}' is not allowed for this page; {known}\n"


async def test_a_refusal_of_a_wrong_token_says_where_the_right_one_is() -> None:
    refused = await fetch(site(token="secret"), "/?token=wrong")

    assert refused.status == 403
    assert b"use the address that `glue serve` printed" in refused.body
    assert b"secret" not in refused.body


async def test_a_token_in_the_address_does_not_authorise_a_prompt() -> None:
    made = site(token="secret")
    body = {"session": "s", "prompt": "hi"}

    in_address = await fetch(made, "/run?token=secret", body)
    in_header = await fetch(made, "/run", body, headers={"x-glue-token": "secret"})

    assert in_address.status == 403
    assert in_header.status == 200


@pytest.mark.parametrize(
    "body",
    [b"[]", b"{", {}, {"session": "s"}, {"session": "s", "prompt": " "}, {"prompt": "x"}],
)
async def test_a_bad_request_is_a_400_with_a_reason(body: Any) -> None:
    answer = await fetch(site(), "/run", body)

    assert answer.status == 400
    assert answer.json["error"]


@pytest.mark.parametrize(
    ("size", "error"), [(2**20, "session is missing"), (2**20 + 1, "longer than 1048576 bytes")]
)
async def test_a_request_may_have_a_mebibyte(size: int, error: str) -> None:
    body = b'{"text": "%s"}'

    answer = await fetch(site(), "/stop", body % (b"x" * (size - len(body) + len("%s"))))

    assert answer.status == 400
    assert error in answer.json["error"]


async def test_the_list_shows_200_sessions_and_counts_all() -> None:
    store = MemoryStore()
    for number in range(201):
        async with store.log(f"s{number}"):
            pass

    listed = (await fetch(site(store=store), "/sessions")).json

    assert listed["html"].count("<li>") == 200
    assert listed["count"] == 201


async def test_conversations_are_kept_in_memory_by_default() -> None:
    made = app(glue.Agent(Script("hello")))

    await run(made, "hi")

    assert (await fetch(made, "/sessions")).json["count"] == 1
    assert "hello" in (await fetch(made, "/transcript?session=s")).json["body"]


def test_only_an_agent_has_a_page() -> None:
    wrong: Any = "agent"

    with pytest.raises(TypeError, match=r"glue\.Agent"):
        app(wrong)


@pytest.mark.parametrize("reason", ["an editor decides", ""])
async def test_a_pending_call_is_shown_with_its_buttons_and_its_reason(reason: str) -> None:
    made = site(store=MemoryStore(), agent_permission=DeferAll(reason))

    await run(made, "save it")
    body = (await fetch(made, "/transcript?session=s")).json["body"]

    card = body[body.index('<article class="asks">') :]
    why = f'<p class="none">{reason}</p>' if reason else ""
    assert card == (
        '<article class="asks"><div class="rail"></div>'
        '<div class="card" role="group" aria-label="permission">'
        "<header><b>This call waits for an approval</b></header>"
        '<p><code>save</code></p><pre class="raw" dir="auto">\na.txt</pre>'
        f'<h4>content</h4><pre class="raw" dir="auto">\n{escape(SCRIPT)}</pre>{why}'
        '<p class="buttons"><button type="button" data-call="c1" data-answer="allow">allow</button>'
        '<input id="text-c1" aria-label="reason or result" placeholder="why not">'
        '<button type="button" data-call="c1" data-answer="deny">deny</button></p>'
        "</div></article>\n"
    )


async def test_a_call_of_another_system_waits_for_a_typed_result() -> None:
    @glue.tool(external=True)
    def look_up(query: str) -> str:
        """Look something up."""
        raise NotImplementedError

    script = Script(calls(call("look_up", {"query": "port"}, id="c1")), repeat(reply))
    made = app(glue.Agent(script, tools=[look_up]), store=MemoryStore())

    await run(made, "look")
    shown = (await fetch(made, "/transcript?session=s")).json["body"]
    body = {"session": "s", "call": "c1", "answer": "result", "text": "8080"}
    continued = await fetch(made, "/decide", body)

    assert "This call waits for a result" in shown
    assert (
        'placeholder="the result"><button type="button" data-call="c1" data-answer="result">'
        in (shown)
    )
    assert continued.data[-1]["outcome"] == "done"
    assert "Result: 8080" in (await fetch(made, "/transcript?session=s")).json["body"]


async def test_sessions_are_listed_with_title_and_minute() -> None:
    made = site()
    none = (await fetch(made, "/sessions")).json

    await run(made, "hello <b>")
    listed = (await fetch(made, "/sessions")).json
    found = (await fetch(made, "/sessions?q=S")).json
    absent = (await fetch(made, "/sessions?q=absent")).json

    assert none == {"html": "<li>no conversation yet</li>", "count": 0}
    assert re.fullmatch(
        r'<li><button type="button" data-session="s"><b dir="auto">hello &lt;b&gt;</b>'
        r"<small>\d{4}-\d\d-\d\d \d\d:\d\d</small></button></li>",
        listed["html"],
    )
    assert found == listed
    assert absent == {"html": "<li>nothing found</li>", "count": 0}
