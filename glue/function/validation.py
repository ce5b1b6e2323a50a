"""Whether a JSON value fits a schema: a quick yes of our own, and jsonschema for everything else.

A check made here only ever says yes to what jsonschema would accept too (a test compares them). It
says no when in doubt, and then jsonschema decides; so that library, which is slow to import, is
loaded only for values or schemas that need it.
"""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeAlias

from glue.messages import Json
from glue.text import clean_text, one_line

Path: TypeAlias = tuple[str | int, ...]


class ValidationError(ValueError):
    """One or more errors; each has the path to the value and a text."""

    def __init__(self, errors: Iterable[tuple[Path, str]]) -> None:
        self.errors = tuple((path, one_line(text, 500)) for path, text in errors)
        super().__init__("\n".join(self.lines))

    @property
    def lines(self) -> list[str]:
        return [f"{where(path)}: {text}" if path else text for path, text in self.errors]

    def below(self, key: str | int) -> ValidationError:
        """The same errors, seen from one level up."""
        return ValidationError(((key, *path), text) for path, text in self.errors)


def where(path: Path) -> str:
    """Write a path as code would: `orders[2].price`."""
    text = ""
    for step in path:
        if isinstance(step, int):
            text += f"[{step}]"
        else:
            name = one_line(step, 80)
            text += f".{name}" if text else name
    return text


def show(value: Any, limit: int = 80) -> str:
    """Write a JSON value on one line, cut where it is long."""
    try:
        text = json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        text = repr(value)
    text = clean_text(text)
    return text if len(text) <= limit else f"{text[:limit]}... ({len(text)} characters)"


Check: TypeAlias = Callable[[Any], bool]
Schema: TypeAlias = Mapping[str, Json]

# Words that describe and do not judge; jsonschema does not assert `format` either.
_NOTES = frozenset(
    {"title", "description", "default", "examples", "format", "contentEncoding", "contentMediaType", "$defs"}
    | {"deprecated", "readOnly", "writeOnly", "$schema", "$comment"}
)
_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
    "array": (list,),
    "object": (dict,),
}
_DEPTH = 64  # of a schema from elsewhere
_DIALECT = "https://json-schema.org/draft/2020-12/schema"


def without_slow_patterns(schema: Any, depth: int = 0) -> Any:
    """Leave out of a schema from elsewhere the patterns that may take for ever: they would hold the event loop."""
    if depth > _DEPTH:
        return True
    if isinstance(schema, list):
        return [without_slow_patterns(each, depth + 1) for each in schema]
    if not isinstance(schema, Mapping):
        return schema
    kept = {}
    for word, value in schema.items():
        if word in ("enum", "const", "default", "examples"):
            kept[word] = value
        elif word == "pattern" and isinstance(value, str):
            if is_quick(value):
                kept[word] = value
        else:
            kept[word] = without_slow_patterns(value, depth + 1)
    named = kept.get("patternProperties")
    if isinstance(named, Mapping) and not all(map(is_quick, named)):
        for word in ("patternProperties", "additionalProperties", "unevaluatedProperties"):
            kept.pop(word, None)
    return kept


def is_quick(pattern: str) -> bool:
    """Say whether a pattern is sure to be searched for in time linear in the text; in doubt it is not."""
    parser = importlib.import_module("re._parser")
    try:
        tokens = list(parser.parse(pattern)) if len(pattern) <= 1000 else None
    except (re.error, RecursionError, OverflowError):
        return False
    if tokens is None:
        return False
    ways = [1, 0]  # of bounded choices, and how many repeats have no bound
    if not _counted(tokens, False, ways):
        return False
    anchored = bool(tokens) and str(tokens[0][0]) == "AT" and str(tokens[0][1]).startswith("AT_BEGINNING")
    return ways[0] <= 1000 and ways[1] <= (1 if anchored else 0)


def _counted(tokens: Iterable[Any], repeated: bool, ways: list[int]) -> bool:
    """Count the ways to match; False where something is repeated that can itself be matched in several ways."""
    for word, value in tokens:
        kind = str(word)
        if kind in ("MAX_REPEAT", "MIN_REPEAT"):
            low, high, inner = value
            if repeated or not _counted(inner, high > 1, ways):
                return False
            ways[0] *= max(high - low, 1) if high <= 64 else 1
            ways[1] += high > 64
        elif kind == "SUBPATTERN":
            if not _counted(value[-1], repeated, ways):
                return False
        elif kind == "BRANCH":
            ways[0] *= len(value[1])
            if repeated or not all(_counted(each, False, ways) for each in value[1]):
                return False
        elif kind in ("ASSERT", "ASSERT_NOT"):
            if repeated or not _counted(value[1], False, ways):
                return False
        elif kind not in ("LITERAL", "NOT_LITERAL", "ANY", "IN", "AT", "CATEGORY"):
            return False
    return True


class Validator:
    """A schema, ready to judge values; made once, and each part of it compiled once."""

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self._made: dict[int, tuple[object, Check | None]] = {}
        self._judge: Any = None
        self._split: dict[int, list[dict[str, Json]]] = {}
        self._plain = str(schema.get("$schema", _DIALECT)).rstrip("#") == _DIALECT

    def accepts(self, schema: Any, value: Json) -> bool:
        """Whether a value fits one part of the schema."""
        check = self.check(schema)
        if check is not None and check(value):
            return True
        if check is not None and _settles(schema, value):
            return False
        return bool(self.judge().evolve(schema=schema).is_valid(value))

    def check(self, schema: Any) -> Check | None:
        """A quick test that says yes only where jsonschema would; None where there is none."""
        if not self._plain:
            return None
        made = self._made.get(id(schema))
        if made is None:
            try:
                check = self._compile(schema)
            except (AttributeError, TypeError, ValueError):  # not a schema at all: jsonschema will say so
                check = None
            made = self._made[id(schema)] = (schema, check)  # the schema is kept, so that its id stays its own
        return made[1]

    def alternatives(self, schema: Schema) -> list[dict[str, Json]]:
        """A schema with several types as several schemas, made once."""
        made = self._split.get(id(schema))
        if made is None:
            made = self._split[id(schema)] = [{**schema, "type": kind} for kind in schema["type"]]
        return made

    def judge(self) -> Any:
        """The jsonschema validator, built at the first call and then kept."""
        if self._judge is None:
            import jsonschema
            import referencing

            kind = jsonschema.validators.validator_for(self.schema, default=jsonschema.Draft202012Validator)
            # An empty registry: a $ref to an address must not become a request.
            self._judge = kind(self.schema, registry=referencing.Registry())
        return self._judge

    def errors(self, value: Json) -> ValidationError | None:
        """Everything that is wrong with a value, or None."""
        check = self.check(self.schema)
        if check is not None and check(value):
            return None

        return explain(self.judge(), value, self.resolve)

    def resolve(self, schema: Any) -> Any:
        """Follow a reference into $defs, as far as it goes."""
        seen = 0
        while isinstance(schema, Mapping) and "$ref" in schema and seen < 32:
            target = self._target(schema["$ref"])
            if target is None:
                break
            schema, seen = target, seen + 1
        return schema

    def _target(self, ref: Any) -> Any:
        if not isinstance(ref, str) or not (ref == "#" or ref.startswith("#/")):
            return None
        found: Any = self.schema
        for step in ref.split("/")[1:]:
            step = step.replace("~1", "/").replace("~0", "~")
            found = found.get(step) if isinstance(found, Mapping) else None
        return found

    def _compile(self, schema: Any) -> Check | None:
        if isinstance(schema, bool):
            return lambda value: schema
        if not isinstance(schema, Mapping):
            return None
        tests: list[Check] = []
        words = {word: schema[word] for word in schema if word not in _NOTES}
        for maker in (self._items, self._members, _type, _values, _bounds, self._refs):
            made = maker(words)
            if made is None:
                return None
            tests += made
        if words:
            return None  # a word we do not know: jsonschema decides
        if len(tests) == 1:
            return tests[0]
        return lambda value: all(test(value) for test in tests)

    def _refs(self, words: dict[str, Any]) -> list[Check] | None:
        tests: list[Check] = []
        if "$ref" in words:
            target = self._target(words.pop("$ref"))
            if target is None:
                return None
            tests.append(lambda value: self._sure(target, value))  # looked up late: a schema may hold itself
        if "anyOf" in words:
            options = words.pop("anyOf")
            tests.append(lambda value: any(self._sure(option, value) for option in options))
        if "allOf" in words:
            parts = words.pop("allOf")
            tests.append(lambda value: all(self._sure(part, value) for part in parts))
        return tests

    def _sure(self, schema: Any, value: Json) -> bool:
        check = self.check(schema)
        return check is not None and check(value)

    def _items(self, words: dict[str, Any]) -> list[Check] | None:
        if not words.keys() & {"items", "prefixItems", "minItems", "maxItems", "uniqueItems"}:
            return []
        first = words.pop("prefixItems", [])
        rest = words.pop("items", True)
        least, most = words.pop("minItems", 0), words.pop("maxItems", None)
        unique = words.pop("uniqueItems", False)
        if isinstance(rest, list) or not _counts(least, most):  # an older dialect, or no schema
            return None
        if words.get("type") == "array":
            del words["type"]  # tested below

        def test(value: Json) -> bool:
            if type(value) is not list:
                return False
            if len(value) < least or (most is not None and len(value) > most):
                return False
            if unique and not _all_different(value):
                return False
            for index, part in enumerate(first[: len(value)]):
                if not self._sure(part, value[index]):
                    return False
            check = self.check(rest)
            return check is not None and all(check(item) for item in value[len(first) :])

        return [test]

    def _members(self, words: dict[str, Any]) -> list[Check] | None:
        known = {"properties", "required", "additionalProperties", "propertyNames", "minProperties", "maxProperties"}
        if not words.keys() & known:
            return []
        properties = words.pop("properties", {})
        required = frozenset(words.pop("required", ()))
        other = words.pop("additionalProperties", True)
        names = words.pop("propertyNames", True)
        least, most = words.pop("minProperties", 0), words.pop("maxProperties", None)
        if not _counts(least, most):
            return None
        if words.get("type") == "object":
            del words["type"]  # tested below
        # The exact Python type is all there is to say of most parameters.
        exact = {name: kind for name, part in properties.items() if (kind := _only_type(part)) is not None}

        def slow(name: str, value: Json) -> bool:
            return self._sure(names, name) and self._sure(properties.get(name, other), value)

        def test(value: Json) -> bool:
            if type(value) is not dict:
                return False
            if len(value) < least or (most is not None and len(value) > most):
                return False
            for name, item in value.items():
                if type(item) is not kind_of(name) and not slow(name, item):
                    return False
            # Where nothing else is allowed, as many names as there are properties means all of them.
            return len(value) == enough or value.keys() >= required

        if names is not True:
            exact = {}
        kind_of = exact.get
        enough = len(properties) if other is False else -1
        return [test]


def _settles(schema: Any, value: Json) -> bool:
    """Whether a quick no is as sure as a quick yes: the value is plain, and of another type than the one asked for."""
    if not isinstance(schema, Mapping) or not isinstance(schema.get("type"), str):
        return False
    return (value is None or type(value) in (str, bool, int)) and type(value) not in _TYPES.get(schema["type"], ())


def _only_type(schema: Any) -> type | None:
    if not isinstance(schema, Mapping) or any(word != "type" and word not in _NOTES for word in schema):
        return None
    kinds = _TYPES.get(schema.get("type", "")) if isinstance(schema.get("type"), str) else None
    return kinds[0] if kinds is not None and len(kinds) == 1 else None


def _type(words: dict[str, Any]) -> list[Check] | None:
    if "type" not in words:
        return []
    names = words.pop("type")
    names = [names] if isinstance(names, str) else names
    if not isinstance(names, list) or not all(isinstance(name, str) and name in _TYPES for name in names):
        return None
    kinds = tuple(kind for name in names for kind in _TYPES[name])
    if len(kinds) == 1:
        only = kinds[0]
        return [lambda value: type(value) is only]
    return [lambda value: type(value) in kinds]


def _values(words: dict[str, Any]) -> list[Check] | None:
    if "enum" not in words and "const" not in words:
        return []
    values = [words.pop("const")] if "const" in words else []
    if "enum" in words:
        if values or not isinstance(words["enum"], list):
            return None
        values = words.pop("enum")
    if not all(value is None or type(value) in (str, int, bool) for value in values):
        return None
    allowed = frozenset((type(value), value) for value in values)
    return [
        lambda value: value is None or type(value) in (str, int, bool),
        lambda value: (type(value), value) in allowed,
    ]


_COMPARE: dict[str, tuple[tuple[type, ...], Callable[[Any, Any], bool]]] = {
    "minimum": ((int, float), lambda value, bound: value >= bound),
    "exclusiveMinimum": ((int, float), lambda value, bound: value > bound),
    "maximum": ((int, float), lambda value, bound: value <= bound),
    "exclusiveMaximum": ((int, float), lambda value, bound: value < bound),
    "multipleOf": ((int,), lambda value, bound: type(bound) is int and value % bound == 0),
    "minLength": ((str,), lambda value, bound: len(value) >= bound),
    "maxLength": ((str,), lambda value, bound: len(value) <= bound),
    "pattern": ((str,), lambda value, bound: bound.search(value) is not None),
}


def _bounds(words: dict[str, Any]) -> list[Check] | None:
    tests: list[Check] = []
    for word in [word for word in words if word in _COMPARE]:
        kinds, holds = _COMPARE[word]
        bound = words.pop(word)
        if word == "pattern":
            try:
                bound = re.compile(bound)
            except (re.error, TypeError):
                return None
        elif type(bound) not in (int, float):
            return None
        tests.append(lambda value, kinds=kinds, holds=holds, bound=bound: type(value) in kinds and holds(value, bound))  # type: ignore[misc]
    return tests


def _counts(least: Any, most: Any) -> bool:
    return type(least) is int and (most is None or type(most) is int)


def _all_different(values: list[Any]) -> bool:
    # Only texts: jsonschema's notion of equality among numbers, lists and objects is its own.
    return all(type(value) is str for value in values) and len(set(values)) == len(values)


MOST = 20  # lines; a model that got more wrong than this should start over

_NOUNS = {
    "string": "a string",
    "integer": "an integer",
    "number": "a number",
    "boolean": "true or false",
    "null": "null",
    "array": "a list",
    "object": "an object",
}
_PLURALS = {
    "string": "strings",
    "integer": "integers",
    "number": "numbers",
    "boolean": "true or false",
    "array": "lists",
    "object": "objects",
}
_FORMATS = {
    "date-time": "a date and time such as 2026-01-31T09:30:00Z",
    "date": "a date such as 2026-01-31",
    "time": "a time such as 09:30:00",
    "uuid": "a UUID",
}


def explain(judge: Any, value: Any, resolve: Callable[[Any], Any]) -> ValidationError | None:
    """Collect the errors that a jsonschema validator finds."""
    found: dict[tuple[Path, str], None] = {}
    for error in judge.iter_errors(value):
        for path, text in _lines(error, resolve):
            found.setdefault((path, text))
    if not found:
        return None
    errors = list(found)
    if len(errors) > MOST:
        errors = [*errors[:MOST], ((), f"and {len(errors) - MOST} more faults")]
    return ValidationError(errors)


def _lines(error: Any, resolve: Callable[[Any], Any]) -> Iterator[tuple[Path, str]]:
    path: Path = tuple(error.absolute_path)
    word, schema, value = error.validator, error.schema, error.instance
    if word == "required":
        properties = schema.get("properties", {})
        for name in error.validator_value:
            if name not in value:
                yield (*path, name), f"missing, expected {phrase(properties.get(name, {}), resolve)}"
    elif word == "additionalProperties" and error.validator_value is False:
        names = list(schema.get("properties", {}))
        known = "there are: " + ", ".join(names) if names else "there are none"
        for name in value:
            if name not in names:
                yield (*path, name), f"unknown name; {known}"
    elif word in ("anyOf", "oneOf") and (closest := _closest(error)):
        for inner in closest:
            yield from _lines(inner, resolve)
    elif isinstance(schema, Mapping) and word not in ("oneOf", "not", "if", "dependentRequired"):
        yield path, f"got {show(value)}, expected {phrase(schema, resolve)}"
    else:
        yield path, one_line(error.message, 300)


def _closest(error: Any) -> list[Any]:
    """The errors of the one option that the value was meant for, if its type tells."""
    options: dict[int, list[Any]] = {}
    for inner in error.context or ():
        options.setdefault(next(iter(inner.schema_path), -1), []).append(inner)
    fitting = [
        errors for errors in options.values() if not any(e.validator == "type" and not e.relative_path for e in errors)
    ]
    return fitting[0] if len(fitting) == 1 else []


def phrase(schema: Any, resolve: Callable[[Any], Any], depth: int = 0) -> str:
    """Say in words what a schema asks for."""
    schema = resolve(schema)
    if not isinstance(schema, Mapping):
        return "a value"
    for word in ("anyOf", "oneOf"):
        if word in schema:
            options = dict.fromkeys(phrase(option, resolve, depth + 1) for option in schema[word])
            return " or ".join(options)
    if "const" in schema:
        return show(schema["const"])
    if "enum" in schema:
        return "one of " + ", ".join(show(value) for value in schema["enum"])
    kind = schema.get("type")
    if isinstance(kind, list):
        return " or ".join(_NOUNS.get(name, "a value") for name in kind)
    if kind == "string":
        noun = _FORMATS.get(schema.get("format", ""), "a string")
        noun = "base64 text" if schema.get("contentEncoding") == "base64" else noun
    elif kind == "array":
        noun = _list(schema, resolve, depth)
    elif kind == "object":
        noun = _object(schema, depth)
    else:
        noun = _NOUNS.get(str(kind), "a value")
    return noun + _explain_bounds(schema)


def _list(schema: Mapping[str, Any], resolve: Callable[[Any], Any], depth: int) -> str:
    if "prefixItems" in schema and depth < 3:
        return f"a list of [{', '.join(phrase(item, resolve, depth + 1) for item in schema['prefixItems'])}]"
    items = resolve(schema.get("items"))
    plural = _PLURALS.get(str(items.get("type"))) if isinstance(items, Mapping) else None
    return f"a list of {plural}" if plural else "a list"


def _object(schema: Mapping[str, Any], depth: int) -> str:
    names = list(schema.get("properties", {}))
    return "an object with " + ", ".join(names) if names and depth < 3 else "an object"


_WORDS = (
    ("minimum", "of at least {}"),
    ("exclusiveMinimum", "above {}"),
    ("maximum", "of at most {}"),
    ("exclusiveMaximum", "below {}"),
    ("multipleOf", "in steps of {}"),
    ("minLength", "of at least {} characters"),
    ("maxLength", "of at most {} characters"),
    ("pattern", "that matches {}"),
    ("minItems", "of at least {} items"),
    ("maxItems", "of at most {} items"),
    ("minProperties", "with at least {} names"),
    ("maxProperties", "with at most {} names"),
)


def _explain_bounds(schema: Mapping[str, Any]) -> str:
    if "prefixItems" in schema:
        return ""
    said = [text.format(schema[word]) for word, text in _WORDS if word in schema]
    if schema.get("uniqueItems"):
        said.append("without repeats")
    return (" " + " and ".join(said)) if said else ""
