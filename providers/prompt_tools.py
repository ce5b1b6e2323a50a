"""A wrapper for providers that describes tools in the prompt, for models without tool calls.

The model calls a tool with a text of this form, and gets the result as a user message:

    <tool_call>
    {"name": "weather", "arguments": {"city": "Oslo"}}
    </tool_call>

    <tool_result name="weather">
    21 degrees
    </tool_result>

The form is parsed strictly: an object with exactly the keys `name` and `arguments`, of which the
latter is an object. Everything else between the tags is a malformed call, which the loop asks the
model to repeat. If a tool is forced and the server can force a reply to fit a schema, the reply is
such an object without the tags.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import replace

from glue import AssistantMessage, Message, Part, Provider, Request, StopReason, Text, user
from glue.messages import Json, ToolCall, ToolMessage, ToolSpec, new_id
from glue.provider import (
    Capabilities,
    Done,
    ProviderEvent,
    TextDelta,
    ToolCallDelta,
    Wrapper,
    capabilities,
    opened,
)

OPEN, CLOSE = "<tool_call>", "</tool_call>"

INSTRUCTIONS = """\
You can call these tools:

{tools}

To call a tool, write exactly this, with the arguments as a JSON object that fits its schema:

<tool_call>
{{"name": "NAME", "arguments": {{}}}}
</tool_call>

You may call several tools. Write nothing after the calls: the results follow as <tool_result>."""
MUST = "You must call {name} now."


def with_prompt_tools(provider: Provider) -> PromptTools:
    """Return a provider whose model calls tools through texts, not through the server's API.

    >>> from glue.testing import Script
    >>> with_prompt_tools(Script("hello")).name
    'script'

    `glue.providers.new(..., tools="prompt")` returns such a provider.
    """
    return PromptTools(provider)


class PromptTools(Wrapper):
    """A provider whose model calls tools through texts; `with_prompt_tools` creates it."""

    @property
    def capabilities(self) -> Capabilities:
        return replace(capabilities(self.provider), tools=True)

    async def stream(self, request: Request) -> AsyncIterator[ProviderEvent]:
        tools, choice = request.tools, request.tool_choice
        if not tools or choice == "none":
            async with opened(self.provider, replace(request, **_plain(request))) as events:
                async for event in events:
                    yield event
            return
        forced = None
        if choice != "auto":
            offered = [tool for tool in tools if choice in ("required", tool.name)]
            forced = _call_schema(offered)
            if not capabilities(self.provider).takes_output(forced):
                forced = None
        splitter = _Splitter(is_forced=forced is not None)
        sent = replace(
            request,
            **_plain(request),
            system=_system(request),
            output_schema=forced or request.output_schema,
        )
        async with opened(self.provider, sent) as events:
            async for event in events:
                if isinstance(event, TextDelta):
                    if shown := splitter.feed(event.text):
                        yield TextDelta(text=shown)
                elif isinstance(event, Done):
                    if shown := splitter.end():
                        yield TextDelta(text=shown)
                    message = _parsed(event.message, is_forced=forced is not None)
                    for index, call in enumerate(message.calls):
                        yield ToolCallDelta(
                            index=index, id=call.id, name=call.name, arguments=call.arguments
                        )
                    yield Done(message=message)
                else:
                    yield event


def _plain(request: Request) -> Mapping[str, Json]:
    """Return request fields without tools, and with the calls and results in messages as texts."""
    return {"tools": (), "tool_choice": "auto", "messages": tuple(_texts(request.messages))}


def _system(request: Request) -> str:
    listed = "\n".join(
        json.dumps(
            {
                "name": tool.name,
                "description": tool.description,
                "parameters": tool.parameters,
            },
            ensure_ascii=False,
        )
        for tool in request.tools
    )
    texts = [request.system, INSTRUCTIONS.format(tools=listed)]
    if request.tool_choice != "auto":
        named = request.tool_choice
        texts.append(MUST.format(name="a tool" if named == "required" else named))
    return "\n\n".join(filter(None, texts))


def _call_schema(tools: Sequence[ToolSpec]) -> dict[str, Json]:
    """Return the JSON schema of a reply that calls one of the tools once."""
    calls: list[Json] = [
        {
            "type": "object",
            "properties": {"name": {"const": tool.name}, "arguments": dict(tool.parameters)},
            "required": ["name", "arguments"],
            "additionalProperties": False,
        }
        for tool in tools
    ]
    return calls[0] if len(calls) == 1 else {"anyOf": calls}


def _texts(messages: Iterable[Message]) -> Iterable[Message]:
    """Convert tool calls and tool results in messages to text, and yield the messages.

    Neighbouring results are joined in one message. Excluded results are left out.
    """
    results: list[Part] = []
    for message in messages:
        if isinstance(message, ToolMessage):
            if not message.excluded:
                results += _result(message, is_first=not results)
            continue
        if results:
            yield user(*results)
            results = []
        if isinstance(message, AssistantMessage) and message.calls:
            kept = message.memo.get("prompt_tools")
            if kept is None:
                kept = message.memo["prompt_tools"] = _reply(message)
            yield kept
        else:
            yield message
    if results:
        yield user(*results)


def _result(message: ToolMessage, *, is_first: bool) -> list[Part]:
    kind = ' is_error="true"' if message.is_error else ""
    start = "" if is_first else "\n"
    text = f'{start}<tool_result name="{message.name}"{kind}>\n{message.text}\n</tool_result>'
    others = [part for part in message.content if not isinstance(part, Text)]
    return [Text(text=text), *others]


def _reply(message: AssistantMessage) -> AssistantMessage:
    parts: list[Part] = []
    for part in message.content:
        if isinstance(part, ToolCall):
            body = json.dumps(
                {"name": part.name, "arguments": _arguments(part)}, ensure_ascii=False
            )
            parts.append(Text(text=f"\n{OPEN}\n{body}\n{CLOSE}"))
        else:
            parts.append(part)
    return replace(message, content=tuple(parts))


def _arguments(call: ToolCall) -> Json:
    try:
        return json.loads(call.arguments or "{}")
    except ValueError:
        return call.arguments


class _Splitter:
    """A filter for streamed text: it passes on the text before the first call, not the calls."""

    def __init__(self, *, is_forced: bool) -> None:
        self._held = ""
        self._called = is_forced  # the whole reply is a call

    def feed(self, text: str) -> str:
        """Take a piece of the streamed text, and return the text that can be shown now.

        Store an end of the text that may be the start of a call, until the next piece or `end`.
        After the start of a call, return "".
        """
        if self._called:
            return ""
        text = self._held + text
        before, tag, _ = text.partition(OPEN)
        if tag:
            self._called = True
            return before
        # The end of the text may be the start of a tag.
        length = next(
            (n for n in range(min(len(OPEN) - 1, len(text)), 0, -1) if text.endswith(OPEN[:n])), 0
        )
        self._held = text[len(text) - length :]
        return text[: len(text) - length]

    def end(self) -> str:
        """Return the text that `feed` held back, or "" if it belongs to a call."""
        return "" if self._called else self._held


def _parsed(message: AssistantMessage, *, is_forced: bool) -> AssistantMessage:
    """Convert calls that the model wrote as text to tool calls, and return the changed reply.

    Return the reply unchanged if it contains no call. If a call is malformed, keep the text and,
    unless the reply was cut off, set the stop reason MALFORMED_CALL.
    """
    text = message.text
    bodies = [text] if is_forced else _bodies(text)
    if not bodies:
        return message
    was_cut = message.stop_reason is StopReason.MAX_TOKENS
    parsed = [_call(body) for body in bodies]
    calls = [call for call in parsed if call is not None]
    others = [part for part in message.content if not isinstance(part, Text)]
    shown = "" if is_forced else text.partition(OPEN)[0].rstrip()
    content: list[Part] = [*others, *([Text(text=shown)] if shown else []), *calls]
    stop = message.stop_reason
    if len(calls) < len(parsed):
        # The text is kept, so that the model sees its malformed call.
        content = [*others, Text(text=text)]
        stop = message.stop_reason if was_cut else StopReason.MALFORMED_CALL
    elif not was_cut:
        stop = StopReason.TOOL_USE
    return replace(message, content=tuple(content), stop_reason=stop)


def _bodies(text: str) -> list[str]:
    """Return the text after each opening call tag, up to its closing tag if it has one.

    Without a closing tag, the text ends at the next opening tag or at the end of `text`.
    """
    return [piece.partition(CLOSE)[0] for piece in text.split(OPEN)[1:]]


def _call(body: str) -> ToolCall | None:
    """Parse the text between call tags; return the call, or None if the text is malformed."""
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict) or value.keys() != {"name", "arguments"}:
        return None
    name, arguments = value["name"], value["arguments"]
    if not isinstance(name, str) or not isinstance(arguments, dict):
        return None
    text = json.dumps(arguments, ensure_ascii=False)
    return ToolCall(id=f"call_{new_id()}", name=name, arguments=text)
