"""Structured output: parse a reply as the requested type, and ask again if it is invalid."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from glue.context import Context, ToolResult, text_result
from glue.errors import OutputError, ToolError
from glue.events import Nudge
from glue.function.schema import Shape, shape_of
from glue.function.validation import ValidationError, check_schema
from glue.limits import Outcome
from glue.messages import AssistantMessage, Json, ToolCall, ToolMessage, ToolSpec, UserMessage
from glue.policies import Hook, Policy, Stop, nudge
from glue.result import RunResult

if TYPE_CHECKING:
    from glue.loop.state import State

T = TypeVar("T")

RE_ASKS = 2
_FENCE = re.compile(r"^[ \t]*(`{3,}|~{3,})[^\n`]*\n(.*?)^[ \t]*\1[ \t]*$", re.DOTALL | re.MULTILINE)
_DECODER = json.JSONDecoder()
_STARTS = 100  # positions in a reply at which JSON is tried


class Output(Generic[T]):
    """A parser of answers, for the type or JSON schema that a caller passed as `output=`."""

    def __init__(self, kind: type[T] | Mapping[str, Json]) -> None:
        if isinstance(kind, str):
            raise TypeError(f"output must be a type or a JSON schema, not the text {kind!r}")
        try:
            if isinstance(kind, Mapping):
                check_schema(kind)
            self.shape = Shape(kind) if isinstance(kind, Mapping) else shape_of(kind)
        except Exception as error:  # the type of a user can raise any exception
            raise TypeError(f"output must be a type or a JSON schema: {error}") from None
        own = self.shape.schema
        # The arguments of a tool and the JSON modes of most wires must be objects. Any other value
        # is wrapped in an object.
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
        """Convert a JSON value to the requested type, or raise ValidationError."""
        if self.wrapped and isinstance(value, dict) and value.keys() == {"value"}:
            value = value["value"]
        built: T = self.shape.read(value)
        return built

    def parse(self, text: str) -> T:
        """Find JSON in the text of a reply, and return it converted to the requested type.

        The JSON may be the whole text, in a code fence, or surrounded by other text. Raise
        ValidationError if the text contains no JSON that fits the type.
        """
        first: ValidationError | None = None
        for value in _candidates(text, self.shape.schema):
            try:
                return self.read(value)
            except ValidationError as faults:
                first = first or faults
        raise first or ValidationError([((), "the reply contains no JSON")])


def _candidates(text: str, schema: Mapping[str, Json]) -> Iterator[Json]:
    """Yield the JSON values in a reply that may be the answer, the most likely value first."""
    text = text.strip()
    pieces = [text, *(match.group(2).strip() for match in _FENCE.finditer(text))]
    for piece in pieces:
        try:
            yield json.loads(piece)
        except (ValueError, RecursionError):
            continue
    yield from sorted(_json_inside(text), key=lambda value: len(str(value)), reverse=True)
    if schema.get("type") == "string":
        yield pieces[-1].strip("\"'`*. \n")


def _json_inside(text: str) -> Iterator[Json]:
    """Yield the JSON objects and lists in a text, but not those inside other JSON."""
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
    """The answer of one run, and a count of the invalid answers before it.

    `found` is True after a valid answer, which is then in `value`. `refused` is the number of
    invalid answers, and `faults` contains the faults of the last one.
    """

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
        """Count an invalid answer, and return the message that asks the model to correct it."""
        self.refused += 1
        self.faults = tuple(faults.lines)
        return self.request_correction(faults)

    def request_correction(self, faults: ValidationError) -> str:
        """Return the message that asks the model to correct its answer."""
        lines = "\n".join(f"- {line}" for line in faults.lines)
        how = "Reply with the corrected JSON alone."
        if self.tool:
            how = f"Call {self.tool.spec.name} with the corrected answer."
        return f"Your answer does not have the required form:\n{lines}\n{how}"

    @property
    def spent(self) -> bool:
        """True if the model has sent more invalid answers than are allowed."""
        return self.refused > RE_ASKS

    def error(self) -> OutputError:
        faults = "; ".join(self.faults)
        return OutputError(f"the model gave no answer of the required form: {faults}", self.faults)

    def finish(self, result: RunResult[Any]) -> RunResult[T]:
        """Return a copy of `result` with the answer as output, or `result` if no answer is valid.

        If `result` has no text, the copy has the text of the answer.
        """
        if not self.found:
            return result
        return replace(result, output=self.value, text=result.text or self.text)


class FinalTool:
    """The tool that a model calls with its answer, if the provider cannot force a JSON reply."""

    alone = False
    advisory = False

    def __init__(self, answer: Answer[Any], name: str) -> None:
        self.answer = answer
        self.spec = ToolSpec(
            name=name,
            description=(
                "Give the final answer. Call this once, when the work is done."
                " Plain text is not shown to the user."
            ),
            parameters=answer.output.schema,
        )

    async def invoke(self, call: ToolCall, context: Context[Any]) -> ToolResult:
        try:
            value = self.answer.output.read(json.loads(call.arguments or "{}"))
        except (ValueError, RecursionError) as error:
            faults = ValidationError([((), f"not valid JSON: {error}")])
            if isinstance(error, ValidationError):
                faults = error
            raise ToolError(self.answer.refuse(faults)) from None
        self.answer.accept(value, call.arguments)
        return replace(text_result("accepted"), terminate=True)


class Reask(Policy):
    """A policy that reports invalid answers to the model, at most twice, and then fails the run.

    The policy parses each reply without calls. A valid answer is stored in the `Answer` of the run.
    """

    place = "output"

    def __init__(self, answer: Answer[Any]) -> None:
        self.answer = answer  # shared with the tool of this run, and with the caller

    def on_settle(self, state: State, reply: AssistantMessage) -> Hook:
        answer = self.answer
        if answer.found:
            return None
        text = state.text
        try:
            answer.accept(answer.output.parse(text), text)
        except ValidationError as faults:
            if answer.refused >= RE_ASKS or not state.may_say:
                answer.refuse(faults)
                return Stop(Outcome.FAILED, answer.error())
            return self._ask_again(state, faults)
        return None

    def _ask_again(self, state: State, faults: ValidationError) -> Hook:
        text = self.answer.request_correction(faults)

        def count(message: UserMessage) -> None:
            self.answer.refuse(faults)
            state.emit(Nudge(policy="output", text=text))

        return nudge(text, sent=count)

    def after_tools(self, state: State, results: Sequence[ToolMessage]) -> Hook:
        if self.answer.spent and not self.answer.found:
            return Stop(Outcome.FAILED, self.answer.error())
        return None

    def finish(self, state: State, stop: Stop) -> Stop:
        """Return `stop`, or a Stop with an OutputError if the run ends without a valid answer.

        If the run has no answer and no error yet, its last text is parsed as the answer.
        """
        answer = self.answer
        if answer.found or stop.error is not None:
            return stop
        try:
            answer.accept(answer.output.parse(state.text), state.text)
            return stop
        except ValidationError as faults:
            answer.faults = tuple(faults.lines)
        outcome = Outcome.FAILED if stop.outcome.complete else stop.outcome
        return Stop(outcome, answer.error(), stop.meta)
