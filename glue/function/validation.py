"""Validation of JSON values by a schema: what a model clearly meant is coerced, what is wrong is said.

A quick test made here only ever says yes to what jsonschema would accept too (a test compares them). It says no when
in doubt, and then jsonschema decides; so that library, which is slow to import, is loaded only for values or schemas
that need it.
"""

from __future__ import annotations

import functools
import importlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from sys import maxsize
from typing import Any, TypeAlias

from glue.messages import Json
from glue.text import clean_text, one_line

Path: TypeAlias = tuple[str | int, ...]
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
_EXACT = frozenset((str, int, bool, type(None)))  # types whose values are equal for jsonschema just where they are here
_ITEMS = frozenset({"items", "prefixItems", "minItems", "maxItems", "uniqueItems"})
_MEMBERS = frozenset(
    {"properties", "required", "additionalProperties", "propertyNames", "minProperties", "maxProperties"}
)
_DIALECT = "https://json-schema.org/draft/2020-12/schema"


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
    steps = (f"[{step}]" if isinstance(step, int) else f".{one_line(step, 80)}" for step in path)
    return "".join(steps).removeprefix(".")


def show(value: Any, limit: int = 80) -> str:
    """Write a JSON value on one line, cut where it is long."""
    try:
        text = json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        text = repr(value)
    text = clean_text(text)
    return text if len(text) <= limit else f"{text[:limit]}... ({len(text)} characters)"


def check_schema(schema: Schema, *, references: bool = True) -> None:
    """Refuse what is no JSON schema, or refers to nowhere; the ValueError says what is wrong in it."""
    _check_schema(json.dumps(schema), references)


@functools.lru_cache(64)
def _check_schema(text: str, references: bool) -> None:
    import jsonschema
    import referencing.jsonschema

    schema = json.loads(text)
    try:
        jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator).check_schema(schema)
    except jsonschema.SchemaError as error:
        place = f" at {where(tuple(error.absolute_path))}" if error.absolute_path else ""
        raise ValueError(f"wrong{place}: {one_line(error.message, 200)}") from None
    if not references or '"$id"' in text:
        return
    root = referencing.Resource.from_contents(schema, default_specification=referencing.jsonschema.DRAFT202012)
    resolver = referencing.Registry().resolver_with_root(root)
    for ref in re.findall(r'"\$ref": "([^"\\]*)"', text):
        try:
            resolver.lookup(ref)
        except referencing.exceptions.Unresolvable:
            raise ValueError(f"wrong at $ref: there is no {ref}") from None


def _never(value: Any) -> bool:
    return False


class Validator:
    """A schema, ready to judge values; made once, and each part of it compiled once."""

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self._made: dict[int, tuple[object, Check]] = {}
        self._judge: Any = None
        self._plain = str(schema.get("$schema", _DIALECT)).rstrip("#") == _DIALECT

    def accepts(self, schema: Any, value: Json) -> bool:
        """Whether a value fits one part of the schema."""
        check = self.check(schema)
        if check(value):
            return True
        if check is not _never and isinstance(schema, Mapping) and type(value) in _EXACT:
            kinds = _types_of(schema)
            if kinds and type(value) not in kinds:
                return False  # as sure as a yes, and jsonschema need not be loaded
        return bool(self.judge().evolve(schema=schema).is_valid(value))

    def check(self, schema: Any) -> Check:
        """Give a quick test that says yes only where jsonschema would too."""
        made = self._made.get(id(schema))
        if made is None:
            try:
                check = self._compile(schema) if self._plain else _never
            except (AttributeError, LookupError, TypeError, ValueError, RecursionError, re.error):
                check = _never  # a word we do not know, or not a schema at all: jsonschema decides
            made = self._made[id(schema)] = (schema, check)  # the schema is kept, so that its id stays its own
        return made[1]

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
        if self.check(self.schema)(value):
            return None
        found = {fault: None for error in self.judge().iter_errors(value) for fault in _faults(error, self.resolve)}
        errors = list(found)
        if len(errors) > MOST:
            errors = [*errors[:MOST], ((), f"and {len(errors) - MOST} more faults")]
        return ValidationError(errors) if errors else None

    def resolve(self, schema: Any) -> Any:
        """Follow a reference into $defs, as far as it goes."""
        for _ in range(32):
            target = self._target(schema["$ref"]) if isinstance(schema, Mapping) and "$ref" in schema else None
            if target is None:
                break
            schema = target
        return schema

    def _target(self, ref: Any) -> Any:
        if not isinstance(ref, str) or not (ref == "#" or ref.startswith("#/")):
            return None
        found: Any = self.schema
        for step in ref.split("/")[1:]:
            step = step.replace("~1", "/").replace("~0", "~")
            found = found.get(step) if isinstance(found, Mapping) else None
        return found

    def _compile(self, schema: Any) -> Check:
        if isinstance(schema, bool):
            return lambda value: schema
        if not isinstance(schema, Mapping):
            raise TypeError("no schema")
        words = {word: schema[word] for word in schema if word not in _NOTES}
        tests: list[Check] = []
        if words.keys() & _ITEMS:
            tests.append(self._items(words))
        if words.keys() & _MEMBERS:
            tests.append(self._members(words))
        tests += [self._test(word, given) for word, given in words.items() if word not in _ITEMS | _MEMBERS]
        if len(tests) == 1:
            return tests[0]
        return lambda value: all(test(value) for test in tests)

    def _test(self, word: str, given: Any) -> Check:
        """Make the test of one word."""
        if word == "type":
            kinds = _types_of({word: given})
            return lambda value: type(value) in kinds
        if word in ("enum", "const"):
            values = given if word == "enum" else [given]
            allowed = {(type(value), value) for value in values}
            return lambda value: type(value) in _EXACT and (type(value), value) in allowed
        if word == "$ref":
            target = self._target(given)
            return lambda value: self.check(target)(value)  # looked up late: a schema may hold itself
        if word in ("anyOf", "allOf"):
            checks, enough = [self.check(part) for part in given], any if word == "anyOf" else all
            return lambda value: enough(check(value) for check in checks)
        bounded, holds = _BOUNDS[word]
        bound = re.compile(given) if word == "pattern" else _number(given)
        return lambda value: type(value) in bounded and holds(value, bound)

    def _items(self, words: dict[str, Any]) -> Check:
        first, rest = [self.check(part) for part in words.get("prefixItems", [])], self.check(words.get("items", True))
        least, most = _number(words.get("minItems", 0)), _number(words.get("maxItems", maxsize))
        unique = words.get("uniqueItems", False)
        if words.get("type") == "array":
            del words["type"]  # tested below

        def test(value: Json) -> bool:
            if type(value) is not list or not least <= len(value) <= most:
                return False
            # Only texts: jsonschema's notion of equality among numbers, lists and objects is its own.
            if unique and not (all(type(item) is str for item in value) and len(set(value)) == len(value)):
                return False
            return all(check(item) for check, item in zip(first, value, strict=False)) and all(
                map(rest, value[len(first) :])
            )

        return test

    def _members(self, words: dict[str, Any]) -> Check:
        properties, names = words.get("properties", {}), words.get("propertyNames", True)
        required, other = frozenset(words.get("required", ())), words.get("additionalProperties", True)
        least, most = _number(words.get("minProperties", 0)), _number(words.get("maxProperties", maxsize))
        if words.get("type") == "object":
            del words["type"]  # tested below
        # The exact Python type is all there is to say of most parameters.
        exact: dict[str, type] = {}
        checks: dict[str, Check] = {}
        for name, part in properties.items():
            kinds = _types_of(part) if isinstance(part, Mapping) and part.keys() <= _NOTES | {"type"} else ()
            if len(kinds) == 1 and names is True:
                exact[name], checks[name] = kinds[0], _never
            else:
                checks[name] = self.check(part)
        kind_of, check_of = exact.get, checks.get
        check_name, check_other = self.check(names), self.check(other)
        # Where nothing else is allowed, as many names as there are properties means all of them.
        enough = len(properties) if other is False else -1

        def test(value: Json) -> bool:
            if type(value) is not dict or not least <= len(value) <= most:
                return False
            for name, item in value.items():
                if type(item) is not kind_of(name) and not (check_name(name) and check_of(name, check_other)(item)):
                    return False
            return len(value) == enough or value.keys() >= required

        return test


def _types_of(schema: Mapping[str, Any]) -> tuple[type, ...]:
    """Give the Python types of what a schema's `type` allows."""
    names = schema.get("type", [])
    return tuple(kind for name in ([names] if isinstance(names, str) else names) for kind in _TYPES[name])


def _number(given: Any) -> Any:
    if type(given) not in (int, float):
        raise TypeError("no bound")
    return given


_BOUNDS: dict[str, tuple[tuple[type, ...], Callable[[Any, Any], bool]]] = {
    "minimum": ((int, float), lambda value, bound: value >= bound),
    "exclusiveMinimum": ((int, float), lambda value, bound: value > bound),
    "maximum": ((int, float), lambda value, bound: value <= bound),
    "exclusiveMaximum": ((int, float), lambda value, bound: value < bound),
    "multipleOf": ((int,), lambda value, bound: type(bound) is int and value % bound == 0),
    "minLength": ((str,), lambda value, bound: len(value) >= bound),
    "maxLength": ((str,), lambda value, bound: len(value) <= bound),
    "pattern": ((str,), lambda value, bound: bound.search(value) is not None),
}


_INTEGER = re.compile(r"-?\d{1,400}(\.0+)?")
_NUMBER = re.compile(r"-?\d{1,400}(\.\d{1,400})?([eE][+-]?\d{1,3})?")


def coerce(validator: Validator, schema: Any, value: Json) -> Json:
    """Bring a value nearer to a schema; one that fits is never changed, and nothing is guessed."""
    schema = validator.resolve(schema)
    if not isinstance(schema, Mapping):
        return value
    options, kinds = schema.get("anyOf") or schema.get("oneOf"), schema.get("type")
    if isinstance(options, list):
        if any(validator.accepts(option, value) for option in options):
            return value
        tries = ((option, coerce(validator, option, value)) for option in options)
        return next((changed for option, changed in tries if validator.accepts(option, changed)), value)
    if "enum" in schema:
        return _member(schema["enum"], value)
    if isinstance(kinds, list):
        made = (value, *(_coerce_kind(validator, schema, kind, value) for kind in kinds))
        return next((changed for changed in made if validator.accepts(schema, changed)), value)
    return _coerce_kind(validator, schema, kinds, value)


def _member(allowed: Any, value: Json) -> Json:
    if isinstance(value, str) and value not in allowed:
        for item in allowed:
            if (item is None or isinstance(item, (bool, int, float))) and json.dumps(item) == value.strip():
                return item
    return value


def _coerce_kind(validator: Validator, schema: Schema, kind: Any, value: Json) -> Json:
    if isinstance(value, str) and kind != "string":
        value = _from_text(kind, value)
    if kind == "string" and type(value) in (int, float):
        return _to_text(validator, schema, value)
    if kind == "integer" and type(value) is float and value.is_integer():
        return int(value)
    if kind == "array" and value is not None:
        return _coerce_items(validator, schema, value)
    if kind == "object" and isinstance(value, dict):
        return _coerce_members(validator, schema, value)
    return value


def _from_text(kind: Any, text: str) -> Json:
    bare = text.strip()
    if kind == "integer" and _INTEGER.fullmatch(bare):
        return int(bare.partition(".")[0])
    if kind == "number" and _NUMBER.fullmatch(bare):
        return float(bare) if re.search(r"[.eE]|^-?0", bare) else int(bare)
    if kind == "boolean":
        return {"true": True, "false": False}.get(bare.lower(), text)
    if kind == "null" and bare in ("null", "None"):
        return None
    if (kind == "object" and bare[:1] == "{") or (kind == "array" and bare[:1] == "["):
        try:
            return json.loads(bare)
        except ValueError:
            return text
    return text


def _to_text(validator: Validator, schema: Schema, number: float) -> Json:
    """Write a number as the text that is due, where that is plain: a decimal, or a duration in seconds."""
    text = json.dumps(number)
    if schema.get("format") == "duration":
        return f"{'-' * (number < 0)}PT{text.removeprefix('-')}S"
    return text if "pattern" in schema and validator.accepts(schema, text) else number


def _coerce_items(validator: Validator, schema: Schema, value: Json) -> Json:
    if not isinstance(value, list):
        wrapped = _coerce_items(validator, schema, [value])
        return wrapped if validator.accepts(schema, wrapped) else value
    first, rest = schema.get("prefixItems", []), schema.get("items", True)
    if not isinstance(rest, (Mapping, bool)):
        return value
    items = [coerce(validator, first[i] if i < len(first) else rest, item) for i, item in enumerate(value)]
    if schema.get("uniqueItems") is True:
        kept = {json.dumps(item, sort_keys=True): item for item in reversed(items)}
        return list(reversed(kept.values()))
    return items


def _coerce_members(validator: Validator, schema: Schema, value: dict[str, Json]) -> Json:
    properties, required = schema.get("properties", {}), schema.get("required", ())
    changed = {}
    for name, item in value.items():
        part = properties.get(name, schema.get("additionalProperties", True))
        if item is None and name in properties and name not in required and not validator.accepts(part, None):
            continue  # models write null for what they mean to leave out
        changed[name] = coerce(validator, part, item)
    return changed


MOST = 20  # lines; a model that got more wrong than this should start over

_NOUNS = {
    "string": ("a string", "strings"),
    "integer": ("an integer", "integers"),
    "number": ("a number", "numbers"),
    "boolean": ("true or false", "true or false"),
    "null": ("null", ""),
    "array": ("a list", "lists"),
    "object": ("an object", "objects"),
}
_VALUE = ("a value", "")
FORMATS = {
    "date-time": "a date and time such as 2026-01-31T09:30:00Z",
    "date": "a date such as 2026-01-31",
    "time": "a time such as 09:30:00",
    "uuid": "a UUID",
    "base64": "base64 text",
}
_SAID = {
    "minimum": "of at least {}",
    "exclusiveMinimum": "above {}",
    "maximum": "of at most {}",
    "exclusiveMaximum": "below {}",
    "multipleOf": "in steps of {}",
    "minLength": "of at least {} characters",
    "maxLength": "of at most {} characters",
    "pattern": "that matches {}",
    "minItems": "of at least {} items",
    "maxItems": "of at most {} items",
    "minProperties": "with at least {} names",
    "maxProperties": "with at most {} names",
}


def _faults(error: Any, resolve: Callable[[Any], Any]) -> Iterator[tuple[Path, str]]:
    """Say what one of jsonschema's errors means: which value, and what would have been right."""
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
            yield from _faults(inner, resolve)
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
            return " or ".join(dict.fromkeys(phrase(option, resolve, depth + 1) for option in schema[word]))
    if "const" in schema:
        return show(schema["const"])
    if "enum" in schema:
        return "one of " + ", ".join(show(value) for value in schema["enum"])
    kind = schema.get("type")
    if isinstance(kind, list):
        return " or ".join(_NOUNS.get(str(name), _VALUE)[0] for name in kind)
    noun = _NOUNS.get(str(kind), _VALUE)[0]
    if kind == "string":
        noun = (
            "base64 text" if schema.get("contentEncoding") == "base64" else FORMATS.get(schema.get("format", ""), noun)
        )
    elif kind == "array" and "prefixItems" in schema:
        parts = ", ".join(phrase(item, resolve, depth + 1) for item in schema["prefixItems"]) if depth < 3 else ""
        return f"{noun} of [{parts}]" if parts else noun
    elif kind == "array":
        items = resolve(schema.get("items"))
        plural = _NOUNS.get(str(items.get("type")), _VALUE)[1] if isinstance(items, Mapping) else ""
        noun += f" of {plural}" if plural else ""
    elif kind == "object" and schema.get("properties") and depth < 3:
        noun += " with " + ", ".join(schema["properties"])
    said = [text.format(schema[word]) for word, text in _SAID.items() if word in schema]
    if schema.get("uniqueItems"):
        said.append("without repeats")
    return f"{noun} {' and '.join(said)}" if said else noun


_DEPTH = 64  # of a schema from elsewhere
_NAMED = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")


def without_slow_patterns(schema: Any, depth: int = 0, *, named: bool = False) -> Any:
    """Leave out of a schema from elsewhere the patterns that may take for ever: they would hold the event loop.

    No such pattern is left anywhere, for a reference may lead to any place. `named` says that the keys are names.
    """
    if not isinstance(schema, (list, Mapping)):
        return schema
    if depth > _DEPTH:
        return True
    if isinstance(schema, list):
        return [without_slow_patterns(each, depth + 1) for each in schema]
    kept = {}
    for word, value in schema.items():
        if word == "pattern" and isinstance(value, str) and not is_quick(value):
            continue
        quick = without_slow_patterns(value, depth + 1, named=not named and word in _NAMED)
        if named or word not in ("enum", "const") or quick == value:
            kept[word] = quick
    patterns = kept.get("patternProperties")
    if isinstance(patterns, Mapping) and not all(map(is_quick, patterns)):
        for word in ("patternProperties", "additionalProperties", "unevaluatedProperties"):
            kept.pop(word, None)
    return kept


def is_quick(pattern: str) -> bool:
    """Say whether a pattern is sure to be searched for in time linear in the text; in doubt it is not."""
    if len(pattern) > 1000:
        return False
    try:
        tokens = list(importlib.import_module("re._parser").parse(pattern))
    except (re.error, RecursionError, OverflowError):
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
