"""Full-text search: parsing a query, choosing the text of a message to search, and the hits."""

from __future__ import annotations

import functools
import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass

from glue.messages import AssistantMessage, Message, ToolMessage

_QUERY = re.compile(r'"([^"]*)"|(\S+)')
WORD = re.compile(r"[^\W_]+")
AROUND = 60  # characters of a snippet on each side of the first match
# Scripts without spaces between words: each character is indexed as a word, and a word of the query
# is searched for as a phrase of characters.
_UNSPACED = re.compile(
    "[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\uff66-\uff9f"
    "\U00020000-\U0003ffff]"
)
_GAP = "\u200b"  # a zero-width space


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchHit:
    """A message that a search found."""

    session: str
    message_id: str
    role: str
    snippet: str  # text around the first match, with the matches in [brackets]
    at: float  # when the message was stored, in seconds since 1970


@dataclass(frozen=True)
class Query:
    """A search query with its filters, checked when it is created.

    >>> Query('"exact phrase" prefix* word').terms
    ((['exact', 'phrase'], False), (['prefix'], True), (['word'], False))
    """

    text: str
    limit: int = 20
    session: str | None = None
    role: str | None = None
    since: float | None = None
    until: float | None = None

    def __post_init__(self) -> None:
        if not self.terms:
            raise ValueError(f"nothing to search for in {self.text!r}; give at least one word")
        if type(self.limit) is not int or self.limit < 0:
            raise ValueError(f"limit must be a number of hits, 0 or more, not {self.limit!r}")
        for name, at in (("since", self.since), ("until", self.until)):
            if at is not None and (not isinstance(at, (int, float)) or at != at):
                raise ValueError(f"{name} must be a time in seconds since 1970, not {at!r}")

    @functools.cached_property
    def terms(self) -> tuple[tuple[list[str], bool], ...]:
        """The terms of the query: the words of each term, and True if its last word is a prefix."""
        found = _QUERY.findall(self.text.replace("\0", " "))
        terms = [
            (WORD.findall(split_words(phrase or word)), word.endswith("*"))
            for phrase, word in found
        ]
        return tuple((words, prefix) for words, prefix in terms if words)

    @functools.cached_property
    def patterns(self) -> tuple[re.Pattern[str], ...]:
        """One regular expression for each term. A text must match all of them to be a hit."""
        patterns = []
        for words, prefix in self.terms:
            end = r"[^\W_]*" if prefix else r"(?![^\W_])"
            pattern = r"(?<![^\W_])" + r"[\W_]+".join(words) + end
            patterns.append(re.compile(pattern, re.IGNORECASE))
        return tuple(patterns)

    def find(
        self, session: str, messages: Iterable[tuple[Message, float]], most: int | None = None
    ) -> list[SearchHit]:
        """Return a hit for each message that matches the query and its filters.

        Args:
            session: the id of the session that the messages belong to.
            messages: each message with the time at which it was stored.
            most: the number of hits after which the search stops, or None for no limit.
        """
        hits: list[SearchHit] = []
        for message, at in messages:
            if most is not None and len(hits) >= most:
                break
            role = role_of(message)
            is_early = at < (self.since or 0)
            is_late = self.until is not None and at > self.until
            if self.role not in (None, role) or is_early or is_late:
                continue
            snippet = self.snippet(searchable(message))
            if snippet is not None:
                hit = SearchHit(
                    session=session, message_id=message.id, role=role, snippet=snippet, at=at
                )
                hits.append(hit)
        return hits

    def snippet(self, text: str) -> str | None:
        """Return the text around the first match, or None if the text does not contain all terms.

        The matches are in [brackets].
        """
        matches = [pattern.search(text) for pattern in self.patterns]
        starts = [match.start() for match in matches if match is not None]
        if len(starts) < len(self.patterns):
            return None
        start = min(starts)
        left, right = max(0, start - AROUND), start + AROUND
        piece = text[left:right]
        for pattern in self.patterns:
            piece = pattern.sub(lambda match: f"[{match.group()}]", piece)
        return ("…" if left else "") + join_words(piece) + ("…" if right < len(text) else "")

    def newest(self, hits: Iterable[SearchHit]) -> tuple[SearchHit, ...]:
        """Return the newest of the hits, newest first, up to the `limit` of the query."""
        return tuple(sorted(hits, key=lambda hit: hit.at, reverse=True)[: self.limit])


def searchable(message: Message) -> str:
    """Return the text that a search reads in a message: its text, tool names and arguments."""
    text = message.text
    if isinstance(message, AssistantMessage) and message.calls:
        calls = [f"{call.name} {call.arguments}" for call in message.calls]
        text = "\n".join(filter(None, [text, *calls]))
    return split_words(text.replace("\0", " "))


def split_words(text: str) -> str:
    """Return a text with zero-width spaces around the characters of scripts without spaces.

    The text is also normalized, so that an accented letter has the same form everywhere.
    """
    if text.isascii():
        return text
    text = unicodedata.normalize("NFC", text)
    return _UNSPACED.sub(rf"{_GAP}\g<0>{_GAP}", text).replace(_GAP * 2, _GAP)


def join_words(text: str) -> str:
    """Return the text on one line, without the zero-width spaces of `split_words`."""
    return " ".join(text.replace(_GAP, "").split())


def role_of(message: Message) -> str:
    """Return the role of a message: "user", "assistant" or "tool"."""
    if isinstance(message, AssistantMessage):
        return "assistant"
    return "tool" if isinstance(message, ToolMessage) else "user"
