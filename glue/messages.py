"""Messages, their parts, usage and requests, and their JSON."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any, Literal, TypeAlias, get_args, overload

from glue.codec import Family, to_json
from glue.codec import Json as Json
from glue.dataclass import dataclass
from glue.errors import StoreError
from glue.limits import StopReason

SCHEMA_VERSION = 1


def new_id() -> str:
    return os.urandom(8).hex()


@dataclass(frozen=True, slots=True, kw_only=True)
class Opaque:
    """What one vendor wants back unchanged, tagged with the wire it came from.

    As a part of its own it is a whole block (a server tool's result, an encrypted reasoning item);
    as the `opaque` of another part it is what belongs to that part (a signature).
    """

    wire: str
    data: Json
    extra: Mapping[str, Json] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    text: str
    opaque: Opaque | None = None
    extra: Mapping[str, Json] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Thinking:
    """Visible reasoning; empty text where the vendor gave only a signature."""

    text: str
    opaque: Opaque | None = None
    extra: Mapping[str, Json] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """A picture, either as bytes or as an address."""

    media_type: str = "image/png"
    data: bytes | None = None
    url: str | None = None
    extra: Mapping[str, Json] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class File:
    """A document such as a PDF."""

    media_type: str
    data: bytes
    name: str = ""
    extra: Mapping[str, Json] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """A model's request to run one tool."""

    id: str
    name: str
    arguments: str  # raw text: models send invalid JSON, and only the tool may judge it
    complete: bool = True  # whether the provider closed the call; half a call is never run
    opaque: Opaque | None = None
    extra: Mapping[str, Json] | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.arguments, str):
            raise TypeError(f"the arguments of a ToolCall are JSON text as the model sent it, not {self.arguments!r}")
        if not isinstance(self.id, str) or not isinstance(self.name, str):
            raise TypeError(f"the id and the name of a ToolCall are texts, not {self.id!r} and {self.name!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Unknown:
    """A part written by a newer version, kept as it was."""

    data: Mapping[str, Json]


Part: TypeAlias = Text | Thinking | Image | File | ToolCall | Opaque | Unknown


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Tokens of one reply; input includes cached tokens and output includes reasoning.

    None means that the provider did not say. `cost` is in USD, None where no price is known.
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


def _sum(one: int | None, other: int | None) -> int | None:
    if one is None:
        return other
    return one if other is None else one + other


@dataclass(frozen=True, slots=True, kw_only=True)
class UserMessage:
    """What the model is told: by the user, or by the loop where `origin` says so."""

    content: tuple[Part, ...]
    origin: str = "user"
    id: str = field(default_factory=new_id)
    excluded: bool = False  # kept in the log, never sent again
    meta: Mapping[str, Json] | None = None
    extra: Mapping[str, Json] | None = None
    memo: dict[object, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def text(self) -> str:
        return join_text(self.content)


@dataclass(frozen=True, slots=True, kw_only=True)
class AssistantMessage:
    """One reply of a model."""

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
        return join_text(self.content)

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        return tuple(part for part in self.content if isinstance(part, ToolCall))


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolMessage:
    """The result of one call, directly after the reply that asked for it."""

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
        return join_text(self.content)


Message: TypeAlias = UserMessage | AssistantMessage | ToolMessage
HUMAN_ORIGINS = ("user", "steering", "follow_up")  # of what people said, and not the loop


def join_text(content: Sequence[Part]) -> str:
    return "".join(part.text for part in content if isinstance(part, Text))


def check_parts(what: str, content: object) -> tuple[Part, ...]:
    """Give parts as a tuple, or say that they are none."""
    parts = content if isinstance(content, tuple) else tuple(content) if isinstance(content, list) else (None,)
    if not all(isinstance(part, Part) and isinstance(getattr(part, "text", ""), str) for part in parts):
        raise TypeError(f"{what} must be parts such as glue.Text, not {content!r}")
    return parts


def user(*content: str | Part, origin: str = "user") -> UserMessage:
    """Make a user message of texts and parts."""
    parts = tuple(Text(text=part) if isinstance(part, str) else part for part in content)
    for part in parts:
        if not isinstance(part, Part):
            raise TypeError(f"a message is made of texts and parts such as glue.Image, not {part!r}")
        if isinstance(part, Image | File) and not isinstance(part.data, bytes) and not getattr(part, "url", None):
            raise TypeError(f"glue.{type(part).__name__} must have its data as bytes, not {part.data!r:.80}")
    return UserMessage(content=parts, origin=origin)


class Messages(Sequence[Message]):
    """A fixed view of the first `size` messages of a list that only ever grows.

    It makes a request cost the same however long the transcript is: nothing is copied.
    """

    __slots__ = ("_items", "_size")

    def __init__(self, items: list[Message]) -> None:
        self._items, self._size = items, len(items)

    def grew_from(self, earlier: Messages) -> bool:
        """Tell whether this begins with all of an earlier view, since both are of one list."""
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
        return Messages, (list(self),)  # and nothing that came later

    def __repr__(self) -> str:
        return f"Messages({list(self)!r})"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSpec:
    """What a model is told of a tool."""

    name: str
    description: str = ""
    parameters: Mapping[str, Json] = field(default_factory=lambda: {"type": "object", "properties": {}})
    memo: dict[object, Any] = field(default_factory=dict, init=False, repr=False, compare=False)


Effort: TypeAlias = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]
EFFORTS: tuple[Effort, ...] = get_args(Effort)  # from least to most


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One question to a model, in no vendor's terms. An empty model means the provider's own."""

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
    options: Mapping[str, Json] | None = None  # merged into the body as they are


_PARTS = {"text": Text, "thinking": Thinking, "image": Image, "file": File, "tool_call": ToolCall, "opaque": Opaque}
_ROLES = {"user": UserMessage, "assistant": AssistantMessage, "tool": ToolMessage}
_STOP_REASONS = frozenset(StopReason)
_parts = Family("type", _PARTS, unknown=Unknown)
_messages = Family("role", _ROLES, always={"v": SCHEMA_VERSION})


def message_to_json(message: Message) -> dict[str, Json]:
    """Encode a message; fields that hold their default are left out."""
    if not isinstance(message, Message):
        raise TypeError(f"a message is made by glue.user(...) or a class such as glue.UserMessage, not {message!r}")
    data: dict[str, Json] = to_json(message)
    return data


def message_from_json(data: Mapping[str, Json]) -> Message:
    """Decode a message; fields of a newer version are kept in `extra`, unknown parts as `Unknown`."""
    if isinstance(data, Mapping) and (reason := data.get("stop_reason")) is not None and reason not in _STOP_REASONS:
        data = {"raw_stop_reason": reason, **data, "stop_reason": StopReason.UNKNOWN.value}
    try:
        message: Message = _messages.read(data)
    except ValueError as error:
        raise StoreError(f"a message{error}") from error
    return message


def messages_to_json(messages: Iterable[Message]) -> list[dict[str, Json]]:
    return [message_to_json(message) for message in messages]


def messages_from_json(data: Iterable[Mapping[str, Json]]) -> tuple[Message, ...]:
    return tuple(message_from_json(item) for item in data)
