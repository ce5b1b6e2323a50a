"""Validation of JSON values against a JSON schema.

A schema is compiled to a quick check, a plain Python function. The quick check accepts a value only
if jsonschema would accept it too (a test compares both). Otherwise jsonschema decides, and
finds the faults. So jsonschema, which is slow to import, is rarely loaded.

A worked example, for the parameters of `def weather(city: str, days: int = 3)`:

    schema = {
        "type": "object",
        "properties": {"city": {"type": "string"}, "days": {"type": "integer", "default": 3}},
        "required": ["city"],
        "additionalProperties": False,
    }
    validator = Validator(schema)

1. The model sends `{"city": "Bern", "days": 2}`. `validator.check(schema)` returns the compiled
   check. It sees that the value is a dict, that "Bern" is exactly a `str` and 2 exactly an `int`,
   and that `city` is there. It returns True: done.
2. The model sends `{"city": "Bern", "days": "2"}`. The check returns False, because "2" is not an
   `int`. `coercion.coerce` converts "2" to 2, and the check accepts the result.
3. The model sends `{"town": "Bern"}`. The check returns False, and there is nothing to convert.
   `validator.errors(value)` loads jsonschema, and its errors become two lines for the model:

    city: missing, expected a string
    town: unknown name; there are: city, days
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable, Iterable, Mapping
from sys import maxsize
from typing import Any, TypeAlias

from glue.function.faults import Path, find_faults, format_path
from glue.messages import Json
from glue.text import one_line

Check: TypeAlias = Callable[[Any], bool]
Schema: TypeAlias = Mapping[str, Json]

# Keywords that accept every value. jsonschema does not check `format` either.
_ANNOTATIONS = frozenset(
    "title description default examples format contentEncoding contentMediaType $defs "
    "deprecated readOnly writeOnly $schema $comment".split()
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
# Types for which Python and jsonschema agree on whether two values are equal.
_EXACT = frozenset((str, int, bool, type(None)))
_LIST_KEYWORDS = frozenset("items prefixItems minItems maxItems uniqueItems".split())
_OBJECT_KEYWORDS = frozenset(
    "properties required additionalProperties propertyNames minProperties maxProperties".split()
)
_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_REFERENCES = frozenset(("$ref", "$dynamicRef", "$recursiveRef"))
_MAX_FAULTS = 20  # lines for the model; the others are only counted
# The budget of a check, in steps. A step is one followed reference, or one keyword that jsonschema
# checks. A step on a large value counts as several steps, because jsonschema copies the value into
# its messages. Without a budget, a check could take hours: a few definitions are enough, if each
# refers to the previous definition several times.
_MAX_STEPS = 3_000  # for one list or object, and for a small value with all its parts
_STEPS_PER_PART = 25
_MAX_ALL_STEPS = 60_000
_SLOW_STEP = 4  # jsonschema takes longer to follow a reference than to check another keyword
_PARTS_PER_STEP = 10  # parts of a value that take as long as a step
_TOO_COMPLEX = (
    "the schema is too complex to check this value: its parts refer to each other too often"
)


class ValidationError(ValueError):
    """An error: a value is invalid. `errors` has the path and a description of each fault."""

    def __init__(self, errors: Iterable[tuple[Path, str]]) -> None:
        self.errors = tuple((path, one_line(text, 500)) for path, text in errors)
        super().__init__("\n".join(self.lines))

    @property
    def lines(self) -> list[str]:
        """A list with one line per fault, such as `orders[2].price: got "x", expected a number`."""
        return [f"{format_path(path)}: {text}" if path else text for path, text in self.errors]

    def below(self, key: str | int) -> ValidationError:
        """Return a copy of this error with `key` in front of the path of each fault."""
        return ValidationError(((key, *path), text) for path, text in self.errors)


def check_schema(schema: Schema, *, references: bool = True) -> None:
    """Raise ValueError if a JSON schema is invalid, or has a `$ref` whose target does not exist.

    The targets are not checked if `references` is False.
    """
    _check_schema(json.dumps(schema), references)


@functools.lru_cache(64)
def _check_schema(text: str, references: bool) -> None:
    import jsonschema  # slow to import
    import referencing.jsonschema

    schema = json.loads(text)
    default = jsonschema.Draft202012Validator
    try:
        jsonschema.validators.validator_for(schema, default=default).check_schema(schema)
    except jsonschema.SchemaError as error:
        place = f" at {format_path(tuple(error.absolute_path))}" if error.absolute_path else ""
        raise ValueError(f"wrong{place}: {one_line(error.message, 200)}") from None
    if not references or '"$id"' in text:
        return
    root = referencing.Resource.from_contents(
        schema, default_specification=referencing.jsonschema.DRAFT202012
    )
    resolver = referencing.Registry().resolver_with_root(root)
    for ref in re.findall(r'"\$ref": "([^"\\]*)"', text):
        try:
            resolver.lookup(ref)
        except referencing.exceptions.Unresolvable:
            raise ValueError(f"wrong at $ref: the target {ref} does not exist") from None


def _reject(value: Any) -> bool:
    return False


class Validator:
    """A validator of values against one schema, with a quick check for each part of the schema."""

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self._checks: dict[int, tuple[object, Check]] = {}  # by the id() of a part of the schema
        self._jsonschema: Any = None
        self._value: Json = None  # the value that is checked now
        self._steps: dict[int, int] = {}  # steps by the id() of a list or an object in the value
        self._sizes: dict[int, int] = {}  # number of parts, by the id() of a list or an object
        self._all_steps, self._budget = 0, _MAX_STEPS
        self._is_dialect_known = str(schema.get("$schema", _DIALECT)).rstrip("#") == _DIALECT

    def start(self, value: Json) -> None:
        """Store `value` as the next value to check, and reset the step counts and their budget."""
        self._value, self._all_steps, self._budget = value, 0, _MAX_STEPS
        if self._steps or self._sizes:
            self._steps, self._sizes = {}, {}

    def _follow(self, value: Json = None, steps: int = 1) -> None:
        """Add `steps` to the step counts. Raise ValidationError if a count exceeds its limit.

        The first count is for the whole check, and the second for `value` if it is a list or dict.
        """
        self._all_steps += steps
        if self._all_steps > self._budget == _MAX_STEPS:
            parts = _count_parts(self._value, _MAX_ALL_STEPS)
            self._budget = min(_MAX_STEPS + _STEPS_PER_PART * parts, _MAX_ALL_STEPS)
        here = 0
        if isinstance(value, (dict, list)):
            here = self._steps[id(value)] = self._steps.get(id(value), 0) + steps
        if self._all_steps > self._budget or here > max(_MAX_STEPS, self._budget // 2):
            raise ValidationError([((), _TOO_COMPLEX)])

    def _weight(self, value: Json) -> int:
        """Return how many steps of the budget the check of `value` against one schema keyword uses.

        The number grows with the size of `value`. For a keyword that is a reference, `_counted`
        multiplies it.
        """
        if not isinstance(value, (dict, list, str)):
            return 1
        if isinstance(value, str):
            return 1 + len(value) // (100 * _PARTS_PER_STEP)
        known = self._sizes.get(id(value))
        if known is None:
            known = self._sizes[id(value)] = _count_parts(value, _MAX_ALL_STEPS)
        return 1 + known // _PARTS_PER_STEP

    def accepts(self, schema: Any, value: Json) -> bool:
        """Return whether a value is valid for `schema`, a part of the schema of this validator."""
        check = self.check(schema)
        if check(value):
            return True
        if check is not _reject and isinstance(schema, Mapping) and type(value) in _EXACT:
            kinds = _types_of(schema)
            if kinds and type(value) not in kinds:
                return False  # surely wrong, so that jsonschema need not be loaded
        return bool(self.load_jsonschema().evolve(schema=schema).is_valid(value))

    def check(self, schema: Any) -> Check:
        """Return a function that returns True for a value that is surely valid for `schema`.

        If the function returns False, jsonschema has to decide. The function is called a quick
        check. `schema` is a part of the whole schema.
        """
        known = self._checks.get(id(schema))
        if known is None:
            try:
                check = self._compile(schema) if self._is_dialect_known else _reject
            except (AttributeError, LookupError, TypeError, ValueError, RecursionError, re.error):
                check = _reject  # an unknown keyword, or not a schema: jsonschema decides
            # The part is stored too. Otherwise, another object could get its id.
            known = self._checks[id(schema)] = (schema, check)
        return known[1]

    def load_jsonschema(self) -> Any:
        """Return the validator of jsonschema, which is created at the first call."""
        if self._jsonschema is None:
            import jsonschema  # slow to import
            import referencing

            default = jsonschema.Draft202012Validator
            kind = jsonschema.validators.validator_for(self.schema, default=default)
            counted = {word: self._counted(word, check) for word, check in kind.VALIDATORS.items()}
            extend: Any = jsonschema.validators.extend
            kind = extend(kind, counted)
            # With an empty registry, jsonschema does not send a request for a `$ref` to a URL.
            self._jsonschema = kind(self.schema, registry=referencing.Registry())
        return self._jsonschema

    def _counted(self, word: str, check: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that counts steps, and then calls the jsonschema function `check`.

        `word` is the keyword that `check` checks. The returned function raises ValidationError if
        there are too many steps.
        """
        factor = _SLOW_STEP if word in _REFERENCES else 1

        def counted(validator: Any, given: Any, value: Json, schema: Any) -> Any:
            self._follow(value, factor * self._weight(value))
            return check(validator, given, value, schema)

        return counted

    def errors(self, value: Json) -> ValidationError | None:
        """Return the faults of a value as one error, or None if the value fits.

        Raise ValidationError if the check takes too many steps.
        """
        if self.check(self.schema)(value):
            return None
        found: dict[tuple[Path, str], None] = {}  # without repeats, in order
        for error in self.load_jsonschema().iter_errors(value):
            self._follow(steps=self._weight(error.instance))
            found.update(dict.fromkeys(find_faults(error, self.resolve)))
        faults = list(found)
        if len(faults) > _MAX_FAULTS:
            faults = [*faults[:_MAX_FAULTS], ((), f"and {len(faults) - _MAX_FAULTS} more faults")]
        return ValidationError(faults) if faults else None

    def resolve(self, schema: Any) -> Any:
        """Return the target of the `$ref` of a schema, or the schema itself if it has no `$ref`.

        If the target has a `$ref`, follow this one too. A schema whose `$ref` cannot be followed is
        returned unchanged.
        """
        for _ in range(32):
            if not isinstance(schema, Mapping) or "$ref" not in schema:
                break
            target = self._target(schema["$ref"])
            if target is None:
                break
            self._follow()
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
        """Return the quick check of a schema, a function that returns True only for a valid value.

        Raise an exception if the schema has an unknown keyword. `check` catches this exception.
        """
        if isinstance(schema, bool):
            return lambda value: schema
        if not isinstance(schema, Mapping):
            raise TypeError("not a schema")
        keywords = {word: schema[word] for word in schema if word not in _ANNOTATIONS}
        checks: list[Check] = []
        if keywords.keys() & _LIST_KEYWORDS:
            checks.append(self._compile_list(keywords))
        if keywords.keys() & _OBJECT_KEYWORDS:
            checks.append(self._compile_object(keywords))
        for keyword, given in keywords.items():
            if keyword not in _LIST_KEYWORDS | _OBJECT_KEYWORDS:
                checks.append(self._compile_keyword(keyword, given))
        if len(checks) == 1:
            return checks[0]
        return lambda value: all(check(value) for check in checks)

    def _compile_keyword(self, keyword: str, given: Any) -> Check:
        if keyword == "type":
            kinds = _types_of({keyword: given})
            return lambda value: type(value) in kinds
        if keyword in ("enum", "const"):
            values = given if keyword == "enum" else [given]
            allowed = {(type(value), value) for value in values}
            return lambda value: type(value) in _EXACT and (type(value), value) in allowed
        if keyword == "$ref":
            target = self._target(given)

            def check_target(value: Json) -> bool:
                self._follow(value)
                # The check is looked up at each call, because a schema may contain itself.
                return self.check(target)(value)

            return check_target
        if keyword in ("anyOf", "allOf"):
            checks, combine = [self.check(part) for part in given], any
            if keyword == "allOf":
                combine = all
            return lambda value: combine(check(value) for check in checks)
        kinds, holds = _BOUNDS[keyword]
        bound = re.compile(given) if keyword == "pattern" else _number(given)
        return lambda value: type(value) in kinds and holds(value, bound)

    def _compile_list(self, keywords: dict[str, Any]) -> Check:
        """Return a quick check of the list keywords. Delete the keyword `type` if it is "array".

        The keyword is deleted from `keywords`, because the returned check also rejects a value that
        is not a list.
        """
        first = [self.check(part) for part in keywords.get("prefixItems", [])]
        rest = self.check(keywords.get("items", True))
        least, most = _bounds(keywords, "Items")
        unique = keywords.get("uniqueItems", False)
        if keywords.get("type") == "array":
            del keywords["type"]

        def check_list(value: Json) -> bool:
            if type(value) is not list or not least <= len(value) <= most:
                return False
            # Only for texts, because jsonschema compares numbers, lists and objects differently.
            if unique and not (
                all(type(item) is str for item in value) and len(set(value)) == len(value)
            ):
                return False
            return all(check(item) for check, item in zip(first, value, strict=False)) and all(
                map(rest, value[len(first) :])
            )

        return check_list

    def _compile_object(self, keywords: dict[str, Any]) -> Check:
        """Return a quick check of the object keywords. Delete the keyword `type` if it is "object".

        The keyword is deleted from `keywords`, because the returned check also rejects a value that
        is not an object.
        """
        properties = keywords.get("properties", {})
        names = keywords.get("propertyNames", True)
        other = keywords.get("additionalProperties", True)
        required = frozenset(keywords.get("required", ()))
        least, most = _bounds(keywords, "Properties")
        if keywords.get("type") == "object":
            del keywords["type"]
        # For most parameters, the schema only demands one Python type. A comparison of types is
        # faster than a call.
        types: dict[str, type] = {}
        checks: dict[str, Check] = {}
        for name, part in properties.items():
            is_plain = isinstance(part, Mapping) and part.keys() <= _ANNOTATIONS | {"type"}
            kinds = _types_of(part) if is_plain else ()
            if len(kinds) == 1 and names is True:
                types[name], checks[name] = kinds[0], _reject
            else:
                checks[name] = self.check(part)
        type_of, check_of = types.get, checks.get
        check_name, check_other = self.check(names), self.check(other)
        # If no other names are allowed, an object with as many names as properties has all of them.
        is_closed = other is False and required <= properties.keys()
        enough = len(properties) if is_closed else -1

        def check_object(value: Json) -> bool:
            if type(value) is not dict or not least <= len(value) <= most:
                return False
            for name, item in value.items():
                if type(item) is not type_of(name) and not (
                    check_name(name) and check_of(name, check_other)(item)
                ):
                    return False
            return len(value) == enough or value.keys() >= required

        return check_object


def _count_parts(value: Json, most: int) -> int:
    """Return the number of values in a JSON value, itself included, or about `most` if it has more.

    A long text counts as several values.
    """
    count, left = 0, [value]
    while left and count < most:
        count += 1
        part = left.pop()
        if isinstance(part, dict):
            left.extend(part.values())
        elif isinstance(part, list):
            left.extend(part)
        elif isinstance(part, str):
            count += len(part) // 100
    return count


def _types_of(schema: Mapping[str, Any]) -> tuple[type, ...]:
    """Return the Python types that the keyword `type` of a schema allows, or () without `type`."""
    names = schema.get("type", [])
    names = [names] if isinstance(names, str) else names
    return tuple(kind for name in names for kind in _TYPES[name])


def _bounds(keywords: dict[str, Any], noun: str) -> tuple[Any, Any]:
    """Return the minimum and maximum number of items or properties that a schema allows.

    `noun` is "Items" or "Properties". If a keyword is missing, the minimum is 0, and the maximum is
    `sys.maxsize`. Raise TypeError if a bound is not a number.
    """
    return _number(keywords.get(f"min{noun}", 0)), _number(keywords.get(f"max{noun}", maxsize))


def _number(given: Any) -> Any:
    if type(given) not in (int, float):
        raise TypeError("not a number")
    return given


# For each keyword, the Python types that it applies to, and a function of a value and the bound.
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
