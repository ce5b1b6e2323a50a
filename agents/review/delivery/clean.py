"""Rebuild Markdown from untrusted text, so that nothing in it can act on a reader, a forge or a log.

What a model wrote is taken apart into paragraphs, lists, code spans and fences, and written anew with everything
else escaped: a list of forbidden forms would always lack one.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable

from glue import clean_text, one_line

_FOLD = str.maketrans("＠﹫＃﹟＜﹤＞﹥", "@@##<<>>")  # wide twins that some renderers fold back
_KNOWN = (
    "bash c cpp cs css diff dockerfile go graphql html ini java javascript js json jsx kotlin lua makefile md php"
    " powershell proto py python rb ruby rust scala sh shell sql swift text toml ts tsx typescript xml yaml yml"
)
_LANGUAGES = frozenset(_KNOWN.split())
_TAGS = (
    "a abbr article audio b base blockquote body br button center code dd del details div dl dt em embed font footer"
    " form frame frameset g h1 h2 h3 h4 h5 h6 head header hr html i iframe img input ins kbd label link main map math"
    " meta nav noscript object ol option p param picture pre q s samp script section select small source span strike"
    " strong style sub summary sup svg table tbody td textarea tfoot th thead title tr track tt u ul use var video wbr"
)
_TAG = re.compile(rf"<(?=!--|!\[|!doctype|\?|/?(?:{'|'.join(_TAGS.split())})(?![\w.:-]))", re.IGNORECASE)
_LOADS = (
    "a|audio|base|body|button|embed|form|frame|iframe|img|input|link|meta|object|picture|script|source|style|svg|video"
)
_LOADING = re.compile(rf"<(?=!--|!\[|!doctype|\?|/?(?:{_LOADS})(?![\w.:-]))", re.IGNORECASE)
_BARE = (
    "abstractmethod|cache|cached_property|classmethod|contextmanager|dataclass|final|fixture|overload|override|property"
)
_DECORATOR = re.compile(
    rf"(?<![\w.])@(?:[A-Za-z_]\w*\s*\(|[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+|(?:{_BARE}|staticmethod|wraps|tool)\b(?![/-]))"
)
_LINK = re.compile(r"!{0,3}\[((?:[^\[\]\n\\]|\\.){0,200})\]\(((?:[^()\n]|\([^()\n]*\)){0,4000})\)")
_REFERENCE = re.compile(r"!{0,3}\[((?:[^\[\]\n\\]|\\.){1,200})\][ \n]?\[[^\[\]\n]{0,200}\]")
_DEFINITION = re.compile(r"^\s{0,8}(?:>\s?|[-*+]\s+)*\[[^\[\]\n]{1,200}\]:[ \t]*\S*.*$", re.MULTILINE)
_URL = re.compile(
    r"(?:\b[a-z][a-z0-9+.-]{1,20}:|(?<![/\\]))[/\\]{2,8}(?=[\w\[%-])[^\s<>\"'`]{1,4000}|\b(?:javascript|data|vbscript|mailto|file"
    r"|xmpp|tel|callto):(?=[^\s`])[^\s<>\"'`]{0,4000}|\bwww\d{0,3}\.[^\s<>\"'`]{1,4000}",
    re.IGNORECASE,
)
_HOST = re.compile(r"(?:[^@/\\\s]*@)?([\w.-]+(?::\d+)?)((?:[/\\][\w.~%/\\-]*)?)")
_MENTION = re.compile(r"@(?=[\w-])")
_ISSUE = re.compile(r"#(?=\d)")
_GITLAB = re.compile(r"(?<![\w\\])([!$%&])(?=\d)")
_GH = re.compile(r"\b(GH)-(?=\d)", re.IGNORECASE)
_COMMAND = re.compile(r"^([ \t>]*(?:(?:[-*+]|\d{1,9}[.)])[ \t]+)*)/(?=[a-zA-Z][\w-]*(?:\s|$))", re.MULTILINE)
_WORKFLOW = re.compile(r"^([ \t]*):(?=:)", re.MULTILINE)
_SHA = re.compile(r"(?<![\w`/.-])(?=[0-9a-f]*[0-9])(?=[0-9a-f]*[a-f])[0-9a-f]{7,64}(?![\w`/-])")
_DOTTED = re.compile(
    r"(?<![\w-])[\w-]{1,80}(?:\.[\w-]{1,80}){0,9}\.[^\W\d_][\w-]{1,80}(?::\d+)?(?:/[\w.~%/-]{0,200}\w)?"
)
_FENCE = re.compile(r"^[ \t]{0,12}(`{3,}|~{3,})[ \t]*([^\n`]*)$")
_SPAN = re.compile(r"(?<!`)(`{1,8})(?!`)([^\n]*?[^`\n]|[^`\n])\1(?!`)")
_SHORT = re.compile("`{9,}")  # the delimiter must be longer, and a comment has a limit
_ITEM = re.compile(r"^([ \t]*)(?:[-*+•]|(\d{1,4})[.)])[ \t]+(?=\S)")
_HEADING = re.compile(r"^[ \t]{0,8}#{1,6}[ \t]+(.*?)[ \t#]*$")
_BOLD = re.compile(r"\*\*(?=\S)([^*\n]{1,300}?)(?<=\S)\*\*")
_RULE = re.compile(r"^[ \t]*(?:[-=_*][ \t]*){3,}$|^[ \t]*=+[ \t]*$|^[ \t]*-+[ \t]*$")


def line(text: str, limit: int = 300) -> str:
    """Make one inert line of it, for a log, a title or a terminal."""
    text = one_line(text, drop=True)
    text = text.replace("##[", "# #[")
    if text.startswith("::"):
        text = ": :" + text[2:]
    return text if len(text) <= limit else text[: max(0, limit - 1)].rstrip() + "…"


def plain(text: str) -> str:
    """Make inert text of it: links unwrapped, mentions, references and commands broken, no markup added."""
    text, spans = _park(_SPAN, clean_text(text, drop=True))
    text = _TAG.sub("< ", _inert(_decoded(text).translate(_FOLD)))
    return _restore(text, map(code, spans))


def prose(text: str) -> str:
    """Make inert text of it on one line, escaped for Markdown: for a title inside a line of ours."""
    return _inert_rows(_inline(one_line(text, drop=True), "").replace("**", ""))


def code(text: str, known: str = "") -> str:
    """Write a code span that holds, whatever backticks are inside."""
    text = _SHORT.sub("`" * 8, one_line(text, drop=True))
    text = _tame(text, known=bool(known) and text in known)
    if not text:
        return ""
    mark = ticks(text)
    pad = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{mark}{pad}{text}{pad}{mark}"


def ticks(text: str, least: int = 1) -> str:
    """Give the backticks that delimit a code: more than stand together anywhere in it."""
    return "`" * max(least, 1 + max(map(len, re.findall("`+", text)), default=0))


def fence(text: str, language: str = "", known: str = "") -> str:
    """Write a fenced block that holds, whatever fences are inside."""
    rows = _SHORT.sub("`" * 8, clean_text(text, drop=True)).strip("\n").split("\n")
    body = "\n".join(_tame(row, known=bool(row.strip()) and row.strip() in known) for row in rows)
    mark = ticks(body, 3)
    return f"{mark}{language if language == 'suggestion' or language in _LANGUAGES else ''}\n{body}\n{mark}"


def markdown(text: str, *, known: str = "") -> str:
    """Rebuild Markdown: paragraphs, lists, bold, code. Code that occurs in `known` is kept to the letter."""
    rows = clean_text(text, drop=True).strip("\n").split("\n")
    out: list[str] = []
    at = 0
    while at < len(rows):
        opened = _FENCE.match(rows[at])
        if opened is None:
            out.append(_row(rows[at], known))
            at += 1
            continue
        mark, language = opened.group(1), opened.group(2).strip().lower()
        close = re.compile(rf"^[ \t]*{re.escape(mark[0])}{{{len(mark)},}}[ \t]*$")
        end = next((n for n in range(at + 1, len(rows)) if close.match(rows[n])), len(rows))
        if rows[at + 1 : end]:
            out.append(fence("\n".join(rows[at + 1 : end]), language if language != "suggestion" else "", known))
        at = end + 1
    return _inert_rows("\n".join(out))


def shorten(text: str, limit: int) -> str:
    """Cut at a line boundary, close an open fence, and say so."""
    if len(text) <= limit:
        return text
    room = max(0, limit - 60)
    cut = text[:room]
    cut = cut[: cut.rfind("\n")] if "\n" in cut[room // 2 :] else _whole(cut)
    marks = [match.group(1) for row in cut.split("\n") if (match := _FENCE.match(row))]
    open_mark = ""
    for mark in marks:
        if not open_mark:
            open_mark = mark
        elif mark[0] == open_mark[0] and len(mark) >= len(open_mark):
            open_mark = ""
    return f"{cut}\n{open_mark}\n… (shortened)" if open_mark else f"{cut}\n… (shortened)"


def _whole(cut: str) -> str:
    """Cut a line further back, to where no code span is open and no escape is split."""
    cut = cut.rsplit(" ", 1)[0].rstrip("\\&")
    start = cut.rfind("\n") + 1
    last = re.sub(r"\\\\|\\`", "  ", cut[start:])
    last = _SPAN.sub(lambda match: " " * len(match.group()), last)
    return cut[: start + last.index("`")] if "`" in last else cut


def _row(row: str, known: str) -> str:
    if _RULE.match(row):
        return ""
    if heading := _HEADING.match(row):
        inner = _inline(heading.group(1), known).replace("**", "")
        return f"**{inner}**" if inner.strip() else ""
    if item := _ITEM.match(row):
        indent = "  " * min(3, len(item.group(1).expandtabs(4)) // 2)
        mark = f"{item.group(2)}." if item.group(2) else "-"
        return f"{indent}{mark} {_start(_inline(row[item.end() :], known))}"
    return _start(_inline(row.strip(), known))


def _start(text: str) -> str:
    """Escape what has a meaning only at the start of a line."""
    if text[:1] in ("#", "+", "=", "-", ":"):
        return "\\" + text
    if match := re.match(r"(\d{1,9})([.)])(?=\s|$)", text):
        return f"{match.group(1)}\\{text[match.end(1) :]}"
    return text


def _inline(text: str, known: str) -> str:
    text, spans = _park(_SPAN, text)
    return _restore(_words(_unlink(text)), [code(span, known) for span in spans])


def _park(pattern: re.Pattern[str], text: str, marks: str = "\ue000\ue001") -> tuple[str, list[str]]:
    """Put code aside, so that nothing in it is taken for a link; `clean_text` left no such marks in a text."""
    parked: list[str] = []

    def keep(match: re.Match[str]) -> str:
        parked.append(match.group(match.lastindex or 0))
        return f"{marks[0]}{len(parked) - 1}{marks[1]}"

    return pattern.sub(keep, text), parked


def _restore(text: str, parked: Iterable[str], marks: str = "\ue000\ue001") -> str:
    shown = list(parked)
    return re.sub(f"{marks[0]}(\\d+){marks[1]}", lambda match: shown[int(match.group(1))], text)


def _words(text: str) -> str:
    text = _decoded(text).replace("\n", " ")
    # Dotted names are written as code: file names read better so, and hosts make no link.
    text, names = _park(_DOTTED, _inert(text.translate(_FOLD)), "\ue002\ue003")
    text = text.replace("\\", "\\\\")
    text = re.sub(r"([`_\[\]|~$])", r"\\\1", text)
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    parts = _BOLD.split(text)
    for at in range(0, len(parts), 2):
        parts[at] = parts[at].replace("*", "\\*")
    text = "".join(f"**{part}**" if at % 2 else part for at, part in enumerate(parts))
    text = _SHA.sub(lambda match: f"`{match.group()}`", text)
    return _restore(text, map(code, names), "\ue002\ue003")


def _decoded(text: str) -> str:
    """Undo entities, and drop what they hid; parked spans stay."""
    for _ in range(4):  # entities may be nested: &amp;#64;
        parts = re.split("(\ue000\\d+\ue001)", text)
        parts[::2] = [clean_text(html.unescape(part), drop=True) for part in parts[::2]]
        if "".join(parts) == text:
            break
        text = "".join(parts)
    return text


def _unlink(text: str) -> str:
    """Leave a link's or an image's text only; spans of code may stand inside it."""
    text = _DEFINITION.sub("", text)
    for _ in range(6):  # images stand inside links
        shorter = _REFERENCE.sub(r"\1", _LINK.sub(r"\1", text))
        if shorter == text:
            break
        text = shorter
    return text


def _inert(text: str) -> str:
    text = _unlink(text)
    text = _URL.sub(_address, text)
    text = re.sub(r"!+(?=\[)", "", text)
    text = _MENTION.sub("@ ", text)
    text = _ISSUE.sub(" no. ", text).replace("  no. ", " no. ")
    text = _GH.sub(r"\1 ", text)
    text = _GITLAB.sub(r"\1 ", text)
    return _inert_rows(text)


def _inert_rows(text: str) -> str:
    """Break what only acts at the start of a line, or anywhere in a log."""
    text = _COMMAND.sub(r"\1/ ", text)
    text = _WORKFLOW.sub(r"\1: ", text)
    return text.replace("##[", "# #[")


def _address(match: re.Match[str]) -> str:
    """Say where a link led: host and path, without scheme, user and query."""
    url = match.group()
    scheme = url.split(":", 1)[0].lower() if ":" in url else ""
    if scheme in ("javascript", "data", "vbscript", "file", "xmpp", "tel", "callto"):
        return f"({scheme} link removed)"
    rest = re.sub(r"^(?:[a-zA-Z][a-zA-Z0-9+.-]*:)?[/\\]*", "", url)
    host = _HOST.match(rest)
    if host is None or not host.group(1).strip("."):
        return "(link removed)"
    name = re.sub(r"^(?:www\d{0,3}\.)+", "", host.group(1), flags=re.IGNORECASE)
    path = re.sub(r"[/\\]{2,}", "/", host.group(2))
    tail = url[-1] if url[-1] in ".,;:!?)" else ""
    return (name + path)[:120].rstrip(".,;:!?)") + tail


def calls_nobody(code: str) -> bool:
    """Whether every name behind an at-sign in a line of code is a decorator, and not somebody's."""
    return all(_DECORATOR.match(code, match.start()) for match in _MENTION.finditer(code))


def _tame(text: str, *, known: bool) -> str:
    """Break in code what would act if a renderer took it for prose. Code of the change keeps its plain tags."""
    text = _URL.sub(lambda match: match.group() if match.group().startswith("//") else _address(match), text)
    text = re.sub(r"!+(?=\[)", "! ", text)
    text = re.sub(r"\](?=\()", "] ", text)
    text = _MENTION.sub(lambda match: "@" if _DECORATOR.match(text, match.start()) else "@ ", text)
    text = re.sub(r"\b((?:close|fix|resolve)[sd]?|fixe[sd])(:?\s+\S*)#(?=\d)", r"\1\2no. ", text, flags=re.IGNORECASE)
    text = (_LOADING if known else _TAG).sub("< ", text)
    return _inert_rows(text)
