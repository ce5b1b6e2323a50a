"""`make demo`: an agent in ten lines at work, then the review bot on planted bugs. No key, no network.

python bench/demo.py [FOLDER]
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from glue.agents.review import demo
from glue.cli.output import Screen

AGENT = '''\
import glue

@glue.tool
def weather(city: str) -> str:
    """Say what the weather is in a city."""
    return f"{city}: 21 degrees, dry"

agent = glue.Agent("offline", tools=[weather])  # or "anthropic:claude-haiku-5-5", "ollama:qwen3" ...
agent.cli()
'''
PROMPT = "What is the weather in Toronto, and in Oslo?"


def main(folder: str = "") -> int:
    screen = Screen(sys.stdout)
    home = Path(folder or tempfile.mkdtemp(prefix="glue-demo-"))
    home.mkdir(parents=True, exist_ok=True)
    screen.line("1. An agent is a file of ten lines", "bold")
    (home / "agent.py").write_text(AGENT)
    for line in AGENT.rstrip().splitlines():
        screen.line(f"  {line}", "dim")
    screen.line("")
    screen.line(f'$ python agent.py --usage "{PROMPT}"', "cyan")
    page = run_agent(home)
    screen.line("")
    screen.line("2. The review bot reads a pull request, here without a model", "bold")
    return demo.main(str(home / "pull-request"), page=page)


def run_agent(home: Path) -> Path:
    """Run the agent as a user would, log the run, and make a page of it."""
    glue = Path(sys.executable).parent / "glue"
    kept = {name: os.environ[name] for name in ("PATH", "TERM", "LANG", "NO_COLOR", "COLUMNS") if name in os.environ}
    env = {**kept, "HOME": str(home), "XDG_STATE_HOME": str(home / "state"), "GLUE_LOG": "1", "PYTHONUTF8": "1"}
    line = [sys.executable, "agent.py", "--usage", PROMPT]
    subprocess.run(line, cwd=home, env=env, check=True, stdin=subprocess.DEVNULL)
    page = home / "agent.html"
    view = [str(glue), "view", "last", "-o", str(page)]
    subprocess.run(view, cwd=home, env=env, check=True, stdout=subprocess.DEVNULL)
    return page


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:2]))
