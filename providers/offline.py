"""A provider without a model: it answers by rules, or imitates a model and tells the user so."""

from __future__ import annotations

import inspect
import json
import os
import re
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
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
from glue.errors import MissingKey
from glue.messages import Json, ToolSpec
from glue.provider import Capabilities, Done, ProviderEvent, deltas

# The return value of `rules`: a text, the parts of a reply, or a complete reply.
Answer: TypeAlias = "str | tuple[Part, ...] | AssistantMessage"
Rules: TypeAlias = Callable[[Request], "Answer | Awaitable[Answer]"]

STAND_IN = "This is the offline stand-in, not a model: it does not understand your prompt."
NOTE = "(offline stand-in, not a model: values are from the prompt or the schema)"
NOTICE = (
    "the offline stand-in answered, not a model; set a key such as ANTHROPIC_API_KEY or "
    "OPENAI_API_KEY, or GLUE_MODEL=ollama:qwen3:0.6b for a local model"
)

_MAX_TEXT = 2000  # characters of one tool result in the answer
_MAX_READ = 20_000  # characters of a prompt that are searched
_MAX_DEPTH = 20  # of a schema that contains itself


class Offline:
    """A provider that answers with `rules(request)`; without rules it imitates a model.

    If it imitates a model, `result.notice` states that no model answered.
    """

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
        answer = self._play(request) if self.rules is None else self.rules(request)
        if inspect.isawaitable(answer):
            answer = await answer
        message = self._message(answer)
        for event in deltas(message.content, pieces=lambda text: text.splitlines(keepends=True)):
            yield event
        yield Done(message=message)

    def _play(self, request: Request) -> Answer:
        return play(request)

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
            meta={"notice": NOTICE} if self.rules is None else None,
        )


class StandIn(Offline):
    """The provider "offline:stand-in", which imitates a model on a terminal if no key is set.

    It answers only if a person at a terminal reads that no model answered. In a pipe, in CI, or if
    an output type is wanted, it raises `missing`: its answer would look like that of a model.
    """

    def __init__(self, missing: MissingKey) -> None:
        super().__init__()
        self.missing = missing
        if not is_watched():
            raise missing

    def _play(self, request: Request) -> Answer:
        if request.output_schema is not None:
            raise self.missing
        return play(request)


def is_watched(environ: Mapping[str, str] = os.environ) -> bool:
    """Return whether a person reads the output: stdout and stderr are terminals, and not in CI."""
    if environ.get("CI", "").lower() not in ("", "0", "false"):
        return False
    # The streams of a notebook are not terminals, even if the notebook was started from one. The
    # descriptor is checked too, because sys.stdout may be redirected to stderr.
    streams = (sys.stdout, sys.stderr)
    return os.isatty(1) and all(stream is not None and stream.isatty() for stream in streams)


# Imitating an agent


def play(request: Request) -> str | tuple[Part, ...]:
    """Return a reply without a model: calls of the tool that fits the prompt best, or a text.

    After tool results, the text repeats them.
    If an output schema is wanted, the text is invented JSON that fits it.
    """
    messages = [message for message in request.messages if not message.excluded]
    prompts = [
        at
        for at, message in enumerate(messages)
        if isinstance(message, UserMessage) and message.origin == "user"
    ]
    at = prompts[-1] if prompts else 0
    prompt = messages[at].text[:_MAX_READ] if messages else ""
    results = [message for message in messages[at + 1 :] if isinstance(message, ToolMessage)]
    tool = _choose(prompt, request.tools, request.tool_choice)
    if tool is not None and not results:
        number = sum(isinstance(message, ToolMessage) for message in messages) + 1
        return tuple(
            ToolCall(id=f"call_{at}", name=tool.name, arguments=json.dumps(arguments))
            for at, arguments in enumerate(_arguments(prompt, tool), number)
        )
    if request.output_schema is not None:
        read = "\n".join((prompt, *(result.text for result in results)))
        return json.dumps(_Values(read).fill(request.output_schema), ensure_ascii=False)
    said = [
        f"{result.name}: {result.text.replace(NOTE, '')[:_MAX_TEXT].strip()}" for result in results
    ]
    return "\n".join((*said, NOTE)) if said else STAND_IN


_RUNS_CODE = frozenset("bash code command eval exec python script sh shell terminal".split())
_PLACES = frozenset("dir directory file filename folder path root".split())


def _choose(prompt: str, tools: Sequence[ToolSpec], choice: str) -> ToolSpec | None:
    """Return the tool whose name and description best match the prompt, or None if no tool fits.

    Tools that run commands are never chosen, nor are tools that need a path if the prompt has none.
    A short prompt such as "hi" must share a word with the tool.
    """
    words, has_path = _words(prompt), bool(_Values(prompt).paths)
    best, most = None, -1
    for tool in tools:
        if tool.kind != "function":  # the provider runs it
            continue
        properties = tool.parameters.get("properties") or {}
        needed = [_words(name) for name in tool.parameters.get("required") or ()]
        named = _words(" ".join((tool.name, *properties)))
        if _RUNS_CODE & named or (not has_path and any(_PLACES & each for each in needed)):
            continue
        if choice not in ("auto", "required", tool.name):
            continue
        described = _words(f"{tool.description} {json.dumps(properties)}")
        # A word of the name counts more than any description.
        score = 100 * len(words & _words(tool.name)) + len(words & (named | described))
        if score > most:
            best, most = tool, score
    is_meant = most > 0 or choice != "auto" or len(prompt.split()) > 2
    return best if is_meant else None


def _arguments(prompt: str, tool: ToolSpec) -> list[Json]:
    """Return arguments for one call of `tool`, or for two calls if the prompt has two names.

    For example, "compare Oslo and Rome" leads to two calls of a tool with one required parameter.
    """
    first, second = _Values(prompt), _Values(prompt)
    second.names = first.names[1:]
    calls = [each.fill(tool.parameters) for each in (first, second)]
    takes_one = len(tool.parameters.get("required") or ()) == 1
    return calls if takes_one and second.names and calls[0] != calls[1] else calls[:1]


_COMMON = frozenset(
    "a about an and are as at be by do for from get how i in is it me my of on or please show "
    "tell that the this to use what when where which who with you your".split()
)


def _words(text: str) -> set[str]:
    """Return the words of a text in lower case, without common words such as "the"."""
    return set(re.findall(r"[a-z0-9]+", text.lower())) - _COMMON


# Values for strings of a format; the prompt is not searched for them.
_FORMATS = {
    "date": "2026-01-01",
    "date-time": "2026-01-01T00:00:00Z",
    "time": "00:00:00Z",
    "duration": "PT1H",
    "email": "someone@example.com",
    "uri": "https://example.com",
    "uuid": "00000000-0000-4000-8000-000000000000",
    "binary": "",
}
# Fields that get the whole prompt; others get a name or a word of it.
_WHOLE = frozenset("body content message note prompt query question task text title topic".split())


class _Values:
    """Makes up values that fit a schema, from the words of a text or the examples of the schema."""

    def __init__(self, text: str) -> None:
        self.text = " ".join(text.split())
        self.words = _words(text)
        self.quotes: list[str] = re.findall(r"[\"“'`]([^\"”'`]{1,200})[\"”'`]", text)
        self.paths: list[str] = re.findall(
            r"(?<![\w/.-])(?:[\w.-]+/)*[\w-]+\.[A-Za-z]\w{0,5}\b(?!\()",
            re.sub(r"https?://\S+", "", text),
        )
        self.numbers: list[str] = re.findall(r"(?<![\w.-])-?\d+(?:\.\d+)?\b(?![-.]\d)", text)
        # Capitalised words that do not begin a sentence: names of people, cities, products.
        self.names: list[str] = re.findall(r"(?<=[^.?!\s] )[A-Z][\w'-]*(?: [A-Z][\w'-]*)*", text)

    def fill(self, schema: Json, name: str = "", root: Json = None, depth: int = 0) -> Json:
        """Return a value for the schema of the field `name`, or None if no value can be made.

        No value can be made if the schema is not an object or is nested too deeply. `root` is the
        schema with `$defs`.
        """
        root = schema if root is None else root
        if not isinstance(schema, Mapping) or depth > _MAX_DEPTH:
            return None
        if isinstance(reference := schema.get("$ref"), str):
            target = root
            for step in filter(None, reference.removeprefix("#").split("/")):
                target = target.get(step, {})
            return self.fill(target, name, root, depth + 1)
        for key in ("anyOf", "oneOf"):
            for each in schema.get(key) or ():
                if each.get("type") != "null":
                    return self.fill(each, name, root, depth + 1)
        if "const" in schema:
            return schema["const"]
        if values := schema.get("enum"):
            named = [value for value in values if str(value).lower() in self.words]
            return (*named, *_given(schema), values[0])[0]
        kind = schema.get("type")
        if isinstance(kind, list):
            kind = next((each for each in kind if each != "null"), "null")
        if kind == "object" or "properties" in schema:
            return self._object(schema, root, depth)
        if kind == "array":
            return self._array(schema, name, root, depth)
        if kind in ("integer", "number"):
            return self._number(schema, kind)
        if kind == "string" or kind is None:
            return self._string(schema, name)
        return next(iter(_given(schema)), False if kind == "boolean" else None)

    def _object(self, schema: Mapping[str, Json], root: Json, depth: int) -> dict[str, Json]:
        """Return an object for a schema: all required fields, and some optional ones.

        An optional field is included if the text contains one of its `enum` values.
        """
        required = schema.get("required") or ()
        return {
            key: self.fill(each, key, root, depth + 1)
            for key, each in (schema.get("properties") or {}).items()
            if key in required
            or any(str(one).lower() in self.words for one in each.get("enum") or ())
        }

    def _array(self, schema: Mapping[str, Json], name: str, root: Json, depth: int) -> list[Json]:
        if "prefixItems" in schema:
            return [self.fill(each, name, root, depth + 1) for each in schema["prefixItems"]]
        count = max(int(schema.get("minItems") or 0), min(1, int(schema.get("maxItems", 1))))
        return [self.fill(schema.get("items", {}), name, root, depth + 1)] * count

    def _number(self, schema: Mapping[str, Json], kind: str) -> int | float:
        low, high = schema.get("minimum", -inf), schema.get("maximum", inf)
        if "exclusiveMinimum" in schema:
            low = schema["exclusiveMinimum"] + 1
        for text in self.numbers:
            value = float(text)
            if low <= value <= high and (kind == "number" or value.is_integer()):
                self.numbers.remove(text)  # the next field gets the next number
                return int(value) if kind == "integer" else value
        found: int | float = (*_given(schema), max(low, min(1, high)))[0]
        return found

    def _string(self, schema: Mapping[str, Json], name: str) -> str:
        words, form = _words(name), schema.get("format", "")
        given = [value for value in _given(schema) if isinstance(value, str)]
        if form in _FORMATS:
            found = [*given, _FORMATS[form]]
        elif words & _PLACES:
            found = [*self.paths, *given, "."]
        elif words & _WHOLE:
            found = [*self.quotes, self.text]
        else:
            last = re.findall(r"[^\W\d_][\w-]*", self.text)[-1:]
            found = [*self.quotes, *self.names, *given, *last, self.text]
        text: str = found[0][: schema.get("maxLength")]
        return text.ljust(int(schema.get("minLength") or 0), ".")


def _given(schema: Mapping[str, Json]) -> list[Json]:
    """Return the example values of a schema, then its default value."""
    default = [schema["default"]] if schema.get("default") is not None else []
    return [*(schema.get("examples") or ()), *default]
