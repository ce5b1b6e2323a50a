"""The program that searches for grep: started with no site and no environment, and killed when it takes too long."""

from __future__ import annotations

import json
import re
import sys


def main() -> None:
    query = json.load(sys.stdin)
    sys.path.insert(0, query["home"])
    _limit(query["memory"])
    from glue.errors import GlueError
    from glue.tools.fs.root import shorten
    from glue.tools.fs.search import say, search

    try:
        search(query)
    except (re.error, OverflowError, RecursionError, MemoryError) as error:
        say({"error": f"the pattern cannot be used: {error or type(error).__name__}"})
    except OSError as error:
        say({"error": f"{shorten(query['path'])}: {(error.strerror or 'cannot be used').lower()}"})
    except GlueError as error:
        say({"error": str(error)})


def _limit(memory: int) -> None:
    try:
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    except (ImportError, OSError, ValueError):
        pass


if __name__ == "__main__":
    main()
