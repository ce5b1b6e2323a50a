"""Findings without a model: ruff where it is installed, SARIF or RDJSON that is handed in, and our own rules.

Only what is new between base and head is reported, by the flagged code and not by its line. ruff runs on copies of both
sides in a scratch folder: no file of the work tree, no configuration of the pull request, no environment, no network.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import tempfile
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from glue.agents.review.change.syntax import functions, language, lex
from glue.agents.review.findings import rules
from glue.agents.review.findings.dedupe import rank
from glue.agents.review.records import SEVERITIES, Bundle, FileDiff, Finding, Severity
from glue.errors import ConfigError

SECONDS = 30.0
PER_FILE = 3  # findings of one rule; who reads these looks for the others
MOST_BYTES = 16 * 1024 * 1024  # of what an analyser says
_PYTHON_2 = re.compile(r"^\s*except [^:\n]+, [a-z_]\w*:", re.MULTILINE)  # two exceptions, as Python 3.14 reads it
_TEST_MODULE = re.compile(r"(?:^|/)(?:test_[^/]*|[^/]*_tests?|tests?|conftest|__init__)\.py$")  # others may be data
# The rules of ruff that are asked for, with their reasons.
RUFF_RULES: Mapping[str, Mapping[str, Any]] = tomllib.loads(
    files("glue.agents.review.findings").joinpath("ruff_rules.toml").read_text(encoding="utf-8")
)
_LEVELS: dict[str, Severity] = {"error": "high", "warning": "medium", "note": "low", "none": "info", "info": "low"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What an analyser says of one place."""

    tool: str
    rule: str
    path: str
    line: int
    end: int
    message: str
    severity: Severity = "medium"
    why: str = ""
    code: str = ""  # the flagged code alone, where it is known


def deterministic(bundle: Bundle, *, disable: tuple[str, ...] = (), hints: bool = False) -> tuple[Finding, ...]:
    """Everything that can be said without a model, the worst first; with `hints`, also what only a model can judge."""
    found = (*rules.check(bundle, disable=disable), *ruff(bundle))
    wanted = (one for one in found if one.rule not in disable and (hints or not rules.is_hint(one)))
    return tuple(sorted(wanted, key=rank))


def find_ruff() -> str:
    """The ruff that is installed beside glue; empty where there is none. One of the repository is not looked for."""
    try:
        return os.path.abspath(str(import_module("ruff").find_ruff_bin()))
    except (ImportError, AttributeError, OSError):
        return ""


def ruff(bundle: Bundle) -> tuple[Finding, ...]:
    """Run ruff over the Python files of a change, as they were and as they are."""
    python = (file for file in rules.changed_files(bundle) if file.language == "python" and not file.is_doc)
    runs = (file for file in python if not file.is_test or _TEST_MODULE.search(file.path))
    changed = [file.diff for file in runs if file.path in bundle.head]
    program = find_ruff() if changed else ""
    if not program:
        return ()
    # What was deleted may have moved: its findings are old ones.
    changed += [file for file in bundle.files if file.status == "deleted" and language(file.path) == "python"]
    with tempfile.TemporaryDirectory(prefix="glue-review-") as scratch:
        home = os.path.realpath(scratch)
        names: dict[str, tuple[str, str]] = {}  # in the scratch folder -> side, path
        for number, file in enumerate(changed):
            texts = {"head": bundle.head.get(file.path), "base": bundle.base.get(file.old_path or file.path)}
            for side, text in texts.items():
                if text is not None:
                    if side == "base":  # what was silenced before is no news when the comment goes
                        text = text.replace("noqa", "____")
                    # The name may matter (`__init__.py`), the folders do not.
                    stem = re.sub(r"[^\w.]", "_", file.path.rsplit("/", 1)[-1])
                    place = Path(home, f"{side}-{number}", stem)
                    place.parent.mkdir()
                    place.write_text(text, encoding="utf-8", errors="replace")
                    names[str(place)] = (side, file.path)
        said = [(names[os.path.realpath(row["filename"])], row) for row in _run_ruff(program, home)]
    results: dict[str, list[Result]] = {"head": [], "base": []}
    broken = {place for place, row in said if row.get("code") in (None, "invalid-syntax", "E999")}
    for (side, path), row in said:
        # What did not parse before says nothing of what is new.
        text = bundle.head[path] if side == "head" else _before(bundle, path)
        if (side, path) in broken or ("base", path) in broken or _PYTHON_2.search(text):
            continue
        if result := _ruff_result(row, path, text, is_head=side == "head"):
            results[side].append(result)
    return tuple(new_findings(results["head"], results["base"], bundle, compared=True))


def _run_ruff(program: str, folder: str) -> list[dict[str, Any]]:
    argv = [program, "check", "--isolated", "--no-cache", "--quiet", "--exit-zero", "--output-format=json"]
    argv += ["--target-version=py314", f"--select={','.join(RUFF_RULES)}", "--no-preview", "--force-exclude", "."]
    env = {"HOME": folder, "PATH": "", "NO_COLOR": "1"}
    nothing = subprocess.DEVNULL
    with tempfile.TemporaryFile() as out:
        try:
            subprocess.run(argv, cwd=folder, env=env, stdin=nothing, stdout=out, stderr=nothing, timeout=SECONDS)
            out.seek(0)
            raw = out.read(MOST_BYTES + 1)
            rows = json.loads(raw) if len(raw) <= MOST_BYTES else []
        except (OSError, subprocess.TimeoutExpired, ValueError):
            return []
    return [row for row in rows if isinstance(row, dict) and row.get("filename")]


def _ruff_result(row: Mapping[str, Any], path: str, text: str, *, is_head: bool) -> Result | None:
    """What a row of ruff's says; None where the rule is narrower than ruff's own."""
    rule = RUFF_RULES.get(row["code"])
    if rule is None:
        return None
    start, stop = row["location"], row["end_location"]
    line, end = int(start["row"]), int(stop["row"])
    named = re.search(r"`([^`]*)`", row["message"])
    if named and named[1] in rule.get("names", ()):
        return None
    rows = text.split("\n")
    flagged = rows[line - 1 : end] or [""]  # other ends of lines are lines to ruff
    code = "\n".join([*flagged[:-1], flagged[-1][: int(stop["column"]) - 1]])[int(start["column"]) - 1 :]
    if is_head and not (
        re.search(rule.get("line", ""), "\n".join(flagged)[:2_000])
        and re.search(rule.get("code", ""), code[:2_000])
        and not ("unless_in" in rule and re.match(rule["unless_in"], _block(rows, line)))
        and (row["code"] != "B006" or _is_shared(text, line, flagged[0][: int(start["column"]) - 1]))
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
    """The line that opens the block around a line."""
    depths = [len(row) - len(row.lstrip()) if row.strip() else 10_000 for row in rows[:line]]
    return next((rows[at].strip() for at in range(len(depths) - 2, -1, -1) if depths[at] < depths[-1]), "")


# A parameter that is changed in its function, kept beyond it, or handed out.
_SHARED = (
    r"\bNAME (?:\. (?:append|extend|insert|add|update|setdefault|pop|popitem|remove|discard|clear|sort|reverse) \("
    r"|\[ [^;=]*\] [-+|&]?= |[-+|&]= )|[\w\]] = NAME ;|(?:return|yield) NAME ;|del NAME \["
)


def _is_shared(text: str, line: int, before: str) -> bool:
    """Whether calls share the default that stands behind these words of a line."""
    name = re.match(r"\s*(\w+)", re.split(r",(?![^\[]*\])|\(", before)[-1])
    around = [one for one in functions(text, "python") if one.start <= line <= one.end]
    if name is None or not around:
        return False
    _, _, body = " ".join(around[-1].words).partition(": ; { ")
    return re.search(_SHARED.replace("NAME", name[1]), body) is not None


def handed_in(
    bundle: Bundle, given: Sequence[tuple[str, str]], base: Sequence[tuple[str, str]] = ()
) -> tuple[Finding, ...]:
    """Read results from files, each (format, path). With files of the base, what they hold is not new; without,
    results on lines that were added are."""
    now = [result for form, path in given for result in _load(form, path)]
    before = [result for form, path in base for result in _load(form, path)]
    return tuple(new_findings(now, before, bundle, compared=bool(base)))


def _load(form: str, path: str) -> list[Result]:
    raw = Path(path).read_bytes()
    if len(raw) > MOST_BYTES:
        raise ConfigError(f"{path} has more than {MOST_BYTES} bytes")
    try:
        return list(_READERS[form](json.loads(raw)))
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError, IndexError) as error:
        raise ConfigError(f"{path} is no {form.upper()}: {error}") from error


def _sarif(data: Any) -> Iterator[Result]:
    for run in data["runs"]:
        driver = run["tool"]["driver"]
        rules = driver.get("rules", ())
        levels = {rule["id"]: rule.get("defaultConfiguration", {}).get("level", "warning") for rule in rules}
        for row in run.get("results") or ():
            if row.get("baselineState") in ("unchanged", "absent") or row.get("suppressions"):
                continue
            rule = str(row.get("ruleId") or row.get("rule", {}).get("id") or "result")
            for place in (row.get("locations") or ())[:1]:
                where = place["physicalLocation"]
                region = where.get("region") or {}
                line = int(region.get("startLine") or 1)
                yield Result(
                    tool=str(driver["name"]),
                    rule=f"{driver['name']}/{rule}",
                    path=_relative(unquote(str(where["artifactLocation"]["uri"]))),
                    line=line,
                    end=min(int(region.get("endLine") or line), line + 5),
                    message=str(row["message"].get("text") or rule),
                    severity=_LEVELS.get(str(row.get("level") or levels.get(rule, "warning")), "medium"),
                )


def _rdjson(data: Any) -> Iterator[Result]:
    tool = str((data.get("source") or {}).get("name") or "analyser")
    for row in data["diagnostics"]:
        name = str((row.get("source") or {}).get("name") or tool)
        place = row["location"]
        span = place.get("range") or {}
        line = int((span.get("start") or {}).get("line") or 1)
        yield Result(
            tool=name,
            rule=f"{name}/{(row.get('code') or {}).get('value') or 'result'}",
            path=_relative(str(place["path"])),
            line=line,
            end=min(int((span.get("end") or {}).get("line") or line), line + 5),
            message=str(row["message"]),
            severity=_LEVELS.get(str(row.get("severity") or data.get("severity") or "warning").lower(), "medium"),
        )


_READERS = {"sarif": _sarif, "rdjson": _rdjson}


def _relative(path: str) -> str:
    return re.sub(r"^(?:file://)?(?:\./)+", "", path)


def new_findings(
    head: Iterable[Result], base: Iterable[Result], bundle: Bundle, *, compared: bool
) -> Iterator[Finding]:
    """Make findings of what the base did not have: the same rule on the same code is the same, wherever it stands."""
    now = [(result, _marks(result, bundle.head.get(result.path, ""))) for result in head]
    before = [_marks(result, _before(bundle, result.path)) for result in base]
    for at in (0, 1):  # whole lines first; what is left may have been edited around the flagged code
        known, marks = Counter(one[at] for one in before), Counter(one[at] for _, one in now)
        now = [one for one in now if not _taken(known, one[1][at])]
        before = [one for one in before if not _taken(marks, one[at])]
    told: Counter[tuple[str, str]] = Counter()
    same: set[tuple[object, ...]] = set()
    for result, _ in sorted(now, key=lambda one: (one[0].path, one[0].line, SEVERITIES.index(one[0].severity))):
        file, text = bundle.file(result.path), bundle.head.get(result.path)
        if file is None or text is None or file.status == "deleted" or told[result.rule, result.path] >= PER_FILE:
            continue
        # One place is spoken of once, and so is an undefined name, however often it is used.
        place: tuple[object, ...] = (result.path, result.line, result.end)
        saying = (
            result.rule,
            result.path,
            result.message,
            *(() if result.tool == "ruff" and "`" in result.message else place),
        )
        if saying in same or (result.tool == "ruff" and place in same):
            continue
        added = {line.new for line in file.added}
        if compared or any(number in added for number in range(result.line, result.end + 1)):
            told[result.rule, result.path] += 1
            same |= {saying, place}
            yield _finding(result, file, text)


def _before(bundle: Bundle, path: str) -> str:
    """The base's text of a file, by its old name or its new one."""
    file = bundle.file(path)
    return bundle.base.get((file.old_path or path) if file else path, "")


def _taken(left: Counter[tuple[str, str]], mark: tuple[str, str]) -> bool:
    left[mark] -= 1
    return left[mark] >= 0


def _marks(result: Result, text: str) -> tuple[tuple[str, str], tuple[str, str]]:
    """What a result is known by on the other side: its rule with its lines, and with the flagged code alone.

    Layout, quotes and comments take no part.
    """

    def words(code: str) -> str:
        spoken = language(result.path)
        return " ".join(token.text for token in lex(code, spoken)) if spoken else " ".join(code.split())

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
        body=f"{result.why or more or title} ({result.tool} says so.)".lstrip(),
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
