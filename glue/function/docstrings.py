"""Docstrings of tools: the first paragraph, and the texts about parameters in three styles."""

from __future__ import annotations

import inspect
import re

# The end of the first paragraph: a blank line, or the fields of Sphinx.
_SUMMARY = re.compile(r"\n\n|\n(?=[ \t]*:(?:param|arg|type|returns?|rtype|raises)\b)")
_SECTION = re.compile(
    r"^([ \t]*)(?:Args|Arguments|Parameters):[ \t]*\n((?:[ \t]*\n|\1[ \t]+.*\n?)*)", re.MULTILINE
)
_ENTRY = re.compile(r"\*{0,2}(\w+)(?:\s*\([^)]*\))?:\s*(.*)")
# NumPy: a heading that is underlined, then "name : type" with an indented text.
_NUMPY = re.compile(
    r"^([ \t]*)(?:Other )?Parameters[ \t]*\n\1-{3,}[ \t]*\n(.*?)(?=\n\1\S[^\n]*\n\1-{3,}|\Z)",
    re.MULTILINE | re.DOTALL,
)
_NUMPY_ENTRY = re.compile(r"(\*{0,2}\w+(?:\s*,\s*\*{0,2}\w+)*)\s*(?::.*)?")
# Sphinx: ":param type name: text", continued on indented lines.
_SPHINX = re.compile(
    r"^([ \t]*):(?:param|parameter|arg|argument|key|keyword)\b[^:\n]*?(\w+)[ \t]*:"
    r"[ \t]*(.*(?:\n\1[ \t]+\S.*)*)",
    re.MULTILINE,
)


def summary(doc: str) -> str:
    """Return the first paragraph of a docstring on one line, without the fields of Sphinx."""
    return " ".join(_SUMMARY.split(doc)[0].split())


def arguments_section(doc: str) -> dict[str, str]:
    """Return the descriptions of parameters in a docstring, by the names of the parameters.

    The section `Args:` of Google's style is read, the section `Parameters` of NumPy's style, and
    the fields `:param name:` of Sphinx.
    """
    if section := _SECTION.search(doc):
        return _google_entries(section[2])
    if sections := _NUMPY.findall(doc):
        return {name: text for _, body in sections for name, text in _numpy_entries(body).items()}
    return {name: " ".join(text.split()) for _, name, text in _SPHINX.findall(doc)}


def _google_entries(section: str) -> dict[str, str]:
    texts: dict[str, str] = {}
    name = ""
    for line in inspect.cleandoc(f"\n{section}").splitlines():
        if entry := _ENTRY.match(line):
            name, texts[entry[1]] = entry[1], entry[2]
        elif name:
            texts[name] = f"{texts[name]} {line.strip()}".strip()
    return texts


def _numpy_entries(section: str) -> dict[str, str]:
    texts: dict[str, str] = {}
    names: list[str] = []
    for line in inspect.cleandoc(f"\n{section}").splitlines():
        if line[:1].strip():
            entry = _NUMPY_ENTRY.fullmatch(line.rstrip())
            names = [name.strip().lstrip("*") for name in entry[1].split(",")] if entry else []
            texts |= dict.fromkeys(names, "")
        for name in names if not line[:1].strip() else ():
            texts[name] = f"{texts[name]} {line.strip()}".strip()
    return {name: text for name, text in texts.items() if text}
