"""The web's own traps: raw HTML, open redirects, switched-off protections, weak randomness and hashes."""

from __future__ import annotations

import re
from collections.abc import Iterator

from glue.agents.review.findings.rules.rule import Rule
from glue.agents.review.findings.rules.view import Project, View
from glue.agents.review.records import Finding

XSS = Rule(
    name="unsafe-html",
    category="security",
    severity="high",
    confidence="high",
    title="XSS: `{what}` is put into the page as HTML",
    body="The value is used as markup and nothing escapes or sanitises it: a script in it runs with the user's "
    "rights. Render it as "
    "text, or sanitise it first.",
    acceptance="The value is rendered as text or sanitised; a test passes one with a script in it.",
)
REDIRECT = Rule(
    name="open-redirect",
    category="security",
    severity="medium",
    confidence="high",
    title="Open redirect: the target comes from the request",
    body="Whoever makes the link decides where the user ends up, under the name of this site. Allow local paths "
    "only, or a list.",
    acceptance="Targets outside the site are refused; a test passes one.",
)
TRAVERSAL = Rule(
    name="path-traversal",
    category="security",
    severity="high",
    confidence="high",
    title="Path traversal: `{what}` chooses the file",
    body="A value from the request becomes part of a path, so `../` in it leads out of the directory. Take the bare "
    "name, or resolve "
    "the path and check that it is still inside.",
    acceptance="A name with `../` in it is refused; a test passes one.",
)
UNSAFE_SETTING = Rule(
    name="protection-off",
    category="security",
    severity="high",
    confidence="high",
    title="Protection switched off: `{what}`",
    body="`{what}` {why}.",
    acceptance="The protection is on, at least outside of local development.",
)
WEAK_RANDOM = Rule(
    name="weak-random",
    category="security",
    severity="high",
    confidence="high",
    title="`{what}` is predictable; this value must not be",
    body="`{what}` is made for simulations: who sees a few values can compute the next. Tokens, passwords and ids "
    "that protect "
    "something need a cryptographic source (`secrets`, `crypto.randomUUID`, `crypto/rand`).",
    acceptance="The value comes from a cryptographic source.",
)
WEAK_HASH = Rule(
    name="weak-hash",
    category="security",
    severity="high",
    confidence="high",
    title="`{what}` is no way to store a password",
    body="`{what}` is so quick that a stolen table is guessed through in hours. Use a password hash (argon2, scrypt, "
    "bcrypt).",
    acceptance="Passwords are stored with a password hash and a salt.",
)

_HTML = (
    re.compile(r"dangerouslySetInnerHTML=\{\{\s*__html:\s*(?P<what>[^}]+?)\s*\}\}"),
    re.compile(r"\.(?:inner|outer)HTML\s*\+?=(?!=)\s*(?P<what>[^;]+)"),
    re.compile(r"document\.write(?:ln)?\((?P<what>[^)]+)\)"),
    re.compile(r"insertAdjacentHTML\([^,]+,\s*(?P<what>[^)]+)\)"),
    re.compile(r"\b(?:mark_safe|Markup)\(\s*(?P<what>f['\"].*|[a-z_][\w.]*|.*%.*|.*\.format\(.*)\)"),
    re.compile(r"\btemplate\.(?:HTML|JS|URL)\((?P<what>[a-z][\w.]*)\)"),
    re.compile(r"\brender_template_string\(\s*(?P<what>f['\"].*|[a-z_]\w*\b(?!\s*=).*)\)"),
)
_CLEAN = re.compile(
    r"sanitiz|purify|escape|encode|clean|render(?:ed)?Markdown|highlight|^\s*['\"`][^$+]*['\"`]\s*$|^\s*$",
    re.IGNORECASE,
)
_REQUEST = (
    r"(?:request\.(?:args|GET|POST|form|values|query_params|query|params|body|json)\b|req\.(?:query|params|body)\b|r\.URL\.Query\(\)|r\.FormValue\("
    r"|c\.(?:Query|Param)\()"
)
_REDIRECT = re.compile(rf"(?:redirect|RedirectResponse|HttpResponseRedirect|http\.Redirect)\([^\n]*{_REQUEST}")
_PATHS = re.compile(
    rf"(?:\bopen|send_file|FileResponse|readFile(?:Sync)?|createReadStream|sendFile|os\.Open|os\.ReadFile|ioutil\.ReadFile|unlink(?:Sync)?)\([^\n]*?"
    rf"(?P<what>{_REQUEST}[\w.\[\]'\"(]*)"
)
_SETTINGS = (
    (
        re.compile(r"\bverify\s*=\s*False\b"),
        "accepts any certificate, so anyone in between can read and change the traffic",
    ),
    (
        re.compile(r"rejectUnauthorized\s*:\s*false"),
        "accepts any certificate, so anyone in between can read and change the traffic",
    ),
    (re.compile(r"NODE_TLS_REJECT_UNAUTHORIZED\W+0"), "accepts any certificate in the whole process"),
    (
        re.compile(r"InsecureSkipVerify\s*:\s*true"),
        "accepts any certificate, so anyone in between can read and change the traffic",
    ),
    (re.compile(r"ssl\._create_unverified_context|(?<![!=])=\s*(?:ssl\.)?CERT_NONE\b"), "accepts any certificate"),
    (re.compile(r"@csrf_exempt\b"), "lets other sites make requests in the user's name"),
    (re.compile(r"\bapp\.run\([^)]*debug\s*=\s*True"), "offers an interactive console to whoever causes an error"),
    (
        re.compile(r"verify_signature['\"]?\s*:\s*False|algorithms?['\"]?\s*[:=]\s*\[?\s*['\"]none['\"]"),
        "accepts tokens that nobody signed",
    ),
    (re.compile(r"\bhttpOnly\s*:\s*false|\bhttponly\s*=\s*False"), "lets any script on the page read the cookie"),
    (re.compile(r"\bautoescape\s*=\s*False"), "puts values into the page as HTML"),
    (re.compile(r"\bchmod\([^)]*0?o?777\)"), "lets every user of the machine change the file"),
    (re.compile(r"PermitRootLogin\s+yes"), "lets root log in from outside"),
)
_RANDOM = re.compile(
    r"(?P<what>Math\.random|random\.(?:choice|choices|randint|random|randrange|sample)|\brand\.(?:Intn?|Int63|Read|Int31n?))\("
)
_PROTECTS = re.compile(
    r"token|secret|password|passwd|session|otp|nonce|csrf|salt|api_?key|reset|verification|invite|(?:^|_)auth",
    re.IGNORECASE,
)
_HASH = re.compile(r"(?P<what>hashlib\.(?:md5|sha1)|createHash\(\s*['\"](?:md5|sha1)['\"]|\b(?:md5|sha1)\.(?:New|Sum))")
_PASSWORD = re.compile(r"passw|pwd", re.IGNORECASE)
_WILDCARD = re.compile(
    r"allow_origins\s*=\s*\[\s*['\"]\*['\"]|origin\s*:\s*(?:['\"]\*['\"]|true)|Access-Control-Allow-Origin['\"]\s*,\s*['\"]\*"
)
_CREDENTIALS = re.compile(r"allow_credentials\s*=\s*True|credentials\s*:\s*true|Allow-Credentials['\"]\s*,\s*['\"]true")


def check(project: Project) -> Iterator[Finding]:
    for view in project.code_views():
        for number in sorted(view.added):
            if len(view.source.line(number)) < 2_000:
                yield from _line(view, number)


def _line(view: View, number: int) -> Iterator[Finding]:
    bare, code = view.source.bare_line(number), view.source.code_line(number)
    for pattern in _HTML:
        match = pattern.search(bare)
        if match and not _CLEAN.search(match["what"]) and not _cleaned(view, match["what"]):
            yield from XSS.at(view, number, what=match["what"].strip()[:60])
            break
    if _REDIRECT.search(bare):
        yield from REDIRECT.at(view, number)
    path = _PATHS.search(bare)
    if path and not re.search(r"basename|secure_filename|filepath\.Base", bare):
        yield from TRAVERSAL.at(view, number, what=path["what"])
    for pattern, why in _SETTINGS:
        match = pattern.search(bare)
        if match:
            yield from UNSAFE_SETTING.at(view, number, what=match.group().strip(), why=why)
            break
    if _WILDCARD.search(bare) and any(_CREDENTIALS.search(view.source.bare_line(number + n)) for n in range(-4, 5)):
        yield from UNSAFE_SETTING.at(
            view, number, what="any origin with credentials", why="lets every site act in the user's name"
        )
    match = _RANDOM.search(code)
    if match and (_PROTECTS.search(code[: match.start()]) or _function_protects(view, number)):
        yield from WEAK_RANDOM.at(view, number, what=match["what"])
    match = _HASH.search(bare)
    if match and (_PASSWORD.search(bare) or _PASSWORD.search(_name(view, number))):
        yield from WEAK_HASH.at(view, number, what=match["what"].strip("("))


def _cleaned(view: View, what: str) -> bool:
    """Whether the name stands for a sanitised value, as far as this file says."""
    name = re.match(r"\s*([A-Za-z_]\w*)", what)
    if name is None:
        return False
    made = re.search(rf"\b{name[1]}\b\s*(?::[^=]+)?:?=\s*(?P<value>[^\n]*(?:\n[^\n]*)?)", view.source.bare)
    return made is not None and _CLEAN.search(made["value"]) is not None


def _name(view: View, number: int) -> str:
    function = view.function_at(number)
    return function.name if function else ""


def _function_protects(view: View, number: int) -> bool:
    return _PROTECTS.search(_name(view, number)) is not None
