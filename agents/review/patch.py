"""Put texts together from a diff, so that one side of a file is enough to know both."""

from __future__ import annotations

from glue.agents.review.model import FileDiff


def before(head: str, file: FileDiff) -> str:
    """Undo a file's hunks: the text as it was."""
    lines = _lines(head)
    out: list[str] = []
    at = 0  # lines of the head that are done
    for hunk in file.hunks:
        first = max(at, hunk.new_start - 1 if hunk.new_count else hunk.new_start)
        out += lines[at:first]
        out += [line.text + line.end for line in hunk.lines if line.kind != "+"]
        at = first + sum(line.kind != "-" for line in hunk.lines)
    return "".join([*out, *lines[at:]])


def after_of_new(file: FileDiff) -> str:
    """The text of an added file, which its hunks hold whole."""
    return "".join(line.text + line.end for hunk in file.hunks for line in hunk.lines if line.kind != "-")


def before_of_deleted(file: FileDiff) -> str:
    return "".join(line.text + line.end for hunk in file.hunks for line in hunk.lines if line.kind != "+")


def added_file(path: str, text: str) -> str:
    """Write the diff of a file that git does not know yet."""
    return between(path, None, text)


def between(path: str, old: str | None, new: str | None, context: int = 3) -> str:
    """Write the diff of one file from both of its texts, as git would; None stands for no file."""
    from difflib import unified_diff

    left, right = _name("a", path), _name("b", path)
    head = f"diff --git {left} {right}\n"
    head += "new file mode 100644\n" if old is None else "deleted file mode 100644\n" if new is None else ""
    names = ("/dev/null" if old is None else left, "/dev/null" if new is None else right)
    rows = list(unified_diff(_lines(old), _lines(new), *names, n=context))
    return head + "".join(row if row.endswith("\n") else f"{row}\n\\ No newline at end of file\n" for row in rows)


def _lines(text: str | None) -> list[str]:
    """Lines with their ends; only a newline ends one, whatever else a text holds."""
    parts = (text or "").split("\n")
    return [f"{part}\n" for part in parts[:-1]] + ([parts[-1]] if parts[-1] else [])


def _name(prefix: str, path: str) -> str:
    plain = path.isprintable() and '"' not in path and "\\" not in path
    return f"{prefix}/{path}" if plain else _quoted(prefix, path)


def _quoted(prefix: str, path: str) -> str:
    raw = path.encode("utf-8", "surrogateescape")
    plain = (chr(byte) if 32 <= byte < 127 and byte not in (34, 92) else f"\\{byte:03o}" for byte in raw)
    return f'"{prefix}/{"".join(plain)}"'
