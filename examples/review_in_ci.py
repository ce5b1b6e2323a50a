# /// script
# requires-python = ">=3.11"
# dependencies = ["glue-agents[review]"]
# ///
"""Review a branch and print annotations for GitHub: `python review_in_ci.py --base main`.

Without a model, only analysers and rules run, and no key is needed.
"""

import argparse
import sys
from functools import partial

import anyio

from glue import GlueError, providers
from glue.agents.review import collect, review
from glue.tools import Repo

FAILS = ("critical", "high")


def escaped(text: str) -> str:
    """Return the text with `%` and line breaks escaped, as GitHub's workflow commands need it."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def main() -> int:
    parser = argparse.ArgumentParser(description="Review the current branch.")
    parser.add_argument("--base", default="", help="the branch to compare with")
    parser.add_argument("--folder", default=".", help="the folder of the git checkout")
    parser.add_argument("-m", "--model", default="", help="the model that reviews, if any")
    given = parser.parse_args()
    asked = [providers.new(given.model)] if given.model else []

    bundle = collect(given.folder, base=given.base)
    with Repo(given.folder) as repo:
        run = anyio.run(partial(review, bundle, providers=asked, repo=repo))

    for finding in run.findings:
        level = "error" if finding.severity in FAILS else "warning"
        place = f"file={finding.path},line={finding.line or 1}"
        print(f"::{level} {place}::{escaped(f'{finding.title} ({finding.severity})')}")
    for notice in run.notices:
        print(notice, file=sys.stderr)
    print(f"findings: {len(run.findings)}, files: {len(bundle.files)}", file=sys.stderr)
    return int(any(finding.severity in FAILS for finding in run.findings))


if __name__ == "__main__":
    try:
        sys.exit(main())
    except GlueError as error:
        sys.exit(f"error: {error}")
