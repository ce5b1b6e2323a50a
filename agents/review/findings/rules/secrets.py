"""Keys, passwords and tokens written into the code."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PurePosixPath

from glue.agents.review.findings.rules.rule import Rule
from glue.agents.review.findings.rules.view import Project, View
from glue.agents.review.records import Finding

SECRET = Rule(
    name="committed-secret",
    category="security",
    severity="critical",
    confidence="high",
    title="Secret committed: {what}",
    body="This line writes {what} into the repository. Everyone who can read the history can use it, and deleting the "
    "line later does not take it back. Read it from the environment or a secret store, and revoke this value.",
    acceptance="The value is gone from the code and was revoked; the program reads it from its environment.",
)
PASSWORD = Rule(
    name="hardcoded-credential",
    category="security",
    severity="high",
    confidence="high",
    title="Hard-coded credential `{what}`",
    body="`{what}` is given a literal value in the source, so every copy of the code carries the credential and it "
    "cannot differ between environments. Read it from the environment or a secret store.",
    acceptance="`{what}` comes from the environment, with no literal fallback, and the old value was changed.",
)

# Shapes that their makers document; each is long enough not to meet ordinary words.
_SHAPES = (
    ("a private key", re.compile(r"-----BEGIN (?:[A-Z]+ )*PRIVATE KEY(?: BLOCK)?-----")),
    ("an AWS access key", re.compile(r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b")),
    ("a GitHub token", re.compile(r"\bgh[pousr]_[A-Za-z0-9]{36,}\b|\bgithub_pat_\w{40,}\b")),
    ("a GitLab token", re.compile(r"\bglpat-[\w-]{20,}\b")),
    ("a Slack token", re.compile(r"\bxox[abeoprs]-[\w-]{10,}\b")),
    ("a live Stripe key", re.compile(r"\b[rs]k_live_\w{10,}\b")),
    ("a SendGrid key", re.compile(r"\bSG\.[\w-]{16,}\.[\w-]{16,}\b")),
    ("a Google API key", re.compile(r"\bAIza[\w-]{35}\b")),
    ("an OpenAI key", re.compile(r"\bsk-(?:proj-)?[A-Za-z0-9_-]{32,}\b")),
    ("an Anthropic key", re.compile(r"\bsk-ant-[\w-]{20,}\b")),
    ("an npm token", re.compile(r"\bnpm_[A-Za-z0-9]{36}\b")),
    ("a PyPI token", re.compile(r"\bpypi-[\w-]{50,}\b")),
    (
        "a password in a URL",
        re.compile(r"\b[a-z][a-z0-9+]{2,15}://[^\s:/@'\"]{1,64}:(?P<secret>[^\s@/'\"]{6,})@(?P<host>[^\s/'\"]+)"),
    ),
)
_HINT = re.compile(r"PRIVATE KEY|A[KS]IA|gh[pousr]_|github_pat_|glpat|xox|k_live|SG\.|AIza|sk-|npm_|pypi-|://")
_WELL_KNOWN = ("AKIAIOSFODNN7" + "EXAMPLE",)  # the key of the vendor's own manual
_ASSIGNED = re.compile(
    r"""(?P<name>[A-Za-z_][\w.-]*)["']?\]?\s*(?::\s*[\w.\[\]| ]+?)?\s*(?:=|:|:=|=>)\s*[bru]?"""
    r"""(?P<quote>["'`])(?P<value>[^"'`\n]+)(?P=quote)"""
)
_FALLBACK = re.compile(
    r"""(?:getenv|environ\.get|env\.get|process\.env\.|env\[)\(?["']?(?P<name>\w+)["']?\]?\)?\s*(?:,|\|\||\?\?|or)\s*"""
    r"""(?P<quote>["'`])(?P<value>[^"'`\n]+)(?P=quote)"""
)
_SIGNED = re.compile(r"""\b(?P<what>jwt\.(?:sign|verify|encode|decode))\([^,\n]+,\s*["'`][^"'`\n]{3,}["'`]""")
_SECRET_NAME = re.compile(
    r"(?:^|[_.-])(?:password|passwd|passphrase|pwd|secret|secret_?key|api_?key|apikey|auth_?token|access_?token|"
    r"refresh_?token|bearer_?token|private_?key|client_?secret|access_?key|signing_?key|encryption_?key|jwt_?secret|"
    r"credentials?)$",
    re.IGNORECASE,
)
_PUBLIC = re.compile(r"public|publishable|site_?key|anon", re.IGNORECASE)
_PLACEHOLDER = re.compile(
    r"^(?:.*(?:change.?me|placeholder|example|dummy|redacted|your[-_ ]|insert[-_ ]|replace[-_ ]|todo|<|\$\{|\{\{|%\().*"
    r"|x+|\*+|\.+|test\w*|none|null|undefined|(?:\w+[-_.])?(?:password|secret|token|api[-_]?key|pass(?:wd)?|pwd))$",
    re.IGNORECASE,
)
_QUOTED = re.compile(r"(?:=|:|,|\|\||\?\?|or)\s*[bru]?[\"'`]")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_QUIET_FILES = re.compile(r"\.(?:example|sample|template|dist|md|rst|txt)$|(?:^|/)(?:examples?|samples?|docs?)/")


def check(project: Project) -> Iterator[Finding]:
    for view in project.views:
        for number in sorted(view.added):
            line = view.source.line(number)
            if len(line) > 4_000:
                continue
            what = _shape(line)
            if what and not view.is_test:
                yield from SECRET.at(view, number, what=what)
            elif not view.is_test and (name := _assigned(view, number, line)):
                yield from PASSWORD.at(view, number, what=name)
            elif what and "private" in what and PurePosixPath(view.path).suffix not in (".py", ".go", ".ts", ".js"):
                yield from SECRET.at(view, number, what=what)


def _shape(line: str) -> str:
    if not _HINT.search(line):
        return ""
    for what, pattern in _SHAPES:
        match = pattern.search(line)
        if match is None or match.group() in _WELL_KNOWN:
            continue
        if "host" in match.groupdict():
            quoted = re.search(r"[\"'`=]\s*$|[\"'`]", line[: match.start()]) or ":" in line[: match.start()]
            if not quoted or not _real_password(match["secret"], match["host"]):
                continue  # an example in a text
        return what
    return ""


def _real_password(secret: str, host: str) -> bool:
    local = host.split(":")[0] in ("localhost", "127.0.0.1", "0.0.0.0", "db", "postgres", "mysql", "redis", "host")
    return (
        not local
        and "example" not in host
        and not _PLACEHOLDER.match(secret)
        and secret[0] not in "$%{<["
        and "]" not in secret
    )


def _assigned(view: View, number: int, line: str) -> str:
    """The name that is given a literal secret on this line."""
    if _QUIET_FILES.search(view.path) or view.is_doc:
        return ""
    if not _QUOTED.search(line):
        return ""
    bare = view.source.bare_line(number) if view.language else line
    for pattern in (_FALLBACK, _ASSIGNED):
        for match in pattern.finditer(bare):
            name = _CAMEL.sub("_", match["name"])
            if not _SECRET_NAME.search(name) or _PUBLIC.search(name):
                continue
            # A default is used wherever the variable is not set: there even a placeholder is a password.
            if _literal_secret(match["value"]) or (pattern is _FALLBACK and len(match["value"]) > 3):
                return match["name"]
    signed = _SIGNED.search(bare)
    return signed["what"] if signed else ""


def _literal_secret(value: str) -> bool:
    """A value that could be a secret: no sentence, no name of a field, no address, no placeholder."""
    if len(value) < 8 or any(char.isspace() for char in value) or _PLACEHOLDER.match(value):
        return False
    if value.startswith(("http://", "https://", "/", "./", "arn:", "env:", "vault:", "secret:", "projects/")):
        return False
    letters = any(char.isalpha() for char in value)
    return letters and (any(char.isdigit() for char in value) or any(char in "!@#$%^&*+=?" for char in value))
