"""Endpoints that run an agent for AG-UI (`@ag-ui/client`) and for the Vercel AI SDK (`ai`)."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from glue.agent import Agent
from glue.decision import PendingCall, allow, deny
from glue.errors import GlueError
from glue.events import (
    Event,
    MessageEnd,
    MessageStart,
    RunStart,
    TextDelta,
    ThinkingDelta,
    ToolEnd,
    ToolPending,
    TurnEnd,
    TurnStart,
)
from glue.limits import Outcome
from glue.loop.transcript import has_content
from glue.messages import (
    AssistantMessage,
    File,
    Image,
    Message,
    Part,
    Text,
    ToolCall,
    ToolMessage,
    UserMessage,
    new_id,
)
from glue.result import RunResult
from glue.stores.store import Store
from glue.streams import Events
from glue.web.asgi import JSONResponse, Request, Response
from glue.web.responses import RunResponse

Chunk = Mapping[str, Any]
_FINE = (Outcome.DONE, Outcome.WRAPPED_UP, Outcome.TRUNCATED, Outcome.REFUSED)


async def ag_ui(
    agent: Agent[Any, Any], request: Request, *, store: Store | None = None, session: str = ""
) -> Response:
    """Return a response that runs an agent for an AG-UI client and streams its events.

        async def endpoint(request):
            return await ag_ui(agent, request, store=store)

    Without a store, the messages of the client are the history. With a store, each thread is a
    session and only the last user message is read. Approvals need a store, because it keeps the
    pending call. Instructions from the client are ignored. An invalid request gets status 400.

    Args:
        agent: The agent that answers.
        request: The POST request of the client.
        store: Keeps the conversations.
        session: The name of the session; by default the client's `threadId`. An app with several
            users should put the user into the name.
    """
    try:
        body = await _json_body(request)
        thread, run = str(body.get("threadId") or new_id()), str(body.get("runId") or new_id())
        history = [message for each in _list(body, "messages") for message in _ag_ui_message(each)]
        decisions = {
            str(entry.get("interruptId")): _ag_ui_decision(entry) for entry in _list(body, "resume")
        }
        events = _start(agent, history, decisions, store, session or thread)
    except (ValueError, GlueError) as error:
        return JSONResponse({"error": str(error)}, 400)
    return RunResponse(events, _AgUi(thread, run))


async def vercel(
    agent: Agent[Any, Any], request: Request, *, store: Store | None = None, session: str = ""
) -> Response:
    """Return a response that runs an agent for the Vercel AI SDK and streams its events.

        async def endpoint(request):
            return await vercel(agent, request, store=store)

    The client is `useChat`, and the response is its UI message stream. The parameters are those of
    `ag_ui`; the default name of the session is the client's `id`.
    """
    try:
        body = await _json_body(request)
        shown = _list(body, "messages")
        history = [message for each in shown for message in _vercel_message(each)]
        decisions = _vercel_decisions(shown[-1]) if shown else {}
        name = session or str(body.get("id") or new_id())
        events = _start(agent, history, decisions, store, name)
    except (ValueError, GlueError) as error:
        return JSONResponse({"error": str(error)}, 400)
    return RunResponse(events, _Vercel())


def _start(
    agent: Agent[Any, Any],
    history: list[Message],
    decisions: Mapping[str, Any],
    store: Store | None,
    session: str,
) -> Events[Any]:
    """Return the events of a run for the last message or, with `decisions`, of the resumed run.

    The run starts when the events are read. Raise ValueError if the request is invalid.
    """
    if decisions:
        if store is None:
            raise ValueError("an approval needs a store: pass store= to this endpoint")
        kept = agent.session(session, store=store)
        return Events(kept.resume, {"decisions": decisions, "unwrap": False})
    if not history or not isinstance(prompt := history[-1], UserMessage):
        raise ValueError("the last message must be a message of the user")
    if not has_content(prompt.content):
        raise ValueError("the last message is empty; send a text, an image or a file")
    if store is not None:
        kept = agent.session(session, store=store)
        return Events(kept.run, {"prompt": [prompt], "unwrap": False})
    given = {"prompt": [prompt], "message_history": history[:-1], "unwrap": False}
    return Events(agent.run, given)


async def _json_body(request: Request) -> Mapping[str, Any]:
    try:
        body = json.loads(await request.body())
    except (ValueError, RecursionError):
        body = None
    if not isinstance(body, Mapping):
        raise ValueError("the body of the request must be a JSON object")
    return body


def _list(body: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    value = body.get(name) or []
    if not isinstance(value, list) or not all(isinstance(each, Mapping) for each in value):
        raise ValueError(f"{name} must be a list of objects")
    return value


# Requests from the clients ------------------------------------------------------------------------


def _ag_ui_message(given: Mapping[str, Any]) -> Iterator[Message]:
    """Convert an AG-UI message; yield nothing for instructions, reasoning or an empty reply."""
    role, key = given.get("role"), str(given.get("id") or new_id())
    content = given.get("content")
    if role == "user":
        yield UserMessage(id=key, content=_parts(content))
    elif role == "assistant":
        calls = [_ag_ui_call(call) for call in _list(given, "toolCalls")]
        text = (Text(text=content),) if isinstance(content, str) and content else ()
        if text or calls:
            yield AssistantMessage(id=key, content=(*text, *calls))
    elif role == "tool":
        yield ToolMessage(
            id=key,
            call_id=str(given.get("toolCallId")),
            name="",
            content=_parts(content),
            is_error=bool(given.get("error")),
        )


def _ag_ui_call(given: Mapping[str, Any]) -> ToolCall:
    function = given.get("function")
    if not isinstance(function, Mapping):
        raise ValueError("the function of a tool call must be an object")
    arguments = str(function.get("arguments") or "{}")
    return ToolCall(id=str(given.get("id")), name=str(function.get("name")), arguments=arguments)


def _ag_ui_decision(entry: Mapping[str, Any]) -> Any:
    """Return a client's answer to an interrupt: a decision, or the text of a call's result.

    If the status is not `resolved`, the call is denied. The payload is a boolean, an object such as
    {"approved": true}, or the result of a call.
    """
    payload = entry.get("payload")
    if entry.get("status") != "resolved":
        return deny("the user cancelled the call")
    if isinstance(payload, Mapping) and "approved" in payload:
        reason = str(payload.get("reason") or "the user said no")
        return allow() if payload["approved"] is True else deny(reason)
    if isinstance(payload, bool):
        return allow() if payload else deny("the user said no")
    return payload if isinstance(payload, str) else json.dumps(payload)


def _parts(content: Any) -> tuple[Part, ...]:
    """Convert the content of a client's message to message parts.

    The content is a text, or a list of texts, images and files. Raise ValueError for other content.
    """
    if isinstance(content, str):
        return (Text(text=content),)
    if not isinstance(content, list):
        raise ValueError("the content of a message must be a text or a list of parts")
    return tuple(map(_part, content))


def _part(given: Any) -> Part:
    kind = given.get("type") if isinstance(given, Mapping) else None
    if kind == "text":
        return Text(text=str(given.get("text", "")))
    if kind == "file":  # Vercel: a data URL, or an address
        media_type = str(given.get("mediaType") or "application/octet-stream")
        return _media(str(given.get("url", "")), media_type, str(given.get("filename") or ""))
    source = given.get("source") if isinstance(given, Mapping) else None
    if kind in ("image", "document") and isinstance(source, Mapping):
        usual = "image/png" if kind == "image" else "application/pdf"
        media_type = str(source.get("mimeType") or usual)
        value = str(source.get("value", ""))
        if source.get("type") == "data":
            value = f"data:{media_type};base64,{value}"
        return _media(value, media_type, "")
    raise ValueError(f"a part of the type {kind!r} cannot be read; send text, images or files")


def _media(url: str, media_type: str, name: str) -> Part:
    """Convert a URL to a part: a data URL to an image or file, any other URL to an image.

    The provider fetches the image from the other URL. Raise ValueError for a file at another URL,
    or for data that is not base64.
    """
    is_image = media_type.startswith("image/")
    if not url.startswith("data:"):
        if not is_image:
            raise ValueError("a file must be sent as a data URL")
        return Image(media_type=media_type, url=url)
    try:
        data = base64.b64decode(url.partition(",")[2], validate=True)
    except ValueError:  # also for characters that are not ASCII
        raise ValueError("a data URL must be encoded as base64") from None
    if is_image:
        return Image(media_type=media_type, data=data)
    return File(media_type=media_type, data=data, name=name)


def _vercel_message(given: Mapping[str, Any]) -> Iterator[Message]:
    """Convert a message of the Vercel AI SDK, and yield the messages of glue that it contains.

    A user message yields one message. A reply of the assistant yields a reply for each of its
    steps, followed by the results of the calls in that step. Any other role yields nothing.
    """
    role, parts = given.get("role"), _list(given, "parts")
    if role == "user":
        wanted = [part for part in parts if part.get("type") in ("text", "file")]
        yield UserMessage(id=str(given.get("id") or new_id()), content=_parts(wanted))
    elif role == "assistant":
        content: list[Part] = []
        results: list[ToolMessage] = []
        for part in parts:
            if part.get("type") == "step-start" and content:
                yield AssistantMessage(content=tuple(content))
                yield from results
                content, results = [], []
            elif part.get("type") == "text" and part.get("text"):
                content.append(Text(text=str(part["text"])))
            elif (name := _tool_name(part)) and part.get("toolCallId"):
                call_id, arguments = str(part["toolCallId"]), part.get("input") or {}
                if not isinstance(arguments, str):
                    arguments = json.dumps(arguments)
                content.append(ToolCall(id=call_id, name=name, arguments=arguments))
                if part.get("state") in ("output-available", "output-error"):
                    is_error = part["state"] == "output-error"
                    output = part.get("errorText") if is_error else part.get("output")
                    text = output if isinstance(output, str) else json.dumps(output)
                    results.append(
                        ToolMessage(
                            call_id=call_id,
                            name=name,
                            content=(Text(text=text),),
                            is_error=is_error,
                        )
                    )
        if content:
            yield AssistantMessage(content=tuple(content))
            yield from results


def _tool_name(part: Mapping[str, Any]) -> str:
    """Return the name of the tool that a part calls, or "" if the part is not a tool call."""
    kind = str(part.get("type"))
    if kind == "dynamic-tool":
        return str(part.get("toolName") or "")
    return kind.removeprefix("tool-") if kind.startswith("tool-") else ""


def _vercel_decisions(last: Mapping[str, Any]) -> dict[str, Any]:
    """Return the decisions about approval requests in the last message, by the id of the call.

    Return {} if the message is not a reply.
    """
    found: dict[str, Any] = {}
    for part in _list(last, "parts") if last.get("role") == "assistant" else ():
        approval = part.get("approval")
        if part.get("state") == "approval-responded" and isinstance(approval, Mapping):
            reason = str(approval.get("reason") or "the user said no")
            answer = allow() if approval.get("approved") is True else deny(reason)
            found[str(approval.get("id"))] = answer
    return found


# Responses to the clients -------------------------------------------------------------------------


class _Texts:
    """State of the streamed reply: its id, and the block of text or thinking that is open."""

    def __init__(self) -> None:
        self.message = ""  # the id of the reply
        self.kind = ""  # "text" or "thinking" while a block is open
        self.streamed = False  # whether the reply had text
        self.number = 0

    @property
    def id(self) -> str:
        return f"{self.message}-{self.number}" if self.kind == "thinking" else self.message


class _AgUi:
    """Encodes the events of a run as AG-UI events."""

    headers: Mapping[str, str] = {}
    last = ""

    def __init__(self, thread: str, run: str) -> None:
        self.thread, self.run, self.texts = thread, run, _Texts()
        self.started = False

    def event(self, event: Event) -> Iterable[Chunk]:
        if isinstance(event, RunStart):
            yield from self._begin()
        elif isinstance(event, MessageStart) and event.role == "assistant":
            self.texts.message, self.texts.streamed = event.id, False
        elif isinstance(event, (TextDelta, ThinkingDelta)) and event.text:
            yield from self._delta("text" if isinstance(event, TextDelta) else "thinking", event)
        elif isinstance(event, MessageEnd) and isinstance(event.message, AssistantMessage):
            yield from self._reply(event.message)
        elif isinstance(event, ToolEnd):
            yield {
                "type": "TOOL_CALL_RESULT",
                "messageId": event.message.id,
                "toolCallId": event.call.id,
                "content": event.message.text,
                "role": "tool",
            }

    def end(self, result: RunResult[Any]) -> Iterable[Chunk]:
        if result.outcome is Outcome.PAUSED:
            outcome = {"type": "interrupt", "interrupts": list(map(_interrupt, result.pending))}
        elif result.outcome is Outcome.CANCELLED:
            outcome = {"type": "cancelled"}
        elif result.outcome in _FINE:
            outcome = {"type": "success"}
        else:
            message = str(result.error or result.outcome)
            yield {"type": "RUN_ERROR", "message": message, "code": str(result.outcome)}
            return
        yield {
            "type": "RUN_FINISHED",
            "threadId": self.thread,
            "runId": self.run,
            "outcome": outcome,
            "result": {"outcome": str(result.outcome), "cost": result.cost},
            "usage": [{"inputTokens": result.usage.input, "outputTokens": result.usage.output}],
        }

    def fail(self, error: GlueError) -> Iterable[Chunk]:
        yield from self._begin()
        yield from self._close()
        yield {"type": "RUN_ERROR", "message": str(error), "code": type(error).__name__}

    def _begin(self) -> Iterable[Chunk]:
        if not self.started:
            self.started = True
            yield {"type": "RUN_STARTED", "threadId": self.thread, "runId": self.run}

    def _delta(self, kind: str, event: TextDelta | ThinkingDelta) -> Iterable[Chunk]:
        texts = self.texts
        if texts.kind != kind:
            yield from self._close()
            texts.kind, texts.number = kind, texts.number + 1
            if kind == "text":
                texts.streamed = True
                yield {"type": "TEXT_MESSAGE_START", "messageId": texts.id, "role": "assistant"}
            else:
                yield {"type": "REASONING_START", "messageId": texts.id}
                yield {
                    "type": "REASONING_MESSAGE_START",
                    "messageId": texts.id,
                    "role": "reasoning",
                }
        name = "TEXT_MESSAGE_CONTENT" if kind == "text" else "REASONING_MESSAGE_CONTENT"
        yield {"type": name, "messageId": texts.id, "delta": event.text}

    def _close(self) -> Iterable[Chunk]:
        texts = self.texts
        if texts.kind == "text":
            yield {"type": "TEXT_MESSAGE_END", "messageId": texts.id}
        elif texts.kind == "thinking":
            yield {"type": "REASONING_MESSAGE_END", "messageId": texts.id}
            yield {"type": "REASONING_END", "messageId": texts.id}
        texts.kind = ""

    def _reply(self, message: AssistantMessage) -> Iterable[Chunk]:
        self.texts.message = self.texts.message or message.id
        if message.text and not self.texts.streamed:
            yield from self._delta("text", TextDelta(text=message.text))
        yield from self._close()
        for call in message.calls:
            yield {
                "type": "TOOL_CALL_START",
                "toolCallId": call.id,
                "toolCallName": call.name,
                "parentMessageId": message.id,
            }
            yield {"type": "TOOL_CALL_ARGS", "toolCallId": call.id, "delta": call.arguments or "{}"}
            yield {"type": "TOOL_CALL_END", "toolCallId": call.id}


def _interrupt(call: PendingCall) -> Chunk:
    """Return a pending call as an AG-UI interrupt; `metadata` describes the call for a person."""
    request = call.request
    shown = {
        "tool": call.tool,
        "arguments": dict(call.arguments),
        "target": request.target if request is not None else "",
        "preview": request.touched.preview if request is not None and request.touched else "",
    }
    reason = "tool_approval" if request is not None else "tool_result"
    return {
        "id": call.id,
        "reason": reason,
        "message": call.reason or call.summary,
        "toolCallId": call.id.partition("/")[0],
        "metadata": shown,
    }


class _Vercel:
    """Encodes the events of a run as the UI message stream of the Vercel AI SDK."""

    headers: Mapping[str, str] = {"x-vercel-ai-ui-message-stream": "v1"}
    last = "[DONE]"

    def __init__(self) -> None:
        self.texts = _Texts()
        self.started = self.in_step = False
        self.known: set[str] = set()  # calls that the client has seen

    def event(self, event: Event) -> Iterable[Chunk]:
        if isinstance(event, RunStart):
            yield from self._begin(event.run_id)
        elif isinstance(event, TurnStart):
            self.in_step = True
            yield {"type": "start-step"}
        elif isinstance(event, TurnEnd):
            yield from self._end_step()
        elif isinstance(event, MessageStart) and event.role == "assistant":
            self.texts.message, self.texts.streamed = event.id, False
        elif isinstance(event, (TextDelta, ThinkingDelta)) and event.text:
            yield from self._delta("text" if isinstance(event, TextDelta) else "thinking", event)
        elif isinstance(event, MessageEnd) and isinstance(event.message, AssistantMessage):
            yield from self._reply(event.message)
        elif isinstance(event, ToolEnd):
            yield from self._result(event)
        elif isinstance(event, ToolPending) and event.call.request is not None:
            outer = event.call.id.partition("/")[0]
            yield {
                "type": "tool-approval-request",
                "approvalId": event.call.id,
                "toolCallId": outer,
            }

    def end(self, result: RunResult[Any]) -> Iterable[Chunk]:
        if result.outcome is Outcome.CANCELLED:
            yield {"type": "abort", "reason": "the run was cancelled"}
            return
        reasons = {
            Outcome.DONE: "stop",
            Outcome.WRAPPED_UP: "stop",
            Outcome.TRUNCATED: "length",
            Outcome.REFUSED: "content-filter",
            Outcome.PAUSED: "tool-calls",
        }
        if result.outcome not in reasons:
            yield {"type": "error", "errorText": str(result.error or result.outcome)}
        finish = reasons.get(result.outcome, "error")
        about = {"outcome": str(result.outcome), "cost": result.cost}
        yield {"type": "finish", "finishReason": finish, "messageMetadata": about}

    def fail(self, error: GlueError) -> Iterable[Chunk]:
        yield from self._begin("")
        yield from self._end_step()
        yield {"type": "error", "errorText": str(error)}
        yield {"type": "finish", "finishReason": "error"}

    def _begin(self, id: str) -> Iterable[Chunk]:
        if not self.started:
            self.started = True
            yield {"type": "start", **({"messageId": id} if id else {})}

    def _end_step(self) -> Iterable[Chunk]:
        yield from self._close()
        if self.in_step:
            self.in_step = False
            yield {"type": "finish-step"}

    def _delta(self, kind: str, event: TextDelta | ThinkingDelta) -> Iterable[Chunk]:
        texts, name = self.texts, "text" if kind == "text" else "reasoning"
        if texts.kind != kind:
            yield from self._close()
            texts.kind, texts.number = kind, texts.number + 1
            texts.streamed |= kind == "text"
            yield {"type": f"{name}-start", "id": texts.id}
        yield {"type": f"{name}-delta", "id": texts.id, "delta": event.text}

    def _close(self) -> Iterable[Chunk]:
        if self.texts.kind:
            name = "text" if self.texts.kind == "text" else "reasoning"
            yield {"type": f"{name}-end", "id": self.texts.id}
            self.texts.kind = ""

    def _reply(self, message: AssistantMessage) -> Iterable[Chunk]:
        self.texts.message = self.texts.message or message.id
        if message.text and not self.texts.streamed:
            yield from self._delta("text", TextDelta(text=message.text))
        yield from self._close()
        for call in message.calls:
            yield from self._call(call)

    def _call(self, call: ToolCall) -> Iterable[Chunk]:
        self.known.add(call.id)
        head = {"toolCallId": call.id, "toolName": call.name, "dynamic": True}
        try:
            arguments = json.loads(call.arguments or "{}")
        except (ValueError, RecursionError):
            wrong = "the arguments are not valid JSON"
            yield {
                "type": "tool-input-error",
                **head,
                "input": call.arguments,
                "errorText": wrong,
            }
            return
        yield {"type": "tool-input-available", **head, "input": arguments}

    def _result(self, event: ToolEnd) -> Iterable[Chunk]:
        if event.call.id not in self.known:  # a call of the reply before a pause
            yield from self._call(event.call)
        call_id, text = event.call.id, event.message.text
        if event.message.is_error:
            yield {
                "type": "tool-output-error",
                "toolCallId": call_id,
                "errorText": text,
                "dynamic": True,
            }
        else:
            yield {
                "type": "tool-output-available",
                "toolCallId": call_id,
                "output": text,
                "dynamic": True,
            }
