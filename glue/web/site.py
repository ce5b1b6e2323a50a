"""The live page: a chat in the browser whose transcript looks like the page of `glue view`.

The server renders every text as safe HTML; the script in the page only inserts it. A run belongs to
the request that started it, so a closed tab cancels the run.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from typing import Any, cast

import anyio

from glue.agent import Agent
from glue.cli.approval import change_of
from glue.decision import Decision, PendingCall, PermissionRequest, allow, deny
from glue.errors import GlueError, StoreError
from glue.events import Event, TextDelta, ThinkingDelta, event_to_json
from glue.hidden import HIDDEN_CHARACTERS
from glue.messages import new_id
from glue.pending import pending_calls
from glue.permission import Ask, Permission, Rules
from glue.result import RunResult
from glue.session import Session
from glue.stores.memory import MemoryStore
from glue.stores.store import Store
from glue.streams import Events
from glue.text import count, one_line
from glue.view.html import brief, escape, literal
from glue.view.page import EMPTY, articles, content_policy, document, header, moment, pretty
from glue.view.sources import EventReader, read_session
from glue.view.transcript import Transcript, arrange
from glue.web.asgi import (
    ASGIApp,
    Headers,
    HTMLResponse,
    JSONResponse,
    PlainTextResponse,
    Receive,
    Request,
    Response,
    Route,
    Scope,
    Send,
    Starlette,
)
from glue.web.responses import RunResponse

TOKEN_HEADER = "x-glue-token"
MAX_SESSIONS = 200  # in the list: the most recent ones
MAX_BODY = 1024 * 1024  # bytes of a request
MAX_DIFF = 200  # lines of a diff that a question shows
_FOOTER = "served by glue; this page loads nothing from other servers"
_SHOWN_EVENTS = frozenset(
    """
    message_end tool_start tool_end tool_pending attempt compacted nudge wrap_up limit_reached
    guardrail context_changed continuation_attempt tool_payload_repair output_cap_escalated
    """.split()
)


def app(
    agent: Agent[Any, Any],
    *,
    store: Store | None = None,
    token: str = "",
    hosts: Sequence[str] = (),
    permission: Permission | None = None,
) -> ASGIApp:
    """Return the live page of an agent as an ASGI app, to serve alone or to mount in your own app.

        site = Starlette(routes=[Mount("/chat", app(agent, store=glue.FileStore(".glue")))])

    Args:
        agent: The agent that answers.
        store: Keeps the conversations; by default they are forgotten when the process ends.
        token: A secret that every request must carry, as `?token=` in the address of the page.
            Empty: the app around it decides who may use the page.
        hosts: Names with ports under which the page may be reached, such as "127.0.0.1:8000".
            Empty: any. A page of another origin is always refused.
        permission: Rules for the agent's tools. The agent's own policy decides about calls that
            no rule decides, or the page asks if the agent has no policy.
    """
    if not isinstance(agent, Agent):
        raise TypeError(f"app takes a glue.Agent, not {agent!r}")
    site = _Site(agent, store if store is not None else MemoryStore(), permission)
    routes = [
        Route("/", site.show),
        Route("/sessions", site.sessions),
        Route("/transcript", site.transcript),
        Route("/run", site.run, methods=["POST"]),
        Route("/decide", site.decide, methods=["POST"]),
        Route("/answer", site.answer, methods=["POST"]),
        Route("/stop", site.stop, methods=["POST"]),
    ]
    return _Guard(Starlette(routes=routes), token, frozenset(hosts))


class _Guard:
    """Refuses requests with a wrong token, origin or host; adds security headers to responses.

    A refused request gets status 403.
    """

    def __init__(self, inner: ASGIApp, token: str, hosts: frozenset[str]) -> None:
        self.inner, self.token, self.hosts = inner, token, hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.inner(scope, receive, send)
            return
        reason = self._refusal(Request(scope))
        if reason:
            await PlainTextResponse(f"{reason}\n", 403)(scope, receive, send)
            return

        async def send_guarded(message: Any) -> None:
            if message["type"] == "http.response.start":
                policy = f"{content_policy(live=True)}; frame-ancestors 'none'"
                message["headers"] = [
                    *message["headers"],
                    (b"content-security-policy", policy.encode()),
                    (b"x-content-type-options", b"nosniff"),
                    (b"referrer-policy", b"no-referrer"),
                    (b"cross-origin-opener-policy", b"same-origin"),
                    (b"cross-origin-resource-policy", b"same-origin"),
                ]
            await send(message)

        await self.inner(scope, receive, send_guarded)

    def _refusal(self, request: Request) -> str:
        """Return the reason why a request is refused, or "" if the request is accepted."""
        headers: Headers = request.headers
        host = headers.get("host", "")
        if self.hosts and host not in self.hosts:
            known = ", ".join(sorted(self.hosts))
            return f"the host {one_line(host, 80)!a} is not allowed for this page; use {known}"
        origin = headers.get("origin")
        if origin is not None and origin.partition("://")[2] != host:
            return "a page of another origin may not use this page"
        if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
            return "a page of another origin may not use this page"
        given = headers.get(TOKEN_HEADER) or ""
        if not given and request.method == "GET":
            given = request.query_params.get("token", "")
        if self.token and not secrets.compare_digest(given.encode(), self.token.encode()):
            return "the token is missing or wrong; use the address that `glue serve` printed"
        return ""


class _Site:
    """Handles the requests of the live page for one agent; keeps running prompts and questions."""

    def __init__(self, agent: Agent[Any, Any], store: Store, rules: Permission | None) -> None:
        self.agent, self.store, self.rules = agent, store, rules
        self.running: dict[str, Session[Any, Any]] = {}  # by the name of the session
        self.questions: dict[str, _Question] = {}

    async def show(self, request: Request) -> Response:
        """Return the HTML of the page, with the transcript of the session that the URL names."""
        name = request.query_params.get("session", "")
        title = self.agent.name or "glue"
        main = await self._main(name)
        html = document(
            title,
            main["top"],
            [main["body"]],
            footer=_FOOTER,
            live=True,
            aside=_aside(name, str(_model_name(self.agent))),
        )
        return HTMLResponse(html, headers={"cache-control": "no-store"})

    async def sessions(self, request: Request) -> Response:
        """Return JSON with the HTML of a list of sessions: the newest, or those that match a query.

        The query is the parameter `q` of the URL. A session matches if the search in its messages
        finds the query, or if its id contains the query.
        """
        wanted = request.query_params.get("q", "").strip()
        infos = await self.store.list()
        if wanted:
            hits = await self.store.search(wanted)
            names = {hit.session for hit in hits}
            infos = tuple(
                info for info in infos if info.id in names or wanted.lower() in info.id.lower()
            )
        rows = "".join(
            f'<li><button type="button" data-session="{escape(info.id)}">'
            f'<b dir="auto">{brief(info.title or info.id, 80)}</b>'
            f"<small>{moment(info.updated)[:16]}</small></button></li>"
            for info in infos[:MAX_SESSIONS]
        )
        none = "<li>nothing found</li>" if wanted else "<li>no conversation yet</li>"
        return JSONResponse({"html": rows or none, "count": len(infos)})

    async def transcript(self, request: Request) -> Response:
        """Return JSON with the HTML of a session's header, messages and pending calls.

        The JSON also states whether a prompt is running, and how many calls are pending.
        """
        return JSONResponse(await self._main(request.query_params.get("session", "")))

    async def _main(self, name: str) -> dict[str, Any]:
        transcript = await self._read(name)
        blocks = arrange(transcript.items)
        body = "".join(html for _, html in articles(blocks)) or EMPTY
        pending = await self._pending(name)
        waiting = "".join(_pending_article(call) for call in pending)
        return {
            "top": header(transcript, blocks),
            "body": body + waiting,
            "running": name in self.running,
            "pending": len(pending),
        }

    async def _read(self, name: str) -> Transcript:
        if name:
            try:
                return await read_session(self.store, name)
            except StoreError:
                if name in {info.id for info in await self.store.list()}:
                    raise
        return Transcript(title=name, source="session", items=())

    async def _pending(self, name: str) -> tuple[PendingCall, ...]:
        try:
            return pending_calls(await self.store.load(name)) if name else ()
        except StoreError:
            return ()

    async def run(self, request: Request) -> Response:
        """Run a prompt in a session, and return a response that streams the changes of the page.

        The status is 400 if the request is invalid, and 409 if a prompt is already running.
        """
        return await self._start(
            request, lambda given, session: (session.run, {"prompt": _text(given, "prompt")})
        )

    async def decide(self, request: Request) -> Response:
        """Continue a paused run, and return a response that streams the changes of the page.

        The request contains a decision about a pending call, or the result of the call. The status
        is 400 if the request is invalid, and 409 if a prompt is already running.
        """
        return await self._start(
            request,
            lambda given, session: (
                session.resume,
                {"decisions": {_text(given, "call"): _decision(given)}},
            ),
        )

    async def _start(
        self,
        request: Request,
        act: Callable[[Mapping[str, Any], Session[Any, Any]], tuple[Any, dict[str, Any]]],
    ) -> Response:
        try:
            given = await _body(request)
            name = _text(given, "session")
            session = self.agent.session(name, store=self.store)
            start, keywords = act(given, session)
        except (ValueError, TypeError) as error:
            return JSONResponse({"error": str(error)}, 400)
        if name in self.running:
            return JSONResponse(
                {
                    "error": "the agent is still answering a prompt in this conversation; "
                    "wait for the answer or stop the run"
                },
                409,
            )
        self.running[name] = session  # before the next await, so that no other run can start
        try:
            transcript = await self._read(name)
        except BaseException:
            del self.running[name]
            raise
        live = _LivePage(transcript, self, name)
        keywords["permission"] = self._permission(live)
        events: Events[Any] = Events(start, {**keywords, "unwrap": False})
        live.push = cast(Callable[[object], None], events)
        return _SiteResponse(events, live, lambda: self._ended(name, live))

    def _permission(self, live: _LivePage) -> Permission:
        """Return the permission policy of a run, made from the app's policy and the agent's policy.

        If the app's policy is a `Rules`, it decides first. The agent's policy decides about calls
        that no rule decides, or the page asks if the agent has no policy. Any other policy of the
        app is used only if the agent has no policy. If neither has a policy, the page asks.
        """
        own = self.agent.settings.permission
        if isinstance(self.rules, Rules):
            otherwise = own if own is not None else Ask(live.ask)
            return Rules(allow=self.rules.allowed, deny=self.rules.denied, otherwise=otherwise)
        if own is not None:
            return own
        return self.rules if self.rules is not None else Ask(live.ask)

    def _ended(self, name: str, live: _LivePage) -> None:
        self.running.pop(name, None)
        for key in live.asked:
            self.questions.pop(key, None)

    async def answer(self, request: Request) -> Response:
        """Store the user's answer to a permission question, so that the waiting run continues.

        Respond with status 400 if the request is invalid, and 409 if no run waits for the answer.
        """
        try:
            given = await _body(request)
            key, decision = _text(given, "question"), _decision(given)
            if not isinstance(decision, Decision):
                raise ValueError("answer must be allow, target, session or deny")
        except (ValueError, TypeError) as error:
            return JSONResponse({"error": str(error)}, 400)
        question = self.questions.pop(key, None)
        if question is None:
            return JSONResponse({"error": "this question was answered, or its run has ended"}, 409)
        question.decision = decision
        question.done.set()
        return JSONResponse({})

    async def stop(self, request: Request) -> Response:
        """Cancel the running prompt of a session; return JSON that states whether a prompt ran."""
        try:
            name = _text(await _body(request), "session")
        except ValueError as error:
            return JSONResponse({"error": str(error)}, 400)
        session = self.running.get(name)
        if session is not None:
            session.cancel()
        return JSONResponse({"stopped": session is not None})


class _SiteResponse(RunResponse):
    """A response that streams a run to the live page, and calls `ended` at the end of the run."""

    def __init__(self, events: Events[Any], live: _LivePage, ended: Callable[[], None]) -> None:
        super().__init__(events, live)
        self.ended = ended

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self.ended()


class _Question:
    """A permission question that waits for an answer from the page."""

    def __init__(self, key: str, request: PermissionRequest) -> None:
        self.key, self.request = key, request
        self.done = anyio.Event()
        self.decision: Decision  # set before `done`


class _LivePage:
    """Encodes the events of a run as messages for the page, such as articles and questions."""

    headers: Mapping[str, str] = {}
    last = ""

    def __init__(self, transcript: Transcript, site: _Site, session: str) -> None:
        self.site, self.session = site, session
        self.reader = EventReader(transcript.items, live=True)
        self.sent = dict(articles(arrange(transcript.items)))
        self.asked: list[str] = []
        self.push: Callable[[object], None] = lambda question: None  # set when the run starts

    async def ask(self, request: PermissionRequest) -> Decision:
        """Show a permission question in the page, wait for the answer and return it."""
        question = _Question(new_id(), request)
        self.site.questions[question.key] = question
        self.asked.append(question.key)
        self.push(question)  # between two events of the run
        await question.done.wait()
        return question.decision

    def event(self, event: Event | _Question) -> Iterable[Mapping[str, Any]]:
        if isinstance(event, _Question):
            html = _question_article(event.key, event.request)
            yield {"type": "question", "id": event.key, "html": html}
            return
        if isinstance(event, TextDelta):
            yield {"type": "text", "text": event.text}
            return
        if isinstance(event, ThinkingDelta):
            yield {"type": "thinking", "text": event.text}
            return
        value = event_to_json(event)
        if value["type"] in _SHOWN_EVENTS:
            self.reader.add(value, time.time())
            yield from self._changes()

    def end(self, result: RunResult[Any]) -> Iterable[Mapping[str, Any]]:
        notice = result.notice or (str(result.error) if result.error is not None else "")
        if str(result.outcome) == "paused":
            notice = ""
        yield {"type": "end", "outcome": str(result.outcome), "notice": notice}

    def fail(self, error: GlueError) -> Iterable[Mapping[str, Any]]:
        yield {"type": "end", "outcome": "failed", "notice": str(error)}

    def _changes(self) -> Iterable[Mapping[str, Any]]:
        """Yield each article of the transcript that is new or changed, and record it as sent.

        An article is the HTML of one block of the transcript, such as a message.
        """
        for key, html in articles(arrange(self.reader.items)):
            if self.sent.get(key) != html:
                self.sent[key] = html
                yield {"type": "article", "id": key, "html": html}


async def _body(request: Request) -> Mapping[str, Any]:
    """Read the body of a request; raise ValueError if it is too long or not a JSON object."""
    data = bytearray()
    async with aclosing(request.stream()) as blocks:
        async for block in blocks:
            data += block
            if len(data) > MAX_BODY:
                raise ValueError(f"the request is longer than {MAX_BODY} bytes")
    try:
        value = json.loads(bytes(data))
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, Mapping):
        raise ValueError("the body of the request must be a JSON object")
    return value


def _text(given: Mapping[str, Any], name: str) -> str:
    value = given.get(name)
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"the field {name} is missing or blank")
    return value


def _decision(given: Mapping[str, Any]) -> Decision | str:
    """Return the user's answer about a call: a Decision, or the result of the call as text.

    Raise ValueError if the answer is none of the known answers.
    """
    answer, text = given.get("answer"), str(given.get("text") or "")
    scopes = {"allow": "call", "target": "target", "session": "session"}
    if answer in scopes:
        return allow(scopes[answer])  # type: ignore[arg-type]
    if answer == "deny":
        return deny(text or "the user said no")
    if answer == "result":
        return text
    raise ValueError("answer must be allow, target, session, deny or result")


def _model_name(agent: Agent[Any, Any]) -> str:
    model = agent.settings.model
    return model if isinstance(model, str) else str(getattr(model, "name", ""))


def _aside(session: str, model: str) -> str:
    """Return the HTML of the list of conversations and of the field for the prompt."""
    return (
        f'<div id="live" data-session="{escape(session)}">'
        '<details id="chats" open><summary>conversations</summary>'
        '<button type="button" id="new">new conversation</button>'
        '<input id="find" type="search" placeholder="search conversations"'
        ' aria-label="search conversations"><ul id="list"></ul></details>'
        '<form id="composer"><p id="notice" role="status" aria-live="polite"></p>'
        '<textarea id="prompt" rows="3" aria-label="prompt" dir="auto"'
        f' placeholder="Ask {brief(model, 60) or "the agent"} '
        '(Enter sends, Shift+Enter is a new line)"></textarea>'
        '<button type="submit" id="send">send</button>'
        '<button type="button" id="stop" hidden>stop</button></form></div>'
    )


def _question_body(request: PermissionRequest) -> str:
    """Return the HTML of a permission request: its action, target, diff and arguments."""
    marks = HIDDEN_CHARACTERS["bidirectional controls"]
    target = marks.sub(lambda mark: f"⟨U+{ord(mark[0]):04X}⟩", request.target)
    parts = [f"<p><code>{escape(request.action)}</code></p>"]
    if target:
        parts.append(literal(target))
    change = change_of(request)
    if change is not None:
        kinds = {"+": "plus", "-": "minus", "@": "hunk"}
        rows = "".join(
            f'<span class="{kinds.get(line[:1], "same")}">{escape(line)}\n</span>'
            for line in change[:MAX_DIFF]
        )
        more = f"… {count(len(change) - MAX_DIFF, 'more line')}" if len(change) > MAX_DIFF else ""
        parts.append(f'<pre class="code diff" dir="auto">{rows}{more}</pre>')
    in_diff = ("old", "new", "content", "edits") if change is not None else ()
    for name, value in request.arguments.items():
        text = value if isinstance(value, str) else pretty(value)
        if text != request.target and name not in in_diff:
            parts.append(f"<h4>{escape(name)}</h4>{literal(text)}")
    return "".join(parts)


def _card(body: str) -> str:
    return (
        '<article class="asks"><div class="rail"></div>'
        f'<div class="card" role="group" aria-label="permission">{body}</div></article>\n'
    )


def _question_article(key: str, request: PermissionRequest) -> str:
    """Return the HTML of a permission question of a running prompt, with its buttons."""
    choices = (
        ("allow", "allow"),
        ("target", "always allow this target"),
        ("session", f"allow every {request.action} in this conversation"),
        ("deny", "deny"),
    )
    buttons = "".join(
        f'<button type="button" data-question="{escape(key)}" data-answer="{answer}">'
        f"{escape(label)}</button>"
        for answer, label in choices
    )
    head = "<header><b>May this call run?</b></header>"
    return _card(f'{head}{_question_body(request)}<p class="buttons">{buttons}</p>')


def _pending_article(call: PendingCall) -> str:
    """Return the HTML of a pending call of a paused run, with buttons that continue the run."""
    why = f'<p class="none">{escape(call.reason)}</p>' if call.reason else ""
    within = f"{escape(': '.join(call.path))}: " if call.path else ""
    key = escape(call.id)
    field = f'<input id="text-{key}" aria-label="reason or result" placeholder="{{}}">'

    def button(answer: str, label: str) -> str:
        return f'<button type="button" data-call="{key}" data-answer="{answer}">{label}</button>'

    if call.request is None:
        arguments = literal(pretty(dict(call.arguments)))
        body = f"<p>{within}<code>{escape(call.tool)}</code></p>{arguments}"
        form = field.format("the result") + button("result", "send the result")
        title = "This call waits for a result"
    else:
        body = f"{within}{_question_body(call.request)}"
        form = button("allow", "allow") + field.format("why not") + button("deny", "deny")
        title = "This call waits for an approval"
    return _card(f'<header><b>{title}</b></header>{body}{why}<p class="buttons">{form}</p>')
