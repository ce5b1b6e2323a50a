"""Ask the user in the terminal the questions of MCP servers.

A question is a form, whose fields are asked one by one, or a page to open in the browser.
"""

from __future__ import annotations

import threading
import webbrowser
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from glue.cli.screen import Screen
from glue.function.coercion import coerce
from glue.function.validation import ValidationError, Validator
from glue.text import clean_text, one_line

if TYPE_CHECKING:
    from glue.tools.mcp import Question

# Writes a text to the terminal, and returns the line that the user types.
ReadLine: TypeAlias = Callable[[str], Awaitable[str]]
_YES, _NO = ("y", "yes"), ("n", "no")
_TRIES = 3  # invalid answers to one field, after which the question is declined


async def ask(question: Question, read_line: ReadLine, screen: Screen) -> dict[str, Any] | None:
    """Show the user a question from an MCP server; return the answers, or None if declined.

    The question is also declined after three invalid answers to a field. For a page, the URL and
    its origin are shown, and the browser is opened only after a yes.
    """
    head = screen.paint(
        f"? {one_line(question.server)} asks: {clean_text(question.message)}", "yellow"
    )
    if question.url:
        return await _ask_page(question, head, read_line, screen)
    fields = question.schema.get("properties") or {}
    if not fields:
        answer = await read_line(f"{head}\n" + screen.paint("  [y]es, [n]o > ", "yellow"))
        return {} if answer.strip().lower() in _YES else None
    hint = "  (an empty line takes the default, a dot declines the question)"
    head += "\n" + screen.paint(hint, "yellow")
    answers: dict[str, Any] = {}
    required = question.schema.get("required") or ()
    for name, part in fields.items():
        try:
            found = await _ask_field(name, part, name in required, head, read_line, screen)
        except _Declined:
            return None
        head = ""
        if found is not None:
            answers[name] = found
    return answers


async def _ask_page(
    question: Question, head: str, read_line: ReadLine, screen: Screen
) -> dict[str, Any] | None:
    lines = (head, f"  page: {clean_text(question.url)}", f"  at:   {question.origin}")
    shown = screen.paint("  open the page in the browser? [y]es, [n]o > ", "yellow")
    answer = await read_line("\n".join((*lines, shown)))
    if answer.strip().lower() not in _YES:
        return None
    # Not awaited: some browsers run in the terminal until the user leaves them.
    threading.Thread(
        target=webbrowser.open, args=(question.url,), name="glue-browser", daemon=True
    ).start()
    return {}


class _Declined(Exception):
    """The user declined a question, or gave no valid answer to a field in three tries."""


async def _ask_field(
    name: str,
    part: Mapping[str, Any],
    is_required: bool,
    head: str,
    read_line: ReadLine,
    screen: Screen,
) -> Any:
    """Ask for the value of one form field; return None if an optional field is left empty.

    An empty line takes the default if the field has one. Raise _Declined if the user declines.
    """
    label = clean_text(str(part.get("title") or name))
    detail = clean_text(str(part.get("description") or ""))
    choices = _choices(part)
    lines = [head] if head else []
    lines.append(f"  {label}: {detail}" if detail else f"  {label}")
    if choices:
        lines.append("    " + ", ".join(clean_text(each) for each in choices))
    default = f" [{part['default']}]" if "default" in part else ""
    if part.get("type") == "boolean":
        default = default or " [y/n]"
    for _ in range(_TRIES):
        prompt = screen.paint(f"  {label}{default} > ", "yellow")
        line = (await read_line("\n".join((*lines, prompt)))).strip()
        if line == ".":
            raise _Declined
        if not line:
            if "default" in part:
                return part["default"]
            if not is_required:
                return None
            lines = ["  this field needs an answer; a dot declines the question"]
            continue
        try:
            return _value(part, line)
        except ValidationError as error:
            lines = [f"  {one_line(str(error))}"]
    raise _Declined


def _choices(part: Mapping[str, Any]) -> list[str]:
    """Return the choices that a form lists for a field, or [] if it lists none."""
    listed = part.get("items", part) if part.get("type") == "array" else part
    options = listed.get("oneOf") or listed.get("anyOf") or ()
    named = [str(each["const"]) for each in options if "const" in each]
    return named or [str(each) for each in listed.get("enum") or ()]


def _value(part: Mapping[str, Any], line: str) -> Any:
    """Convert a typed line to the type of a form field; raise ValidationError if it is invalid."""
    value: Any = line
    if part.get("type") == "boolean" and line.lower() in (*_YES, *_NO):
        value = line.lower() in _YES
    elif part.get("type") == "array":
        value = [each.strip() for each in line.split(",") if each.strip()]
    validator = Validator(part)
    validator.start(value)
    value = coerce(validator, part, value)
    fault = validator.errors(value)
    if fault is not None:
        raise fault
    return value
