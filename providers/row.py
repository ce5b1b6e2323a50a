"""What is known of a provider, as data: a row, and the quirks of its server."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Literal, TypeAlias

# How a chat server is asked to think: nothing, `reasoning_effort`, `reasoning: {effort}`, `thinking: {type}`,
# the same with kept history, `enable_thinking`, or Groq's effort with `reasoning_format`.
Reasoning: TypeAlias = Literal["", "effort", "object", "thinking", "kept_thinking", "enable", "groq"]


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
    images: bool = True
    tools: bool = True
    merge: bool = False  # refuses two user messages in a row

    # What goes back
    tool_ids: Literal["any", "nine"] = "any"  # Mistral wants nine letters or digits
    tool_id_limit: int = 64  # longer ids of other vendors are shortened
    echo: Literal["", "reasoning_content", "reasoning", "reasoning_details", "content"] = ""

    # Replies
    reasoning_apart: bool = False  # the output count leaves reasoning out
    think_tags: bool = False  # <think>...</think> at the start of the text is thinking

    local: bool = False  # runs on this machine; needs no key


@dataclass(frozen=True, slots=True)
class Row:
    """One provider. Adding a line to the catalog adds a provider."""

    name: str
    _: KW_ONLY
    wire: str
    base_url: str
    key: tuple[str, ...] = ()  # variables, first found wins
    model: str = ""  # the default
    window: int = 128_000  # tokens of context of the default model
    quirks: Quirks = Quirks()
    auth: str = "bearer"  # or the header that carries the key, or "own": the wire finds credentials where no token is
    base_url_env: tuple[str, ...] = ()
    headers: tuple[tuple[str, str], ...] = ()
    query: tuple[tuple[str, str], ...] = ()
    elsewhere: str = ""  # the wire of a server at another base URL, which may know only the common one
