"""Providers by name: `new` creates a provider from the catalog, with retries and failover.

`new("groq:llama-3.1-8b-instant")`, `new("anthropic,gemini")`, or `new()` for the model that
GLUE_MODEL names. Every name here is loaded at its first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from glue.lazy import lazy_names

if TYPE_CHECKING:
    from glue.providers.escalation import with_escalation as with_escalation
    from glue.providers.factory import find_base_url as find_base_url
    from glue.providers.factory import open_entry as open_entry
    from glue.providers.failover import with_failover as with_failover
    from glue.providers.http import HTTP as HTTP
    from glue.providers.http import Deadlines as Deadlines
    from glue.providers.http import HTTPResponse as HTTPResponse
    from glue.providers.http import Transport as Transport
    from glue.providers.offline import Offline as Offline
    from glue.providers.offline import StandIn as StandIn
    from glue.providers.prompt_tools import with_prompt_tools as with_prompt_tools
    from glue.providers.registry import aliases as aliases
    from glue.providers.registry import capabilities as capabilities
    from glue.providers.registry import check_names as check_names
    from glue.providers.registry import default as default
    from glue.providers.registry import is_stand_in as is_stand_in
    from glue.providers.registry import key_available as key_available
    from glue.providers.registry import known as known
    from glue.providers.registry import lookup as lookup
    from glue.providers.registry import new as new
    from glue.providers.registry import no_key as no_key
    from glue.providers.registry import parse as parse
    from glue.providers.registry import register as register
    from glue.providers.registry import split as split
    from glue.providers.retry import with_retries as with_retries
    from glue.providers.wire import tool_rules as tool_rules

__all__ = [
    "HTTP",
    "Deadlines",
    "HTTPResponse",
    "Offline",
    "Transport",
    "capabilities",
    "default",
    "key_available",
    "known",
    "lookup",
    "new",
    "parse",
    "register",
    "tool_rules",
    "with_escalation",
    "with_failover",
    "with_prompt_tools",
    "with_retries",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "registry": "aliases capabilities check_names default is_stand_in key_available known"
        " lookup new no_key parse register split",
        "factory": "find_base_url open_entry",
        "wire": "tool_rules",
        "retry": "with_retries",
        "prompt_tools": "with_prompt_tools",
        "escalation": "with_escalation",
        "failover": "with_failover",
        "http": "HTTP HTTPResponse Deadlines Transport",
        "offline": "Offline StandIn",
    },
)
