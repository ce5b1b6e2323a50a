"""Other toolkits on the same work as glue, as ratios to a loop written by hand with httpx.

    python bench/peers.py [-r ROUNDS] [CONTENDER ...]

Each contender gets an environment of its own below the temporary folder, made at its first use;
delete the environment to install the newest version. Only the client process is measured: seconds
of CPU, the best of the rounds. The contenders alternate. Every contender streams, calls a tool with
validated arguments, and must return the right answer with every delta.
"""

from __future__ import annotations

import argparse
import importlib.util
import platform
import subprocess
import sys
import tempfile
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

from run import HERE, child, model_server, spawn

ENVIRONMENTS = Path(tempfile.gettempdir()) / "glue-bench-environments"
BARE = ("pip", "setuptools", "wheel")  # a fresh environment may contain these
SIZES = f"""
import importlib.metadata, pathlib
found = [each for each in importlib.metadata.distributions() if each.name not in {BARE}]
files = {{pathlib.Path(file.locate()) for each in found for file in each.files or ()}}
print(len(found), sum(file.stat().st_size for file in files if file.is_file()) / 1e6)
"""


class Contender(NamedTuple):
    """A module with `setup` and `run`, and the packages that it needs."""

    title: str
    folder: Path
    requirements: tuple[str, ...]
    statements: str
    environ: dict[str, str]
    distribution: str


def contenders() -> dict[str, Contender]:
    sys.path.insert(0, str(HERE))
    found = {
        "floor": Contender("httpx, written by hand", HERE, ("httpx",), "import httpx", {}, "httpx"),
        "ours": Contender("glue", HERE, (str(HERE.parent),), "import glue", {}, "glue-agents"),
    }
    for path in sorted((HERE / "contenders").glob("*.py")):
        module: Any = load(path)
        first = module.REQUIREMENTS[0].partition("[")[0]
        found[path.stem] = Contender(
            first.removesuffix("-slim"),
            path.parent,
            module.REQUIREMENTS,
            module.IMPORT,
            getattr(module, "ENVIRON", {}),
            first,
        )
    return found


def load(path: Path) -> Any:
    """Import a contender for its constants; it imports its toolkit only in functions."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def python_of(name: str, contender: Contender) -> str:
    """Return the Python of a contender's environment, which is made if it is missing."""
    folder = ENVIRONMENTS / name
    python = folder / "bin" / "python"
    if not (folder / "ready").exists():
        print(f"installing {contender.title} into {folder} ...", file=sys.stderr)
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        pip = [python, "-m", "pip", "install", "-qq", "--disable-pip-version-check"]
        subprocess.run([*pip, *contender.requirements], check=True)
        (folder / "ready").touch()
    return str(python)


def measure(names: list[str], rounds: int) -> list[str]:
    """Run every contender, and return the lines of a table."""
    chosen = {name: each for name, each in contenders().items() if name in names}
    pythons = {name: python_of(name, each) for name, each in chosen.items()}
    results: dict[tuple[str, str], list[float]] = {}
    with model_server() as url:
        for number in range(rounds):
            for name, each in chosen.items():
                more = {**each.environ, "PYTHONPATH": f"{each.folder}:{HERE}"}
                for todo in ("cold", "turn"):
                    seconds = child(name, todo, url, pythons[name], **more)["cpu"]
                    results.setdefault((name, todo), []).append(seconds)
                _, seconds = spawn(pythons[name], "-P", "-c", each.statements, **more)
                results.setdefault((name, "import"), []).append(seconds)
            print(f"round {number + 1} of {rounds}", file=sys.stderr)
    lines = [
        "| | version | import | start and one tool call | one turn | packages | size |",
        "|---|---|---:|---:|---:|---:|---:|",
    ]
    for name, each in chosen.items():
        best = {todo: min(results[name, todo]) for todo in ("import", "cold", "turn")}
        low = {todo: best[todo] / min(results["floor", todo]) for todo in best}
        packages, size = spawn(pythons[name], "-P", "-c", SIZES)[0].split()
        lines.append(
            f"| {each.title} | {version(pythons[name], each.distribution)}"
            f" | {1e3 * best['import']:.0f} ms ({low['import']:.1f})"
            f" | {1e3 * best['cold']:.0f} ms ({low['cold']:.1f})"
            f" | {1e3 * best['turn'] / 51:.2f} ms ({low['turn']:.1f})"
            f" | {packages} | {float(size):.0f} MB |"
        )
    return lines


def version(python: str, distribution: str) -> str:
    asked = f"import importlib.metadata; print(importlib.metadata.version({distribution!r}))"
    return spawn(python, "-P", "-c", asked)[0].strip()


def main() -> None:
    known = contenders()
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "contenders", nargs="*", metavar="CONTENDER", help=f"by default all: {', '.join(known)}"
    )
    parser.add_argument("-r", "--rounds", type=int, default=5)
    options = parser.parse_args()
    if wrong := set(options.contenders) - set(known):
        parser.error(f"no such contender: {', '.join(sorted(wrong))}")
    names = ["floor", *options.contenders] if options.contenders else list(known)
    print("\n".join(measure(names, options.rounds)))
    print(f"\n{date.today()}, Python {platform.python_version()}, best of {options.rounds} rounds")


if __name__ == "__main__":
    main()
