"""Values of a request that reach a file, an address, a page or a shell nearby, and routes without a check."""

from __future__ import annotations

import re
from collections.abc import Iterator

from glue.agents.review.findings.rules.queries import SHELL
from glue.agents.review.findings.rules.rule import Rule
from glue.agents.review.findings.rules.view import Project, View
from glue.agents.review.findings.rules.web import REDIRECT, TRAVERSAL, XSS
from glue.agents.review.records import Finding

SSRF = Rule(
    name="request-forgery",
    category="security",
    severity="high",
    confidence="medium",
    title="The server fetches an address from the request: `{what}`",
    body="Whoever sends the request chooses what this server connects to, also addresses that only the server can "
    "reach "
    "(metadata services, internal hosts). Allow a list of hosts.",
    acceptance="Only hosts of a list are fetched; a test passes an internal address.",
)
UNGUARDED = Rule(
    name="route-without-auth",
    category="security",
    severity="high",
    confidence="medium",
    title="The new route changes data and has no access check",
    body="The other routes of this file that change data are guarded (`{what}`); this one can be called by anyone.",
    acceptance="The route has the same check as its neighbours, and a test shows that a stranger is refused.",
)
LOGGED = Rule(
    name="secret-logged",
    category="security",
    severity="high",
    confidence="high",
    title="`{what}` is written to the log",
    body="Logs are kept, copied and read by more people than the secret is meant for. Leave it out, or log that it "
    "was set.",
    acceptance="No log line holds the value.",
)

_SOURCE = (
    r"(?:req(?:uest)?\.(?:query|params|body|args|form|GET|POST|values|json|query_params|files|headers|cookies)\b"
    r"|r\.URL\.Query\(\)|r\.FormValue\(|c\.(?:Query|Param|PostForm)\()"
)
_TAKEN = re.compile(
    rf"(?:(?:const|let|var)\s+)?(?P<name>\w+)\s*(?::\s*\w+)?\s*:?=\s*(?:await\s+)?(?:String\(|str\()?{_SOURCE}"
)
_TAKEN_MANY = re.compile(rf"(?:const|let|var)\s*\{{(?P<names>[^}}]*)\}}\s*=\s*{_SOURCE}")
_REACH = 40  # lines below which a name is forgotten
_CLEANED = re.compile(
    r"basename|secure_filename|filepath\.(?:Base|Clean)|startswith|startsWith|HasPrefix|allow|whitelist|valid|sanitiz|escape|encodeURIComponent|parseInt|Number\(|int\(|is_safe|resolve\(\)\.relative",
    re.IGNORECASE,
)
_FILES = (
    r"path\.(?:join|resolve)|os\.path\.join|filepath\.Join|readFile(?:Sync)?|createReadStream|sendFile|\bopen"
    r"|unlink(?:Sync)?|os\.(?:Open|ReadFile|Remove)|send_file|FileResponse|\bPath"
)
_SINKS: tuple[tuple[Rule, str], ...] = (
    (TRAVERSAL, rf"(?:{_FILES})\((?P<args>[^\n]*)"),
    (REDIRECT, r"(?:\bredirect|RedirectResponse|HttpResponseRedirect|http\.Redirect)\((?P<args>[^\n]*)"),
    (SSRF, r"(?:\bfetch|axios(?:\.\w+)?|requests\.\w+|httpx\.\w+|urlopen|http\.Get|got)\(\s*(?P<args>[^,\n)]*)"),
    (XSS, r"(?:res\.(?:send|write|end)|HTMLResponse|HttpResponse|Markup|make_response)\((?P<args>[^\n]*<\w[^\n]*)"),
    (SHELL, r"(?<![\w.])(?:exec|execSync|os\.system|os\.popen)\((?P<args>[^\n]*)"),
)
_DIRECT_XSS = re.compile(
    rf"(?:send|write|end|HTMLResponse|HttpResponse|return)\(?\s*f?[`\"'][^\n]*<\w+[^\n]*(?:\$\{{|\{{)\s*(?P<what>{_SOURCE}[\w.\[\]'\"]*)"
)

_ROUTE = {
    "python": re.compile(r"^\s*@\w+\.(?P<verb>post|put|patch|delete)\("),
    "js": re.compile(r"^\s*(?:app|router|\w*[rR]outer|server|fastify)\.(?P<verb>post|put|patch|delete)\("),
}
_GUARD = re.compile(
    r"(?P<what>\b(?:require|ensure|verify|check|current|get_current|is|authenticate|authorize|auth|protect)\w*(?:auth|user|key|login|admin|token|session|role|permission)\w*"
    r"|@login_required|@\w*_required|authenticate\w*|authorize\w*|isAuthenticated|requireAuth)",
    re.IGNORECASE,
)
_OPEN_ROUTE = re.compile(
    r"login|signin|signup|register|logout|webhook|health|token|refresh|reset|forgot|callback", re.IGNORECASE
)

_LOG = re.compile(
    r"(?:console\.(?:log|info|debug|warn|error)|\blog(?:ger|ging)?\.(?:debug|info|warning|warn|error|exception|critical|Print\w*|Info\w*|Debug\w*)|\bprint|fmt\.Print\w*)\((?P<args>[^\n]*)",
    re.IGNORECASE,
)
_SECRET = re.compile(
    r"(?<![\w.'\"-])(?P<what>(?:\w+\.)*(?:password|passwd|secret|api_?key|access_?token|refresh_?token|auth_?token|private_?key|credit_?card|cvv|ssn))\b(?!\s*[(:=]|['\"_-])",
    re.IGNORECASE,
)


def check(project: Project) -> Iterator[Finding]:
    for view in project.code_views():
        yield from _flows(view)
        if view.language in _ROUTE:
            yield from _routes(view)
        for number in sorted(view.added):
            yield from _logged(view, number)


def _flows(view: View) -> Iterator[Finding]:
    """Follow names that were taken from a request to where they do harm, within one function's length."""
    bare = view.source.bare_line
    known: dict[str, int] = {}
    said: set[int] = set()
    for number in range(1, len(view.source.starts) + 1):
        line = bare(number)
        if re.match(r"\s*(?:async\s+)?(?:def|func|function)\b|.*=>\s*\{\s*$", line):
            known = {name: at for name, at in known.items() if number - at < 3}
        names = [name for name, at in known.items() if number - at <= _REACH]
        if _CLEANED.search(line):
            known = {name: at for name, at in known.items() if not re.search(rf"\b{name}\b", line)}
        elif number in view.added and names and number not in said:
            for finding in _sink(view, number, line, names):
                said.add(number)
                yield finding
        if match := _TAKEN.search(line):
            if not _CLEANED.search(line):
                known[match["name"]] = number
        elif match := _TAKEN_MANY.search(line):
            known |= {part.split(":")[-1].split("=")[0].strip(): number for part in match["names"].split(",")}
        direct = _DIRECT_XSS.search(line) if number in view.added else None
        if direct and number not in said:
            yield from XSS.at(view, number, what=direct["what"])


def _sink(view: View, number: int, line: str, names: list[str]) -> Iterator[Finding]:
    for rule, pattern in _SINKS:
        match = re.search(pattern, line)
        if match is None:
            continue
        used = next(
            (name for name in names if name and re.search(rf"(?<![\w.]){re.escape(name)}\b", match["args"])), ""
        )
        if used:
            yield from rule.at(view, number, what=used)
            return


def _routes(view: View) -> Iterator[Finding]:
    """A new route that changes data, where every other one of the file is guarded."""
    found: list[tuple[int, str]] = []
    total = len(view.source.starts)
    for number in range(1, total + 1):
        if _ROUTE[view.language].match(view.source.code_line(number)):
            end = next(
                (
                    n
                    for n in range(number, min(number + 12, total))
                    if re.search(r"\)\s*(?:->[^:]+)?:\s*$|\{\s*$", view.source.code_line(n))
                ),
                number,
            )
            found.append((number, "\n".join(view.source.bare_line(n) for n in range(number - 2, end + 1))))
    guards = [match for _, text in found if (match := _GUARD.search(text))]
    whole = re.search(r"APIRouter\([^)]*dependencies|router\.use\(\s*\w*[aA]uth", view.source.bare)
    for number, text in found:
        bare = not _GUARD.search(text) and not _OPEN_ROUTE.search(text)
        if bare and number in view.added and not whole and len(guards) >= 2 and len(guards) == len(found) - 1:
            yield from UNGUARDED.at(view, number, what=guards[0]["what"])


def _logged(view: View, number: int) -> Iterator[Finding]:
    match = _LOG.search(view.source.bare_line(number))
    if match is None:
        return
    # Of a text only what is filled into it counts.
    args = re.sub(r"(?<![fF])(\"(?:\\.|[^\"\\])*\"|'(?:\\.|[^'\\])*')", "''", match["args"])
    args = re.sub(r"`(?P<text>[^`]*)`", lambda m: " ".join(re.findall(r"\$\{[^}]*\}", m["text"])), args)
    args = re.sub(r"[fF](['\"])(?P<text>.*?)\1", lambda m: " ".join(re.findall(r"\{[^}]*\}", m["text"])), args)
    secret = _SECRET.search(args)
    if secret and not re.search(r"mask|redact|hash|len\(|bool\(|!!|\.length|is not None|typeof", args, re.IGNORECASE):
        yield from LOGGED.at(view, number, what=secret["what"])
