"""The frames of one session of `glue acp`, as docs/acp-protocol.md shows them.

    python bench/acp_transcript.py            # print the frames
    python bench/acp_transcript.py --write    # write them to docs/acp-protocol.md
    python bench/acp_transcript.py --check    # fail if docs/acp-protocol.md differs

Ids, paths and times are replaced by short names, and lists of choices are cut.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

PAGE = Path(__file__).resolve().parent.parent / "docs" / "acp-protocol.md"
BEGIN, END = (
    "<!-- transcript: python bench/acp_transcript.py --write -->\n",
    "<!-- end of the transcript -->\n",
)
CUT = ("availableModes", "configOptions", "availableCommands", "options")
AGENT = """
import glue
from glue.testing import Script, call, calls, say
from glue.tools import fs
from glue import Usage

model = Script(
    calls(
        call("edit_file", {"path": "hello.py", "old": "wrold", "new": "world"}),
        text="There is a typo.",
        usage=Usage(input=900, output=40),
    ),
    say("Fixed.", usage=Usage(input=1000, output=5)),
)
agent = glue.Agent(model, tools=fs.tools(".", write=True))
"""


class Editor:
    """An ACP client that sends requests and records every frame."""

    def __init__(self, folder: Path) -> None:
        code = "from glue.cli.app import main; main()"
        command = [sys.executable, "-c", code, "acp", "agent.py", "--store", "store"]
        self.process = subprocess.Popen(
            command, cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self.names: dict[str, str] = {str(folder): "/project"}
        self.lines: list[str] = []
        self.last = 0

    def ask(self, method: str, params: dict[str, Any]) -> Any:
        self.last += 1
        self.send({"jsonrpc": "2.0", "id": self.last, "method": method, "params": params})
        while True:
            frame = self.read()
            if frame.get("method") == "session/request_permission":
                chosen = {"outcome": {"outcome": "selected", "optionId": "allow_once"}}
                self.send({"jsonrpc": "2.0", "id": frame["id"], "result": chosen})
            elif frame.get("id") == self.last and "method" not in frame:
                return frame["result"]

    def send(self, frame: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(frame).encode() + b"\n")
        self.process.stdin.flush()
        self.note("-->", frame)

    def read(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        frame: dict[str, Any] = json.loads(self.process.stdout.readline())
        self.note("<--", frame)
        return frame

    def note(self, arrow: str, frame: dict[str, Any]) -> None:
        shown = self.plain({name: value for name, value in frame.items() if name != "jsonrpc"})
        self.lines.append(f"{arrow} {json.dumps(shown)}")

    def plain(self, value: Any, name: str = "") -> Any:
        if isinstance(value, dict):
            return {key: self.plain(each, key) for key, each in value.items()}
        if isinstance(value, list):
            return ["..."] if name in CUT else [self.plain(each) for each in value]
        if not isinstance(value, str):
            return value
        if name in ("sessionId", "messageId") and value not in self.names:
            kind = name.removesuffix("Id")
            self.names[value] = (
                f"{kind}-{sum(each.startswith(kind) for each in self.names.values()) + 1}"
            )
        if name == "updatedAt":
            return "2030-01-01T12:00:00+00:00"
        if name == "version":
            return "..."
        for long, short in self.names.items():
            value = value.replace(long, short)
        return value

    def close(self) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.wait(timeout=30)
        self.process.stdout.close()


def transcript() -> str:
    """Run one session and return its frames, one per line."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        (folder / "agent.py").write_text(AGENT)
        (folder / "hello.py").write_text('print("hello")\nprint("wrold")\n')
        editor = Editor(folder)
        try:
            editor.ask("initialize", {"protocolVersion": 1, "clientCapabilities": {}})
            session = editor.ask("session/new", {"cwd": str(folder), "mcpServers": []})["sessionId"]
            editor.read()  # the list of commands follows the response
            prompt = [{"type": "text", "text": "Fix hello.py."}]
            editor.ask("session/prompt", {"sessionId": session, "prompt": prompt})
            editor.ask("session/list", {"cwd": str(folder)})
            editor.ask("session/close", {"sessionId": session})
        finally:
            editor.close()
        return "\n".join(editor.lines) + "\n"


def main() -> int:
    made = transcript()
    if sys.argv[1:] == []:
        print(made, end="")
        return 0
    before = PAGE.read_text()
    head, _, rest = before.partition(BEGIN)
    _, _, tail = rest.partition(END)
    after = f"{head}{BEGIN}```text\n{made}```\n{END}{tail}"
    if sys.argv[1:] == ["--write"]:
        PAGE.write_text(after)
        return 0
    if before != after:
        print(
            "docs/acp-protocol.md is out of date; run python bench/acp_transcript.py --write",
            file=sys.stderr,
        )
    return int(before != after)


if __name__ == "__main__":
    sys.exit(main())
