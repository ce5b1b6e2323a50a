"""Put texts together from a diff, so that one side of a file is enough to know both."""

from __future__ import annotations

from glue.agents.review.model import FileDiff


def before(head: str, file: FileDiff) -> str:
    """Undo a file's hunks: the text as it was."""
    lines = head.split("\n")
    out: list[str] = []
    at = 0  # lines of the head that are done
    for hunk in file.hunks:
        first = hunk.new_start - 1 if hunk.new_count else hunk.new_start
        out += lines[at : max(first, at)]
        out += [line.text + line.end[:-1] for line in hunk.lines if line.kind != "+"]
        at = max(first, at) + sum(line.kind != "-" for line in hunk.lines)
    rest = lines[at:]
    last = next((line for hunk in reversed(file.hunks) for line in reversed(hunk.lines) if line.kind != "+"), None)
    if rest in ([], [""]) and last is not None:
        return "\n".join(out) + (last.end[-1:] if last.end else "")
    return "\n".join([*out, *rest])


def after_of_new(file: FileDiff) -> str:
    """The text of an added file, which its hunks hold whole."""
    return "".join(line.text + line.end for hunk in file.hunks for line in hunk.lines if line.kind != "-")


def before_of_deleted(file: FileDiff) -> str:
    return "".join(line.text + line.end for hunk in file.hunks for line in hunk.lines if line.kind != "+")


def added_file(path: str, text: str) -> str:
    """Write the diff of a file that git does not know yet."""
    name = path if path.isprintable() and '"' not in path and "\\" not in path else None
    shown = f"/{path}" if name else None
    left, right = (f"a{shown}", f"b{shown}") if shown else (_quoted("a", path), _quoted("b", path))
    head = f"diff --git {left} {right}\nnew file mode 100644\n"
    if not text:
        return head
    lines = text.split("\n")
    ended = lines[-1] == ""
    if ended:
        lines.pop()
    body = "".join(f"+{line}\n" for line in lines) + ("" if ended else "\\ No newline at end of file\n")
    return f"{head}--- /dev/null\n+++ {right}\n@@ -0,0 +1,{len(lines)} @@\n{body}"


def _quoted(prefix: str, path: str) -> str:
    raw = path.encode("utf-8", "surrogateescape")
    plain = (chr(byte) if 32 <= byte < 127 and byte not in (34, 92) else f"\\{byte:03o}" for byte in raw)
    return f'"{prefix}/{"".join(plain)}"'
