"""Messages and their parts, usage and requests, and the JSON of messages.

A transcript is a sequence of messages. Each message consists of parts:

    user("What is in this picture?", Image(data=data))
    AssistantMessage(content=(ToolCall(id="1", name="zoom", arguments='{"factor": 2}'),))
    ToolMessage(call_id="1", name="zoom", content=(Text(text="ok"),))
    AssistantMessage(content=(Text(text="A lighthouse."),))
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, get_args, overload

from glue.checks import check_list, check_text, show, with_form
from glue.codec import Json as Json
from glue.codec import TaggedUnion, to_json
from glue.errors import StoreError
from glue.limits import StopReason

SCHEMA_VERSION = 1

_ADDRESS = r"(?!file:)[a-z][a-z0-9+.-]+:"  # not a path, not C:; compiled at its first use
_IMAGE_FORM = "glue.Image(media_type='image/png', data=path.read_bytes())"
_FILE_FORM = "glue.File(media_type='application/pdf', data=path.read_bytes())"


def new_id() -> str:
    """Return a random id for a message or a run."""
    return os.urandom(8).hex()


@dataclass(frozen=True, slots=True, kw_only=True)
class Opaque:
    """Data that a provider expects back unchanged. `wire` names the API format of the data.

    An Opaque that is a part of a message is a whole block, such as an encrypted reasoning item or
    the result of a tool that the server ran. An Opaque in the field `opaque` of another part
    belongs to that part, such as a signature.
    """

    wire: str
    data: Json
    extra: Mapping[str, Json] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """Text as a part of a message."""

    text: str
    opaque: Opaque | None = None
    extra: Mapping[str, Json] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Thinking:
    """Reasoning of the model. The text is empty if the provider sent only a signature."""

    text: str
    opaque: Opaque | None = None
    extra: Mapping[str, Json] | None = None


@with_form(_IMAGE_FORM)
@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """A picture as a part of a message, either as bytes or as a URL."""

    media_type: str = "image/png"
    data: bytes | None = None
    url: str | None = None
    extra: Mapping[str, Json] | None = None

    def __post_init__(self) -> None:
        check_text("media_type", self.media_type)
        if self.url is None:
            _check_data(self.data, _IMAGE_FORM)
        elif self.data is not None:
            raise ValueError("an Image has either data or url, not both")
        elif not isinstance(self.url, str) or not re.match(_ADDRESS, self.url, re.I):
            raise ValueError(
                "url must be an address such as 'https://example.com/a.png', "
                f"not {show(self.url)}; for a file write {_IMAGE_FORM}"
            )


@with_form(_FILE_FORM)
@dataclass(frozen=True, slots=True, kw_only=True)
class File:
    """A document, such as a PDF, as a part of a message."""

    media_type: str
    data: bytes
    name: str = ""
    extra: Mapping[str, Json] | None = None

    def __post_init__(self) -> None:
        check_text("media_type", self.media_type)
        check_text("name", self.name)
        _check_data(self.data, _FILE_FORM)


def _check_data(data: object, form: str) -> None:
    if not isinstance(data, bytes):
        raise TypeError(f"data must be bytes, not {show(data)}; write {form}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """A model's request to run one tool."""

    id: str
    name: str
    arguments: str  # the text that the model sent, which may be invalid JSON
    complete: bool = True  # False if the reply was cut within the call; the call is then not run
    opaque: Opaque | None = None
    extra: Mapping[str, Json] | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.arguments, str):
            raise TypeError(
                "the arguments of a ToolCall must be the JSON text that the model sent, "
                f"not {self.arguments!r}"
            )
        if not isinstance(self.id, str) or not isinstance(self.name, str):
            raise TypeError(
                "the id and the name of a ToolCall must be strings; "
                f"the id is {self.id!r}, the name is {self.name!r}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Unknown:
    """A part of a message that a newer version of glue wrote, and that is kept unchanged."""

    data: Mapping[str, Json]


Part: TypeAlias = Text | Thinking | Image | File | ToolCall | Opaque | Unknown


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """The tokens and the cost of a reply or a run.

    `input` includes cached tokens, `output` includes reasoning tokens. A count is None if the
    provider did not report the count. `cost` is in dollars, or None if the price is not known.

    >>> usage = Usage(input=10, output=2, cost=0.25) + Usage(input=5, output=1, cost=0.5)
    >>> usage.total, usage.cost
    (18, 0.75)
    """

    input: int = 0
    output: int = 0
    cache_read: int | None = None
    cache_write: int | None = None
    reasoning: int | None = None
    cost: float | None = None
    extra: Mapping[str, Json] | None = None

    @property
    def total(self) -> int:
        """The sum of the input tokens and the output tokens."""
        return self.input + self.output

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            input=self.input + other.input,
            output=self.output + other.output,
            cache_read=_sum(self.cache_read, other.cache_read),
            cache_write=_sum(self.cache_write, other.cache_write),
            reasoning=_sum(self.reasoning, other.reasoning),
            cost=None if self.cost is None or other.cost is None else self.cost + other.cost,
        )


def _sum(first: int | None, second: int | None) -> int | None:
    if first is None:
        return second
    return first if second is None else first + second


@dataclass(frozen=True, slots=True, kw_only=True)
class UserMessage:
    """A message to the model, from the user or from the loop. `user()` creates such a message.

    `origin` is "user" for a prompt, "steering" or "follow_up" for a message of the user during a
    run, and "nudge", "wrap_up" and so on for a message of the loop.
    """

    content: tuple[Part, ...]
    origin: str = "user"
    id: str = field(default_factory=new_id)
    excluded: bool = False  # stays in the store, but is no longer sent to the model
    meta: Mapping[str, Json] | None = None
    extra: Mapping[str, Json] | None = None
    memo: dict[object, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not isinstance(self.content, tuple):
            object.__setattr__(self, "content", check_parts("content", self.content))

    @property
    def text(self) -> str:
        """The text parts of the content, joined to one string."""
        return join_text(self.content)


@dataclass(frozen=True, slots=True, kw_only=True)
class AssistantMessage:
    """A reply of a model: text, thinking and calls."""

    content: tuple[Part, ...]
    stop_reason: StopReason = StopReason.END_TURN
    raw_stop_reason: str | None = None
    usage: Usage | None = None
    provider: str = ""
    model: str = ""
    id: str = field(default_factory=new_id)
    excluded: bool = False
    meta: Mapping[str, Json] | None = None
    extra: Mapping[str, Json] | None = None
    memo: dict[object, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def text(self) -> str:
        """The text parts of the content, joined to one string."""
        return join_text(self.content)

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """The tool calls in the reply."""
        return tuple(part for part in self.content if isinstance(part, ToolCall))


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolMessage:
    """The result of one tool call. The message follows the reply that contains the call."""

    call_id: str
    name: str
    content: tuple[Part, ...]
    is_error: bool = False
    id: str = field(default_factory=new_id)
    excluded: bool = False
    meta: Mapping[str, Json] | None = None
    extra: Mapping[str, Json] | None = None
    memo: dict[object, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def text(self) -> str:
        """The text parts of the content, joined to one string."""
        return join_text(self.content)


Message: TypeAlias = UserMessage | AssistantMessage | ToolMessage
# The origins of messages that a person wrote. Messages of the loop have other origins.
HUMAN_ORIGINS = ("user", "steering", "follow_up")


def join_text(content: Sequence[Part]) -> str:
    """Return the texts of all `Text` parts in `content`, joined without a separator."""
    return "".join(part.text for part in content if isinstance(part, Text))


def check_parts(what: str, content: object) -> tuple[Part, ...]:
    """Return `content` as a tuple. Raise TypeError if it is not a list or tuple of parts.

    `what` names the content in the error message.
    """
    parts = tuple(content) if isinstance(content, list | tuple) else (None,)
    if not all(
        isinstance(part, Part) and isinstance(getattr(part, "text", ""), str) for part in parts
    ):
        raise TypeError(
            f"{what} must be parts such as (glue.Text(text='...'),), not {show(content)}"
        )
    return parts


def user(*content: str | Part, origin: str = "user") -> UserMessage:
    """Return a user message with the given content: strings and parts, in any order.

    >>> user("What is in this picture?", Image(data=b"...")).text
    'What is in this picture?'
    """
    parts = tuple(Text(text=part) if isinstance(part, str) else part for part in content)
    for part in parts:
        if not isinstance(part, Part):
            raise TypeError(
                f"a message must consist of strings and parts such as glue.Image, not {show(part)}"
            )
        if isinstance(part, Text):
            check_text("text", part.text)
    return UserMessage(content=parts, origin=origin)


class Messages(Sequence[Message]):
    """A read-only view of a list of messages, without messages that are added to the list later.

    Each request has a view of the transcript, so that the messages need not be copied.
    """

    __slots__ = ("_items", "_size")

    def __init__(self, items: list[Message]) -> None:
        self._items, self._size = items, len(items)

    def grew_from(self, earlier: Messages) -> bool:
        """Return whether this view shows the same list as `earlier` and is at least as long."""
        return self._items is earlier._items and self._size >= earlier._size

    def __len__(self) -> int:
        return self._size

    @overload
    def __getitem__(self, index: int) -> Message: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Message, ...]: ...
    def __getitem__(self, index: int | slice) -> Message | tuple[Message, ...]:
        if isinstance(index, slice):
            return tuple(self._items[i] for i in range(*index.indices(self._size)))
        if not -self._size <= index < self._size:
            raise IndexError("message index out of range")
        return self._items[index if index >= 0 else self._size + index]

    def __iter__(self) -> Iterator[Message]:
        return iter(self._items[: self._size])

    def __add__(self, other: Iterable[Message]) -> tuple[Message, ...]:
        return (*self, *other)

    def __radd__(self, other: Iterable[Message]) -> tuple[Message, ...]:
        return (*other, *self)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    def __reduce__(self) -> tuple[Any, ...]:
        return Messages, (list(self),)  # without messages that were added to the list later

    def __repr__(self) -> str:
        return f"Messages({list(self)!r})"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSpec:
    """The description of a tool that a model sees. `parameters` is a JSON schema.

    glue does not run a tool of the kind "web_search": the provider searches by itself. `settings`
    are the options of the search.
    """

    name: str
    description: str = ""
    parameters: Mapping[str, Json] = field(
        default_factory=lambda: {"type": "object", "properties": {}}
    )
    kind: Literal["function", "web_search"] = "function"
    settings: Mapping[str, Json] = field(default_factory=dict)
    memo: dict[object, Any] = field(default_factory=dict, init=False, repr=False, compare=False)


Effort: TypeAlias = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]
EFFORTS: tuple[Effort, ...] = get_args(Effort)  # from least to most


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A request to a provider, independent of the API format of the provider.

    If `model` is empty, the provider uses its own model. A field that is None has the default of
    the provider.
    """

    model: str = ""
    system: str = ""
    messages: Sequence[Message] = ()
    tools: tuple[ToolSpec, ...] = ()
    tool_choice: str = "auto"  # auto, required, none, or a tool's name
    max_tokens: int | None = None
    temperature: float | None = None
    reasoning: Effort | None = None
    stop: tuple[str, ...] = ()
    output_schema: Mapping[str, Json] | None = None
    cache: bool = False
    stream: bool = True
    options: Mapping[str, Json] | None = None  # fields to add to the body of the request unchanged


_PARTS = {
    "text": Text,
    "thinking": Thinking,
    "image": Image,
    "file": File,
    "tool_call": ToolCall,
    "opaque": Opaque,
}
_ROLES = {"user": UserMessage, "assistant": AssistantMessage, "tool": ToolMessage}
_STOP_REASONS = frozenset(StopReason)
_parts = TaggedUnion("type", _PARTS, unknown=Unknown)
_messages = TaggedUnion("role", _ROLES, always={"v": SCHEMA_VERSION})


def message_to_json(message: Message) -> dict[str, Json]:
    """Return the JSON of a message. Fields that have their default value are left out."""
    if not isinstance(message, Message):
        raise TypeError(
            "a message is made by glue.user(...) or a class such as glue.UserMessage, "
            f"not {show(message)}"
        )
    data: dict[str, Json] = to_json(message)
    return data


def message_from_json(data: Mapping[str, Json]) -> Message:
    """Decode a message from its JSON `data`, or raise StoreError if the JSON is not a message.

    If a newer version of glue wrote the message, unknown fields are kept in `extra`, unknown parts
    become `Unknown`, and an unknown stop reason becomes `raw_stop_reason`.
    """
    reason = data.get("stop_reason") if hasattr(data, "get") else None
    if reason is not None and reason not in _STOP_REASONS:
        data = {"raw_stop_reason": reason, **data, "stop_reason": StopReason.UNKNOWN.value}
    try:
        message: Message = _messages.read(data)
    except ValueError as error:
        raise StoreError(f"a message{error}") from error
    return message


def messages_to_json(messages: Iterable[Message]) -> list[dict[str, Json]]:
    """Return the JSON of each message of a transcript, as a list.

    >>> saved = json.dumps(messages_to_json(result.messages))
    >>> history = messages_from_json(json.loads(saved))
    >>> result = agent.run_sync("And tomorrow?", message_history=history)
    """
    check_list("messages", messages, "result.messages")
    return [message_to_json(message) for message in messages]


def messages_from_json(data: Iterable[Mapping[str, Json]]) -> tuple[Message, ...]:
    """Decode messages from their JSON `data`, or raise StoreError if an item is not a message."""
    check_list("data", data)
    return tuple(message_from_json(item) for item in data)
