"""Data about the web search of each provider: the request fields that switch it on.

A tool of the kind `web_search` (`glue.tools.fetch.web_search`) is not a function: the server
searches by itself. `quirks.search` of a catalog entry names the form in which its server is asked.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from glue.messages import Json, ToolSpec


class Form(NamedTuple):
    """The request fields that ask one server to search the web."""

    tool: Mapping[str, Json]  # the fields that are always sent
    # For each setting of the tool, the path of its field; a setting without a path is left out.
    places: Mapping[str, str]


FORMS: Mapping[str, Form] = {
    "openai": Form({"type": "web_search"}, {"allow": "filters.allowed_domains"}),
    "xai": Form(
        {"type": "web_search"},
        {"allow": "allowed_domains", "block": "excluded_domains"},
    ),
    # The newer versions of Anthropic's tool also need code execution.
    "anthropic": Form(
        {"type": "web_search_20250305", "name": "web_search"},
        {"allow": "allowed_domains", "block": "blocked_domains", "max_uses": "max_uses"},
    ),
    "gemini": Form({"googleSearch": {}}, {}),
    "vertex": Form({"googleSearch": {}}, {"block": "googleSearch.excludeDomains"}),
    "openrouter": Form(
        {"type": "openrouter:web_search"},
        {
            "allow": "parameters.allowed_domains",
            "block": "parameters.excluded_domains",
            "max_uses": "parameters.max_uses",
        },
    ),
    # Perplexity always searches; its fields are fields of the request.
    "perplexity": Form({}, {"allow": "search_domain_filter", "block": "search_domain_filter"}),
}


def search_fields(form: str, tool: ToolSpec) -> dict[str, Json]:
    """Return the request fields of a web search, with those settings that the server knows."""
    known = FORMS[form]
    fields: dict[str, Json] = {
        name: dict(value) if isinstance(value, Mapping) else value
        for name, value in known.tool.items()
    }
    for name, value in tool.settings.items():
        if name not in known.places:
            continue
        *outer, last = known.places[name].split(".")
        place = fields
        for step in outer:
            place = place.setdefault(step, {})
        if form == "perplexity" and name == "block":
            value = [f"-{domain}" for domain in value]
        place[last] = value
    return fields


def unsent_settings(form: str, tool: ToolSpec) -> list[str]:
    """Return the names of a web search's settings that the server does not know."""
    return [name for name in tool.settings if name not in FORMS[form].places]


def sources_of(found: Iterable[Json]) -> list[dict[str, Json]]:
    """Return the URLs and titles of search results, each URL once.

    A result is a URL, or an object with `url` (or `uri`) and perhaps `title`.
    """
    sources: dict[str, dict[str, Json]] = {}
    for url, title in _pairs(found):
        if url and url not in sources:
            sources[url] = {"url": url, "title": title} if title else {"url": url}
    return list(sources.values())


def _pairs(found: Iterable[Json]) -> Iterator[tuple[str, str]]:
    for each in found:
        if isinstance(each, str):
            yield each, ""
        elif isinstance(each, Mapping):
            url, title = each.get("url") or each.get("uri"), each.get("title")
            yield url if isinstance(url, str) else "", title if isinstance(title, str) else ""
