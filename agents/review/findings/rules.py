"""Rules that need both sides of a change: what protected code went away, what was loosened, what must not come in.

Only what is the same code but for the loss is spoken of: functions are compared token by token, so that moved, renamed
and reformatted code counts as unchanged. Linters' work is left to linters (`analysers`).
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import PurePosixPath

from glue.agents.review.change.config import CONFIG_FILES, GUIDELINE_FILES
from glue.agents.review.change.syntax import Edit, Function, edits, functions, language, lex, pairs
from glue.agents.review.findings import tripwire
from glue.agents.review.findings.view import Rule, View, views
from glue.agents.review.records import SEVERITIES, Bundle, Finding

_log = logging.getLogger("glue.review")
SMALL = 24  # tokens of a protection

AWAIT = Rule(
    name="await-removed",
    category="bug",
    severity="medium",
    confidence="high",
    title="`await` was removed: nobody waits for `{what}`",
    body="The function is the same but for this `await`. The call now only starts the work: what follows runs before "
    "it is done, and a failure of it reaches nobody.",
    acceptance="The call is awaited again, or its promise is returned or kept, and a test sees its failure.",
)
LOCK = Rule(
    name="lock-removed",
    category="bug",
    severity="medium",
    confidence="medium",
    title="The lock `{what}` was removed from `{function}`",
    body="`{what}` protected what follows from being used by two threads at once. It is gone, and the code it "
    "protected is still the same.",
    acceptance="The shared state is protected again, or nothing else can reach it any more.",
)
CLOSE = Rule(
    name="close-removed",
    category="bug",
    severity="medium",
    confidence="medium",
    title="`{function}` no longer calls `{what}`",
    body="The call that let go of something was removed, while the code that took hold of it is still here: what it "
    "held stays for as long as the program runs.",
    acceptance="What is opened, registered or started here is let go of again on every way out.",
)
AUTH = Rule(
    name="auth-removed",
    category="security",
    severity="medium",
    confidence="high",
    title="The access check `{what}` was removed from `{function}`",
    body="`{what}` guarded this code. It is gone, and the code it guarded is still the same: it can now be reached "
    "without it.",
    acceptance="The check is back, or a test shows that a caller without rights is still refused.",
)
GUARD = Rule(
    name="check-removed",
    category="bug",
    severity="low",
    confidence="medium",
    title="The check `{what}` was removed from `{function}`",
    body="`{function}` is the same but for this check: the case that it caught now runs into the code below it.",
    acceptance="The case is handled again, or a test shows that it cannot happen.",
)
SANITISER = Rule(
    name="sanitising-removed",
    category="security",
    severity="medium",
    confidence="medium",
    title="`{what}` was removed from `{function}`",
    body="Before this change the value went through `{what}`; now it is used as it comes, by code that is otherwise "
    "the same. Whatever relied on that (HTML, a URL, a path, a command) can be broken out of.",
    acceptance="The value is made safe again before it is used, and a test passes a hostile one.",
)
TIMEOUT = Rule(
    name="limit-removed",
    category="bug",
    severity="medium",
    confidence="medium",
    title="The limit `{what}` was removed",
    body="The call is the same but for its limit: it may now wait, read or return without bound.",
    acceptance="The call is bounded again.",
)
UNPROTECTED = Rule(
    name="protection-off",
    category="security",
    severity="medium",
    confidence="high",
    title="A protection was switched off: `{what}`",
    body="The value said the opposite before this change. Code that relied on the protection no longer has it.",
    acceptance="The protection is on again, or limited to where it is not needed.",
)
LOOSENED = Rule(
    name="type-loosened",
    category="types",
    severity="low",
    confidence="medium",
    title="The type of `{name}` in `{function}` was loosened from `{old}` to `{new}`",
    body="Nothing checks any more what is passed in here or what is done with it.",
    acceptance="`{name}` has a type that says what it is, and the checker passes.",
)
SKIPPED = Rule(
    name="test-switched-off",
    category="tests",
    severity="medium",
    confidence="high",
    title="The test `{name}` was switched off{more}",
    body="It ran before this change and does not run any more: what it guarded can break unseen.",
    acceptance="The test runs again, or is gone together with what it tested.",
)
FOCUSED = Rule(
    name="test-focused",
    category="tests",
    severity="medium",
    confidence="high",
    title="`{name}` switches off every other test of the file",
    body="With `.only` the runner leaves out all other tests: they look green because nobody ran them.",
    acceptance="The file has no `.only`.",
)
CONFLICT = Rule(
    name="conflict-marker",
    category="bug",
    severity="critical",
    confidence="high",
    title="A merge conflict was committed",
    body="The markers of an unfinished merge are part of the file: it holds both versions, and does not parse.",
    acceptance="The conflict is resolved and the markers are gone.",
)
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
SETTINGS = Rule(
    name="review-rules-changed",
    category="process",
    severity="low",
    confidence="high",
    title="This change edits the rules it would be reviewed by",
    body="`{path}` tells the reviewer what to look at. The version of the base was used for this review.",
    acceptance="A maintainer has looked at the new rules.",
)
RULES = (
    tripwire.INSTRUCTION, tripwire.HIDDEN, SECRET, CONFLICT, AUTH, SANITISER, AWAIT, LOCK, CLOSE, GUARD,
    TIMEOUT, UNPROTECTED, LOOSENED, SKIPPED, FOCUSED, SETTINGS,
)  # fmt: skip


_KEYWORDS = frozenset(
    "if not and or is in None True False null undefined nil true false typeof instanceof return raise throw new await"
    " async self this len err".split()
)
_NAME = re.compile(r"[A-Za-z_$][\w$]*")
_GUARDS = {
    "python": re.compile(
        r"if (?P<cond>[^{};]+?) : (?:; \{ )?(?:[^{};]+; ){0,2}(?:raise|return|continue)\b[^{};]*;(?: \})?"
    ),
    "js": re.compile(r"if \( (?P<cond>[^{};]+?) \) (?:\{ )?(?:throw|return|continue)\b[^{}]*?(?: \})?"),
    "go": re.compile(r"if (?P<cond>[^{}]+?) \{ (?:return|panic|continue)\b[^{}]*\}"),
}
_PART = re.compile(r"(?:and|&&) (?P<right>[^{};]+)|(?P<left>[^{};]+) (?:and|&&)")
_WRAPPER = re.compile(r"if (?P<cond>[^{};]+?)(?: : ; \{| \{)?")
_TERNARY = re.compile(r"(?P<cond>[^{};]+) \?")
_PLATFORM = re.compile(
    r"PY[23]\b|version|platform|WIN|win32|__debug__|DEBUG|TYPE_CHECKING|deprecat|legacy|compat", re.IGNORECASE
)
_AUTH = re.compile(
    r"(?P<what>@ (?:\w+ \. )*(?:login_required|requires?_\w+|permission_required|jwt_required|user_passes_test"
    r"|admin_required|roles?_required|authenticated|csrf_protect)\b"
    r"|Depends \( (?:require|get_current|verify|auth|check|current)\w*"
    r"|\b(?:require|ensure|check|verify)_?(?:Auth|Admin|Login|LoggedIn|Permissions?|Role|Owner|Signature|CSRF"
    r"|auth|admin|login|permissions?|role|owner|signature|csrf|api_key)\w*)"
)
_LOCK = re.compile(
    r"(?P<what>(?:\w+ \. )*\w*(?:mu|mutex|Mutex|lock|Lock|mtx)\w* \. (?:R?Lock|acquire|lock) \( \)"
    r"|(?:async )?with (?:\w+ \. )*\w*lock\w*\b(?= [:(,]))",
)
_CLOSE = re.compile(
    r"(?P<what>(?P<owner>\w+) (?:\?\. |\. )(?:close|Close|dispose|unsubscribe|disconnect|abort|release|Release"
    r"|terminate|removeEventListener|removeListener|Stop|Unlock) \()|(?P<timer>clear(?:Timeout|Interval) \()"
)
_SANITISER = re.compile(
    r"(?P<what>(?:\w+ \. )*(?:sanitize\w*|escape(?:_?[Hh]tml|HTML|Shell\w*)?|encodeURI(?:Component)?|quote_plus"
    r"|EscapeString|HTMLEscapeString|QueryEscape|PathEscape|secure_filename|strip_tags|safe_join)) \("
)
_SHELL_QUOTE = re.compile(r"(?P<what>(?:shlex|pipes) \. quote) \(")
_LIMIT = re.compile(
    r"(?P<what>\b(?:timeout|timeout_ms|max_length|maxLength|max_size|maxBytes|max_redirects|limit)\b [=:] [^,(){}]+)"
    r"|(?P<call>\. (?:limit|setTimeout|SetDeadline|WithTimeout) \( [^()]* \))|(?P<sql>\bLIMIT \S+)"
)
_FLAGS = re.compile(
    r"^(?:verify|verify_ssl|ssl_verify|check_hostname|autoescape|rejectUnauthorized|strict|httponly|httpOnly|secure"
    r"|escape|validate|csrf\w*)$"
)
_INTENT = re.compile(
    r"\b(?:remov|drop|delet|no longer|unneed|unnecess|redundan|dead|unused|obsolete|simplif|allow|permit|support|revert"
    r"|deprecat|clean ?up|refactor|not need|disable|get rid|back ?out|undo)\w*",
    re.IGNORECASE,
)
_SKIPS = {
    "python": re.compile(r"@ (?:pytest \. mark \. (?:skip|xfail)|(?:unittest \. )?(?:skip|expectedFailure))\b(?!if)"),
    "js": re.compile(r"\b(?:it|test|describe) \. (?:skip|todo) \(|\b(?:xit|xtest|xdescribe) \("),
    "go": re.compile(r"\bt \. Skip(?:Now|f)? \("),
}
_JS_TEST = re.compile(r"\b(x?(?:it|test|describe))((?:\.\w+)*)\s*\(\s*(['\"`])((?:\\.|(?!\3).)+)\3")
_SECRETS = (
    ("a private key", re.compile(r"-----BEGIN (?:[A-Z]+ )*PRIVATE KEY(?: BLOCK)?-----(?!.{0,4}(?:\.\.\.|\\n\.\.\.))")),
    ("an AWS access key", re.compile(r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b")),
    ("a GitHub token", re.compile(r"\bgh[pousr]_[A-Za-z0-9]{36,}\b|\bgithub_pat_\w{40,}\b")),
    ("a GitLab token", re.compile(r"\bglpat-[\w-]{20,}\b")),
    ("a Slack token", re.compile(r"\bxox[abeoprs]-\d[\w-]{20,}\b")),
    ("a live Stripe key", re.compile(r"\b[rs]k_live_[A-Za-z0-9]{16,}\b")),
    ("a SendGrid key", re.compile(r"\bSG\.[\w-]{16,}\.[\w-]{16,}\b")),
    ("a Google API key", re.compile(r"\bAIza[\w-]{35}\b")),
    ("an OpenAI key", re.compile(r"\bsk-(?:proj-)?(?=[A-Za-z_-]*\d)[A-Za-z0-9_-]{40,}\b")),
    ("an Anthropic key", re.compile(r"\bsk-ant-(?=[A-Za-z_-]*\d)[\w-]{20,}\b")),
    ("an npm token", re.compile(r"\bnpm_[A-Za-z0-9]{36}\b")),
    ("a PyPI token", re.compile(r"\bpypi-[\w-]{50,}\b")),
)
_HINT = re.compile(r"PRIVATE KEY|A[KS]IA|gh[pousr]_|github_pat_|glpat|xox|k_live|SG\.|AIza|sk-|npm_|pypi-")
_EXAMPLE = re.compile(r"example|sample|dummy|fake|placeholder|x{6}|0{8}|1234567|abcdef|your[-_]", re.IGNORECASE)


@dataclass(frozen=True)
class Sides:
    """The whole change: every file that people wrote, and what its author says of it."""

    bundle: Bundle
    views: tuple[View, ...]

    @cached_property
    def said(self) -> str:
        change = self.bundle.change
        return "\n".join((change.title, change.body, *(commit.message for commit in change.commits)))

    @cached_property
    def added(self) -> str:
        """The tokens of everything that was added, in one text: what only moved is found in it."""
        return self._tokens("+")

    @cached_property
    def removed(self) -> str:
        return self._tokens("-")

    def _tokens(self, kind: str) -> str:
        parts = []
        for file in self.bundle.files:
            if spoken := language(file.path):
                lines = (line.text for hunk in file.hunks for line in hunk.lines if line.kind == kind)
                parts.append(" ".join(token.text for token in lex("\n".join(lines)[:400_000], spoken)))
        return " ".join(parts)

    def moved(self, words: str) -> bool:
        """Whether tokens that were taken out here were put in elsewhere."""
        return self.added.count(words) >= max(self.removed.count(words), 1)


def check(bundle: Bundle, *, disable: tuple[str, ...] = ()) -> tuple[Finding, ...]:
    """Run every rule over a bundle: the worst first, one finding a place."""
    sides = Sides(bundle, views(bundle))
    found: dict[tuple[str, int | None, str], Finding] = {}
    for family in (_incoming, _removed, _tests, _settings):
        for finding in _few(_tried(family, sides)):
            key = (finding.path, finding.line, finding.category)
            if finding.rule in disable or _ignored(finding, bundle):
                continue
            if key not in found or _grave(finding) < _grave(found[key]):
                found[key] = finding
    return tuple(sorted(found.values(), key=lambda one: (_grave(one), one.path, one.line or 0)))


def notices(bundle: Bundle) -> tuple[str, ...]:
    """What the tripwire says of title, description, messages and names."""
    return tripwire.about(bundle, views(bundle))


def _tried(family: Callable[[Sides], Iterator[Finding]], sides: Sides) -> list[Finding]:
    try:
        return list(family(sides))
    except (RecursionError, ValueError, IndexError, KeyError, TypeError, AttributeError):
        # A rule that trips over odd text must not take the others down with it.
        _log.warning("rules %s failed", family.__name__, exc_info=True)
        return []


def _few(found: list[Finding]) -> list[Finding]:
    """Leave out types that were loosened all over: that is a policy, and no slip."""
    loose = [finding for finding in found if finding.rule == LOOSENED.name]
    return found if len(loose) < 3 else [finding for finding in found if finding.rule != LOOSENED.name]


def _grave(finding: Finding) -> int:
    return SEVERITIES.index(finding.severity)


def _ignored(finding: Finding, bundle: Bundle) -> bool:
    """Whether a marker on the line says to ignore it; the attack rules cannot be talked out of it."""
    if finding.category == "attack" or finding.line is None:
        return False
    lines = bundle.head.get(finding.path, "").split("\n")
    near = lines[max((finding.start_line or finding.line) - 2, 0) : finding.line]
    return any(f"review: ignore {finding.rule}" in line for line in near)


# What must not come in -------------------------------------------------------------------------------


def _incoming(sides: Sides) -> Iterator[Finding]:
    for view in sides.views:
        yield from tripwire.check(view)
        yield from _conflict(view)
        yield from _secrets(view)


def _conflict(view: View) -> Iterator[Finding]:
    """All three markers, in order, among the added lines of a file that is code or settings."""
    if view.is_doc:
        return
    marks = [(n, view.lines[n - 1]) for n in sorted(view.added) if re.match(r"<{7} |={7}$|>{7} ", view.lines[n - 1])]
    if re.match(r"(?:<=+>)+", "".join(line[0] for _, line in marks)):
        yield from CONFLICT.at(view, marks[0][0])


def _secrets(view: View) -> Iterator[Finding]:
    if view.is_doc or (view.is_test and PurePosixPath(view.path).suffix != ".env"):
        return
    for number in sorted(view.added):
        line = view.lines[number - 1]
        if len(line) > 4_000 or not _HINT.search(line) or _EXAMPLE.search(line):
            continue
        what = next((name for name, shape in _SECRETS if shape.search(line)), "")
        if what and not (what == "a private key" and _is_pattern(line)):
            yield from SECRET.at(view, number, what=what)


def _is_pattern(line: str) -> bool:
    """Whether the first line of a key is only spoken of: in a search, a comparison, or a template."""
    return bool(re.search(r"\b(?:re\.|regex|match|search|startswith|includes|contains|in\b.*\bif|test\()|\.\.\.", line))


# What went away ---------------------------------------------------------------------------------------


def _removed(sides: Sides) -> Iterator[Finding]:
    for view in sides.views:
        if not view.language or view.is_test or view.is_doc or not view.whole or not view.base:
            continue
        for old, new in pairs(functions(view.base, view.language), functions(view.head, view.language)):
            if old.words != new.words and (changed := edits(old, new)) is not None:
                yield from _function(view, sides, old, new, changed)


def _function(view: View, sides: Sides, old: Function, new: Function, changed: tuple[Edit, ...]) -> Iterator[Finding]:
    yield from _loosened(view, new, changed)
    if len(changed) > 6:
        return  # rewritten
    if all(not edit.new for edit in changed) and not _INTENT.search(sides.said):
        yield from _unguarded(view, sides, old, new, changed)
    for edit in changed:
        if edit.new:
            yield from _switched(view, edit)
            continue
        for words in _slides(old.words, edit):
            found = list(_lost(view, sides, new, edit, words, len(changed) <= 3))
            if found:
                yield from found
                break


def _slides(words: list[str], edit: Edit) -> Iterator[tuple[str, ...]]:
    """The deleted tokens in every reading: where the same token stands before and behind, either may be the one."""
    start, size = edit.start, len(edit.old)
    yield edit.old
    for step in (1, -1):
        at = start
        while min(at, at + step) >= 0 and max(at, at + step) + size <= len(words):
            leaving, coming = (at, at + size) if step > 0 else (at + size - 1, at - 1)
            if words[leaving] != words[coming] or abs(at - start) > 200:
                break
            at += step
            yield tuple(words[at : at + size])


def _lost(view: View, sides: Sides, new: Function, edit: Edit, words: tuple[str, ...], few: bool) -> Iterator[Finding]:
    """What protected the rest of the function and was taken out of it; with more than that, other code went too."""
    text = " ".join(words)
    name = new.name.rsplit(".", 1)[-1]
    if words == ("await",):
        if "async" in new.words or view.language == "js":
            yield from _await(view, sides, new, edit)
        return
    if len(words) > SMALL:
        return
    if match := _AUTH.search(text):
        if not sides.moved(match["what"]):
            yield from AUTH.at(view, edit.line, what=_code(match["what"]), function=name)
        return
    if match := _LOCK.search(text):
        if not sides.moved(match["what"]) and not re.search(r"\b[Ll]ock|mutex|[Mm]u\b", " ".join(new.words)):
            yield from LOCK.at(view, edit.line, what=_code(match["what"]), function=name)
        return
    for pattern in (_SANITISER, _SHELL_QUOTE):
        match = pattern.match(text)
        if match and len(words) <= match.group().count(" ") + 1 and not sides.moved(match.group()):
            yield from SANITISER.at(view, edit.line, what=_code(match["what"]), function=name)
            return
    if not few or _INTENT.search(sides.said):
        return
    if match := _CLOSE.search(text):
        owner = match["owner"] or ""
        if not sides.moved(match.group()) and (not owner or owner in new.words):
            yield from CLOSE.at(view, edit.line, what=_code(match.group()).rstrip("("), function=name)
    elif (match := _LIMIT.search(text)) and len(words) < 12 and not sides.moved(match.group()):
        yield from TIMEOUT.at(view, edit.line, what=_code(match.group()))


def _unguarded(view: View, sides: Sides, old: Function, new: Function, changed: tuple[Edit, ...]) -> Iterator[Finding]:
    """A function that only lost something, and what it lost is a check: a guard, a part of a condition, a handler."""
    for edit, rest in zip(changed, (*changed[1:], None), strict=True):
        for words in _slides(old.words, edit):
            text = " ".join(words)
            after = [" ".join(one) for one in _slides(old.words, rest)] if rest else []
            what = _check_in(text, after, view.language)
            if what and _still_used(what, new, edit) and not sides.moved(what) and not _PLATFORM.search(what):
                name = new.name.rsplit(".", 1)[-1]
                yield from GUARD.at(view, edit.line, what=_code(what)[:80], function=name)
                return


def _check_in(text: str, after: list[str], spoken: str) -> str:
    """The condition or handler that deleted tokens held; `after` is every reading of the next deletion."""
    if match := _GUARDS[spoken].fullmatch(text):
        return match["cond"]
    if (match := _PART.fullmatch(text)) and _balanced(match["left"] or match["right"]):
        return match["left"] or match["right"]
    if (
        (match := _WRAPPER.fullmatch(text))
        and " else " not in text
        and _balanced(match["cond"])
        and ("}" in after or not text.endswith("{"))
    ):
        return match["cond"]
    if (match := _TERNARY.fullmatch(text)) and any(one.startswith(": ") for one in after):
        return match["cond"]
    if re.fullmatch(r"try (?:: ; )?\{", text):
        handlers = (
            match
            for one in after
            if (match := re.fullmatch(r"\} (?:except|catch) (?P<what>[^{}]*?)(?: : ;)? \{.*\}", one))
        )
        return next((f"except {match['what']}" for match in handlers), "")
    return ""


def _balanced(text: str) -> bool:
    return all(text.count(pair[0]) == text.count(pair[1]) for pair in ("()", "[]", "{}"))


def _await(view: View, sides: Sides, new: Function, edit: Edit) -> Iterator[Finding]:
    at = next((n for n, token in enumerate(new.tokens) if token.line == edit.line), 0)
    rest = " ".join(new.words[at : at + 40])
    call = re.search(r"((?:[\w$]+ (?:\?\. |\. ))*[\w$]+) \(", rest)
    line = view.lines[edit.line - 1].strip()
    if call is None or re.search(r"\b(?:return|async|Promise|gather|create_task|ensure_future|then)\b", line):
        return
    last = call[1].rsplit(" ", 1)[-1]
    if re.search(rf"\basync (?:def |function )?{re.escape(last)}\b", sides.removed):
        return  # it is no longer a coroutine
    yield from AWAIT.at(view, edit.line, what=_code(call[1]))


def _still_used(condition: str, new: Function, edit: Edit) -> bool:
    """Whether what the check looked at is used below it."""
    if condition.startswith("except "):
        return True
    names = {word for word in _NAME.findall(re.sub(r'"[^"]*"', "", condition)) if word not in _KEYWORDS}
    below = [token.text for token in new.tokens if token.line >= edit.line]
    return bool(names & set(below))


def _switched(view: View, edit: Edit) -> Iterator[Finding]:
    """A protection that was true and is false now, by the name right in front of the value."""
    if len(edit.old) != 1 or len(edit.new) != 1 or edit.old[0].lower() != "true" or edit.new[0].lower() != "false":
        return
    match = re.search(r"([\w$]+)['\"]?\s*[:=]\s*[Ff]alse", view.lines[edit.line - 1])
    if match and _FLAGS.match(match[1]):
        yield from UNPROTECTED.at(view, edit.line, what=match.group())


def _loosened(view: View, new: Function, changed: tuple[Edit, ...]) -> Iterator[Finding]:
    loose = ("any",) if view.path.endswith((".ts", ".tsx")) else ("Any",) if view.language == "python" else ()
    for edit in changed:
        if (
            len(edit.new) != 1
            or edit.new[0] not in loose
            or not edit.old
            or edit.old[0] in ("unknown", "object", "any")
        ):
            continue
        line = view.lines[edit.line - 1]
        match = re.search(rf"([\w$]+)\??\s*:\s*{edit.new[0]}\b", line)
        if match and _NAME.fullmatch(edit.old[0]):
            names = {"name": match[1], "function": new.name.rsplit(".", 1)[-1]}
            yield from LOOSENED.at(view, edit.line, old=_code(" ".join(edit.old))[:60], new=edit.new[0], **names)


def _code(words: str) -> str:
    """Tokens as people write them."""
    text = re.sub(r"(?<=[\w)\]\"]) (?=[.(\[,:;)\]])|(?<=[(\[.@!]) ", "", words.strip())
    return re.sub(r" (?=\?\.)|(?<=\?\.) ", "", text).replace("`", "'")


# Tests ------------------------------------------------------------------------------------------------


def _tests(sides: Sides) -> Iterator[Finding]:
    for view in sides.views:
        if not view.language or not view.is_test or not view.whole or not view.base:
            continue
        off = list(_js_off(view) if view.language == "js" else _functions_off(view))
        if off:
            line, name = off[0]
            yield from SKIPPED.at(view, line, name=name[:80], more=f", and {len(off) - 1} more" if len(off) > 1 else "")
        if view.language == "js":
            yield from _focused(view)


def _functions_off(view: View) -> Iterator[tuple[int, str]]:
    """Tests that have a skip mark now and had none; a mark with a condition is not meant."""
    skips = _SKIPS[view.language]
    for old, new in pairs(functions(view.base, view.language), functions(view.head, view.language)):
        name = new.name.rsplit(".", 1)[-1]
        was, now = " ".join(old.words), " ".join(new.words)
        if re.match(r"[Tt]est", name) and skips.search(now) and not skips.search(was):
            line = next((t.line for t in new.tokens if re.match(r"skip|xfail|Skip", t.text)), new.start)
            if not re.search(r"version|platform|os\.name|\bif\b|condition", view.lines[line - 1]):
                yield line, name


def _js_off(view: View) -> Iterator[tuple[int, str]]:
    off = re.compile(r"^x|\.skip|\.todo")
    was = {match[4]: match[1] + match[2] for match in _JS_TEST.finditer(view.base)}
    for line, form, name in _js_calls(view):
        if off.search(form) and name in was and not off.search(was[name]):
            yield line, name


def _focused(view: View) -> Iterator[Finding]:
    was = {match[4] for match in _JS_TEST.finditer(view.base) if ".only" in match[2]}
    for line, form, name in _js_calls(view):
        if ".only" in form and name not in was:
            yield from FOCUSED.at(view, line, name=f"{form}({name[:60]!r})")
            return


def _js_calls(view: View) -> Iterator[tuple[int, str, str]]:
    """Tests on added lines: line, how they are called, and their name."""
    for match in _JS_TEST.finditer(view.head):
        line = view.head.count("\n", 0, match.start()) + 1
        if line in view.added:
            yield line, match[1] + match[2], match[4]


def _settings(sides: Sides) -> Iterator[Finding]:
    for view in sides.views:
        if view.path in (*CONFIG_FILES, *GUIDELINE_FILES, ".glue/dismissed") and view.added:
            yield from SETTINGS.at(view, min(view.added), path=view.path)
