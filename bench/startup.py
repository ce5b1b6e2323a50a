"""CPU seconds of start-up in fresh interpreters, as ratios to a floor in the same run.

    python bench/startup.py [--runs 20] [--json] [--peers]

Each line is the median of many processes. The commands alternate, so that a busy machine slows all
of them equally. `glue acp` is measured from its start to its response to `initialize`.

Each line is compared with bare Python, and three lines have a goal relative to a floor, which
imports only the modules that such a program cannot do without:

    import glue                   at most 1.2 x python -c pass
    from glue import Agent, tool  at most 2 x python -c "import dataclasses, inspect, json, typing"
    glue --help                   at most 1.6 x python -c "import click"

The goals were 3 x and 3.5 x bare Python while bare Python itself loaded the finder of an editable
install, which took as long as Python. An editable install is one path now, so bare Python takes
half the time, and a multiple of it says little about glue.
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
from importlib.util import find_spec
from pathlib import Path

BARE, TYPED, CLICK = "python -c pass", "import dataclasses, inspect, ...", "import click"
# For each line the floor and the largest allowed multiple of it.
GOALS = {
    "import glue": (BARE, 1.2),
    "from glue import Agent, tool": (TYPED, 2.0),
    "glue --help": (CLICK, 1.6),
}
PEERS = (
    "litellm",
    "pydantic_ai",
    "langchain",
    "openai",
    "anthropic",
    "agents",
    "smolagents",
    "llm",
)
INITIALIZE = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": 1}}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=20, help="processes for each line (20)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument(
        "--peers", action="store_true", help="also measure other toolkits, if they are installed"
    )
    given = parser.parse_args()
    found = measure(commands(given.peers), given.runs)
    ratios = {name: seconds / found[BARE] for name, seconds in found.items()}
    floors = {name: found[name] / found[floor] for name, (floor, _) in GOALS.items()}
    missed = [name for name, (_, most) in GOALS.items() if floors[name] > most]
    if given.json:
        report = {"seconds": found, "ratios": ratios, "floors": floors, "goals": GOALS}
        print(json.dumps({**report, "missed": missed}, indent=2))
    else:
        table(found, ratios, floors)
    return 1 if missed else 0


def commands(peers: bool) -> dict[str, Callable[[], None]]:
    """Return a function for each installed command to measure, by name."""
    python, glue = [sys.executable], str(Path(sys.executable).parent / "glue")
    lines = {
        BARE: [*python, "-c", "pass"],
        TYPED: [*python, "-c", "import dataclasses, inspect, json, typing"],
        CLICK: [*python, "-c", "import click"],
        "import glue": [*python, "-c", "import glue"],
        "from glue import Agent, tool": [*python, "-c", "from glue import Agent, tool"],
        "glue --help": [glue, "--help"],
        "glue providers": [glue, "providers"],
    }
    if peers:
        lines |= {
            f"import {name}": [*python, "-c", f"import {name}"] for name in PEERS if find_spec(name)
        }
    found: dict[str, Callable[[], None]] = {name: _runner(line) for name, line in lines.items()}
    if find_spec("glue.acp") is not None:
        found["glue acp, to initialize"] = lambda: initialize([glue, "acp", "-m", "offline"])
    return found


def _runner(line: list[str]) -> Callable[[], None]:
    return lambda: (
        subprocess.run(line, stdout=subprocess.DEVNULL, check=True, env=ENVIRONMENT) and None
    )


# Other variables of the caller's shell could change the modules that are loaded.
ENVIRONMENT = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}


def initialize(line: list[str]) -> None:
    """Start the server for editors, wait for its response to `initialize`, and kill it."""
    with subprocess.Popen(
        line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=ENVIRONMENT
    ) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        server.stdin.write(json.dumps(INITIALIZE).encode() + b"\n")
        server.stdin.flush()
        if not server.stdout.readline():
            raise SystemExit("glue acp did not respond to initialize")
        server.kill()


def measure(lines: dict[str, Callable[[], None]], runs: int) -> dict[str, float]:
    """Return the median CPU seconds of each command, after a first run that is not counted."""
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


def table(found: dict[str, float], ratios: dict[str, float], floors: dict[str, float]) -> None:
    """Print a line for each command: milliseconds, multiple of bare Python, and its goal."""
    width = min(shutil.get_terminal_size().columns, 100)
    print(f"Python {sys.version.split()[0]}, CPU time, median"[:width])
    for name, seconds in found.items():
        verdict = ""
        if goal := GOALS.get(name):
            floor, most = goal
            is_met = "met" if floors[name] <= most else "MISSED"
            verdict = f"  {floors[name]:.2f} x {floor}; goal {most:g}: {is_met}"
        print(f"{name:<32}{seconds * 1000:8.1f} ms {ratios[name]:7.2f} x{verdict}")


if __name__ == "__main__":
    sys.exit(main())
