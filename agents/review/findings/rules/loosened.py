"""Types and validation that a change makes weaker."""

from __future__ import annotations

import re
from collections.abc import Iterator

from glue.agents.review.findings.rules.rule import Rule
from glue.agents.review.findings.rules.view import Project, View
from glue.agents.review.records import Finding

TO_ANY = Rule(
    name="type-loosened",
    category="types",
    severity="medium",
    confidence="high",
    title="The type of `{name}` was loosened to `{new}`",
    body="`{name}` was `{old}` and is now `{new}`: the compiler no longer checks what is passed in or what is done "
    "with it. "
    "Keep the type, or take `unknown` and narrow it.",
    acceptance="`{name}` has a type that says what it is, and the checker passes.",
)
VALIDATION = Rule(
    name="validation-loosened",
    category="security",
    severity="medium",
    confidence="high",
    title="Input validation was dropped from `{name}`",
    body="`{name}` was validated by its type (`{old}`) and now accepts any `{new}`. What used to be refused at the "
    "edge now "
    "gets in and is stored or passed on.",
    acceptance="Ill-formed values of `{name}` are refused again; a test sends one.",
)
CONSTRAINT = Rule(
    name="constraint-removed",
    category="security",
    severity="medium",
    confidence="high",
    title="The constraint `{what}` was removed",
    body="`{what}` bounded what callers may send in; without it any size or value is accepted.",
    acceptance="The value is bounded again; a test sends one that is out of bounds.",
)
NEW_ANY = Rule(
    name="any-type",
    category="types",
    severity="low",
    confidence="medium",
    title="`any` switches type checking off",
    body="A value of type `any` may be used in every way without a word from the compiler.{more} Give it the type it "
    "has, "
    "or `unknown` and narrow it.",
    acceptance="The declaration names a type, and the checker passes.",
)
BYPASS = Rule(
    name="any-write",
    category="types",
    severity="high",
    confidence="high",
    title="A cast to `any` writes a field that nobody checks",
    body="`{what}` sets a field whose name is only known at run time, past the type system: any field of the object "
    "can be "
    "overwritten with any value, also the ones that matter for safety (`id`, `role`, `__proto__`).",
    acceptance="Only named fields can be set, each with its own type.",
)
SPREAD = Rule(
    name="any-spread",
    category="types",
    severity="medium",
    confidence="high",
    title="`{what}` is spread without knowing that it is a list",
    body="Nothing says what `{what}` is: its owner has the type `any`. A value that cannot be iterated throws here, "
    "and a text "
    "is spread into its letters. Check it (`Array.isArray`) before.",
    acceptance="Only a list is spread; a test passes something else.",
)
CAST = Rule(
    name="unchecked-cast",
    category="types",
    severity="medium",
    confidence="high",
    title="Outside data is cast to `{type}` without a check",
    body="`{name}` has no known type, and `as {type}` only tells the compiler to believe it: nothing looks at the "
    "value. "
    "Validate it before the cast.",
    acceptance="The value is validated (type guard, schema) before it is used as `{type}`.",
)

_ANNOTATION = re.compile(
    r"(?P<name>\b\w+)\s*(?P<optional>\??)\s*:\s*(?P<type>[\w.]+(?:\[[^\]=]*\]|<[^>=]*>)?(?:\s*\|\s*[\w.]+)*)"
)
_LOOSE = frozenset(("any", "Any", "object", "Object", "interface{}", "unknown", "dict", "Function"))
_VALIDATING = re.compile(
    r"^(?:Any(?:Http)?Url|HttpUrl|\w*Url|EmailStr|UUID\d?|Secret\w+|con(?:str|int|float|list|decimal)\b.*|Positive\w+|Negative\w+"
    r"|NonNegative\w+|IPv\w+|Strict\w+|Literal\[.*|Annotated\[.*|Decimal|datetime|date|FilePath|PastDate|FutureDate|PaymentCardNumber)"
)
_PLAIN = frozenset(("str", "int", "float", "Any", "dict", "object", "bytes"))
_BOUNDS = re.compile(
    r"\b(?P<what>(?:max_length|min_length|max_digits|gt|ge|lt|le|pattern|regex|max_items|maxLength|minLength|maximum|minimum|unique|nullable)\s*[=:]\s*[^,)}]+)"
)
_PARAMETER = re.compile(r"[(,]\s*(?:public |private |readonly )*(?P<name>\w+)\??\s*:\s*any(?:\[\])?\s*(?=[,)=])")
_VARIABLE = re.compile(r"\b(?:const|let|var)\s+(?P<name>\w+)\s*:\s*any\b")
_AS_ANY = re.compile(r"\bas\s+any\b|<any>\s*\w")
_DYNAMIC_WRITE = re.compile(r"\(\s*(?P<what>\w+\s+as\s+any\s*\)\s*\[\s*(?!['\"`\d])[\w.]+\s*\])\s*=(?!=)")
_SPREAD = re.compile(r"[\[(,]\s*\.\.\.(?P<what>(?P<name>\w+)\??\.[\w.?]+)\s*[\]),]")
_CAST = re.compile(r"=\s*(?P<name>\w+)\s+as\s+(?P<type>[A-Z]\w*)\s*;?\s*$")


def check(project: Project) -> Iterator[Finding]:
    for view in project.code_views():
        loosened = list(_pairs(view))
        yield from loosened
        if (
            view.language == "js"
            and view.path.endswith((".ts", ".tsx", ".mts", ".cts"))
            and not view.path.endswith(".d.ts")
        ):
            yield from _new_any(view, loosened)


def _pairs(view: View) -> Iterator[Finding]:
    for old, new in view.pairs:
        if new.new is None:
            continue
        before = {match["name"]: match["type"].strip() for match in _ANNOTATION.finditer(old.text)}
        order = [match["type"].strip() for match in _ANNOTATION.finditer(old.text)]
        for index, match in enumerate(_ANNOTATION.finditer(new.text)):
            name, kind = match["name"], match["type"].strip()
            was = before.get(name) or (order[index] if index < len(order) else "")
            if not was or was == kind or was.removesuffix("[]") in _LOOSE:
                continue
            if kind.removesuffix("[]") in _LOOSE and view.language in ("js", "python"):
                yield from TO_ANY.at(view, new.new, name=name, old=was, new=kind)
            elif view.language == "python" and kind in _PLAIN and _VALIDATING.match(was):
                yield from VALIDATION.at(view, new.new, name=name, old=was, new=kind)
        bound = _BOUNDS.search(old.text)
        if (
            bound
            and not _BOUNDS.search(new.text)
            and re.search(r"Field\(|Column\(|mapped_column\(|Query\(|Body\(|z\.|schema|validat", old.text + new.text)
        ):
            yield from CONSTRAINT.at(view, new.new, what=bound["what"].strip())


def _new_any(view: View, loosened: list[Finding]) -> Iterator[Finding]:
    places: list[int] = []
    for number in sorted(view.added):
        code = view.source.code_line(number)
        write = _DYNAMIC_WRITE.search(code)
        if write:
            yield from BYPASS.at(view, number, what=f"({write['what']}")
        elif _PARAMETER.search(code) or _VARIABLE.search(code) or _AS_ANY.search(code):
            places.append(number)
        spread = _SPREAD.search(code)
        if spread and _is_any(view, number, spread["name"]):
            yield from SPREAD.at(view, number, what=spread["what"])
        cast = _CAST.search(code)
        if cast and _is_any(view, number, cast["name"]):
            yield from CAST.at(view, number, name=cast["name"], type=cast["type"])
    if places and not loosened:  # one finding a file is enough, and none where a worse one was made
        rest = ", ".join(map(str, places[1:]))
        yield from NEW_ANY.at(view, places[0], more=f" Also on line {rest}." if rest else "")


def _is_any(view: View, number: int, name: str) -> bool:
    function = view.function_at(number)
    return function is not None and re.search(rf"\b{name}\s*\??\s*:\s*(?:any|unknown)\b", function.header) is not None
