# /// script
# requires-python = ">=3.11"
# dependencies = ["glue-agents"]
# ///
"""A translation that follows a glossary: `python translation_glossary.py guide.md --to German`.

The glossary is a CSV file with the columns `term` and `translation`. A translation that lacks a
word of the glossary is sent back to the model once; if it still does, the exit code is 1.
"""

import argparse
import csv
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from glue import Agent, AssistantMessage, GlueError
from glue.policies import Hook, Policy, nudge
from glue.providers import default


def missing(source: str, translation: str, glossary: Mapping[str, str]) -> list[str]:
    """Return "term -> word" for each term in the source whose word is not in the translation."""
    return [
        f"{term} -> {word}"
        for term, word in glossary.items()
        if re.search(rf"\b{re.escape(term)}", source, re.IGNORECASE)
        and word.casefold() not in translation.casefold()
    ]


class Glossary(Policy):
    """Ask the model once to translate again if the translation lacks words of the glossary."""

    def __init__(self, source: str, words: Mapping[str, str]) -> None:
        self.source, self.words, self.sent_back = source, words, False

    def on_settle(self, state: Any, reply: AssistantMessage) -> Hook:
        terms = missing(self.source, reply.text, self.words)
        if not terms or self.sent_back:
            return None
        self.sent_back = True
        return nudge(f"Translate again, with these words of the glossary: {'; '.join(terms)}")


def main() -> int:
    parser = argparse.ArgumentParser(description="Translate a text with a glossary.")
    parser.add_argument("file", type=Path)
    parser.add_argument("--to", default="German", help="the language of the translation")
    parser.add_argument("--glossary", type=Path, default=Path("glossary.csv"))
    given = parser.parse_args()
    source = given.file.read_text()
    with given.glossary.open(newline="") as lines:
        words = {row["term"]: row["translation"] for row in csv.DictReader(lines)}

    agent = Agent(
        default(),
        instructions=f"Translate the text to {given.to}. Return the translation alone. Glossary: "
        + "; ".join(f"{term} = {word}" for term, word in words.items()),
        policies=[Glossary(source, words)],
    )
    text = agent.run_sync(source).text
    print(text)
    for term in (terms := missing(source, text, words)):
        print(f"the translation lacks a word of the glossary: {term}", file=sys.stderr)
    return 1 if terms else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (GlueError, OSError) as error:
        sys.exit(f"error: {error}")
