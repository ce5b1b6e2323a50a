"""A provider without a model: it answers by rules, or calls the tools that the prompt names."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence, Set
from functools import partial
from math import inf
from typing import TypeAlias

import anyio

from glue import (
    AssistantMessage,
    Part,
    Request,
    StopReason,
    Text,
    ToolCall,
    ToolMessage,
    Usage,
    UserMessage,
)
from glue.messages import Json, ToolSpec
from glue.provider import Capabilities, Done, ProviderEvent, deltas

# The return value of `rules`: a text, the parts of a reply, or a complete reply.
Answer: TypeAlias = "str | tuple[Part, ...] | AssistantMessage"
Rules: TypeAlias = Callable[[Request], "Answer | Awaitable[Answer]"]

STAND_IN = (
    "This is the offline stand-in, not a model: it does not understand your prompt. "
    "To ask a real model, set a key such as ANTHROPIC_API_KEY or OPENAI_API_KEY, "
    "or name a local one with GLUE_MODEL=ollama:qwen3:0.6b; `glue providers` lists them all."
)
NOTE = (
    "(offline stand-in: tools were chosen by the words of the prompt; "
    "set a key such as ANTHROPIC_API_KEY to ask a model)"
)

_MOST_CALLS = 2
_MOST_TEXT = 2000  # characters of one tool result in the answer


class Offline:
    """A provider that answers with `rules(request)`; without rules it plays an agent."""

    capabilities = Capabilities(
        provider="offline",
        model="offline",
        local=True,
        input_price=0.0,
        output_price=0.0,
        takes_output=lambda schema, *, tools=False: True,
    )

    def __init__(
        self, rules: Rules | None = None, *, name: str = "offline", model: str = "offline"
    ) -> None:
        self.name = name
        self.model = model
        self.rules = rules

    async def stream(self, request: Request) -> AsyncIterator[ProviderEvent]:
        await anyio.lowlevel.checkpoint()
        answer = play(request) if self.rules is None else self.rules(request)
        if inspect.isawaitable(answer):
            answer = await answer
        message = self._message(answer)
        for event in deltas(message.content, pieces=lambda text: text.splitlines(keepends=True)):
            yield event
        yield Done(message=message)

    def _message(self, answer: Answer) -> AssistantMessage:
        if isinstance(answer, AssistantMessage):
            return answer
        content: tuple[Part, ...] = (
            (Text(text=answer),) if isinstance(answer, str) else tuple(answer)
        )
        calls = any(isinstance(part, ToolCall) for part in content)
        return AssistantMessage(
            content=content,
            stop_reason=StopReason.TOOL_USE if calls else StopReason.END_TURN,
            usage=Usage(cost=0.0),
            provider=self.name,
            model=self.model,
        )


# Playing an agent


def play(request: Request) -> str | tuple[Part, ...]:
    """Call the tools that the words of the prompt name, then answer with their results."""
    messages = [message for message in request.messages if not message.excluded]
    at = max(
        (
            i
            for i, each in enumerate(messages)
            if isinstance(each, UserMessage) and each.origin == "user"
        ),
        default=0,
    )
    prompt = messages[at].text if messages else ""
    results = [message for message in messages[at + 1 :] if isinstance(message, ToolMessage)]
    if not results and request.tool_choice != "none":
        count = sum(isinstance(message, ToolMessage) for message in messages)
        calls = _calls(prompt, request.tools, request.tool_choice, count)
        if calls:
            return calls
    said = [
        f"{result.name}: {result.text.replace(NOTE, '')[:_MOST_TEXT].strip()}" for result in results
    ]
    if request.output_schema is not None:
        facts = _Facts("\n".join((prompt, *(result.text for result in results))))
        return json.dumps(
            facts.fill(request.output_schema, request.output_schema), ensure_ascii=False
        )
    return "\n".join((*said, NOTE)) if said else STAND_IN


def _calls(prompt: str, tools: Sequence[ToolSpec], choice: str, count: int) -> tuple[ToolCall, ...]:
    """Return one or two calls of the tools that match the prompt best.

    Returns () if no tool matches and `choice` does not require a call.
    """
    has_path = bool(_Facts(prompt).paths)
    allowed = [
        tool
        for tool in tools
        if tool.kind == "function" and not _is_shell(tool) and (has_path or not _needs_path(tool))
    ]
    allowed = [tool for tool in allowed if choice in ("auto", "required", tool.name)]
    scores = {tool.name: _score(prompt, tool) for tool in allowed}
    ranked = sorted(allowed, key=lambda tool: -scores[tool.name])  # stable: equals keep their order
    named = [tool for tool in ranked if scores[tool.name] >= _NAMED]
    if named:
        chosen = named[:_MOST_CALLS]
    else:
        meant = ranked and (scores[ranked[0].name] or choice != "auto" or len(prompt.split()) > 2)
        chosen = ranked[:1] if meant else []
    facts = [_Facts(prompt, avoid=_words(tool.name)) for tool in chosen]
    # One tool and two names, as in "compare Oslo and Bergen": call the tool for each name.
    if len(chosen) == 1 and len(facts[0].nouns) > 1 and _takes_noun(chosen[0]):
        chosen, facts = chosen * 2, [facts[0], _Facts(prompt, avoid=_words(chosen[0].name), skip=1)]
    calls = []
    for number, (tool, known) in enumerate(zip(chosen, facts, strict=True), count + 1):
        arguments = json.dumps(known.fill(tool.parameters, tool.parameters), ensure_ascii=False)
        calls.append(ToolCall(id=f"call_{number}", name=tool.name, arguments=arguments))
    return tuple(calls)


_SHELLS = frozenset(
    (
        "shell",
        "bash",
        "sh",
        "terminal",
        "exec",
        "execute",
        "command",
        "subprocess",
        "eval",
        "python",
    )
)
_NAMED = 3  # the score of a word in a tool's name


def _is_shell(tool: ToolSpec) -> bool:
    """Return whether a tool runs commands or code; such tools are never called."""
    properties = tool.parameters.get("properties") or {}
    return (
        bool(_SHELLS & _words(tool.name)) or bool(_SHELLS & set(properties)) or "code" in properties
    )


def _needs_path(tool: ToolSpec) -> bool:
    return any(_PLACES & _words(name) for name in tool.parameters.get("required") or ())


def _score(prompt: str, tool: ToolSpec) -> int:
    words = _words(prompt)
    properties: Mapping[str, Json] = tool.parameters.get("properties") or {}
    enums = {str(value).lower() for each in properties.values() for value in _enum(each)}
    return (
        _NAMED * len(words & _words(tool.name))
        + 2 * len(words & (enums | {word for name in properties for word in _words(name)}))
        + len(words & _words(tool.description))
    )


def _enum(schema: Json) -> Sequence[Json]:
    found = schema.get("enum") if isinstance(schema, Mapping) else None
    return found if isinstance(found, list) else ()


def _takes_noun(tool: ToolSpec) -> bool:
    properties: Mapping[str, Json] = tool.parameters.get("properties") or {}
    needed = [name for name in tool.parameters.get("required") or () if name in properties]
    return (
        len(needed) == 1
        and properties[needed[0]].get("type") == "string"
        and not _WHOLE & _words(needed[0])
    )


_COMMON = frozenset(
    "a about all an and any are as at be by can could do does for from get give has have how i in "
    "into is it its let make me my of on one or our please say show some tell that the their "
    "them then there this to up us use want was what when where which who why will "
    "with would you your".split()
)


_READ = 20_000  # characters of a text that are searched


def _words(text: str) -> set[str]:
    """Return the meaningful words of a text, in lower case and without a plural s."""
    found = re.findall(r"[a-z0-9]+", re.sub(r"([a-z])([A-Z])", r"\1 \2", text).lower())
    return {word[:-1] if len(word) > 3 and word.endswith("s") else word for word in found} - _COMMON


_WHOLE = _words(
    "query prompt text question message content task input body topic description title note"
)
_PLACES = _words("path file filename folder directory dir root")
_FORMATS = {
    "date": "2026-01-01",
    "date-time": "2026-01-01T00:00:00Z",
    "time": "00:00:00Z",
    "duration": "PT1H",
    "email": "someone@example.com",
    "uri": "https://example.com",
    "uuid": "00000000-0000-4000-8000-000000000000",
    "ipv4": "127.0.0.1",
    "binary": "",
    "byte": "",
}
_BY_NAME = {
    "date": "date",
    "day": "date",
    "email": "email",
    "mail": "email",
    "url": "uri",
    "uri": "uri",
    "link": "uri",
}


class _Facts:
    """Values found in a text (quotes, names, numbers, paths, URLs) that can fill a schema."""

    def __init__(self, text: str, *, avoid: Set[str] = frozenset(), skip: int = 0) -> None:
        text = text[:_READ]
        self.text = " ".join(text.split())
        self.words = _words(text)
        self.quotes: list[str] = re.findall(r"[\"“'`]([^\"”'`]{1,200})[\"”'`]", text)
        self.paths = re.findall(
            r"(?<![\w/.-])(?:[\w.-]+/)*[\w-]+\.[A-Za-z]\w{0,5}\b(?!\()",
            re.sub(r"https?://\S+", "", text),
        )
        self.formats: dict[str, list[str]] = {  # by the name of the format in JSON Schema
            "date": re.findall(r"\b\d{4}-\d\d-\d\d\b", text),
            "email": re.findall(r"(?<![\w.+-])[\w.+-]+@[\w-]+\.[\w.]+\w", text),
            "uri": re.findall(r"https?://[^\s\"'<>)]+", text),
        }
        self.numbers = [
            float(each) for each in re.findall(r"(?<![\w.-])-?\d+(?:\.\d+)?\b(?![-.]\d)", text)
        ]
        self.nouns = self._nouns(text, avoid)[skip:]
        rest = [
            word
            for word in re.findall(r"[^\W\d_][\w-]*", text)
            if not _words(word) <= avoid | _COMMON
        ]
        self.last: str = rest[-1] if rest else self.text

    def _nouns(self, text: str, avoid: Set[str]) -> list[str]:
        """Return the capitalised words inside sentences, else those that begin a sentence.

        Words after those in `avoid`, which name the tool, come first.
        """
        inner: list[str] = []
        first: list[str] = []
        for found in re.finditer(r"[A-Z][\w'-]*(?: [A-Z][\w'-]*)*", text):
            name, before = found[0], text[: found.start()].rstrip(" \"'(")
            begins = not before or before[-1] in ".?!\n"
            _, _, tail = name.partition(" ")
            if begins and tail:
                name, begins = tail, False
            if not _words(name) <= avoid | _COMMON:
                (first if begins else inner).append(name)
        near = min((text.lower().find(word) for word in avoid if word in text.lower()), default=0)
        names = dict.fromkeys(inner or first)
        return sorted(names, key=lambda name: text.find(name) < near)

    def fill(self, schema: Json, root: Json, name: str = "", depth: int = 0) -> Json:
        """Return a value that fits a schema, from the text if it contains a suitable one."""
        if not isinstance(schema, Mapping) or depth > 20:
            return None
        fill = partial(self.fill, root=root, name=name, depth=depth + 1)
        if isinstance(reference := schema.get("$ref"), str):
            target: Json = root
            for step in reference.removeprefix("#").strip("/").split("/"):
                target = target.get(step) if isinstance(target, Mapping) and step else target
            return fill(target)
        if "const" in schema:
            return schema["const"]
        if values := _enum(schema):
            named = [value for value in values if str(value).lower() in self.words]
            return named[0] if named else schema.get("default", values[0])
        for key in ("anyOf", "oneOf"):
            if isinstance(schema.get(key), list):
                kinds = [
                    each
                    for each in schema[key]
                    if not (isinstance(each, Mapping) and each.get("type") == "null")
                ]
                return fill(kinds[0]) if kinds else None
        if isinstance(schema.get("allOf"), list):
            merged: dict[str, Json] = {}
            for each in (*schema["allOf"], schema):
                merged |= {key: value for key, value in each.items() if key != "allOf"}
            schema = merged
        kind = schema.get("type")
        if isinstance(kind, list):
            kind = next((each for each in kind if each != "null"), "null")
        if kind == "object" or (kind is None and "properties" in schema):
            # Optional properties are filled only if the text contains one of their values.
            required = schema.get("required") or ()
            return {
                key: fill(each, name=key)
                for key, each in (schema.get("properties") or {}).items()
                if key in required or self._names_one_of(_enum(each))
            }
        if kind == "array":
            return self._array(schema, fill)
        if kind in ("integer", "number"):
            return self._number(schema, kind)
        if kind == "boolean":
            return bool(schema.get("default", False)) or bool(_words(name) & self.words)
        return None if kind == "null" else self._string(schema, name)

    def _names_one_of(self, values: Sequence[Json]) -> bool:
        """Return whether the text contains one of the values of an enum."""
        return any(str(value).lower() in self.words for value in values)

    def _array(self, schema: Mapping[str, Json], fill: Callable[[Json], Json]) -> list[Json]:
        if isinstance(schema.get("prefixItems"), list):
            return [fill(each) for each in schema["prefixItems"]]
        count = max(int(schema.get("minItems") or 0), min(1, int(schema.get("maxItems", 1))))
        items = schema["items"] if isinstance(schema.get("items"), Mapping) else {}
        if items.get("type") == "string" and len(self.nouns) > 1 and "maxItems" not in schema:
            return [*self.nouns]
        value = fill(items)
        if schema.get("uniqueItems") and count > 1 and isinstance(value, str):
            return [f"{value} {number}" for number in range(1, count + 1)]
        return [value] * count

    def _number(self, schema: Mapping[str, Json], kind: str) -> int | float:
        given = {name: value for name, value in schema.items() if value is not None}
        low = given.get("minimum", given.get("exclusiveMinimum", -inf) + 1)
        high = given.get("maximum", given.get("exclusiveMaximum", inf) - 1)
        numbers = [number for number in self.numbers if kind == "number" or number.is_integer()]
        value = next((number for number in numbers if low <= number <= high), None)
        if value is not None:
            self.numbers.remove(value)
        else:
            value = schema.get("default", low if low > -inf else min(1, high))
        if step := schema.get("multipleOf"):
            value = -(-value // step) * step
        return int(value) if kind == "integer" else value

    def _string(self, schema: Mapping[str, Json], name: str) -> str:
        form, words = schema.get("format"), _words(name)
        if form in _FORMATS:
            return self._formatted(form)
        form = next((form for word, form in _BY_NAME.items() if word in words), "")
        text: str
        if isinstance(schema.get("default"), str):
            text = schema["default"]
        elif words & _PLACES:
            text = (*self.paths, ".")[0]
        elif form:
            text = self._formatted(form)
        elif words & _WHOLE:
            text = (*self.quotes, self.text)[0]
        else:
            text = (*self.quotes, *self.nouns, self.last)[0]
        if (pattern := schema.get("pattern")) and not _fits(pattern, text):
            text = next(
                (word for word in self.text.split() if _fits(pattern, word.strip(".,?!"))), text
            ).strip(".,?!")
        text = text[: schema.get("maxLength")]
        return text + "." * max(0, int(schema.get("minLength") or 0) - len(text))

    def _formatted(self, form: str) -> str:
        found = self.formats.get(form)
        return found[0] if found else _FORMATS[form]


def _fits(pattern: str, text: str) -> bool:
    try:
        return len(text) < 200 and len(pattern) < 200 and re.search(pattern, text) is not None
    except re.error:
        return False
