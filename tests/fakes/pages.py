"""Pages of the documentation: their programs, and their commands with the output they show."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

from fakes.checkouts import ENV as GIT
from fakes.zygote import Zygote

ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
FILE = "import runpy, sys; del sys.argv[0]; runpy.run_path(sys.argv[0], run_name='__main__')"
GLUE = "import sys; sys.argv[0] = 'glue'; from glue.cli.app import main; main()"
# The line that names the keys is left out of the pages. Durations differ from run to run.
NOTICE = "glue: the offline stand-in answered, not a model;"
SECONDS = re.compile(r"\b\d+(?:\.\d+)? ?m?s\b")


def blocks(page: Path, language: str) -> list[str]:
    return [body for info, body in BLOCK.findall(page.read_text()) if info == language]


def commands(page: Path) -> list[tuple[str, list[str]]]:
    """Return the commands of a page, each with the lines of output that the page shows.

    Console blocks that show no output are left out.
    """
    found = []
    for block in blocks(page, "console"):
        steps = re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]
        parts = [step.rstrip("\n").split("\n") for step in steps]
        if any(len(lines) > 1 for lines in parts):
            found += [(lines[0], lines[1:]) for lines in parts]
    return found


def checkout(folder: Path) -> Path:
    """Create a folder with a copy of the examples, in which the commands of a page run."""
    shutil.copytree(ROOT / "examples", folder / "examples")
    return folder


def run(command: str, folder: Path, zygote: Zygote) -> list[str]:
    """Run a command of a page without keys; return the lines that it prints."""
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    ours = {"PATH": path, "HOME": str(folder / "home"), "PYTHONUTF8": "1"}
    environ = {**GIT, **ours, "GLUE_MODEL": "offline"}
    start, variables = without_shell(command)
    environ.update(variables)
    if not start:
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=folder,
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=60,
            check=False,
        )
        return plain(done.stdout)
    _, out, errors = zygote.run(start, folder, environ)
    return plain(errors + out)


def without_shell(command: str) -> tuple[list[str], dict[str, str]]:
    """Return the command that a zygote runs, and its variables; none if it needs a shell."""
    words = [] if re.search(r"[|<>&;$]", command) else shlex.split(command)
    variables = {}
    while words and re.match(r"[A-Z_]+=", words[0]):
        name, _, variables[name] = words.pop(0).partition("=")
    if words[:1] == ["python"] and words[1].endswith(".py"):
        return [sys.executable, "-c", FILE, *words[1:]], variables
    if words[:1] == ["glue"]:
        return [sys.executable, "-c", GLUE, *words[1:]], variables
    return [], {}


def plain(text: str) -> list[str]:
    """Return the lines of an output, without empty lines, durations and the stand-in's notice."""
    lines = [SECONDS.sub("N ms", line.rstrip()) for line in text.splitlines()]
    return [line for line in lines if line and not line.startswith(NOTICE)]
