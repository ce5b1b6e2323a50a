"""Make untrusted text harmless: rebuild it as Markdown, as code or as one line.

The text of a model is parsed into paragraphs, lists, code spans and fenced blocks, and is written
again with everything else escaped. A list of forbidden forms would always be incomplete.

    markdown("Ask @ann, see [this](https://evil.test/?x=1)\n/approve")
    # "Ask @ ann, see this\n/ approve"
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable

from glue.markdown import Fence, code_block, code_span
from glue.text import clean_text, one_line

# Full-width variants, which some renderers replace with the ASCII character.
_FOLD = str.maketrans("＠﹫＃﹟＜﹤＞﹥", "@@##<<>>")
# Languages of fenced blocks. "suggestion" is not among them: forges apply such blocks as changes.
_KNOWN = (
    "bash c cpp cs css diff dockerfile go graphql html ini java javascript js json jsx kotlin lua"
    " makefile md php powershell proto py python rb ruby rust scala sh shell sql swift text toml ts"
    " tsx typescript xml yaml yml"
)
_LANGUAGES = frozenset(_KNOWN.split())
_TAGS = (
    "a abbr article audio b base blockquote body br button center code dd del details div dl dt em"
    " embed font footer form frame frameset g h1 h2 h3 h4 h5 h6 head header hr html i iframe img"
    " input ins kbd label link main map math meta nav noscript object ol option p param picture pre"
    " q s samp script section select small source span strike strong style sub summary sup svg"
    " table tbody td textarea tfoot th thead title tr track tt u ul use var video wbr"
)
_TAG = re.compile(
    rf"<(?=!--|!\[|!doctype|\?|/?(?:{'|'.join(_TAGS.split())})(?![\w.:-]))", re.IGNORECASE
)
_LOADS = (
    "a|audio|base|body|button|embed|form|frame|iframe|img|input|link|meta|object|picture|script"
    "|source|style|svg|video"
)
_LOADING = re.compile(rf"<(?=!--|!\[|!doctype|\?|/?(?:{_LOADS})(?![\w.:-]))", re.IGNORECASE)
# Decorators that are often used without arguments.
_BARE = (
    "abstractmethod|cache|cached_property|classmethod|contextmanager|dataclass|final|fixture"
    "|overload|override|property|staticmethod|wraps|tool"
)
_DECORATOR = re.compile(
    r"(?<![\w.])@(?:[A-Za-z_]\w*\s*\(|[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+"
    rf"|(?:{_BARE})\b(?![/-]))"
)
_LINK = re.compile(r"!{0,3}\[((?:[^\[\]\n\\]|\\.){0,200})\]\(((?:[^()\n]|\([^()\n]*\)){0,4000})\)")
_REFERENCE = re.compile(r"!{0,3}\[((?:[^\[\]\n\\]|\\.){1,200})\][ \n]?\[[^\[\]\n]{0,200}\]")
_DEFINITION = re.compile(
    r"^\s{0,8}(?:>\s?|[-*+]\s+)*\[[^\[\]\n]{1,200}\]:[ \t]*\S*.*$", re.MULTILINE
)
_URL = re.compile(
    r"(?:\b[a-z][a-z0-9+.-]{1,20}:|(?<![/\\]))[/\\]{2,8}(?=[\w\[%-])[^\s<>\"'`]{1,4000}"
    r"|\b(?:javascript|data|vbscript|mailto|file|xmpp|tel|callto):(?=[^\s`])[^\s<>\"'`]{0,4000}"
    r"|\bwww\d{0,3}\.[^\s<>\"'`]{1,4000}",
    re.IGNORECASE,
)
_SCHEMES = ("http", "https", "ws", "wss", "ftp", "ssh")  # shown; the difference may matter
_HOST = re.compile(r"(?:[^@/\\\s]*@)?([\w.-]+(?::\d+)?)((?:[/\\][\w.~%/\\-]*)?)")
_MENTION = re.compile(r"@(?=[\w-])")
_ISSUE = re.compile(r"#(?=\d)")
_GITLAB = re.compile(r"(?<![\w\\])([!$%&])(?=\d)")
_GH = re.compile(r"\b(GH)-(?=\d)", re.IGNORECASE)
_COMMAND = re.compile(r"^([ \t>]*(?:(?:[-*+]|\d{1,9}[.)])[ \t]+)*)/(?=\w)", re.MULTILINE)
_WORKFLOW = re.compile(r"^([ \t]*):(?=:)", re.MULTILINE)
_SHA = re.compile(r"(?<![\w`/.-])(?=[0-9a-f]*[0-9])(?=[0-9a-f]*[a-f])[0-9a-f]{7,64}(?![\w`/-])")
_DOTTED = re.compile(
    r"(?<![\w-])[\w-]{1,80}(?:\.[\w-]{1,80}){0,9}\.[^\W\d_][\w-]{1,80}"
    r"(?::\d+)?(?:/[\w.~%/-]{0,200}\w)?"
)
_FENCE = re.compile(r"^[ \t]{0,12}(`{3,}|~{3,})[ \t]*([^\n`]*)$")
_SPAN = re.compile(r"(?<!`)(`{1,8})(?!`)([^\n]*?[^`\n]|[^`\n])\1(?!`)")
_ESCAPE_OR_SPAN = re.compile(r"\\.|(?<!`)(`{1,8})(?!`)[^\n]*?(?<!`)\1(?!`)|`+")
# Runs of backticks that are shortened, since the delimiter would have to be even longer.
_SHORT = re.compile("`{9,}")
_ITEM = re.compile(r"^([ \t]*)(?:[-*+•]|(\d{1,4})[.)])[ \t]+(?=\S)")
_HEADING = re.compile(r"^[ \t]{0,8}#{1,6}[ \t]+(.*?)[ \t#]*$")
_BOLD = re.compile(r"\*\*(?=\S)([^*\n]{1,300}?)(?<=\S)\*\*")
_RULE = re.compile(r"^[ \t]*(?:[-=_*][ \t]*){3,}$|^[ \t]*=+[ \t]*$|^[ \t]*-+[ \t]*$")


def line(text: str, limit: int = 300) -> str:
    """Return the text on one line, cut to `limit` characters, for a log or a terminal.

    The line contains no control characters, and a CI runner does not read it as a command.
    """
    text = one_line(text, drop=True)
    text = text.replace("##[", "# #[")
    if text.startswith("::"):
        text = ": :" + text[2:]
    return text if len(text) <= limit else text[: max(0, limit - 1)].rstrip() + "…"


def plain(text: str) -> str:
    """Return the text with its links, mentions and HTML tags made inert, so that none is rendered.

    References to issues and commands are made inert too. Code spans are kept, and characters of
    Markdown are not escaped.
    """
    text, spans = _set_aside(_SPAN, clean_text(text, drop=True))
    text = _TAG.sub("< ", _inert(_decoded(text).translate(_FOLD)))
    return _restore(text, map(code, spans))


def prose(text: str) -> str:
    """Return the text as one line of inert Markdown without the markers of bold text.

    The line is used in titles and in lists of a comment.
    """
    return _inert_rows(_inline(one_line(text, drop=True), "").replace("**", ""))


def code(text: str, known: str = "") -> str:
    """Return the text as an inline code span. Backticks inside the text do not close the span.

    An empty text stays empty. If the text occurs in `known`, the text of the change, its HTML tags
    that load nothing are kept.
    """
    text = _SHORT.sub("`" * 8, one_line(text, drop=True))
    text = _inert_code(text, is_known=bool(known) and text in known)
    if not text:
        return ""
    return code_span(text)


def fence(text: str, language: str = "", known: str = "") -> str:
    """Return the text as a fenced code block. A fence inside the text does not close the block.

    A `language` that is not known is left out. Lines that occur in `known`, the text of the change,
    keep their HTML tags that load nothing.
    """
    rows = _SHORT.sub("`" * 8, clean_text(text, drop=True)).strip("\n").split("\n")
    body = "\n".join(
        _inert_code(row, is_known=bool(row.strip()) and row.strip() in known) for row in rows
    )
    return code_block(body, language if language in _LANGUAGES else "")


def markdown(text: str, *, known: str = "") -> str:
    """Return the text as inert Markdown with paragraphs, lists, bold text and code.

    Headings become bold text. Code that occurs in `known`, the text of the change, keeps its HTML
    tags that load nothing.
    """
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
        inside = rows[at + 1 : end]
        if inside:
            out.append(fence("\n".join(inside), language, known))
        at = end + 1
    return _inert_rows("\n".join(out))


def shorten(text: str, limit: int) -> str:
    """Return the text, cut to at most `limit` characters if it is longer.

    It is cut at the end of a line if one is in the second half. A fence that the cut leaves open is
    closed, and "… (shortened)" is added.
    """
    if len(text) <= limit:
        return text
    room = max(0, limit - 60)
    cut = text[:room]
    cut = cut[: cut.rfind("\n")] if "\n" in cut[room // 2 :] else _close_cut(cut)
    opened = Fence()
    for row in cut.split("\n"):
        opened.read(row)
    return f"{cut}\n{opened.mark}\n… (shortened)" if opened.mark else f"{cut}\n… (shortened)"


def _close_cut(cut: str) -> str:
    """Return a cut text without the damage at its end: a part of a word, escape or code span."""
    cut = cut.rsplit(" ", 1)[0].rstrip("\\&")
    start = cut.rfind("\n") + 1
    # Escapes and whole code spans are skipped from left to right; other backticks open a span.
    for match in _ESCAPE_OR_SPAN.finditer(cut, start):
        if match.group().strip("`") == "":
            return cut[: match.start()].rstrip()
    return cut


def _row(row: str, known: str) -> str:
    """Return an inert copy of a Markdown line that is not inside a code fence.

    Return "" for a rule such as `---` and for a heading without text.
    """
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
    """Return a line, with a backslash added if Markdown could read its start as a heading or list.

    In "1. text" the backslash is added before the ".", in other lines before the first character.
    """
    if text[:1] in ("#", "+", "=", "-", ":"):
        return "\\" + text
    if match := re.match(r"(\d{1,9})([.)])(?=\s|$)", text):
        return f"{match.group(1)}\\{text[match.end(1) :]}"
    return text


def _inline(text: str, known: str) -> str:
    text, spans = _set_aside(_SPAN, text)
    return _restore(_words(_unlink(text)), [code(span, known) for span in spans])


def _set_aside(
    pattern: re.Pattern[str], text: str, marks: str = "\ue000\ue001"
) -> tuple[str, list[str]]:
    """Replace each match of `pattern` with a placeholder; return the new text and the old texts.

    The text of a match is its last group, or the whole match if the pattern has no group.
    Nothing in a match is then mistaken for a link. `clean_text` has removed these private
    characters, so the text contains no other placeholders.
    """
    matches: list[str] = []

    def store(match: re.Match[str]) -> str:
        matches.append(match.group(match.lastindex or 0))
        return f"{marks[0]}{len(matches) - 1}{marks[1]}"

    return pattern.sub(store, text), matches


def _restore(text: str, replacements: Iterable[str], marks: str = "\ue000\ue001") -> str:
    """Replace each placeholder of `_set_aside` with the replacement that has its number."""
    shown = list(replacements)
    return re.sub(f"{marks[0]}(\\d+){marks[1]}", lambda match: shown[int(match.group(1))], text)


def _words(text: str) -> str:
    text = _decoded(text).replace("\n", " ")
    # Dotted names become code: file names read better, and renderers do not link host names.
    text, names = _set_aside(_DOTTED, _inert(text.translate(_FOLD)), "\ue002\ue003")
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
    """Return the text with HTML entities decoded and without hidden characters.

    Placeholders of `_set_aside` are kept.
    """
    for _ in range(4):  # entities may be nested: &amp;#64;
        parts = re.split("(\ue000\\d+\ue001)", text)
        parts[::2] = [clean_text(html.unescape(part), drop=True) for part in parts[::2]]
        if "".join(parts) == text:
            break
        text = "".join(parts)
    return text


def _unlink(text: str) -> str:
    """Return the text with every Markdown link and image replaced by its label.

    Definitions of links are removed. A label may contain placeholders of `_set_aside`.
    """
    text = _DEFINITION.sub("", text)
    for _ in range(6):  # links may contain images
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
    """Insert a space into each command in the text, so that no forge or CI runner obeys it.

    Return the changed text. A command is a line such as "/merge" or "::error::", or "##[...]".
    """
    text = _COMMAND.sub(r"\1/ ", text)
    text = _WORKFLOW.sub(r"\1: ", text)
    return text.replace("##[", "# #[")


def _address(match: re.Match[str]) -> str:
    """Return the scheme, host and path of a link as text that no renderer turns into a link.

    The user and the query are left out. "http: x.test" stays different from "https: x.test". A link
    without a host becomes "(link removed)", one with a scheme such as `javascript` becomes
    "(javascript link removed)".
    """
    url = match.group()
    scheme = url.partition(":")[0].lower()
    if scheme in ("javascript", "data", "vbscript", "file", "xmpp", "tel", "callto"):
        return f"({scheme} link removed)"
    rest = re.sub(r"^(?:[a-zA-Z][a-zA-Z0-9+.-]*:)?[/\\]*", "", url)
    host = _HOST.match(rest)
    if host is None or not host.group(1).strip("."):
        return "(link removed)"
    name = re.sub(r"^(?:www\d{0,3}\.)+", "", host.group(1), flags=re.IGNORECASE)
    path = re.sub(r"[/\\]{2,}", "/", host.group(2))
    tail = url[-1] if url[-1] in ".,;:!?)" else ""
    shown = (name + path)[:120].rstrip(".,;:!?)")
    return f"{scheme}: {shown}{tail}" if scheme in _SCHEMES else shown + tail


def has_mention(code: str) -> bool:
    """Return whether a line of code may mention a user: an "@name" that is not a decorator."""
    return not all(_DECORATOR.match(code, match.start()) for match in _MENTION.finditer(code))


def _inert_code(text: str, *, is_known: bool) -> str:
    """Make the links, mentions, commands and HTML tags in code inert, and return the code.

    They then have no effect, even if a forge shows the code as prose.
    If `is_known` (the code occurs in the change), HTML tags that load nothing are kept.
    """
    text = _URL.sub(
        lambda match: match.group() if match.group().startswith("//") else _address(match), text
    )
    text = re.sub(r"!+(?=\[)", "! ", text)
    text = re.sub(r"\](?=\()", "] ", text)
    text = _MENTION.sub(lambda match: "@" if _DECORATOR.match(text, match.start()) else "@ ", text)
    text = re.sub(
        r"\b((?:close|fix|resolve)[sd]?|fixe[sd])(:?\s+\S*)#(?=\d)",
        r"\1\2no. ",
        text,
        flags=re.IGNORECASE,
    )
    text = (_LOADING if is_known else _TAG).sub("< ", text)
    return _inert_rows(text)
