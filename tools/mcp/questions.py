"""Questions of MCP servers to the user: forms to fill in, and pages to open in the browser."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias
from urllib.parse import urlsplit

import anyio

from glue.context import Context
from glue.function.validation import Validator
from glue.permission import PermissionRequest, decide
from glue.tools.mcp.gate import clean, clean_all

MAX_MESSAGE = 2_000  # characters of a question


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A question of an MCP server to the user: a form (`schema`) or a web page to open (`url`).

    `finished` is set when the server reports that the user has finished the page.
    """

    server: str
    message: str
    schema: Mapping[str, Any] = field(default_factory=dict)
    url: str = ""
    id: str = ""  # of a page
    session_id: str = ""  # of the session whose call caused the question; empty if unknown
    call_id: str = ""
    finished: anyio.Event = field(default_factory=anyio.Event, compare=False, repr=False)

    @property
    def origin(self) -> str:
        """The scheme, host and port of the page to open, such as `https://example.com:8443`.

        Without a port in the address, the text ends with the host.

        The host is written in ASCII, so that a letter of another script cannot imitate it.
        """
        found = urlsplit(self.url)
        try:
            host = (found.hostname or "").encode("idna").decode()
        except UnicodeError:
            host = ascii(found.hostname)
        port = f":{found.port}" if found.port else ""
        return f"{found.scheme}://{host}{port}"


# A function that asks the user. It returns the answer to a form, {} if the user agreed to open the
# page, or None if the user declined.
Elicit: TypeAlias = Callable[[Question], Awaitable[Mapping[str, Any] | None]]


def read_question(server: str, params: Any, context: Context[Any] | None) -> Question | None:
    """Return the question in a server's elicitation request, or None if its URL is not allowed.

    The URL of a page to open must begin with http or https.
    """
    message = clean(str(params.message))[:MAX_MESSAGE]
    asked: dict[str, Any] = {
        "session_id": context.scope if context is not None else "",
        "call_id": context.call.id if context is not None else "",
    }
    if getattr(params, "mode", "form") == "url":
        url = clean(str(params.url))
        if urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).hostname:
            return None
        page = str(getattr(params, "elicitation_id", "") or "")
        return Question(server=server, message=message, url=url, id=page, **asked)
    schema = clean_all(dict(getattr(params, "requested_schema", None) or {}))
    return Question(server=server, message=message, schema=schema, **asked)


def completed(question: Question, answer: Mapping[str, Any]) -> dict[str, Any]:
    """Return an answer with defaults for omitted fields; raise ValidationError if it is invalid.

    The form of the question has the defaults and the schema of the answer.
    """
    fields = question.schema.get("properties") or {}
    given = {name: each["default"] for name, each in fields.items() if "default" in each}
    given |= answer
    validator = Validator(question.schema)
    validator.start(given)
    fault = validator.errors(given)
    if fault is not None:
        raise fault
    return given


async def ask_policy(question: Question, context: Context[Any] | None) -> dict[str, Any] | None:
    """Ask the policy about a yes-or-no form; return True for each required field, or None.

    The action is `mcp-question:SERVER`, which no rule about tools covers. The answer has the
    value true for every required field. Return None if the policy denies, if there is no policy,
    if a required field is not a boolean, or for a page, which only a person can open.
    """
    permission = context.host.permission if context is not None else None
    if question.url or permission is None or context is None:
        return None
    properties = question.schema.get("properties") or {}
    wanted = {name: properties.get(name, {}) for name in question.schema.get("required") or ()}
    if any(each.get("type") != "boolean" for each in wanted.values()):
        return None
    request = PermissionRequest(
        tool=context.call.name,
        action=f"mcp-question:{question.server}",
        target=question.message,
        arguments={"message": question.message, "schema": dict(question.schema)},
        call_id=context.call.id,
        session_id=context.scope,
    )
    decision = await decide(permission, request)
    return dict.fromkeys(wanted, True) if decision.allowed else None
