"""Findings without a model: of ruff if installed, of SARIF and RDJSON files, and of `rules`.

Only results that are new between base and head are reported; they are compared by the flagged code,
not by its line. ruff runs on copies of both sides in a temporary folder. It sees no file of the
work tree, no configuration of the pull request and no environment variables.
"""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import tempfile
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from importlib import import_module
from importlib.resources import files
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import unquote

from glue.agents.review.change.languages import language
from glue.agents.review.findings import rules
from glue.agents.review.findings.dedupe import rank
from glue.agents.review.records import SEVERITIES, Bundle, FileDiff, Finding, Severity
from glue.errors import ConfigError
from glue.text import count

SECONDS = 30.0  # timeout of ruff
PER_FILE = 3  # findings of one rule in one file; more of them are noise
MAX_BYTES = 16 * 1024 * 1024  # output of an analyser
# Python 2 code. Python 3.14 would accept it and catch two exceptions.
_PYTHON_2 = re.compile(r"^\s*except [^:\n]+, [a-z_]\w*:", re.MULTILINE)
# Other files in a folder of tests may be test data.
_TEST_MODULE = re.compile(r"(?:^|/)(?:test_[^/]*|[^/]*_tests?|tests?|conftest|__init__)\.py$")
# The rules of ruff that are switched on, with severities and reasons.
RUFF_RULES: Mapping[str, Mapping[str, Any]] = tomllib.loads(
    files("glue.agents.review.findings").joinpath("ruff_rules.toml").read_text(encoding="utf-8")
)
# Many tools call every result an error, so an error is high only if its rule is tagged as serious.
_LEVELS: dict[str, Severity] = {
    "error": "medium",
    "warning": "medium",
    "note": "low",
    "none": "info",
    "info": "low",
}
# Codes of style rules, as ruff, flake8, pycodestyle and pylint name them. E9 is a syntax error.
_STYLE = re.compile(r"(?:E(?!9)|[WDINQC]|COM|UP|ANN|ERA|ISC|SIM|RET|PLR|PLC|TD|FIX|FA|PT|PTH)\d+")
_STYLE_TAGS = frozenset(("style", "stylistic", "formatting", "convention", "readability", "naming"))
_SERIOUS_TAGS = frozenset(("correctness", "bug", "security", "reliability", "suspicious"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """A defect that an analyser reports on the lines `line` to `end` of a file."""

    tool: str
    rule: str
    path: str
    line: int
    end: int
    message: str
    severity: Severity = "medium"
    why: str = ""
    code: str = ""  # the flagged code without the rest of its line, if known


def deterministic(bundle: Bundle, *, disable: tuple[str, ...] = ()) -> tuple[Finding, ...]:
    """Run the rules of glue and ruff on a change; return their findings, the most severe first.

    Findings of the rules in `disable` are left out.
    """
    found = (*rules.check(bundle, disable=disable), *ruff(bundle))
    return tuple(sorted((one for one in found if one.rule not in disable), key=rank))


@dataclass(frozen=True, slots=True, kw_only=True)
class HandedIn:
    """New findings from the results of other tools, and the changed files that these tools check.

    A tool checks a file if it has a result for any file with the same suffix.
    """

    findings: tuple[Finding, ...] = ()
    analysed: Mapping[str, str] = field(default_factory=dict)  # path -> name of the tool
    notes: tuple[str, ...] = ()  # for the user: how many results were used


def analysed_files(bundle: Bundle, handed_in: HandedIn | None = None) -> dict[str, str]:
    """Return a dict with each changed file that an analyser reads: path -> name of the analyser."""
    found = {file.path: "ruff" for file in _checked_by_ruff(bundle)} if find_ruff() else {}
    return found | dict(handed_in.analysed if handed_in else {})


def _checked_by_ruff(bundle: Bundle) -> list[FileDiff]:
    """Return the changed Python files that ruff checks: all but documentation and test data."""
    python = (
        file
        for file in rules.changed_files(bundle)
        if file.language == "python" and not file.is_doc
    )
    runs = (file for file in python if not file.is_test or _TEST_MODULE.search(file.path))
    return [file.diff for file in runs if file.path in bundle.head]


def find_ruff() -> str:
    """Return the path of the ruff that is installed with glue, or "" if there is none.

    A ruff in the reviewed repository is never used.
    """
    try:
        return os.path.abspath(str(import_module("ruff").find_ruff_bin()))
    except (ImportError, AttributeError, OSError):
        return ""


def ruff(bundle: Bundle) -> tuple[Finding, ...]:
    """Run ruff on changed Python files. Return its new results as findings, or () without ruff."""
    changed = _checked_by_ruff(bundle)
    program = find_ruff() if changed else ""
    if not program:
        return ()
    # A deleted file may have been moved: its results are not new in the other file.
    changed += [
        file
        for file in bundle.files
        if file.status == "deleted" and language(file.path) == "python"
    ]
    with tempfile.TemporaryDirectory(prefix="glue-review-") as scratch:
        home = os.path.realpath(scratch)
        names: dict[str, tuple[str, str]] = {}  # temporary file -> side, path
        for number, file in enumerate(changed):
            texts = {
                "head": bundle.head.get(file.path),
                "base": bundle.base.get(file.old_path or file.path),
            }
            for side, text in texts.items():
                if text is not None:
                    if side == "base":
                        # A result that a comment suppressed is not new if the comment is removed.
                        text = text.replace("noqa", "____")
                    # The file name may matter to ruff (`__init__.py`); the folders do not.
                    stem = re.sub(r"[^\w.]", "_", file.path.rsplit("/", 1)[-1])
                    place = Path(home, f"{side}-{number}", stem)
                    place.parent.mkdir()
                    place.write_text(text, encoding="utf-8", errors="replace")
                    names[str(place)] = (side, file.path)
        rows = [(names[os.path.realpath(row["filename"])], row) for row in _run_ruff(program, home)]
    results: dict[str, list[Result]] = {"head": [], "base": []}
    broken = {place for place, row in rows if row.get("code") in (None, "invalid-syntax", "E999")}
    for (side, path), row in rows:
        # If a side does not parse, the two sides cannot be compared.
        text = bundle.head[path] if side == "head" else _before(bundle, path)
        if (side, path) in broken or ("base", path) in broken or _PYTHON_2.search(text):
            continue
        if result := _ruff_result(row, path, text, is_head=side == "head"):
            results[side].append(result)
    return tuple(new_findings(results["head"], results["base"], bundle, compared=True))


def _run_ruff(program: str, folder: str) -> list[dict[str, Any]]:
    """Run ruff on the files in a folder; return its JSON rows, or [] if it fails or is too slow."""
    options = "--isolated --no-cache --quiet --exit-zero --output-format=json --no-preview"
    options += " --target-version=py314 --force-exclude"
    argv = [program, "check", *options.split(), f"--select={','.join(RUFF_RULES)}", "."]
    env = {"HOME": folder, "PATH": "", "NO_COLOR": "1"}
    nothing = subprocess.DEVNULL
    with tempfile.TemporaryFile() as out:
        try:
            subprocess.run(
                argv,
                cwd=folder,
                env=env,
                stdin=nothing,
                stdout=out,
                stderr=nothing,
                timeout=SECONDS,
            )
            out.seek(0)
            raw = out.read(MAX_BYTES + 1)
            rows = json.loads(raw) if len(raw) <= MAX_BYTES else []
        except (OSError, subprocess.TimeoutExpired, ValueError):
            return []
    return [row for row in rows if isinstance(row, dict) and row.get("filename")]


def _ruff_result(row: Mapping[str, Any], path: str, text: str, *, is_head: bool) -> Result | None:
    """Return a row of ruff's output as a Result, or None if `ruff_rules.toml` excludes it.

    Return None also for B006 if the function does not change, store or return the default value.
    """
    rule = RUFF_RULES.get(row["code"])
    if rule is None:
        return None
    start, stop = row["location"], row["end_location"]
    line, end = int(start["row"]), int(stop["row"])
    named = re.search(r"`([^`]*)`", row["message"])
    if named and named[1] in rule.get("names", ()):
        return None
    rows = text.split("\n")
    flagged = rows[line - 1 : end] or [""]  # ruff also counts other line endings
    code = "\n".join([*flagged[:-1], flagged[-1][: int(stop["column"]) - 1]])[
        int(start["column"]) - 1 :
    ]
    if is_head and not (
        re.search(rule.get("line", ""), "\n".join(flagged)[:2_000])
        and re.search(rule.get("code", ""), code[:2_000])
        and not ("unless_in" in rule and re.match(rule["unless_in"], _block(rows, line)))
        and (
            row["code"] != "B006" or _is_shared(text, line, flagged[0][: int(start["column"]) - 1])
        )
    ):
        return None
    return Result(
        tool="ruff",
        rule=f"ruff/{row['code']}",
        path=path,
        line=line,
        end=min(end, line + 5),
        message=row["message"],
        severity=rule["severity"],
        why=rule["why"],
        code=code,
    )


def _block(rows: list[str], line: int) -> str:
    """Return the line that opens the block around line number `line`, or "" if there is none."""
    depths = [len(row) - len(row.lstrip()) if row.strip() else 10_000 for row in rows[:line]]
    return next(
        (rows[at].strip() for at in range(len(depths) - 2, -1, -1) if depths[at] < depths[-1]), ""
    )


_CHANGING = frozenset(
    "append extend insert add update setdefault pop popitem remove discard clear sort"
    " reverse".split()
)


def _is_shared(text: str, line: int, before: str) -> bool:
    """Return whether a function changes, assigns or returns the mutable default of its parameter.

    The default value is on line number `line` of `text`, and `before` is the text of that line in
    front of the value. Return False if the text does not parse.
    """
    name = re.match(r"\s*(\w+)", re.split(r",(?![^\[]*\])|\(", before)[-1])
    try:
        nodes = tuple(ast.walk(ast.parse(text)))
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # of a newer Python
        return False
    around = [
        node
        for node in nodes
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.lineno <= line <= (node.end_lineno or node.lineno)
    ]
    if name is None or not around:
        return False
    inner = max(around, key=lambda node: node.lineno)
    return any(_keeps(node, name[1]) for row in inner.body for node in ast.walk(row))


def _keeps(node: ast.AST, name: str) -> bool:
    """Return whether a node changes, returns, yields or passes on the object in `name`."""

    def is_name(value: ast.AST | None) -> bool:
        return isinstance(value, ast.Name) and value.id == name

    def is_item(value: ast.AST) -> bool:
        return isinstance(value, ast.Subscript) and is_name(value.value)

    match node:
        case ast.Call(func=ast.Attribute(value=value, attr=method)):
            return is_name(value) and method in _CHANGING
        case ast.Assign(targets=targets, value=value):
            return is_name(value) or any(map(is_item, targets))
        case ast.AugAssign(target=target):
            return is_name(target) or is_item(target)
        case ast.Return(value=value) | ast.Yield(value=value):
            return is_name(value)
        case ast.Delete(targets=targets):
            return any(map(is_item, targets))
    return False


def handed_in(
    bundle: Bundle,
    given: Sequence[tuple[str, str]],
    base: Sequence[tuple[str, str]] = (),
    root: str = "",
) -> HandedIn:
    """Read the results of other tools; return their new findings and the files that they check.

    `given` and `base` contain the format and path of each file: `given` for the change, `base` for
    the base branch. A result is new if `base` does not contain it. If `base` is empty, results on
    added lines are new. `root` is the checkout, to which absolute paths are made relative. Raise
    ConfigError if a file cannot be parsed.
    """
    logs = [(path, _located(_load(form, path), bundle, root)) for form, path in given]
    before = [result for form, path in base for result in _located(_load(form, path), bundle, root)]
    found = new_findings(
        [result for _, results in logs for result in results], before, bundle, compared=bool(base)
    )
    findings = tuple(found)
    changed = {file.path for file in bundle.files}
    notes: list[str] = []
    tools: dict[str, str] = {}  # suffix of the files that a tool understands -> the tool
    for path, results in logs:
        tools |= {PurePosixPath(result.path).suffix: result.tool for result in results}
        elsewhere = sum(result.path not in changed for result in results)
        here = len(results) - elsewhere
        notes.append(
            f"{path}: {count(len(results), 'result')}, {here} in changed files,"
            f" {elsewhere} elsewhere"
        )
    if logs:
        notes.append(f"results of other tools that are new in this change: {len(findings)}")
    suffixes = {path: PurePosixPath(path).suffix for path in changed}
    analysed = {path: tools[suffix] for path, suffix in suffixes.items() if suffix in tools}
    return HandedIn(findings=findings, analysed=analysed, notes=tuple(notes))


def _load(form: str, path: str) -> list[Result]:
    """Parse the file `path` in the format `form`, "sarif" or "rdjson"; return its results.

    Raise ConfigError if the file is too large or does not have this format.
    """
    raw = Path(path).read_bytes()
    if len(raw) > MAX_BYTES:
        raise ConfigError(f"{path} is larger than {MAX_BYTES // 1024**2} MB, the limit for results")
    try:
        return list(_READERS[form](json.loads(raw)))
    except KeyError as error:
        raise ConfigError(f"{path} is not {form.upper()}: {error} is missing") from error
    except (ValueError, RecursionError, TypeError, AttributeError, IndexError) as error:
        raise ConfigError(f"{path} is not {form.upper()}: {error}") from error


def _sarif(data: Any) -> Iterator[Result]:
    for run in data["runs"]:
        driver = run["tool"]["driver"]
        rules = {rule["id"]: rule for rule in driver.get("rules", ())}
        bases = run.get("originalUriBaseIds") or {}
        for row in run.get("results") or ():
            if row.get("baselineState") in ("unchanged", "absent") or row.get("suppressions"):
                continue
            rule = str(row.get("ruleId") or row.get("rule", {}).get("id") or "result")
            about = rules.get(rule, {})
            default = about.get("defaultConfiguration", {}).get("level", "warning")
            for place in (row.get("locations") or ())[:1]:
                where = place["physicalLocation"]
                file = where["artifactLocation"]
                base = str((bases.get(file.get("uriBaseId")) or {}).get("uri") or "")
                region = where.get("region") or {}
                line = int(region.get("startLine") or 1)
                yield Result(
                    tool=str(driver["name"]),
                    rule=f"{driver['name']}/{rule}",
                    path=_plain_path(str(file["uri"]), base),
                    line=line,
                    end=min(int(region.get("endLine") or line), line + 5),
                    message=str(row["message"].get("text") or rule),
                    severity=_severity(
                        str(row.get("level") or default), rule, about.get("properties") or {}
                    ),
                )


def _rdjson(data: Any) -> Iterator[Result]:
    tool = str((data.get("source") or {}).get("name") or "analyser")
    for row in data["diagnostics"]:
        name = str((row.get("source") or {}).get("name") or tool)
        rule = str((row.get("code") or {}).get("value") or "result")
        place = row["location"]
        span = place.get("range") or {}
        line = int((span.get("start") or {}).get("line") or 1)
        level = str(row.get("severity") or data.get("severity") or "warning").lower()
        yield Result(
            tool=name,
            rule=f"{name}/{rule}",
            path=_plain_path(str(place["path"])),
            line=line,
            end=min(int((span.get("end") or {}).get("line") or line), line + 5),
            message=str(row["message"]),
            severity=_severity(level, rule, {}),
        )


_READERS = {"sarif": _sarif, "rdjson": _rdjson}


def _severity(level: str, rule: str, properties: Mapping[str, Any]) -> Severity:
    """Return the severity of a result from its rule, the tags in `properties`, and its level.

    A style rule is low, whatever its level.
    """
    if rule in RUFF_RULES:
        known: Severity = RUFF_RULES[rule]["severity"]
        return known
    tags = {str(tag).lower() for tag in properties.get("tags") or ()}
    if _STYLE.fullmatch(rule) or tags & _STYLE_TAGS:
        return "low"
    with suppress(ValueError):
        score = float(properties.get("security-severity") or "none")
        return "critical" if score >= 9 else "high" if score >= 7 else "medium"
    if level == "error" and tags & _SERIOUS_TAGS:
        return "high"
    return _LEVELS.get(level, "medium")


def _plain_path(uri: str, base: str = "") -> str:
    """Return a file URI or path as a path with `/`. Put `base` in front of a relative path."""
    path = re.sub(r"^file:(?://[^/]*)?", "", unquote(uri)).replace("\\", "/")
    if re.match(r"/[A-Za-z]:/", path):
        path = path[1:]  # file:///C:/src
    is_absolute = path.startswith("/") or re.match(r"[A-Za-z]:/", path)
    if base and not is_absolute:
        folder = _plain_path(base)
        path = f"{folder.rstrip('/')}/{path}" if folder else path
    return re.sub(r"^(?:\./)+", "", path)


def _located(results: list[Result], bundle: Bundle, root: str) -> list[Result]:
    """Return the results with paths relative to the checkout, or unchanged if its top is unknown.

    A tool may have run in another folder, such as that of another CI job. Then the top of its
    checkout is the folder that contains all its files and in which a changed file is found. If
    there is no such folder, the results are returned unchanged.
    """
    absolute = [result.path for result in results if re.match(r"/|[A-Za-z]:/", result.path)]
    tops = [os.path.realpath(root), os.path.abspath(root)] if root else []
    for file in bundle.files:
        tops += (
            path.removesuffix(f"/{file.path}")
            for path in absolute
            if path.endswith(f"/{file.path}")
        )
    top = next(
        (top for top in tops if absolute and all(path.startswith(f"{top}/") for path in absolute)),
        "",
    )
    if not top:
        return results
    return [replace(result, path=result.path.removeprefix(f"{top}/")) for result in results]


def new_findings(
    head: Iterable[Result], base: Iterable[Result], bundle: Bundle, *, compared: bool
) -> Iterator[Finding]:
    """Yield a finding for each new result in `head`, at most PER_FILE for each rule and file.

    `head` and `base` are the results of analysers after and before the change. A result is new if
    `base` does not contain it.

    Two results are the same if the same rule flags the same code, on any line. If `compared` is
    False, the results for the base are unknown, and only results on added lines are new.
    """
    now = [(result, _marks(result, bundle.head.get(result.path, ""))) for result in head]
    before = [_marks(result, _before(bundle, result.path)) for result in base]
    # First compare whole lines, then only the flagged code: the rest of its line may have changed.
    for at in (0, 1):
        old_marks = Counter(marks[at] for marks in before)
        new_marks = Counter(marks[at] for _, marks in now)
        now = [(result, marks) for result, marks in now if not _taken(old_marks, marks[at])]
        before = [marks for marks in before if not _taken(new_marks, marks[at])]
    counts: Counter[tuple[str, str]] = Counter()
    same: set[tuple[object, ...]] = set()
    for result in sorted((result for result, _ in now), key=_order):
        file, text = bundle.file(result.path), bundle.head.get(result.path)
        if file is None or text is None or file.status == "deleted":
            continue
        if counts[result.rule, result.path] >= PER_FILE:
            continue
        # Each place is reported once, and each undefined name, even if it is used several times.
        place: tuple[object, ...] = (result.path, result.line, result.end)
        key: tuple[object, ...] = (result.rule, result.path, result.message)
        if result.tool != "ruff" or "`" not in result.message:
            key += place
        if key in same or (result.tool == "ruff" and place in same):
            continue
        added = {line.new for line in file.added}
        if compared or any(number in added for number in range(result.line, result.end + 1)):
            counts[result.rule, result.path] += 1
            same |= {key, place}
            yield _finding(result, file, text)


def _order(result: Result) -> tuple[str, int, int]:
    return result.path, result.line, SEVERITIES.index(result.severity)


def _before(bundle: Bundle, path: str) -> str:
    """Return the text that a file had before the change, or "" if the text is unknown.

    `path` is the path of the file after the change, which may have renamed it.
    """
    file = bundle.file(path)
    return bundle.base.get((file.old_path or path) if file else path, "")


def _taken(left: Counter[tuple[str, str]], mark: tuple[str, str]) -> bool:
    """Subtract 1 from `left[mark]`, even if it is 0; return whether it was above 0 before."""
    left[mark] -= 1
    return left[mark] >= 0


def _marks(result: Result, text: str) -> tuple[tuple[str, str], tuple[str, str]]:
    """Return two keys of a result; results with an equal key count as the same result.

    The keys of the results before the change are compared with those after the change.
    The first key contains the whole lines of the result, the second only the flagged code.
    Each key begins with the rule. The keys do not depend on layout, quotes and comments.
    """

    def words(code: str) -> str:
        comment = "#" if language(result.path) in ("python", "ruby", "shell") else "//"
        code = re.sub(rf"(?m)(?:^|\s){comment}[^\n'\"]*$", "", code)
        code = re.sub(r",(?=\s*[)\]}])", "", code).replace("'", '"')
        return "".join(code.split())

    lines = "\n".join(text.split("\n")[result.line - 1 : result.end])
    return (result.rule, words(lines)), (result.rule, words(result.code or lines))


def _finding(result: Result, file: FileDiff, text: str) -> Finding:
    lines = text.split("\n")
    first, last = result.line, max(result.line, min(result.end, len(lines)))
    hunk = next((hunk for hunk in file.hunks if last in hunk.commentable), None)
    if hunk is not None and first not in hunk.commentable:
        first = last
    title = " ".join(result.message.split())
    title, _, more = title.partition(". ") if len(title) > 200 else (title, "", "")
    return Finding(
        path=file.path,
        quote="\n".join(lines[first - 1 : last]),
        title=title[:200],
        body=f"{result.why or more or title} (Reported by {result.tool}.)".lstrip(),
        severity=result.severity,
        confidence="high",
        category="bug",
        acceptance=f"{result.tool} no longer reports {result.rule.rsplit('/', 1)[-1]} here.",
        rule=re.sub(r"[^\w./-]", "-", result.rule)[:80],
        source=result.tool,
        line=last if hunk else None,
        start_line=first if hunk and first < last else None,
        claimed=last,
        anchor="exact" if hunk else "file",
    )
