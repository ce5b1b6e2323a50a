"""The server: real HTTP on a loopback port, one thread per request, with faults on demand."""

from __future__ import annotations

import itertools
import json
import re
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Literal, Self
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

from fakes.forge.state import Asked, Call, Pull, Refused, Reply, User
from glue.errors import ProviderError
from glue.providers import HTTPResponse

Kind = Literal["github", "gitlab", "gitea"]
# refuse: not carried out; lose: carried out, the response is lost; cut: carried out, half a
# response; garbage: carried out, not JSON; error and error-after: a 502 before and after carrying
# it out; busy: 429; denied: 403; stale: an outdated list is returned.
Action = Literal[
    "refuse", "lose", "cut", "garbage", "error", "error-after", "busy", "denied", "invalid"
]
_PREFIX = {"github": "", "gitlab": "/api/v4", "gitea": "/api/v1"}


@dataclass(slots=True, kw_only=True)
class Fault:
    """A fault that later requests get.

    `match` is a pattern of `METHOD /path`. With `at`, only that one of the matching requests fails,
    counted from 0; otherwise the next `times`.
    """

    action: Action
    at: int | None = None
    match: str = ""
    times: int = 1
    headers: Mapping[str, str] = field(default_factory=dict)
    seen: int = 0

    def hits(self, call: str) -> bool:
        if self.times <= 0 or (self.match and not re.search(self.match, call)):
            return False
        self.seen += 1
        if self.at is not None and self.seen - 1 != self.at:
            return False
        self.times -= 1
        return True


class FakeForge:
    """A forge for tests: `with FakeForge("github") as forge: forge.pull(diff=...)`."""

    def __init__(
        self, kind: Kind = "github", *, repo: str = "octo/demo", bot: str = "review-bot"
    ) -> None:
        self.kind: Kind = kind
        self.repo = repo
        self.pulls: dict[int, Pull] = {}
        self.calls: list[Call] = []
        self.faults: list[Fault] = []
        self.permissions: dict[str, str] = {}
        self.issues: dict[int, dict[str, Any]] = {}  # by number, as the forge returns them
        self.remaining: int | None = None  # requests until the primary rate limit
        self.creations = 80  # posts per minute until the secondary rate limit
        self.uploads: list[dict[str, Any]] = []
        self.resolved: set[int] = set()  # first comments of resolved discussions
        self.ids = itertools.count(1001)
        self._created: list[float] = []
        self._users: dict[str, User] = {}
        self._lock = threading.RLock()
        self._server: ThreadingHTTPServer | None = None
        self.token = self.login(bot)

    @property
    def url(self) -> str:
        """Return the address of the API."""
        host, port = self._server.server_address[:2] if self._server else ("forge.invalid", 80)
        return f"http://{host!s}:{port}{_PREFIX[self.kind]}"

    @property
    def environ(self) -> dict[str, str]:
        """Return the variables of a CI job on this forge, for the first pull request."""
        number = next(iter(self.pulls), 1)
        pull = self.pulls.get(number)
        if self.kind == "gitlab":
            return {
                "GITLAB_CI": "true",
                "CI_API_V4_URL": self.url,
                "CI_PROJECT_ID": self.repo,
                "CI_PROJECT_PATH": self.repo,
                "CI_MERGE_REQUEST_IID": str(number),
                "CI_MERGE_REQUEST_DIFF_BASE_SHA": pull.base if pull else "",
                "GLUE_REVIEW_TOKEN": self.token,
            }
        extra = {"GITEA_ACTIONS": "true"} if self.kind == "gitea" else {}
        return {
            "GITHUB_ACTIONS": "true",
            "GITHUB_API_URL": self.url,
            "GITHUB_REPOSITORY": self.repo,
            "GITHUB_REF": f"refs/pull/{number}/merge",
            "GITHUB_TOKEN": self.token,
            **extra,
        }

    def login(self, name: str, *, bot: bool = False, permission: str = "write") -> str:
        """Add an account and return its token."""
        token = f"fake-{self.kind}-{name}"
        self._users[token] = User(id=5000 + len(self._users), login=name, bot=bot)
        self.permissions[name] = permission
        return token

    def user(self, token: str = "") -> User:
        """Return the account that a token belongs to, by default the account of the bot."""
        return self._users[token or self.token]

    def pull(
        self,
        diff: str = "",
        number: int = 1,
        *,
        head: str = "a" * 40,
        base: str = "b" * 40,
        **more: Any,
    ) -> Pull:
        """Open a pull request with a diff."""
        self.pulls[number] = Pull(number=number, diff=diff, head=head, base=base, **more)
        return self.pulls[number]

    def fail(
        self,
        action: Action,
        *,
        at: int | None = None,
        match: str = "",
        times: int = 1,
        **headers: str,
    ) -> Fault:
        """Make later requests fail as the arguments of `Fault` say, and return the fault.

        `headers` are sent with a busy or denied response.
        """
        names = {name.replace("_", "-"): value for name, value in headers.items()}
        fault = Fault(action=action, at=at, match=match, times=times, headers=names)
        self.faults.append(fault)
        return fault

    def __enter__(self) -> Self:
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.01,), daemon=True
        )
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._server is not None
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def answer(
        self, method: str, target: str, headers: Mapping[str, str], raw: bytes
    ) -> Reply | None:
        """Return the response to one request, or None to drop the connection."""
        with self._lock:
            parts = urlsplit(target)
            path, query = parts.path.removeprefix(_PREFIX[self.kind]), dict(parse_qsl(parts.query))
            # Each of the faults counts the request.
            hit = [one for one in self.faults if one.hits(f"{method} {path}")]
            fault = hit[0] if hit else None
            reply = _before(fault)
            body: Any = None
            if reply is None and (fault is None or fault.action != "refuse"):
                try:
                    body = json.loads(raw) if raw else None
                    reply = self._route(method, path, query, headers, body)
                except Refused as refused:
                    reply = refused.reply
                except ValueError:
                    reply = Reply(status=400, body={"message": "Problems parsing JSON"})
            reply = _after(fault, reply)
            status = 0 if reply is None else reply.status
            call = Call(
                method=method,
                path=path,
                query=query,
                headers=dict(headers),
                body=body,
                status=status,
            )
            self.calls.append(call)
            return reply

    def request(
        self,
        method: str,
        path: str,
        *,
        body: bytes | None,
        query: Any,
        headers: Mapping[str, str],
        most: int,
    ) -> HTTPResponse:
        """Answer a request in this process, like `HTTP.request_sync`.

        If the connection is dropped, the error is ambiguous.
        """
        target = f"{_PREFIX[self.kind]}{path}?{urlencode(query or {})}"
        reply = self.answer(method, target, headers, body or b"")
        data = b"" if reply is None else reply.data
        if reply is None or int(reply.headers.get("content-length", len(data))) > len(data):
            error = ProviderError(
                "the connection was closed before the whole answer came", kind="transient"
            )
            error.ambiguous = True
            raise error
        return HTTPResponse(status=reply.status, headers=reply.headers, body=data)

    def _route(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        headers: Mapping[str, str],
        body: Any,
    ) -> Reply:
        from fakes.forge import gitea, github, gitlab

        user = self._who(headers)
        self._limit(method)
        asked = Asked(
            method=method,
            path=unquote(path),
            query=query,
            accept=headers.get("accept", ""),
            body=body,
            user=user,
        )
        if self.kind == "gitlab":
            return gitlab.answer(self, gitlab.raw(asked, path))
        return github.answer(self, asked) if self.kind == "github" else gitea.answer(self, asked)

    def _who(self, headers: Mapping[str, str]) -> User:
        value = headers.get("private-token") or headers.get("authorization", "").split(" ", 1)[-1]
        user = self._users.get(value)
        if user is None:
            raise Refused(401, "Bad credentials")
        if self.kind == "github" and not headers.get("user-agent"):
            raise Refused(
                403, "Request forbidden by administrative rules: send a User-Agent header"
            )
        return user

    def _limit(self, method: str) -> None:
        now = time.monotonic()
        if self.remaining is not None:
            if self.remaining <= 0:
                reset = str(int(time.time()) + 60)
                gone = {"x-ratelimit-remaining": "0", "x-ratelimit-reset": reset}
                raise Refused(
                    403 if self.kind == "github" else 429, "API rate limit exceeded", gone
                )
            self.remaining -= 1
        if method == "POST":
            self._created = [then for then in self._created if now - then < 60]
            if len(self._created) >= self.creations:
                raise Refused(
                    403, "You have exceeded a secondary rate limit", {"retry-after": "60"}
                )
            self._created.append(now)


def page(
    forge: FakeForge, asked: Asked, rows: list[Any], *, size: str = "per_page", most: int = 100
) -> Reply:
    """Return one page of a list, with the address of the next page in the headers."""
    count = max(1, min(most, int(asked.query.get(size, "30"))))
    number = max(1, int(asked.query.get("page", "1")))
    part = rows[(number - 1) * count : number * count]
    headers = {"x-total-count": str(len(rows))}
    if number * count < len(rows):
        target = f"{forge.url}{asked.path}?{size}={count}&page={number + 1}"
        headers |= {"link": f'<{target}>; rel="next"', "x-next-page": str(number + 1)}
    return Reply(body=part, headers=headers)


def _before(fault: Fault | None) -> Reply | None:
    if fault is None:
        return None
    if fault.action == "error":
        return Reply(status=502, text="<html>Bad gateway</html>")
    if fault.action in ("busy", "denied", "invalid"):
        status = {"busy": 429, "denied": 403, "invalid": 422}[fault.action]
        return Reply(status=status, body={"message": fault.action}, headers=fault.headers)
    return None


def _after(fault: Fault | None, reply: Reply | None) -> Reply | None:
    if fault is None or reply is None:
        return reply
    if fault.action == "error-after":
        return Reply(status=502, text="<html>Bad gateway</html>")
    if fault.action == "garbage":
        return Reply(status=reply.status, text="<html>not JSON</html>")
    if fault.action == "cut":
        return Reply(
            status=reply.status,
            text=json.dumps(reply.body)[:20],
            headers={"content-length": "4096"},
        )
    return None if fault.action in ("refuse", "lose") else reply


def _handler(forge: FakeForge) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = 10

        def _serve(self) -> None:
            size = int(self.headers.get("content-length") or 0)
            raw = self.rfile.read(size)
            headers = {name.lower(): value for name, value in self.headers.items()}
            reply = forge.answer(self.command, self.path, headers, raw)
            self.close_connection = True
            if reply is None:
                return
            data = reply.data
            self.send_response(reply.status)
            self.send_header(
                "content-type", "text/html" if reply.text is not None else "application/json"
            )
            sent = {"content-length": str(len(data)), "connection": "close", **reply.headers}
            for name, value in sent.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = do_PATCH = do_PUT = do_DELETE = _serve

        def log_message(self, format: str, *args: object) -> None:
            pass

    return Handler
