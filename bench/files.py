"""Seconds and peak memory of the file tools, on a file of 1 GB and in a tree of 50,000 files.

python bench/files.py [--size 1000000000] [--files 50000]
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import anyio

from glue.tools import fs

MB = 1024 * 1024
LIMIT = 200  # peak memory that each process may use, in MB


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=1_000_000_000, help="bytes of the large file")
    parser.add_argument("--files", type=int, default=50_000, help="files in the tree")
    given = parser.parse_args()
    folder = tempfile.mkdtemp(prefix="glue-bench-")
    try:
        lines = _large_file(folder, given.size)
        _many_files(folder, given.files)
        tools = {tool.name: tool for tool in fs.tools(folder)}
        rows = [
            ("read_file, first page", lambda: tools["read_file"]("big.txt")),
            ("read_file, middle", lambda: tools["read_file"]("big.txt", offset=lines // 2)),
            ("read_file, last line", lambda: tools["read_file"]("big.txt", offset=lines)),
            ("read_file, one line of all", lambda: tools["read_file"]("line.txt")),
            ("find_files, none match", lambda: tools["find_files"]("*.nothing", path="tree")),
            ("find_files, all match", lambda: tools["find_files"]("*.txt", path="tree")),
            ("grep, rare word", lambda: anyio.run(_grep, tools["grep"], "needle", "tree")),
            (
                "grep, rare expression",
                lambda: anyio.run(_grep, tools["grep"], r"n[e]+dle\d*$", "tree"),
            ),
            ("grep, every file", lambda: anyio.run(_grep, tools["grep"], "line", "tree")),
            ("grep, the large file", lambda: anyio.run(_grep, tools["grep"], "needle", "big.txt")),
        ]
        return _report(rows)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


async def _grep(grep: Any, pattern: str, path: str) -> str:
    found: str = await grep(pattern, path)
    return found


def _report(rows: list[tuple[str, Callable[[], Any]]]) -> int:
    print(f"{'':30} {'seconds':>8} {'CPU s':>6} {'peak MB':>8} {'worker MB':>10}  answer ends with")
    worst = 0.0
    for name, call in rows:
        began, used = time.perf_counter(), _used()
        answer = str(call())
        seconds = time.perf_counter() - began
        mine, theirs = _peak(resource.RUSAGE_SELF), _peak(resource.RUSAGE_CHILDREN)
        worst = max(worst, mine, theirs)
        cost = f"{seconds:8.2f} {_used() - used:6.2f} {mine:8.0f} {theirs:10.0f}"
        print(f"{name:30} {cost}  {answer.splitlines()[-1][-60:]!r}")
    print(f"peak {worst:.0f} MB in any process; {LIMIT} allowed")
    return 0 if worst <= LIMIT else 1


def _used() -> float:
    spent = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in spent)


def _peak(who: int) -> float:
    used = resource.getrusage(who).ru_maxrss
    return used / MB if sys.platform == "darwin" else used / 1024


def _large_file(folder: str, size: int) -> int:
    line = b"this is one line of a large file, %012d, and it ends here" + b"." * 40 + b"\n"
    width = len(line % 0)
    count = 0
    with (
        open(os.path.join(folder, "big.txt"), "wb") as file,
        open(os.path.join(folder, "line.txt"), "wb") as whole,
    ):
        while count * width < size:
            block = b"".join(line % number for number in range(count, count + 5000))
            file.write(block)
            if whole.tell() < size // 10:
                whole.write(block.replace(b"\n", b" "))
            count += 5000
    return count


def _many_files(folder: str, count: int) -> None:
    text = "".join(f"line {number} of a file of ordinary length\n" for number in range(100))
    for number in range(count):
        place = os.path.join(folder, "tree", f"{number // 100:04}")
        if number % 100 == 0:
            os.makedirs(place)
        with open(os.path.join(place, f"{number:06}.txt"), "w") as file:
            file.write(text + ("needle\n" if number == count - 1 else ""))


if __name__ == "__main__":
    sys.exit(main())
