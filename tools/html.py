"""Convert an HTML page to readable text: headings, lists, links, tables and code, as in Markdown.

Any input is accepted, and the time is linear in the length of the input, whatever the page
contains. Nothing is fetched or run.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from html import unescape
from urllib.parse import urljoin

from glue.markdown import code_block

_RAW = ("script", "style", "title", "textarea", "xmp", "noembed", "noframes")
# Elements whose content a reader of the page does not see, or does not want.
_SKIPPED = frozenset(
    "script style template svg math iframe object canvas video audio select button nav footer "
    "noscript noembed noframes textarea dialog".split()
)
_BLOCKS = frozenset(
    "address article aside blockquote body center dd details div dl dt fieldset figcaption figure "
    "form header hgroup html legend main ol p pre section summary table ul".split()
)
_VOID = frozenset("area base br col embed hr img input link meta param source track wbr".split())
_MARKS = {"b": "**", "strong": "**", "i": "*", "em": "*", "code": "`", "kbd": "`", "samp": "`"}
_ATTRIBUTE = re.compile(r"""([^\s=/>"']+)(?:\s*=\s*("[^"]*"|'[^']*'|[^\s>"']+))?""")
_QUOTED = re.compile(r"""=\s*(?:"[^"]*"|'[^']*')""")
_OPEN_QUOTE = re.compile(r"""=\s*["']""")
_NAME = re.compile(r"[a-zA-Z][^\s/>]*")
_HIDING = re.compile(r"display\s*:\s*none|visibility\s*:\s*hidden", re.IGNORECASE)
_LONGEST_TAG = 4096  # characters of a tag in which attributes are read
_MAX_DEPTH = 12  # of lists and quotes that are shown as such
_MAIN = 200  # characters that make the main part of a page worth showing alone


def html_to_text(page: str, base_url: str = "") -> tuple[str, str]:
    """Return the title of a page, and the text of its main part or else of the whole page.

    The main part is marked with `main` or `article`; if it has fewer than 200 characters, the text
    of the whole page is returned. Links are resolved against `base_url`.

    >>> html_to_text("<title>Rain</title><h1>Today</h1><p>Dry, <a href='/b'>more</a>", "http://a/")
    ('Rain', '# Today\\n\\nDry, [more](http://a/b)')
    """
    writer = _Writer(base_url)
    for kind, name, text in _tokens(page):
        if kind == "text":
            writer.add(text)
        elif kind == "raw":
            writer.raw(name, text)
        elif kind == "end":
            writer.end(name)
        else:
            writer.start(name, text)
    return writer.finish()


def _tokens(page: str) -> Iterator[tuple[str, str, str]]:
    """Yield the tokens of a page: ("text", "", text), ("start", name, tag), ("end", name, "").

    The content of an element such as `script` or `title` is one token ("raw", name, text).
    """
    at, size = 0, len(page)
    while at < size:
        less = page.find("<", at)
        if less != at:
            yield "text", "", page[at : less if less >= 0 else size]
        if less < 0:
            return
        if page.startswith("<!--", less):
            end = page.find("-->", less + 4)
            at = size if end < 0 else end + 3
            continue
        closing = page.startswith("/", less + 1)
        name = _NAME.match(page, less + 1 + closing, less + 60)
        if name is None:
            if page[less + 1 : less + 2] in ("!", "?", "/"):  # a doctype or a broken tag
                end = page.find(">", less)
                at = size if end < 0 else end + 1
            else:
                yield "text", "", "<"
                at = less + 1
            continue
        end = _tag_end(page, name.end())
        if end < 0:
            return
        tag, at = name[0].lower(), end + 1
        if closing:
            yield "end", tag, ""
            continue
        yield "start", tag, page[name.end() : min(end, name.end() + _LONGEST_TAG)]
        if tag in _RAW:
            close = re.compile(f"</{tag}", re.IGNORECASE).search(page, at)
            yield "raw", tag, page[at : close.start() if close else size]
            at = close.start() if close else size


def _tag_end(page: str, at: int) -> int:
    """Return the position of the `>` that ends a tag, or -1 if the tag is not ended.

    A `>` inside a quoted value is skipped. At most eight `>` are tried, so that a page of broken
    quotes takes no longer than another page. If all are skipped, the first is returned.
    """
    first = end = page.find(">", at)
    for _ in range(8):
        if end < 0:
            break
        if not _OPEN_QUOTE.search(_QUOTED.sub("", page[at:end])):
            return end
        end = page.find(">", end + 1)
    return first


class _Writer:
    """Builds the text of a page from its tokens, line by line."""

    def __init__(self, base_url: str) -> None:
        self.base = base_url
        self.title = ""
        self.lines: list[tuple[bool, str]] = []  # whether it is in the main part, and the line
        self.words: list[str] = []  # of the current line
        self.lists: list[int] = []  # the number of the last item of each open list; -1: no numbers
        self.marks: Counter[str] = Counter()  # the open elements of each mark
        self.quotes = self.main = 0
        self.bullet = ""  # before the next line
        self.link: tuple[int, str] | None = (
            None  # the start of an open link in `words`, and its address
        )
        self.skipping = ""  # the element whose content is left out
        self.depth = 0  # of nested elements of that name
        self.code: list[str] | None = None  # the content of an open `pre`

    def add(self, text: str) -> None:
        """Add a text of the page to the current line, with white space collapsed.

        Add it unchanged to an open `pre`; drop it inside a skipped element.
        """
        if self.skipping:
            return
        text = unescape(text)
        if self.code is not None:
            self.code.append(text)
            return
        text = re.sub(r"\s+", " ", text)
        if text.startswith(" ") and (not self.words or self.words[-1].endswith(" ")):
            text = text[1:]
        if text:
            self.words.append(text)

    def raw(self, name: str, text: str) -> None:
        """Store the text of the first `title` element. Ignore `script` and other raw elements."""
        if name == "title" and not self.title:
            self.title = " ".join(unescape(text).split())

    def start(self, name: str, tag: str) -> None:
        """Process a start tag: write its mark, open its link or block, or skip the element."""
        if self.skipping:
            self.depth += name == self.skipping
            return
        given = _attributes(tag) if tag.strip(" /") else {}
        hidden = "hidden" in given or given.get("aria-hidden") == "true"
        if name not in _VOID and (
            name in _SKIPPED or hidden or _HIDING.search(given.get("style", ""))
        ):
            self.skipping, self.depth = name, 1
            return
        if self.code is not None:
            self.code.append("\n" if name == "br" else "")
        elif name == "br":
            self.end_line()
        elif name == "hr":
            self.block()
            self.words.append("---")
            self.block()
        elif name == "img" and given.get("alt"):
            self.add(f"[image: {given['alt']}] ")
        elif name == "a":
            self.close_link()  # a link cannot contain another one
            self.link = (len(self.words), self.address(given.get("href", "")))
        elif name in ("td", "th"):
            self.words.append(" | " if self.words else "")
        else:
            self.start_block(name)
        if name == "base" and given.get("href"):
            self.base = self.address(given["href"]) or self.base

    def start_block(self, name: str) -> None:
        """Handle the start of a block, list item, table row or heading, or of bold or code text."""
        if name in _MARKS:
            self.open_mark(_MARKS[name])
        elif name == "li":
            self.end_line()
            number = self.lists[-1] + 1 if self.lists and self.lists[-1] >= 0 else -1
            if self.lists:
                self.lists[-1] = number
            self.bullet = f"{number}. " if number >= 0 else "- "
        elif name in ("tr", "thead", "tbody", "tfoot"):
            self.end_line()
        elif name in _BLOCKS or _heading(name):
            (self.end_line if name in ("ul", "ol") and self.lists else self.block)()
            if name in ("ul", "ol"):
                self.lists.append(0 if name == "ol" else -1)
            elif name == "pre":
                self.code = []
            elif _heading(name):
                self.words.append("#" * _heading(name) + " ")
            self.quotes += name == "blockquote"
            self.main += name in ("main", "article")

    def end(self, name: str) -> None:
        """Handle an end tag: close the bold or italic mark, link, line, block or skipped part."""
        if self.skipping:
            self.depth -= name == self.skipping
            self.skipping = self.skipping if self.depth else ""
        elif name == "pre" and self.code is not None:
            code, self.code = "".join(self.code).strip("\n"), None
            for line in code_block(code).split("\n") if code.strip() else ():
                self.put(line)
            self.block()
        elif self.code is not None:
            return
        elif name in _MARKS:
            self.close_mark(_MARKS[name])
        elif name == "a":
            self.close_link()
        elif name in ("li", "tr"):
            self.end_line()
        elif name in _BLOCKS or _heading(name):
            if name in ("ul", "ol") and self.lists:
                self.end_line()
                self.lists.pop()
                if not self.lists:
                    self.block()
            else:
                self.block()
            self.quotes = max(self.quotes - (name == "blockquote"), 0)
            self.main = max(self.main - (name in ("main", "article")), 0)

    def open_mark(self, mark: str) -> None:
        """Start bold, italic or code text, unless it is inside of such a text already."""
        self.marks[mark] += 1
        if self.marks[mark] == 1:
            self.words.append(mark)

    def close_mark(self, mark: str) -> None:
        """End bold, italic or code text: add `mark`, or remove the start mark of an empty text."""
        self.marks[mark] = max(self.marks[mark] - 1, 0)
        if self.marks[mark]:
            return
        if self.words and self.words[-1] == mark:
            self.words.pop()
        else:
            self.words.append(mark)

    def close_link(self) -> None:
        """End the open link, if any; write `[text](address)`, or the text if it has no address."""
        if self.link is None:
            return
        (start, address), self.link = self.link, None
        inner = "".join(self.words[start:]).strip()
        if address and inner:
            whole = "".join(self.words[start:])
            before, after = (" " * whole.startswith(" "), " " * whole.endswith(" "))
            self.words[start:] = [f"{before}[{inner}]({address}){after}"]

    def address(self, href: str) -> str:
        """Return the absolute URL of a link, or "" if it is not a link to a web page."""
        if not href or href.startswith("#"):
            return ""
        try:
            found = urljoin(self.base, href.strip())
        except ValueError:
            return ""
        return found if found.lower().startswith(("http://", "https://")) else ""

    def end_line(self) -> None:
        """End the current line and store it, with its indentation; drop an empty line."""
        line = "".join(self.words).strip()
        self.words.clear()
        self.link = self.link and (0, self.link[1])
        if not line.strip("#*`| "):
            return
        indent = "  " * min(max(len(self.lists) - 1, 0), _MAX_DEPTH)
        if not self.bullet and self.lists:
            indent += "  "  # another line of the same item
        self.put(f"{'> ' * min(self.quotes, _MAX_DEPTH)}{indent}{self.bullet}{line}")
        self.bullet = ""

    def block(self) -> None:
        """End the current line and leave a blank line after it."""
        self.end_line()
        if self.lines and self.lines[-1][1]:
            self.put("")

    def put(self, line: str) -> None:
        self.lines.append((self.main > 0, line))

    def finish(self) -> tuple[str, str]:
        """End the last line; return the title, and the text of the main part or else of the page.

        The text of the page is returned if the main part has fewer than 200 characters.
        """
        if self.code is not None:
            self.end("pre")
        self.end_line()
        every = "\n".join(line for _, line in self.lines).strip()
        main = "\n".join(line for is_main, line in self.lines if is_main).strip()
        return self.title, main if len(main) >= _MAIN else every


def _heading(name: str) -> int:
    """Return the level of a heading element such as "h2", or 0 for other elements."""
    return int(name[1]) if len(name) == 2 and name[0] == "h" and name[1] in "123456" else 0


def _attributes(tag: str) -> dict[str, str]:
    """Return the attributes of a tag by lower-case name. If a name is repeated, the first wins."""
    found: dict[str, str] = {}
    for name, value in _ATTRIBUTE.findall(tag):
        if value[:1] in ("'", '"'):
            value = value[1:-1]
        found.setdefault(name.lower(), unescape(value))
    return found
