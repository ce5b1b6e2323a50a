"""What starting costs: CPU seconds of fresh interpreters, as ratios to `python -c pass` in the same run.

    python bench/startup.py [--runs 20] [--json] [--peers]

Each line is the median of many processes, started in turns so that a busy machine slows all of them alike.
`glue acp` is measured from its start to its answer to `initialize`. The goals: `import glue` at most 1.2,
`from glue import Agent, tool` at most 3, `glue --help` at most 3.5.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

GOALS = {"import glue": 1.2, "from glue import Agent, tool": 3.0, "glue --help": 3.5}
PEERS = ("litellm", "pydantic_ai", "langchain", "openai", "anthropic", "agents", "smolagents", "llm")
INITIALIZE = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": 1}}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=20, help="processes for each line (20)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--peers", action="store_true", help="measure other toolkits too, where they are installed")
    given = parser.parse_args()
    found = measure(commands(given.peers), given.runs)
    bare = found["python -c pass"]
    ratios = {name: seconds / bare for name, seconds in found.items()}
    missed = [name for name, most in GOALS.items() if ratios.get(name, 0) > most]
    if given.json:
        print(json.dumps({"seconds": found, "ratios": ratios, "goals": GOALS, "missed": missed}, indent=2))
    else:
        table(found, ratios)
    return 1 if missed else 0


def commands(peers: bool) -> dict[str, Callable[[], None]]:
    """Give what is measured, by name; what is not installed is left out."""
    python, glue = [sys.executable], str(Path(sys.executable).parent / "glue")
    lines = {
        "python -c pass": [*python, "-c", "pass"],
        "import glue": [*python, "-c", "import glue"],
        "from glue import Agent, tool": [*python, "-c", "from glue import Agent, tool"],
        "glue --help": [glue, "--help"],
        "glue providers": [glue, "providers"],
    }
    if peers:
        from importlib.util import find_spec

        lines |= {f"import {name}": [*python, "-c", f"import {name}"] for name in PEERS if find_spec(name)}
    found: dict[str, Callable[[], None]] = {name: _runner(line) for name, line in lines.items()}
    from importlib.util import find_spec

    if find_spec("glue.acp") is not None:
        found["glue acp, to initialize"] = lambda: initialize([glue, "acp", "-m", "offline"])
    return found


def _runner(line: list[str]) -> Callable[[], None]:
    return lambda: subprocess.run(line, stdout=subprocess.DEVNULL, check=True, env=ENVIRONMENT) and None


# Nothing of the caller's shell may change what is loaded.
ENVIRONMENT = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}


def initialize(line: list[str]) -> None:
    """Start the server of editors, wait for its first answer, and end it."""
    with subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=ENVIRONMENT) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        server.stdin.write(json.dumps(INITIALIZE).encode() + b"\n")
        server.stdin.flush()
        if not server.stdout.readline():
            raise SystemExit("glue acp gave no answer to initialize")
        server.kill()


def measure(lines: dict[str, Callable[[], None]], runs: int) -> dict[str, float]:
    """Give the median CPU seconds of each, after one that warms the file cache."""
    taken: dict[str, list[float]] = {name: [] for name in lines}
    for number in range(runs + 1):
        for name, run in lines.items():
            before = _spent()
            run()
            if number:
                taken[name].append(_spent() - before)
    return {name: statistics.median(values) for name, values in taken.items()}


def _spent() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def table(found: dict[str, float], ratios: dict[str, float]) -> None:
    width = min(shutil.get_terminal_size().columns, 100)
    print(f"Python {sys.version.split()[0]}, CPU time, median"[:width])
    for name, seconds in found.items():
        goal = GOALS.get(name)
        verdict = "" if goal is None else f"  goal {goal:g}: {'met' if ratios[name] <= goal else 'MISSED'}"
        print(f"{name:<32}{seconds * 1000:8.1f} ms {ratios[name]:7.2f} x{verdict}")


if __name__ == "__main__":
    sys.exit(main())
