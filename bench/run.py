"""CPU time of a turn, a delta and a start, as ratios to a loop written by hand with httpx.

    python bench/run.py [-r ROUNDS] [WORK ...]

Only the client process is measured; the server runs in another process. The contenders alternate.
Each figure is the best of its rounds, because a busy machine disturbs that one least.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from work import WORKS

HERE = Path(__file__).resolve().parent
CACHE = Path(tempfile.gettempdir()) / "glue-bench-bytecode"
CONTENDERS = ("floor", "ours")
# Title, work, unit, a function from the result to that unit, and the goal: the highest ratio.
ROWS = (
    ("one turn", "turn", "ms", lambda r: 1e3 * r["cpu"] / 51, 0.8),
    ("one delta in a burst", "delta", "us", lambda r: 1e6 * r["cpu"] / 20_000, 0.95),
    ("one delta, paced", "paced", "us", lambda r: 1e6 * r["cpu"] / 2_000, 1.1),
    ("turn 400", "growth", "ms", lambda r: 1e3 * r["late"], 0.55),
    ("200 runs of 10 turns", "many", "s", lambda r: r["cpu"], 0.4),
    ("cold start, one tool", "cold", "ms", lambda r: 1e3 * r["cpu"], 1.05),
)


def child(
    name: str, todo: str, url: str, python: str = sys.executable, **more: str
) -> dict[str, float]:
    """Run a contender in its own process; for a cold start, count the CPU of the whole process."""
    out, seconds = spawn(python, str(HERE / "measure.py"), name, todo, BENCH_URL=url, **more)
    result: dict[str, float] = json.loads(out.splitlines()[-1])
    if todo == "cold":
        result["cpu"] = seconds
    return result


def spawn(*command: str, **more: str) -> tuple[str, float]:
    """Run a command without proxies; return its output and the seconds of CPU that it used."""
    environ = {
        key: value for key, value in os.environ.items() if not key.lower().endswith("_proxy")
    }
    environ |= {"PYTHONPYCACHEPREFIX": str(CACHE), **more}
    # A checkout has no bytecode files, so the first round writes them for all contenders.
    environ.pop("PYTHONDONTWRITEBYTECODE", None)
    with subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        out = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} failed")
    return out, usage.ru_utime + usage.ru_stime


@contextmanager
def model_server() -> Iterator[str]:
    """Start the model server, and yield its address."""
    with subprocess.Popen(
        [sys.executable, str(HERE / "server.py")], stdout=subprocess.PIPE, text=True
    ) as server:
        try:
            assert server.stdout is not None
            yield f"http://127.0.0.1:{int(server.stdout.readline())}/v1"
        finally:
            server.terminate()


def measure(works: list[str], rounds: int) -> dict[tuple[str, str], list[dict[str, float]]]:
    results: dict[tuple[str, str], list[dict[str, float]]] = {}
    with model_server() as url:
        for number in range(rounds):
            for todo in works:
                for name in CONTENDERS[:: 1 if number % 2 else -1]:
                    results.setdefault((name, todo), []).append(child(name, todo, url))
            print(f"round {number + 1} of {rounds}", file=sys.stderr)
    return results


def table(results: dict[tuple[str, str], list[dict[str, float]]]) -> str:
    lines = ["| | floor | glue | ratio | goal |", "|---|---:|---:|---:|---:|"]
    for title, todo, unit, value, goal in ROWS:
        if ("ours", todo) in results:
            floor, ours = (min(map(value, results[name, todo])) for name in CONTENDERS)
            ratio = ours / floor
            lines.append(
                f"| {title} | {floor:.2f} {unit} | {ours:.2f} {unit} | {ratio:.2f} | {goal} |"
            )
    if ("ours", "many") in results:
        floor, ours = (max(each["memory"] for each in results[name, "many"]) for name in CONTENDERS)
        ratio = ours / floor
        lines.append(
            f"| memory of the 200 runs | {floor:.0f} MB | {ours:.0f} MB | {ratio:.2f} | 60 MB |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "works", nargs="*", metavar="WORK", help=f"one of {', '.join(WORKS)}; by default all"
    )
    parser.add_argument("-r", "--rounds", type=int, default=5)
    options = parser.parse_args()
    if wrong := set(options.works) - set(WORKS):
        parser.error(f"no such work: {', '.join(sorted(wrong))}; there are: {', '.join(WORKS)}")
    print(table(measure(options.works or list(WORKS), options.rounds)))


if __name__ == "__main__":
    main()
