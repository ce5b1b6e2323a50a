"""The provider catalog, read from catalog.json: the wire, address, key and model of each provider.

To add a provider, add an entry to catalog.json.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

# How a chat server is asked to reason: nothing, `reasoning_effort`, `reasoning: {effort}`,
# `thinking: {type}`, the same with kept history, `enable_thinking`, or Groq's effort with
# `reasoning_format`.
Reasoning: TypeAlias = Literal[
    "", "effort", "object", "thinking", "kept_thinking", "enable", "groq"
]

# The reasoning levels that every server with levels knows.
LEVELS = ("low", "medium", "high")


class Quirks(NamedTuple):
    """The differences between a server and other servers that use the same wire.

    The defaults suit an unknown server.

    Differences between models are in facts.json (see `glue.providers.models`).
    """

    # Requests
    max_tokens: str = "max_tokens"  # OpenAI's reasoning models know only max_completion_tokens
    # Send stream_options. Mistral refuses unknown keys, and sends the usage without being asked.
    stream_usage: bool = True
    reasoning: Reasoning = "effort"
    system_role: Literal["system", "developer"] = "system"
    # "": the server caches without a request; "key": prompt_cache_key; "control": cache_control.
    cache: Literal["", "key", "control"] = ""
    # The kind of structured output that the server supports.
    output: Literal["json_schema", "json_object", ""] = "json_schema"
    strict: bool = True  # whether the server knows `strict` next to a schema
    encrypted: bool = False  # Responses: ask for encrypted reasoning, and store nothing
    images: tuple[str, ...] = ("image/*",)  # the media types that are sent as images
    files: tuple[str, ...] = ("*/*",)  # if empty, text files are sent as text
    efforts: tuple[str, ...] = LEVELS  # the reasoning levels, unless facts.json knows the model
    tools: bool = True
    # The form in which the server is asked to search the web (`glue.providers.search`).
    search: Literal[
        "", "openai", "xai", "anthropic", "gemini", "vertex", "openrouter", "perplexity"
    ] = ""
    merge: bool = False  # whether the server refuses two user messages in a row

    # Earlier replies that are sent back
    tool_ids: Literal["any", "nine"] = "any"  # Mistral requires nine letters or digits
    tool_id_limit: int = 64  # longer ids of other vendors are shortened
    # The field in which plain thinking is sent back. Encrypted reasoning is always sent back.
    echo: Literal["", "reasoning_content", "reasoning"] = ""

    # Replies
    reasoning_apart: bool = False  # the output count does not include reasoning
    think_tags: bool = False  # <think>...</think> at the start of the text is thinking

    local: bool = False  # the server runs on this machine and needs no key


PLAIN = Quirks()

CLOUDS = ("aws", "google")  # values of `auth` for which the wire finds the credentials itself


class Entry(NamedTuple):
    """One provider as data: its wire, address, key variables and default model."""

    name: str
    base_url: str
    wire: str = "openai_chat"  # the default is the wire of most servers
    key: tuple[str, ...] = ()  # environment variables; the first that is set is used
    model: str = ""  # the default model
    window: int = 128_000  # the context window of the default model, in tokens
    quirks: Quirks = PLAIN
    # "bearer", or the header for the key; for "aws" and "google" the wire finds credentials.
    auth: str = "bearer"
    base_url_env: tuple[str, ...] = ()
    # The wire to use if the user sets another base URL: that server may know only this wire.
    compatible_wire: str = ""
    is_vendor: bool = False  # the provider makes the models that it serves
    models_from: str = ""  # the provider whose models this one serves under the same names
    # The module with the login that is used if no key is set and the login's package is installed.
    login: Literal["", "azure"] = ""
    otel: str = ""  # the name in OpenTelemetry's GenAI conventions, if it differs


def entry_of(name: str, table: Mapping[str, Any]) -> Entry:
    """Return the Entry for a table of catalog.json or config.toml; raise TypeError if malformed."""
    return Entry(name, **{**_frozen(table), "quirks": Quirks(**_frozen(table.get("quirks", {})))})


def _frozen(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()
    }


# In a base URL, {NAME} is an environment variable, and {NAME|OTHER|default} is the first of the
# variables that is set, or else the default. NAME_BASE_URL overrides the base URL of any entry.
# If no model is named, the first entry whose key is set is used.
ENTRIES = tuple(
    entry_of(name, table)
    for name, table in json.loads(Path(__file__).with_name("catalog.json").read_bytes()).items()
)
