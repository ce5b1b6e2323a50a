"""Thoughts that a server leaves in the text, between <think> tags at its start."""

from __future__ import annotations

_TAGS = (("<think>", "</think>"), ("<thinking>", "</thinking>"))


class ThinkTags:
    """Part a streamed text into thoughts and words, whatever the tags are cut into."""

    def __init__(self) -> None:
        self._state = "start"
        self._held = ""  # what may still turn out to be a tag
        self._close = ""

    def split(self, text: str) -> list[tuple[bool, str]]:
        """Return pieces, each with whether it is a thought."""
        if self._state == "text":
            return [(False, text)]
        text = self._held + text
        self._held = ""
        pieces: list[tuple[bool, str]] = []
        if self._state == "start":
            start = text.lstrip()
            for opening, closing in _TAGS:
                if start.startswith(opening):
                    self._state, self._close, text = "thought", closing, start[len(opening) :]
                    break
                if opening.startswith(start):
                    self._held = text
                    return []
            else:
                self._state = "text"
        if self._state == "thought":
            return self._thought(text)
        return [(False, text)] if text else pieces

    def _thought(self, text: str) -> list[tuple[bool, str]]:
        thought, tag, rest = text.partition(self._close)
        if tag:
            self._state = "text"
            rest = rest.lstrip("\n")
        else:
            keep = next((n for n in range(len(self._close) - 1, 0, -1) if thought.endswith(self._close[:n])), 0)
            self._held = thought[len(thought) - keep :]
            thought = thought[: len(thought) - keep]
        return [piece for piece in ((True, thought), (False, rest)) if piece[1]]

    def end(self) -> list[tuple[bool, str]]:
        """Return what was held back."""
        held, self._held = self._held, ""
        return [(self._state == "thought", held)] if held else []
