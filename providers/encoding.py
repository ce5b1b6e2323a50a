"""Functions that all wires share: JSON bytes, messages, tool ids, schemas, attachments."""

from __future__ import annotations

import json
import re
from binascii import b2a_base64
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from json.encoder import encode_basestring
from typing import TypeAlias, TypeGuard
from urllib.parse import unquote_to_bytes

from glue import (
    AssistantMessage,
    File,
    Image,
    Message,
    Part,
    Text,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from glue.messages import EFFORTS, Effort, Json, ToolSpec, new_id
from glue.provider import Opaque
from glue.providers.models import Facts

Said: TypeAlias = Text | Image | File  # the content of a user or tool message

# JSON

_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
_encode_strictly = json.JSONEncoder(
    ensure_ascii=False, separators=(",", ":"), allow_nan=False
).encode
_decoder = json.JSONDecoder()
_scan = _decoder.scan_once  # type: ignore[attr-defined]

# Exceptions that a value of an unexpected shape raises; they become protocol errors.
BAD_SHAPE = (
    ValueError,
    TypeError,
    KeyError,
    IndexError,
    AttributeError,
    RecursionError,
    StopIteration,
    OverflowError,
)


def dumps(value: Json) -> bytes:
    """Return a value as compact JSON bytes; half a surrogate pair becomes "?", NaN becomes null."""
    try:
        text = _encode_strictly(value)
    except ValueError:
        text = _encode_strictly(json.loads(_encode(value), parse_constant=lambda _: None))
    return text.encode("utf-8", "replace")


def join(values: Iterable[Json]) -> bytes:
    """Return values as JSON bytes joined with commas, for use inside an array."""
    return b",".join(map(dumps, values))


def quote(text: str) -> bytes:
    """Return a string as JSON bytes, with quotes."""
    quoted: str = encode_basestring(text)
    return quoted.encode("utf-8", "replace")


def loads(data: bytes) -> Json:
    """Parse JSON bytes faster than json.loads. Raise an exception in BAD_SHAPE if they are invalid.

    Half a surrogate pair becomes a replacement character.
    """
    text = data.decode("utf-8", "replace")
    if "\\ud" in text or "\\uD" in text:
        text = re.sub(_PAIRS, lambda found: "\\ufffd" if found[1] else found[0], text)
    try:
        value, end = _scan(text, 0)
    except StopIteration:  # white space precedes the value
        return _decoder.decode(text)
    if end != len(text) and not text[end:].isspace():
        raise ValueError("the text continues after the JSON value")
    return value


# An escape sequence. A whole surrogate pair is one match; the group is half of a pair.
# It is compiled at its first use.
_PAIRS = (
    r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
    r"|(\\u[dD][89a-fA-F][0-9a-fA-F]{2})|\\(?s:.)"
)


def assemble(fields: Mapping[str, Json], options: Mapping[str, Json] | None = None) -> bytes:
    """Return fields as the JSON body of a request, in bytes; the user's options override fields.

    Fields that are None are left out. A value of bytes is JSON already; a list of bytes becomes an
    array. An option replaces the field of the same name, but objects are merged, and the lists
    `tools` and `include` are appended.
    """
    body = {name: value for name, value in fields.items() if value is not None}
    for name, value in (options or {}).items():
        ours = body.get(name)
        if isinstance(ours, Mapping) and isinstance(value, Mapping):
            value = merged(ours, value)
        elif name == "tools" and isinstance(ours, list) and isinstance(value, Sequence):
            value = [*ours, *map(dumps, value)]
        elif name == "include" and isinstance(ours, list) and isinstance(value, Sequence):
            value = list(dict.fromkeys((*ours, *value)))
        body[name] = value
    pieces = [b"{"]
    for name, value in body.items():
        pieces += (quote(name), b":")
        if isinstance(value, list) and value and isinstance(value[0], bytes):
            # Joining the list first would copy a long history twice.
            parted = [b","] * (2 * len(value) + 1)
            parted[1::2] = value
            parted[0], parted[-1] = b"[", b"]"
            pieces += parted
        else:
            pieces.append(value if isinstance(value, bytes) else dumps(value))
        pieces.append(b",")
    pieces[-1] = b"}"
    return b"".join(pieces)


def merged(ours: Mapping[str, Json], theirs: Mapping[str, Json]) -> dict[str, Json]:
    """Return both objects merged recursively; on a conflict the value of `theirs` is used."""
    result = dict(ours)
    for name, value in theirs.items():
        inner = result.get(name)
        result[name] = (
            merged(inner, value)
            if isinstance(inner, Mapping) and isinstance(value, Mapping)
            else value
        )
    return result


def arguments(call: ToolCall) -> dict[str, Json]:
    """Return the arguments of a call as a dict, or {"arguments": ...} if they are not an object.

    The value of "arguments" is the raw text if it is not valid JSON. Blank arguments become {}.
    """
    if not call.arguments.strip():
        return {}
    try:
        value = json.loads(call.arguments)
        _encode_strictly(value)  # raises for NaN and Infinity, which are not JSON
    except (ValueError, RecursionError):
        return {"arguments": call.arguments}
    return value if isinstance(value, dict) else {"arguments": value}


_PLAIN = re.compile(r"[A-Za-z0-9_-]{1,64}")


def call_name(name: str) -> str:
    """Return a tool name that every server accepts: 1 to 64 ASCII letters, digits, "_" and "-".

    Other characters are replaced by "_". For example, `functions.look` becomes `functions_look`,
    and "" becomes `unknown`.
    """
    return (
        name if _PLAIN.fullmatch(name) else re.sub(r"[^A-Za-z0-9_-]", "_", name)[:64] or "unknown"
    )


# Messages


# The number of messages in a block. The bytes of a block are also stored joined, so that encoding a
# long history stays cheap.
BLOCK = 32


def blocks(messages: Sequence[Message]) -> Iterator[tuple[Message, ...]]:
    """Split the messages of a history into blocks of equal size; the last block may be shorter.

    A history only grows, so every block but the last stays the same from request to request.
    """
    whole = tuple(messages)
    return (whole[start : start + BLOCK] for start in range(0, len(whole), BLOCK))


def block_memo(block: tuple[Message, ...], key: str) -> Json:
    """Return the value that `keep_block` stored under a key for a block of messages, or None.

    The result is None if no value is stored or the block contains other messages now.
    """
    kept = block[-1].memo.get(("block", key)) if len(block) == BLOCK else None
    return kept[1] if kept is not None and kept[0] == block[:-1] else None


def keep_block(block: tuple[Message, ...], key: str, value: Json) -> None:
    """Store a value under a key in the memo of a block's last message, for `block_memo`.

    Do nothing if the block has fewer than BLOCK messages.
    """
    if len(block) == BLOCK:
        block[-1].memo["block", key] = (block[:-1], value)


def kept_of(part: Part, wire: str) -> dict[str, Json]:
    """Return the fields in a part that the API expects back unchanged, or {} if there are none.

    Fields of another API format than `wire` are not returned.
    """
    opaque = part if isinstance(part, Opaque) else getattr(part, "opaque", None)
    return object_of(opaque.data) if isinstance(opaque, Opaque) and opaque.wire == wire else {}


def short_id(text: str, length: int = 9) -> str:
    """Return an id of `length` letters and digits, always the same for the same text."""
    from hashlib import blake2b  # start-up: it loads OpenSSL, which most requests do not need

    digits = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
    number = int.from_bytes(
        blake2b(text.encode("utf-8", "replace"), digest_size=32).digest(), "big"
    )
    letters = []
    for _ in range(length):
        number, digit = divmod(number, 62)
        letters.append(digits[digit])
    return "".join(letters)


def safe_id(text: str) -> str:
    """Return the text if it is a valid id (1 to 64 of A-Z a-z 0-9 _ -), else a short hash of it."""
    return text if _PLAIN.fullmatch(text) else "call_" + short_id(text, 20)


def unique_calls(messages: Sequence[Message]) -> Sequence[Message]:
    """Return messages in which every call has its own id; rename repeated ids and their results.

    Some servers count from call_0 in each reply. Usually the messages are returned unchanged.
    """
    messages = tuple(messages)
    every: list[str] = []
    for block in blocks(messages):
        ids = block_memo(block, "call_ids")
        if ids is None:
            ids = [call_id for message in block for call_id in _call_ids(message)]
            keep_block(block, "call_ids", ids)
        every += ids
    if len(set(every)) == len(every):
        return messages
    uses: Counter[str] = Counter()
    names: dict[str, str] = {}
    result: list[Message] = []
    for message in messages:
        if isinstance(message, AssistantMessage):
            for call_id in _call_ids(message):
                uses[call_id] += 1
                names[call_id] = call_id if uses[call_id] == 1 else f"{call_id}_{uses[call_id]}"
        result.append(_renamed(message, names))
    return result


def _call_ids(message: Message) -> tuple[str, ...]:
    ids: tuple[str, ...] | None = message.memo.get("call_ids")
    if ids is None:
        calls = message.calls if isinstance(message, AssistantMessage) else ()
        ids = message.memo["call_ids"] = tuple(dict.fromkeys(call.id for call in calls))
    return ids


def _renamed(message: Message, names: Mapping[str, str]) -> Message:
    ids = (message.call_id,) if isinstance(message, ToolMessage) else _call_ids(message)
    names = {call_id: names[call_id] for call_id in ids if names.get(call_id, call_id) != call_id}
    if not names:
        return message
    key = ("renamed", *sorted(names.items()))
    kept: Message | None = message.memo.get(key)
    if kept is None:
        if isinstance(message, ToolMessage):
            kept = replace(message, call_id=names[message.call_id])
        else:
            parts = (
                replace(p, id=names.get(p.id, p.id)) if isinstance(p, ToolCall) else p
                for p in message.content
            )
            kept = replace(message, content=tuple(parts))
        message.memo[key] = kept
    return kept


def merge_users(messages: Sequence[Message]) -> Sequence[Message]:
    """Return messages with neighbouring user messages joined; leave out messages marked `excluded`.

    The templates of some servers require that roles alternate.
    """
    result: list[Message] = []
    for message in messages:
        last = result[-1] if result else None
        if message.excluded:
            continue
        if isinstance(message, UserMessage) and isinstance(last, UserMessage):
            joined = message.memo.get(("joined", last.id))
            if joined is None:
                parts: tuple[Part, ...] = (*last.content, *message.content)
                if all(isinstance(part, Text) for part in parts):
                    parts = (Text(text=f"{last.text}\n\n{message.text}"),)
                joined = message.memo["joined", last.id] = replace(last, content=parts, id=new_id())
            result[-1] = joined
        else:
            result.append(message)
    return result


def description(tool: ToolSpec) -> dict[str, str]:
    """Return the description field of a tool, or {} if the description is blank.

    Some servers refuse a blank description.
    """
    return {"description": tool.description} if tool.description.strip() else {}


def used_tools(messages: Iterable[Message]) -> tuple[ToolSpec, ...]:
    """Return a ToolSpec for each tool that a history calls. The specs contain only names."""
    replies = [message for message in messages if isinstance(message, AssistantMessage)]
    names = {call_name(call.name) for reply in replies for call in reply.calls}
    return tuple(ToolSpec(name=name) for name in sorted(names))


# Schemas


# Keywords that OpenAI's strict mode accepts; a schema with another one is not sent as strict.
_STRICT = frozenset(
    (
        *("type", "properties", "required", "additionalProperties", "items", "anyOf", "enum"),
        *("const", "description", "title", "$ref", "$defs", "pattern", "format", "multipleOf"),
        *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "minItems", "maxItems"),
    )
)
_STRICT_FORMATS = "date-time time date duration email hostname ipv4 ipv6 uuid".split()
_STRICT_DEPTH = 10  # of nested schemas


def is_strict_tool(schema: Json) -> bool:
    """Return whether OpenAI's strict mode accepts the schema of tool parameters.

    Every object must be closed and require all its properties, so a tool with an optional parameter
    is not strict.
    """
    is_object = isinstance(schema, Mapping) and schema.get("type") == "object"
    return is_object and is_strict(schema) and _is_strict_schema(schema, _STRICT_DEPTH)


def _is_strict_schema(schema: Json, depth: int) -> bool:
    if not isinstance(schema, Mapping) or not depth or not _STRICT.issuperset(schema):
        return False
    if not {"type", "anyOf", "$ref", "enum", "const"} & schema.keys():
        return False  # any value
    if "$ref" in schema and schema.keys() - {"$ref", "$defs"}:
        return False
    if schema.get("type") == "array" and "items" not in schema:
        return False
    if schema.get("format") not in (None, *_STRICT_FORMATS):
        return False
    inner = [
        *(schema.get("properties") or {}).values(),
        *(schema.get("$defs") or {}).values(),
        *(schema.get("anyOf") or ()),
        *([schema["items"]] if "items" in schema else ()),
    ]
    return all(_is_strict_schema(each, depth - 1) for each in inner)


def schema_name(schema: Mapping[str, Json]) -> str:
    """Return the name to send for an output schema: its title if it is a valid id, or "output"."""
    title = schema.get("title")
    return title if isinstance(title, str) and title == safe_id(title) else "output"


def is_strict(schema: Json) -> bool:
    """Return whether every object in a schema is closed and requires all its properties."""
    if isinstance(schema, Mapping):
        names = schema.get("properties")
        if isinstance(names, Mapping) or schema.get("type") == "object":
            required = set(schema.get("required") or ())
            if schema.get("additionalProperties") is not False or required != set(names or ()):
                return False
        return all(
            is_strict(value)
            for name, value in schema.items()
            if name not in ("enum", "const", "default")
        )
    return all(map(is_strict, schema)) if isinstance(schema, (list, tuple)) else True


def rewritten(
    schema: Json, dropped: Collection[str], finish: Callable[[Mapping[str, Json], Json], Json]
) -> Json:
    """Return a copy of a schema without `dropped` keywords; `finish` is applied to each subschema.

    `finish(original, copy)` returns the final form of a subschema, or of the whole schema, from its
    shortened copy.
    """
    if isinstance(schema, (list, tuple)):
        return [rewritten(item, dropped, finish) for item in schema]
    if not isinstance(schema, Mapping):
        return schema
    result: dict[str, Json] = {}
    for name, value in schema.items():
        if name in ("properties", "$defs", "definitions") and isinstance(value, Mapping):
            result[name] = {key: rewritten(inner, dropped, finish) for key, inner in value.items()}
        elif name not in dropped:
            plain = name in ("enum", "const", "required", "default", "description", "type")
            result[name] = value if plain else rewritten(value, dropped, finish)
    return finish(schema, result)


def lower(effort: Effort | None, levels: Sequence[str]) -> str | None:
    """Return the reasoning level to send for an effort, or None if no level should be sent.

    The level is the effort if `levels` has it, else the next lower level, else the lowest level.
    """
    if effort is None or effort in levels:
        return effort
    known = [level for level in EFFORTS if level in levels and level != "none"]
    if effort == "none" or not known:
        return None
    below = [level for level in known if EFFORTS.index(level) < EFFORTS.index(effort)]
    return below[-1] if below else known[0]


# Parts


def accepts(kinds: Sequence[str], kind: str) -> bool:
    """Return whether a media type matches one of several patterns such as "image/*"."""
    kind = kind.partition(";")[0].strip().lower()
    return any(
        each == kind or each == "*/*" or (each.endswith("/*") and kind.startswith(each[:-1]))
        for each in kinds
    )


def image_type(part: Image) -> str:
    """Return the media type in the data URL of an image, or else its `media_type`."""
    return (
        inline(part)[0]
        if part.url is not None and part.url.startswith("data:")
        else part.media_type
    )


def is_text(part: File) -> bool:
    """Return whether the media type of a file is text, JSON or XML."""
    kind = part.media_type.partition(";")[0]
    return kind.startswith("text/") or kind in ("application/json", "application/xml")


def taken(parts: Iterable[Part], facts: Facts) -> Iterator[Said]:
    """Yield the texts, images and files of a message; media the model refuses become texts.

    Thinking, calls and empty texts are left out.
    """
    for part in parts:
        if isinstance(part, Image) and not accepts(facts.images, image_type(part)):
            yield Text(text="(an image)")
        elif isinstance(part, File) and not accepts(facts.files, part.media_type):
            name = part.name or "file"
            words = (
                f"{name}:\n{part.data.decode('utf-8', 'replace')}"
                if is_text(part)
                else f"(a file: {name})"
            )
            yield Text(text=words)
        elif isinstance(part, (Image, File)) or (isinstance(part, Text) and part.text):
            yield part


def base64_text(data: bytes) -> str:
    """Return bytes as base64, without line ends."""
    return b2a_base64(data, newline=False).decode("ascii")


# Replies


def text_of(value: Json) -> str:
    """Return a JSON value if it is a string, else ""."""
    return value if isinstance(value, str) else ""


def json_text(value: Json) -> str:
    """Return a string unchanged, "" for None, and any other value as JSON text."""
    if value is None or isinstance(value, str):
        return value or ""
    return _encode(value)


def object_of(value: Json) -> dict[str, Json]:
    """Return a JSON value if it is an object, else {}."""
    return value if isinstance(value, dict) else {}


def list_of(value: Json) -> list[Json]:
    """Return a JSON value if it is a list, else []."""
    return value if isinstance(value, list) else []


def is_remote(part: Image | File) -> TypeGuard[Image]:
    """Return whether a part is an image at a URL that the server has to fetch."""
    return isinstance(part, Image) and part.url is not None and not part.url.startswith("data:")


def inline(part: Image | File) -> tuple[str, str]:
    """Return the media type and the base64 data of a part, from its bytes or its data URL.

    The data is "" if the part has neither.
    """
    if isinstance(part, Image) and part.url is not None and part.url.startswith("data:"):
        head, _, data = part.url.partition(",")
        kind, _, encoding = head[5:].partition(";")
        if not encoding.endswith("base64"):
            data = base64_text(unquote_to_bytes(data))
        return kind or part.media_type, data
    return part.media_type, base64_text(part.data or b"")


def is_object(text: str) -> bool:
    """Return whether a text is one complete JSON object."""
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False
