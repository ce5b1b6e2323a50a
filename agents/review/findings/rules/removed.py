"""Protection that a change takes away: await, sanitising, authorisation, cleanup, limits, locks, type guards."""

from __future__ import annotations

import re
from collections.abc import Iterator

from glue.agents.review.findings.rules.rule import Rule
from glue.agents.review.findings.rules.view import Edit, Project, View
from glue.agents.review.records import Finding

AWAIT = Rule(
    name="await-removed",
    category="bug",
    severity="high",
    confidence="high",
    title="`await` was removed: nobody waits for `{what}`",
    body="The call still returns a promise, but its result is dropped: the function goes on before the work is done, "
    "and a "
    "failure becomes an unhandled rejection instead of an error here.",
    acceptance="The call is awaited (or its promise is returned), and a test sees a failure of it reach the caller.",
)
SANITISER = Rule(
    name="sanitising-removed",
    category="security",
    severity="high",
    confidence="high",
    title="Sanitising was removed: `{what}`",
    body="Before this change the value went through `{what}`; now it is used as it comes. Whatever relied on that "
    "(HTML, "
    "a URL, a path, a command) can be broken out of.",
    acceptance="The value is sanitised again before it is used, and a test passes a hostile one.",
)
AUTH = Rule(
    name="auth-removed",
    category="security",
    severity="critical",
    confidence="high",
    title="The access check was removed: `{what}`",
    body="`{what}` guarded this code and is gone, while the code it guarded is still there: it can now be reached "
    "without it.",
    acceptance="The check is back, and a test shows that a caller without rights is refused.",
)
CLEANUP = Rule(
    name="cleanup-removed",
    category="bug",
    severity="high",
    confidence="high",
    title="`{function}` no longer does `{what}`",
    body="The name `{function}` promises to let go of something, and the call that did so (`{what}`) was removed: "
    "what it "
    "held now stays for as long as the program runs.",
    acceptance="`{function}` lets go of everything it used to, and a test checks that it is gone.",
)
LIMIT = Rule(
    name="limit-removed",
    category="performance",
    severity="medium",
    confidence="high",
    title="The query lost its limit",
    body="The old query was bounded (`{what}`); the new one returns every row there is, and gets slower and larger "
    "as the "
    "data grows. Keep the limit, or page.",
    acceptance="The query is bounded again, by a limit or by paging.",
)
LOCK = Rule(
    name="lock-removed",
    category="bug",
    severity="high",
    confidence="high",
    title="The lock was removed: `{what}`",
    body="`{what}` protected what follows from being used by two threads at once, and is gone while the code it "
    "protected "
    "stays.",
    acceptance="The shared state is protected again; a test under the race detector passes.",
)
COMMIT = Rule(
    name="commit-removed",
    category="bug",
    severity="high",
    confidence="medium",
    title="`{what}` was removed: the change may never be stored",
    body="The code that writes is still here, but `{what}`, which made it lasting, is gone.",
    acceptance="What is written is committed; a test reads it back in a new session.",
)
TIMEOUT = Rule(
    name="timeout-removed",
    category="bug",
    severity="medium",
    confidence="high",
    title="The timeout was removed",
    body="Without `{what}` this call waits for ever when the other side does not answer.",
    acceptance="The call has a time limit.",
)
TIMEZONE = Rule(
    name="timezone-removed",
    category="bug",
    severity="medium",
    confidence="high",
    title="The time zone was taken away",
    body="The old line gave a time with its zone (`{what}`), the new one gives a naive time: comparing the two "
    "raises, and "
    "storing it means whatever zone the machine happens to be in.",
    acceptance="Times carry their zone; a test runs in another zone.",
)
GUARD = Rule(
    name="type-guard-removed",
    category="bug",
    severity="high",
    confidence="high",
    title="The runtime check `{what}` was removed",
    body="Only this check made sure that the value has the type the code below relies on. Static types do not help "
    "where "
    "the value comes from outside: a wrong one now passes, and breaks later or not at all.{more}",
    acceptance="A value of the wrong type is refused again; a test passes one.",
)
NIL_CHECK = Rule(
    name="null-check-removed",
    category="bug",
    severity="high",
    confidence="medium",
    title="The check for a missing value was removed",
    body="`{what}` handled the case that there is nothing; without it the next use of `{name}` fails on it.",
    acceptance="The missing value is handled again; a test passes one.",
)

_SANITISES = re.compile(
    r"(?P<what>\b(?:DOMPurify\.sanitize|sanitize\w*|escape(?:Html|HTML|_html|Shell\w*)?|bleach\.clean|encodeURI(?:Component)?"
    r"|html\.escape|shlex\.quote|quote_plus|markupsafe\.escape|html\.EscapeString|template\.HTMLEscapeString|url\.QueryEscape"
    r"|url\.PathEscape|filepath\.Clean|secure_filename|strip_tags|purify|normalize_path|safe_join))\s*\("
)
_AUTH = re.compile(
    r"(?P<what>@(?:login_required|require[sd]?_\w+|permission_required|jwt_required|user_passes_test|admin_required"
    r"|roles?_required|authenticated?\b\w*)"
    r"|Depends\(\s*(?:require|get_current|verify|auth|check|current)\w*"
    r"|permission_classes\s*=|\b(?:require|ensure|check|verify)_?(?:Auth|Admin|Login|LoggedIn|Permission|Role|Owner|Token|Session"
    r"|Signature|auth|admin|login|permission|role|owner|token|session|signature|api_key)\w*|\bauthenticat\w+|\bauthoriz\w+"
    r"|csrf_protect|\b(?:is|has)(?:Admin|Owner|Authorized|Authenticated|Permission|Role)\b)"
)
_CLEANS = re.compile(
    r"(?P<what>[\w.]*\b(?:delete|remove\w*|clear\w*|close|dispose|destroy|unsubscribe|off|cancel|release|disconnect|abort|stop"
    r"|shutdown|unref|terminate|evict|Close|Stop|Remove|Unlock|Release|Cancel)\()"
)
_PROMISES = re.compile(
    r"delete|remove|clear|clean|close|dispose|destroy|unsubscribe|unmount|teardown|release|evict|expire|stop|shutdown|reset|flush",
    re.IGNORECASE,
)
_LIMITS = re.compile(
    r"(?P<what>\bLIMIT\s+[\w$:%?]+|\.(?:limit|take|first)\(\s*\w+\s*\)|\[:\s*\w+\]|\bFETCH FIRST\b)", re.IGNORECASE
)
_READS = re.compile(r"\bSELECT\b.*\bFROM\b|\.(?:find|findAll|findMany|all|filter|select)\(|\.objects\b", re.IGNORECASE)
_LOCKS = re.compile(
    r"(?P<what>\b[\w.]*(?:mu|mutex|Mutex|lock|Lock)\w*\.(?:R?Lock|acquire)\(\)|\bwith\s+[\w.]*lock\w*\s*:|\bsynchronized\b)"
)
_COMMITS = re.compile(r"(?P<what>\b[\w.]*(?:db|session|conn|connection|tx|transaction)\.(?:commit|Commit)\(\))")
_TIMEOUTS = re.compile(r"(?P<what>\btimeout\s*[=:]\s*[^,)}\s]+)")
_GUARDS = re.compile(
    r"(?P<what>typeof\s+[\w.?]+\s*[!=]==?\s*['\"](?P<kind>\w+)['\"]|(?P<array>!?Array\.isArray\([\w.?]+\))|!?\binstanceof\s+\w+"
    r"|(?:not\s+)?isinstance\([^()]*(?:\([^()]*\))?\)|Number\.isInteger\([\w.]+\)|!?\bisNaN\([\w.]+\))"
)
_NULL = re.compile(
    r"^\s*(?:if|elif|else if)\s*\(?\s*(?P<what>(?P<name>[\w.]+)\s+is\s+None|not\s+(?P<py>[\w.]+)"
    r"|(?P<go>[\w.]+)\s*==\s*nil"
    r"|!(?P<js>[\w.]+)|(?P<strict>[\w.]+)\s*===?\s*(?:null|undefined))\s*\)?\s*[:{]?\s*(?:return\b.*)?$"
)
_HEADER = re.compile(
    r"\b(?:def|func|function|class)\s+(?:\([^)]*\)\s*)?(\w+)|(?:const|let)\s+(\w+)\s*=\s*(?:async\s*)?\("
)
_COMMENT = re.compile(r"^\s*(?:#|//|/?\*|<!--)")


def check(project: Project) -> Iterator[Finding]:
    counts = _Counts(project)
    for view in project.code_views():
        yield from _awaits(view, project)
        yield from _guards(view)
        for old, new in view.pairs:
            match = _TIMEOUTS.search(old.text)
            if match and "timeout" not in new.text.lower() and new.new and counts.net("timeout") < 0:
                yield from TIMEOUT.at(view, new.new, what=match["what"])
            zone = re.search(r"timezone\.utc|\bUTC\b|tz=\S+|ZoneInfo\(", old.text)
            if zone and re.search(r"\bnow\(\)|utcnow\(\)|fromtimestamp\([^,]*\)$", new.text) and new.new:
                yield from TIMEZONE.at(view, new.new, what=zone.group())
        for edit in view.edits:
            if edit.removed and not _whole_function(edit):
                yield from _edit(view, edit, counts)


class _Counts:
    """How often a text was added and removed in the whole change: what only moved is not gone."""

    def __init__(self, project: Project) -> None:
        self.added = project.added
        self.removed = "\n".join(line.text for file in project.bundle.files for line in file.deleted)

    def net(self, text: str) -> int:
        return self.added.count(text) - self.removed.count(text)


def _whole_function(edit: Edit) -> bool:
    """Whether the block takes a whole function with it, so that nothing is left to protect."""
    gone = {name for line in edit.removed for match in _HEADER.finditer(line.text) for name in match.groups() if name}
    kept = " ".join(line.text for line in edit.added)
    return any(not re.search(rf"\b{name}\b", kept) for name in gone)


def _spot(edit: Edit, pattern: re.Pattern[str] | None = None) -> int | None:
    """The line of the new file that stands where something was removed."""
    chosen = next((line for line in edit.added if pattern and pattern.search(line.text)), None)
    chosen = chosen or next((line for line in edit.added if line.text.strip() and not _COMMENT.match(line.text)), None)
    chosen = chosen or next(iter(edit.added), None) or edit.after or edit.before
    return chosen.new if chosen else None


def _edit(view: View, edit: Edit, counts: _Counts) -> Iterator[Finding]:
    said: set[str] = set()
    for line in edit.removed:
        if _COMMENT.match(line.text) or re.match(r"\s*(?:import|from|package|use)\b", line.text):
            continue
        for rule, pattern in ((SANITISER, _SANITISES), (AUTH, _AUTH), (LOCK, _LOCKS), (COMMIT, _COMMITS)):
            match = pattern.search(line.text)
            if not match or rule.name in said or counts.net(match["what"]) >= 0:
                continue
            if any(pattern.search(new.text) for new in edit.added):
                continue  # replaced by another of its kind
            if (spot := _spot(edit)) is not None:
                said.add(rule.name)
                yield from rule.at(view, spot, what=match["what"].strip("( "))
    yield from _limit(view, edit)
    yield from _cleanup(view, edit, counts)
    yield from _null(view, edit)


def _limit(view: View, edit: Edit) -> Iterator[Finding]:
    removed, added = (" ".join(line.text for line in lines) for lines in (edit.removed, edit.added))
    match = _LIMITS.search(removed)
    if match and _READS.search(removed) and _READS.search(added) and not _LIMITS.search(added):
        reads = [
            line.new
            for line in edit.added
            if line.new and re.search(r"SELECT|\.find|\.all|\.filter|\.objects", line.text)
        ]
        if reads:
            yield from LIMIT.at(view, reads[0], what=match["what"])


def _cleanup(view: View, edit: Edit, counts: _Counts) -> Iterator[Finding]:
    for line in edit.removed:
        match = _CLEANS.search(line.text)
        spot = _spot(edit)
        if not match or spot is None or _COMMENT.match(line.text):
            continue
        function = view.function_at(spot)
        call = match["what"].rsplit(".", 1)[-1]
        if function is None or not _PROMISES.search(function.name) or re.search(rf"\b{re.escape(call)}", function.body):
            continue
        if counts.net(match["what"]) < 0:
            own = [n for n in sorted(view.added) if function.start <= n <= function.end]
            first = spot if edit.added else max((n for n in own if n <= spot), default=spot)
            last = max((n for n in own if n <= first + 7), default=spot)
            what = match["what"].rstrip("(")
            yield from CLEANUP.at(view, first, max(first, last), what=what, function=function.name)
            return


def _null(view: View, edit: Edit) -> Iterator[Finding]:
    """A guard clause that was deleted while what it guarded is still used right below."""
    for line in edit.removed:
        match = _NULL.match(line.text)
        if not match or edit.added or edit.after is None or edit.after.new is None:
            continue
        name = next(value for key, value in match.groupdict().items() if key != "what" and value)
        below = " ".join(view.source.code_line(edit.after.new + n) for n in range(3))
        if re.search(rf"(?<![\w.]){re.escape(name)}(?:\.|\[|->)", below) and len(edit.removed) <= 4:
            yield from NIL_CHECK.at(view, edit.after.new, what=match["what"], name=name)


def _awaits(view: View, project: Project) -> Iterator[Finding]:
    for old, new in view.pairs:
        if "await " not in old.text or "await " in new.text or new.new is None:
            continue
        plain = re.sub(r"\bawait\s+", "", old.text).strip()
        if plain != new.text.strip() or new.text.strip().startswith("return"):
            continue
        what = re.search(r"([\w.]+)\s*\(", new.text.strip().split("=", 1)[-1])
        name = what[1] if what else new.text.strip()
        if not _became_sync(name.rsplit(".", 1)[-1], project):
            yield from AWAIT.at(view, new.new, what=name)


def _became_sync(name: str, project: Project) -> bool:
    header = re.compile(rf"\basync\b.*\b{re.escape(name)}\b")
    return any(header.search(old.text) and "async" not in new.text for view in project.views for old, new in view.pairs)


def _guards(view: View) -> Iterator[Finding]:
    lost: list[tuple[int, re.Match[str]]] = []
    for old, new in view.pairs:
        if new.new is None:
            continue
        kept = {match["what"] for match in _GUARDS.finditer(new.text)}
        lost += [(new.new, match) for match in _GUARDS.finditer(old.text) if match["what"] not in kept and not kept]
    if not lost:
        return
    # A check that a comparison or a loop relies on says the most; the others are named beside it.
    strong = [one for one in lost if one[1]["kind"] == "number" or one[1]["array"] or "isinstance" in one[1]["what"]]
    chosen = strong or lost[:1]
    rest = sorted({number for number, _ in lost} - {number for number, _ in chosen})
    more = f" The same happened on line{'s' if len(rest) > 1 else ''} {', '.join(map(str, rest))}." if rest else ""
    for number, match in chosen:
        yield from GUARD.at(view, number, what=match["what"], more=more)
