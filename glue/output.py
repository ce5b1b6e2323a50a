"""Structured output: a reply becomes an object of the type that was asked for, or is asked for again."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from glue.context import Context, ToolResult, text_result
from glue.errors import OutputError, ToolError
from glue.events import Nudge, RunResult
from glue.function.schema import Shape, shape_of
from glue.function.validation import ValidationError, check_schema
from glue.limits import Outcome
from glue.messages import AssistantMessage, Json, ToolCall, ToolMessage, ToolSpec
from glue.policies import Hook, Policy, Stop, nudge

if TYPE_CHECKING:
    from glue.loop.state import State

T = TypeVar("T")

RE_ASKS = 2
_FENCE = re.compile(r"^[ \t]*(`{3,}|~{3,})[^\n`]*\n(.*?)^[ \t]*\1[ \t]*$", re.DOTALL | re.MULTILINE)
_DECODER = json.JSONDecoder()
_STARTS = 100  # places in a chatty reply at which JSON is looked for


class Output(Generic[T]):
    """A type or a JSON schema, and how a reply is read as it."""

    def __init__(self, kind: type[T] | Mapping[str, Json]) -> None:
        if isinstance(kind, str):
            raise TypeError(f"output must be a type or a JSON schema, not the text {kind!r}")
        try:
            if isinstance(kind, Mapping):
                check_schema(kind)
            self.shape = Shape(kind) if isinstance(kind, Mapping) else shape_of(kind)
        except Exception as error:  # whatever a schema may do to those who read it
            raise TypeError(f"output must be a type or a JSON schema: {error}") from None
        own = self.shape.schema
        # A tool's arguments, and the JSON modes of most wires, are objects: anything else goes into one.
        self.wrapped = own.get("type") != "object"
        self.schema: Mapping[str, Json] = own
        if self.wrapped:
            definitions = {"$defs": own["$defs"]} if "$defs" in own else {}
            value = {word: part for word, part in own.items() if word != "$defs"}
            self.schema = {
                "type": "object",
                "properties": {"value": value},
                "required": ["value"],
                "additionalProperties": False,
                **definitions,
            }

    def read(self, value: Json) -> T:
        """Build the object from JSON; raises ValidationError."""
        if self.wrapped and isinstance(value, dict) and value.keys() == {"value"}:
            value = value["value"]
        built: T = self.shape.read(value)
        return built

    def parse(self, text: str) -> T:
        """Read a reply: plain JSON, JSON in a fence, or JSON with talk around it; raises ValidationError."""
        first: ValidationError | None = None
        for value in _candidates(text, self.shape.schema):
            try:
                return self.read(value)
            except ValidationError as faults:
                first = first or faults
        raise first or ValidationError([((), "there is no JSON in the reply")])


def _candidates(text: str, schema: Mapping[str, Json]) -> Iterator[Json]:
    text = text.strip()
    pieces = [text, *(match.group(2).strip() for match in _FENCE.finditer(text))]
    for piece in pieces:
        try:
            yield json.loads(piece)
        except (ValueError, RecursionError):
            continue
    yield from sorted(_inside(text), key=lambda value: len(str(value)), reverse=True)
    if schema.get("type") == "string":
        yield pieces[-1].strip("\"'`*. \n")


def _inside(text: str) -> Iterator[Json]:
    """Find the objects and lists that stand in a text, the outermost of each."""
    at = 0
    for _ in range(_STARTS):
        found = re.compile(r"[{\[]").search(text, at)
        if found is None:
            return
        try:
            value, at = _DECODER.raw_decode(text, found.start())
        except (ValueError, RecursionError):
            at = found.end()
            continue
        yield value


class Answer(Generic[T]):
    """What one run has given so far, and how often it was asked again."""

    def __init__(self, output: Output[T], *, native: bool, taken: Sequence[str] = ()) -> None:
        self.output, self.native = output, native
        self.found = False
        self.value: T | None = None
        self.text = ""
        self.refused = 0
        self.faults: tuple[str, ...] = ()
        name = "final_answer"
        while name in taken:
            name += "_"
        self.tool = None if native else FinalTool(self, name)

    def accept(self, value: T, text: str) -> None:
        self.found, self.value, self.text = True, value, text

    def refuse(self, faults: ValidationError) -> str:
        """Count a refusal and say what to mend."""
        self.refused += 1
        self.faults = tuple(faults.lines)
        lines = "\n".join(f"- {line}" for line in faults.lines)
        how = f"Call {self.tool.spec.name} with it." if self.tool else "Reply with the corrected JSON alone."
        return f"Your answer does not have the form that was asked for:\n{lines}\n{how}"

    @property
    def spent(self) -> bool:
        return self.refused > RE_ASKS

    def error(self) -> OutputError:
        faults = "; ".join(self.faults) or "there was none"
        return OutputError(f"the model gave no answer of the form that was asked for: {faults}", self.faults)

    def finish(self, result: RunResult[Any]) -> RunResult[T]:
        """Put the object on the result."""
        return replace(result, output=self.value, text=result.text or self.text) if self.found else result


class FinalTool:
    """The tool by which a model hands over its answer where the wire has no JSON mode."""

    alone = False
    advisory = False

    def __init__(self, answer: Answer[Any], name: str) -> None:
        self.answer = answer
        self.spec = ToolSpec(
            name=name,
            description="Give the final answer. Call this once, when the work is done; plain text is not seen.",
            parameters=answer.output.schema,
        )

    async def invoke(self, call: ToolCall, context: Context[Any]) -> ToolResult:
        try:
            value = self.answer.output.read(json.loads(call.arguments or "{}"))
        except (ValueError, RecursionError) as error:
            faults = (
                error if isinstance(error, ValidationError) else ValidationError([((), f"not valid JSON: {error}")])
            )
            raise ToolError(self.answer.refuse(faults)) from None
        self.answer.accept(value, call.arguments)
        return replace(text_result("accepted"), terminate=True)


class Reask(Policy):
    """Send faults back to the model, at most twice."""

    place = "output"

    def __init__(self, answer: Answer[Any]) -> None:
        self.answer = answer  # shared with the tool and the caller; a run's own

    def on_settle(self, state: State, reply: AssistantMessage) -> Hook:
        answer = self.answer
        if answer.found:
            return None
        text = state.text
        try:
            answer.accept(answer.output.parse(text), text)
        except ValidationError as faults:
            again = answer.refuse(faults)
            if answer.spent or not state.may_say:
                return Stop(Outcome.FAILED, answer.error())
            state.emit(Nudge(policy="output", text=again))
            return nudge(again)
        return None

    def after_tools(self, state: State, results: Sequence[ToolMessage]) -> Hook:
        return Stop(Outcome.FAILED, self.answer.error()) if self.answer.spent and not self.answer.found else None

    def finish(self, state: State, stop: Stop) -> Stop:
        """Take the last text as the answer if it is one; else the run has failed."""
        answer = self.answer
        if answer.found or stop.error is not None:
            return stop
        try:
            answer.accept(answer.output.parse(state.text), state.text)
            return stop
        except ValidationError as faults:
            answer.faults = tuple(faults.lines)
        return Stop(Outcome.FAILED if stop.outcome.complete else stop.outcome, answer.error(), stop.meta)
