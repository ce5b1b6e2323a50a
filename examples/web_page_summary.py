# /// script
# requires-python = ">=3.11"
# dependencies = ["glue-agents"]
# ///
"""A summary of a web page: `python web_page_summary.py https://example.com/article`.

The agent may read the host of that page and no other. A quote in the summary is checked.
"""

import argparse
import sys
from dataclasses import dataclass
from typing import Annotated
from urllib.parse import urlsplit

from glue import Agent, GlueError, ToolMessage
from glue.providers import default
from glue.tools import fetch


@dataclass
class Summary:
    title: str
    points: Annotated[list[str], "three to five facts"]
    quote: Annotated[str, "the most important sentence of the page, word for word"]


def main() -> None:
    parser = argparse.ArgumentParser(description="Summarise a web page.")
    parser.add_argument("url")
    parser.add_argument("--private", action="store_true", help="allow a host in a private network")
    given = parser.parse_args()
    host = urlsplit(given.url).hostname
    if not host:
        parser.error(f"{given.url!r} is not an address such as https://example.com/article")

    page = fetch.fetch_url(allow=[host], private=[host] if given.private else [])
    agent = Agent(default(), tools=[page], output=Summary)
    result = agent.run_sync(f'Fetch the page "{given.url}" and summarise it.', tool_log=sys.stderr)

    got = [each for each in result.messages if isinstance(each, ToolMessage)]
    replies = [each for each in got if each.name == page.name]
    read = " ".join(each.text for each in replies if not each.is_error)
    if not read:
        sys.exit(f"error: {given.url} was not read: {' '.join(each.text for each in replies)}")
    print(f"# {result.output.title}", *(f"- {point}" for point in result.output.points), sep="\n")
    if " ".join(result.output.quote.split()) in " ".join(read.split()):
        print(f"> {result.output.quote}")
    else:
        print("The quote was left out: the page does not contain it.", file=sys.stderr)


if __name__ == "__main__":
    try:
        main()
    except GlueError as error:
        sys.exit(f"error: {error}")
