"""Every provider as a row of data. To add one, add a line to catalog.json."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, TypeAlias

from glue.dataclass import dataclass

# How a chat server is asked to think: nothing, `reasoning_effort`, `reasoning: {effort}`, `thinking: {type}`,
# the same with kept history, `enable_thinking`, or Groq's effort with `reasoning_format`.
Reasoning: TypeAlias = Literal["", "effort", "object", "thinking", "kept_thinking", "enable", "groq"]

LEVELS = ("low", "medium", "high")  # of reasoning; the only ones that all servers with levels know


@dataclass(frozen=True, slots=True, kw_only=True)
class Quirks:
    """Where a server departs from its wire; the defaults suit an unknown compatible server."""

    # Requests
    max_tokens: str = "max_tokens"  # OpenAI's reasoning models know only max_completion_tokens
    stream_usage: bool = True  # send stream_options; Mistral refuses unknown keys and sends usage unasked
    reasoning: Reasoning = "effort"
    system_role: Literal["system", "developer"] = "system"
    cache: Literal["", "key", "control"] = ""  # "" caches by itself; prompt_cache_key; cache_control marks
    output: Literal["json_schema", "json_object", ""] = "json_schema"  # what structured output it knows
    strict: bool = True  # whether it knows `strict` beside a schema
    encrypted: bool = False  # Responses: ask for encrypted reasoning, and store nothing
    plain_models: tuple[str, ...] = ("gpt-3", "gpt-4", "chatgpt")  # how those start that refuse to seal reasoning
    images: tuple[str, ...] = ("image/*",)  # media types; what the server makes of them is its own affair
    files: tuple[str, ...] = ("*/*",)  # where it is empty, text still goes as text
    efforts: tuple[str, ...] = LEVELS  # of reasoning
    openai_models: bool = False  # the models are OpenAI's, each of which has its own levels
    tools: bool = True
    merge: bool = False  # refuses two user messages in a row

    # What goes back
    tool_ids: Literal["any", "nine"] = "any"  # Mistral wants nine letters or digits
    tool_id_limit: int = 64  # longer ids of other vendors are shortened
    echo: Literal["", "reasoning_content", "reasoning"] = ""  # the field of thoughts; what a server sealed always goes

    # Replies
    reasoning_apart: bool = False  # the output count leaves reasoning out
    think_tags: bool = False  # <think>...</think> at the start of the text is thinking

    local: bool = False  # runs on this machine; needs no key


PLAIN = Quirks()


@dataclasses.dataclass(frozen=True, slots=True)
class Row:
    """One provider as data: its wire, address, key variables and default model."""

    name: str
    _: dataclasses.KW_ONLY
    wire: str = "openai_chat"  # what most servers speak
    base_url: str
    key: tuple[str, ...] = ()  # variables, first found wins
    model: str = ""  # the default
    window: int = 128_000  # tokens of context of the default model
    quirks: Quirks = PLAIN
    auth: str = "bearer"  # or the header that carries the key; with "aws" and "google" the wire finds credentials
    base_url_env: tuple[str, ...] = ()
    elsewhere: str = ""  # the wire of a server at another base URL, which may know only the common one
    is_vendor: bool = False  # makes the models that it serves
    models_from: str = ""  # the provider whose models it serves under their own names
    otel: str = ""  # its name in OpenTelemetry's GenAI conventions, where that is another


def row_of(name: str, table: Mapping[str, Any]) -> Row:
    """Make a row of its fields as a data file has them; raises TypeError for one that is unknown."""
    return Row(name, **{**_frozen(table), "quirks": Quirks(**_frozen(table.get("quirks", {})))})


def _frozen(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()}


# In a base URL, {NAME} is a variable of the environment, {NAME|OTHER|default} the first that is set.
# Every row also obeys NAME_BASE_URL. The order is that in which a default is looked for.
ROWS = tuple(
    row_of(name, table) for name, table in json.loads(Path(__file__).with_name("catalog.json").read_bytes()).items()
)

# The newest first; a model of OpenAI has the levels of the first name that its own begins with.
_EFFORTS = (
    ("gpt-oss", LEVELS),
    ("gpt-3", ()),
    ("gpt-4", ()),
    ("chatgpt", ()),
    ("gpt-5.1", ("none", *LEVELS)),
    ("gpt-5.", ("none", *LEVELS, "xhigh")),
    ("gpt-5-pro", ("high",)),
    ("gpt-5", ("minimal", *LEVELS)),
    ("gpt-", ("none", *LEVELS, "xhigh")),
    ("o1-mini", ()),
    ("o", LEVELS),
)


def efforts(row: Row, model: str) -> tuple[str, ...]:
    """Return the levels of reasoning that a model tells apart; none where it cannot be asked to reason."""
    if not row.quirks.reasoning:
        return ()
    own = _EFFORTS if row.quirks.openai_models else ()
    return next((levels for start, levels in own if model.startswith(start)), row.quirks.efforts)
