"""Rules that need no model: removed protections, loosened checks, committed secrets, attacks.

The rules compare both sides of a change. They report a removed protection only if the rest of the
function is the same: functions are compared token by token, so moved, renamed and reformatted code
counts as unchanged. The work of linters is left to linters (`analysers`). The texts of the findings
are in `rules.toml`.
"""

from __future__ import annotations

import logging
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib.resources import files
from pathlib import PurePosixPath
from typing import Any

from glue.agents.review.change.config import CONFIG_FILES, DISMISSED_FILE, GUIDELINE_FILES
from glue.agents.review.change.syntax import (
    Edit,
    Function,
    edits,
    functions,
    is_doc,
    is_generated,
    is_test,
    language,
    lex,
    pairs,
)
from glue.agents.review.findings.anchor import MIN_QUOTE
from glue.agents.review.records import SEVERITIES, Bundle, FileDiff, Finding
from glue.hidden import HIDDEN_CHARACTERS
from glue.secrets import name_secrets

_log = logging.getLogger("glue.review")
SMALL = 24  # tokens; if more were removed, other code was removed too
RULES: Mapping[str, Mapping[str, Any]] = tomllib.loads(
    files("glue.agents.review.findings").joinpath("rules.toml").read_text(encoding="utf-8")
)


def _pattern(rule: str, flags: int = 0) -> re.Pattern[str]:
    return re.compile("".join(RULES[rule]["pattern"]), flags)


_ADDRESSING = _pattern("injection-tripwire", re.IGNORECASE)
_AUTH, _LOCK, _CLOSE = _pattern("auth-removed"), _pattern("lock-removed"), _pattern("close-removed")
_SANITISER, _LIMIT, _FLAGS = (
    _pattern("sanitising-removed"),
    _pattern("limit-removed"),
    _pattern("protection-off"),
)
_KEYWORDS = frozenset(
    "if not and or is in None True False null undefined nil true false typeof instanceof return"
    " raise throw new await async self this len err".split()
)
_NAME = re.compile(r"[A-Za-z_$][\w$]*")
_GUARDS = {
    "python": re.compile(
        r"if (?P<cond>[^{};]+?) : (?:; \{ )?(?:[^{};]+; ){0,2}"
        r"(?:raise|return|continue)\b[^{};]*;(?: \})?"
    ),
    "js": re.compile(
        r"if \( (?P<cond>[^{};]+?) \) (?:\{ )?(?:throw|return|continue)\b[^{}]*?(?: \})?"
    ),
    "go": re.compile(r"if (?P<cond>[^{}]+?) \{ (?:return|panic|continue)\b[^{}]*\}"),
}
_PART = re.compile(r"(?:and|&&) (?P<right>[^{};]+)|(?P<left>[^{};]+) (?:and|&&)")
_WRAPPER = re.compile(r"if (?P<cond>[^{};]+?)(?: : ; \{| \{)?")
_HANDLER = re.compile(r"\} (?:except|catch) (?P<what>[^{}]*?)(?: : ;)? \{.*\}")
_TERNARY = re.compile(r"(?P<cond>[^{};]+) \?")
_PLATFORM = re.compile(
    r"PY[23]\b|version|platform|WIN|win32|__debug__|DEBUG|TYPE_CHECKING|deprecat|legacy|compat",
    re.IGNORECASE,
)
_INTENT = re.compile(
    r"\b(?:remov|drop|delet|no longer|unneed|unnecess|redundan|dead|unused|obsolete|simplif|allow"
    r"|permit|support|revert|deprecat|clean ?up|refactor|not need|disable|get rid|back ?out"
    r"|undo)\w*",
    re.IGNORECASE,
)
_SKIPS = {
    "python": re.compile(
        r"@ (?:pytest \. mark \. (?:skip|xfail)|(?:unittest \. )?(?:skip|expectedFailure)) "
        r"(?:;|\( (?![^;]*\bcondition =)(?:\)|[bfru]?[\"']|\w+ = ))"
    ),
    "go": re.compile(r"\bt \. Skip(?:Now|f)? \("),
}
_JS_TEST = re.compile(r"\b(x?(?:it|test|describe))((?:\.\w+)*)\s*\(\s*(['\"`])((?:\\.|(?!\3).)+)\3")
_EXAMPLE = re.compile(
    r"example|sample|dummy|fake|insecure|snakeoil|placeholder|x{6}|0{8}|1234567|abcdef|your[-_]",
    re.IGNORECASE,
)
# A line that searches for a key or compares with it does not contain a key.
_COMPARES_KEY = re.compile(
    r"\b(?:re\.|regex|match|search|startswith|includes|contains|in\b.*\bif|test\()|\.\.\."
)


class WholeChange:
    """The whole change: the description by its author, and all added and removed tokens."""

    def __init__(self, bundle: Bundle) -> None:
        self.files = bundle.files
        change = bundle.change
        self.description = "\n".join(
            (change.title, change.body, *(commit.message for commit in change.commits))
        )
        self.intended = _INTENT.search(self.description) is not None

    @cached_property
    def added(self) -> str:
        """All added tokens in one text; code that was moved within the change occurs in it."""
        return self._tokens("+")

    @cached_property
    def removed(self) -> str:
        return self._tokens("-")

    def _tokens(self, kind: str) -> str:
        parts = []
        for file in self.files:
            if name := language(file.path):
                lines = file.added if kind == "+" else file.deleted
                text = "\n".join(line.text for line in lines)[:400_000]
                parts.append(" ".join(token.text for token in lex(text, name)))
        return " ".join(parts)

    def moved(self, words: str) -> bool:
        """Return whether the removed tokens `words` were added elsewhere in the change."""
        return self.added.count(words) >= max(self.removed.count(words), 1)

    def announced(self, what: str) -> bool:
        """Return whether the author announces a removal by name, as in "remove await".

        Rules about security ignore this: no description switches them off.
        """
        words = {word.lower() for word in re.findall(r"[A-Z]?[a-z]{3,}", what)}
        words -= {"with", "self", "this", "async"}
        return self.intended and any(word in self.description.lower() for word in words)


@dataclass(frozen=True, slots=True)
class ChangedFile:
    """A changed file that is neither binary, nor generated, nor deleted."""

    change: WholeChange
    diff: FileDiff
    path: str
    language: str
    is_test: bool
    is_doc: bool
    head: str
    base: str
    whole: bool  # whether both texts are known; if not, `head` contains only the hunks
    lines: list[str]
    added: dict[int, str]  # line number -> text of the added lines, in order

    def report(self, rule: str, line: int, **names: object) -> Iterator[Finding]:
        """Yield a finding of `rule` on a line of `head`, or nothing if the line takes no comment.

        `names` fill the placeholders in the texts of the rule. If the quoted line is too short, the
        lines next to it are added to the quote; if it stays too short, nothing is yielded.
        """
        spots = next((hunk.commentable for hunk in self.diff.hunks if line in hunk.commentable), ())
        if not spots:
            return
        first = last = line
        while len("".join((quote := "\n".join(self.lines[first - 1 : last])).split())) < MIN_QUOTE:
            if last + 1 in spots:
                last += 1
            elif first - 1 in spots:
                first -= 1
            else:
                return
        fields = ("category", "severity", "confidence", "title", "body", "acceptance")
        texts: dict[str, Any] = {name: RULES[rule][name].format(**names) for name in fields}
        yield Finding(
            path=self.path,
            quote=quote,
            rule=rule,
            source="rules",
            line=last,
            start_line=first if first < last else None,
            claimed=last,
            anchor="exact",
            **texts,
        )


def changed_files(bundle: Bundle) -> Iterator[ChangedFile]:
    """Yield the files of a change that the rules check. Skipped files are left out."""
    left_out, change = {skip.path for skip in bundle.skipped}, WholeChange(bundle)
    for file in bundle.files:
        path = file.path
        is_text = file.hunks and not file.symlink and not file.submodule
        if path in left_out or not is_text or file.status == "deleted":
            continue
        known, base = bundle.head.get(path), bundle.base.get(file.old_path or path)
        head = _from_hunks(file) if known is None else known
        if is_generated(path, head):
            continue
        whole = known is not None and (base is not None or file.status == "added")
        lines = [line.removesuffix("\r") for line in head.split("\n")]
        numbers = sorted(
            line.new for line in file.added if line.new is not None and line.new <= len(lines)
        )
        added = {number: lines[number - 1] for number in numbers}
        kinds = language(path), is_test(path), is_doc(path)
        yield ChangedFile(change, file, path, *kinds, head, base or "", whole, lines, added)


def _from_hunks(file: FileDiff) -> str:
    """Return the new text of a file from its hunks; lines outside the hunks are empty."""
    lines: list[str] = []
    for line in (line for hunk in file.hunks for line in hunk.lines):
        if line.new is not None and line.new < 1_000_000:
            lines += [""] * (line.new - len(lines))
            lines[line.new - 1] = line.text
    return "\n".join(lines)


def check(bundle: Bundle, *, disable: tuple[str, ...] = ()) -> tuple[Finding, ...]:
    """Return the findings of all rules, the most severe first.

    For each line and category, only the first finding is returned. Findings of the rules in
    `disable` are left out.
    """
    found: list[Finding] = []
    for file in changed_files(bundle):
        for family in (_addressed, _contents, _removed, _tests):
            try:
                found += family(file)
            except (RecursionError, ValueError, IndexError, KeyError, TypeError, AttributeError):
                # A rule that fails on odd text must not stop the others.
                _log.warning("rules %s failed", family.__name__, exc_info=True)
    # Types that were loosened in many places are a decision, not a mistake.
    is_decision = sum(finding.rule == "type-loosened" for finding in found) >= 3
    kept: dict[tuple[str, int | None, str], Finding] = {}
    ignored = {*disable, "type-loosened"} if is_decision else set(disable)
    for finding in sorted(found, key=_order):
        if finding.rule in ignored or _ignored(finding, bundle):
            continue
        kept.setdefault((finding.path, finding.line, finding.category), finding)
    return tuple(kept.values())


def _order(finding: Finding) -> tuple[int, str, int]:
    return SEVERITIES.index(finding.severity), finding.path, finding.line or 0


def is_hint(finding: Finding) -> bool:
    """Return whether a finding is only a hint for the model, because its rule is often wrong."""
    return bool(RULES.get(finding.rule, {}).get("hint"))


def _ignored(finding: Finding, bundle: Bundle) -> bool:
    """Return whether the comment `review: ignore RULE` on the line switches off the rule.

    Findings of attacks cannot be switched off.
    """
    if finding.category == "attack" or finding.line is None:
        return False
    lines = bundle.head.get(finding.path, "").split("\n")
    near = lines[max((finding.start_line or finding.line) - 2, 0) : finding.line]
    return any(f"review: ignore {finding.rule}" in line for line in near)


_CHAT = re.compile(
    r"<\|(?:im_start|im_end|system|endoftext)\|>|\[/?INST\]|<</?SYS>>"
    r"|</?(?:system|tool_call|invoke|function_calls)>",
    re.IGNORECASE,
)
_TEMPLATE = re.compile(
    r"<(?=[|\uff5c])|(?<=[|\uff5c])>|\[(?=/?INST\])|<(?=<?/?SYS>)|<(?=/?(?:tool_call|think)s?>)"
)
_FLAG_EMOJI = re.compile(f"\U0001f3f4{HIDDEN_CHARACTERS['tag characters'].pattern}+")
# Invisible tag characters -> the ASCII letters that they represent.
_UNTAGGED = {0xE0000 + code: code for code in range(0x80)}


def _addressed(file: ChangedFile) -> Iterator[Finding]:
    """Yield findings for the first line that addresses the reviewer or has hidden characters.

    Marks of chat templates are not reported in tests, where they are often test data.
    """
    text = "\n".join(file.added.values())
    if not text.isascii():
        for number, line in file.added.items():
            # A byte order mark is allowed at the start of a file.
            if what := hidden_in(line if number > 1 else line.removeprefix("\ufeff")):
                yield from file.report("hidden-characters", number, what=what)
                break
    if _addressing(text) is None and (file.is_test or not _CHAT.search(text)):
        return
    for number, line in file.added.items():
        # An instruction may be split over two lines.
        following = re.sub(r"^\s*(?:#|//|\*|--|<!--)?\s*", "", file.added.get(number + 1, ""))
        if (not file.is_test and _CHAT.search(line)) or addresses_reviewer(
            f"{line} {following}", start=line
        ):
            yield from file.report("injection-tripwire", number)
            return


def addresses_reviewer(text: str, start: str = "") -> bool:
    """Return whether a text addresses an automated reviewer.

    If `start`, the beginning of the text, is given, the match has to begin in it.
    """
    match = _addressing(text[:20_000])
    return match is not None and (not start or match.start() < len(" ".join(start.split())))


def _addressing(text: str) -> re.Match[str] | None:
    if not text.isascii():
        text = _without_hidden(text.translate(_UNTAGGED))
    # A comment sign at the start of a line does not end a sentence.
    return _ADDRESSING.search(" ".join(re.sub(r"\n\s*(?:#|//|\*|--|<!--)", "\n", text).split()))


def hidden_in(text: str) -> str:
    """Return the kind of invisible characters in a text, or "" if there are none."""
    text = _FLAG_EMOJI.sub("", text)
    return next((kind for kind, pattern in HIDDEN_CHARACTERS.items() if pattern.search(text)), "")


def strip_hidden(text: str) -> str:
    """Return a text without invisible characters and with broken marks of chat templates.

    This is done to every untrusted text before a model reads it.
    """
    text = _without_hidden(text)
    return _TEMPLATE.sub(lambda match: f"{match.group()} " if match.group() != ">" else " >", text)


def _without_hidden(text: str) -> str:
    for pattern in () if text.isascii() else HIDDEN_CHARACTERS.values():
        text = pattern.sub("", text)
    return text


def notices(bundle: Bundle) -> tuple[str, ...]:
    """Return warnings about attacks in texts that are not lines of the diff.

    These are title, description, branch name, commit messages and file names.
    """
    change = bundle.change
    texts = [
        ("the title", change.title),
        ("the description", change.body),
        ("the branch name", change.head_ref),
    ]
    texts += [
        (f"the message of commit {commit.sha[:10]}", commit.message) for commit in change.commits
    ]
    texts += [("a file name", re.sub(r"[_\-./]", " ", file.path)) for file in bundle.files]
    # A file that is too short to be quoted gets no finding, so its text is checked here.
    texts += [
        (f"the file {file.path}", file.head)
        for file in changed_files(bundle)
        if len(file.head) < 80
    ]
    found = [
        f"{where} contains text that is addressed to an automated reviewer"
        for where, text in texts
        if addresses_reviewer(text) or _CHAT.search(text)
    ]
    found += [f"{where} contains invisible characters" for where, text in texts if hidden_in(text)]
    return tuple(dict.fromkeys(found))


def _contents(file: ChangedFile) -> Iterator[Finding]:
    """Yield findings for conflict markers, secrets and changed review settings.

    A conflict is reported only if all three markers occur in order.
    """
    if file.path in (*CONFIG_FILES, *GUIDELINE_FILES, DISMISSED_FILE) and file.added:
        yield from file.report("review-rules-changed", min(file.added), path=file.path)
    marks = {n: line[0] for n, line in file.added.items() if re.match(r"<{7} |={7}$|>{7} ", line)}
    if not file.is_doc and re.match(r"(?:<=+>)+", "".join(marks.values())):
        yield from file.report("conflict-marker", min(marks))
    if file.is_doc or (file.is_test and PurePosixPath(file.path).suffix != ".env"):
        return
    lines = {number: line for number, line in file.added.items() if len(line) <= 4_000}
    for number, line in lines.items() if name_secrets("\n".join(lines.values())) else ():
        if _EXAMPLE.search(f"{file.path} {line}"):
            continue
        what = next(iter(name_secrets(line)), "")
        if what and not (what == "a private key" and _COMPARES_KEY.search(line)):
            yield from file.report("committed-secret", number, what=what)


def _removed(file: ChangedFile) -> Iterator[Finding]:
    """Yield findings for protections that a function lost while the rest of it stayed the same."""
    if not file.language or file.is_test or file.is_doc or not file.whole or not file.base:
        return
    for old, new in pairs(functions(file.base, file.language), functions(file.head, file.language)):
        if old.words == new.words or (changed := edits(old, new)) is None:
            continue
        yield from _loosened(file, new, changed)
        if len(changed) > 6:
            continue  # the function was rewritten
        if all(not edit.new for edit in changed) and not file.change.intended:
            yield from _unguarded(file, old, new, changed)
        for edit in changed:
            if edit.new:
                yield from _switched(file, edit)
                continue
            readings = (
                list(_lost(file, new, edit, words, len(changed) <= 3))
                for words in _slides(old.words, edit)
            )
            yield from next(filter(None, readings), ())


def _slides(words: list[str], edit: Edit) -> Iterator[tuple[str, ...]]:
    """Yield every way to read a deletion.

    If `a` was deleted from `a b a b`, a diff may show `a b` or `b a` as deleted: the deleted range
    can be moved as long as the token that leaves it equals the token that enters it.
    """
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


def _lost(
    file: ChangedFile, new: Function, edit: Edit, words: tuple[str, ...], few: bool
) -> Iterator[Finding]:
    """Yield a finding if `words`, deleted from a function, were a protection.

    Protections are: access check, lock, sanitiser, close, limit and `await`. `few` is whether the
    function has only few edits; some protections are reported only then.
    """
    text, moved, name = " ".join(words), file.change.moved, new.name.rsplit(".", 1)[-1]
    if words == ("await",):
        if "async" in new.words and not file.change.announced("await"):
            yield from _await(file, new, edit)
        return
    if len(words) > SMALL:
        return
    if match := _AUTH.search(text):
        if not moved(match["what"]):
            yield from file.report(
                "auth-removed", edit.line, what=_code(match["what"]), function=name
            )
        return
    if match := _LOCK.search(text):
        elsewhere = _LOCK.search(file.change.added) or re.search(
            r"\b[Ll]ock|mutex|[Mm]u\b", " ".join(new.words)
        )
        if not elsewhere and not file.change.announced(match["what"]):
            yield from file.report(
                "lock-removed", edit.line, what=_code(match["what"]), function=name
            )
        return
    match = _SANITISER.match(text)
    if match and len(words) <= match.group().count(" ") + 1 and not moved(match.group()):
        yield from file.report(
            "sanitising-removed", edit.line, what=_code(match["what"]), function=name
        )
    elif not few or file.change.intended:
        return
    elif match := _CLOSE.search(text):
        owner, left = match["owner"] or "", " ".join(new.words)
        # It may be closed elsewhere in the function, or by a `with` statement.
        closed = match.group() in left or re.search(rf"\bwith\b[^;]* as {owner}\b", left)
        if not closed and not moved(match.group()) and (not owner or owner in new.words):
            yield from file.report(
                "close-removed", edit.line, what=_code(match.group()).rstrip("("), function=name
            )
    elif (match := _LIMIT.search(text)) and len(words) < 12 and not moved(match.group()):
        yield from file.report("limit-removed", edit.line, what=_code(match.group()))


def _unguarded(
    file: ChangedFile, old: Function, new: Function, changed: tuple[Edit, ...]
) -> Iterator[Finding]:
    """Yield a finding for a removed check: a guard, a part of a condition, an exception handler.

    The caller ensures that the function has only deletions.
    """
    for edit, rest in zip(changed, (*changed[1:], None), strict=True):
        after = [" ".join(reading) for reading in _slides(old.words, rest)] if rest else []
        for words in _slides(old.words, edit):
            what = _check_in(" ".join(words), after, file.language)
            if (
                what
                and _still_used(what, new, edit)
                and not file.change.moved(what)
                and not _PLATFORM.search(what)
            ):
                name = new.name.rsplit(".", 1)[-1]
                yield from file.report(
                    "check-removed", edit.line, what=_code(what)[:80], function=name
                )
                return


def _check_in(text: str, after: list[str], language: str) -> str:
    """Return the condition or exception handler in the deleted tokens `text`, or "".

    Return "" if the tokens are not a check. `after` has all readings of the next deletion, which
    may contain the end of the block.
    """
    if match := _GUARDS[language].fullmatch(text):
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
    if (match := _TERNARY.fullmatch(text)) and any(reading.startswith(": ") for reading in after):
        return match["cond"]
    if re.fullmatch(r"try (?:: ; )?\{", text):
        handlers = filter(None, map(_HANDLER.fullmatch, after))
        return next((f"except {handler['what']}" for handler in handlers), "")
    return ""


def _balanced(text: str) -> bool:
    return all(text.count(pair[0]) == text.count(pair[1]) for pair in ("()", "[]", "{}"))


def _await(file: ChangedFile, new: Function, edit: Edit) -> Iterator[Finding]:
    """Yield a finding for a removed `await` if the called function is still a coroutine."""
    at = next((n for n, token in enumerate(new.tokens) if token.line == edit.line), 0)
    call = re.search(r"((?:[\w$]+ (?:\?\. |\. ))*[\w$]+) \(", " ".join(new.words[at : at + 40]))
    line = file.lines[edit.line - 1].strip()
    if call is None or re.search(
        r"\b(?:return|async|Promise|gather|create_task|ensure_future|then)\b", line
    ):
        return
    last = call[1].rsplit(" ", 1)[-1]
    # If its `async` was removed too, it is no longer a coroutine.
    if not re.search(rf"\basync (?:def |function )?{re.escape(last)}\b", file.change.removed):
        yield from file.report("await-removed", edit.line, what=_code(call[1]))


def _still_used(condition: str, new: Function, edit: Edit) -> bool:
    """Return whether a name in `condition` is still used after the line of the removed check."""
    if condition.startswith("except "):
        return True
    names = {
        word for word in _NAME.findall(re.sub(r'"[^"]*"', "", condition)) if word not in _KEYWORDS
    }
    return any(token.line >= edit.line and token.text in names for token in new.tokens)


def _switched(file: ChangedFile, edit: Edit) -> Iterator[Finding]:
    """Yield a finding if an option whose name means a protection changed from true to false."""
    old, new = " ".join(edit.old).lower(), " ".join(edit.new).lower()
    if (old, new) == ("true", "false"):
        match = re.search(r"([\w$]+)['\"]?\s*[:=]\s*[Ff]alse", file.lines[edit.line - 1])
        if match and _FLAGS.match(match[1]):
            yield from file.report("protection-off", edit.line, what=match.group())


def _loosened(file: ChangedFile, new: Function, changed: tuple[Edit, ...]) -> Iterator[Finding]:
    """Yield findings for types that were replaced with `Any` or `any`."""
    loose = "Any" if file.language == "python" else ""
    if file.path.endswith((".ts", ".tsx")):
        loose = "any"
    for edit in changed:
        if edit.new != (loose,) or not edit.old or edit.old[0] in ("unknown", "object", "any"):
            continue
        match = re.search(rf"([\w$]+)\??\s*:\s*{loose}\b", file.lines[edit.line - 1])
        if match and _NAME.fullmatch(edit.old[0]):
            names = {"name": match[1], "function": new.name.rsplit(".", 1)[-1]}
            yield from file.report(
                "type-loosened", edit.line, old=_code(" ".join(edit.old))[:60], new=loose, **names
            )


def _code(words: str) -> str:
    """Return tokens as people write them, without the spaces around brackets and dots."""
    text = re.sub(r"(?<=[\w)\]\"]) (?=[.(\[,:;)\]])|(?<=[(\[.@!]) ", "", words.strip())
    return re.sub(r" (?=\?\.)|(?<=\?\.) ", "", text).replace("`", "'")


def _tests(file: ChangedFile) -> Iterator[Finding]:
    """Yield findings for tests that were switched off and for marks such as `it.only`."""
    if not file.language or not file.is_test or not file.whole or not file.base:
        return
    off = list(_js_off(file) if file.language == "js" else _functions_off(file))
    if off:
        line, name = off[0]
        more = f", and {len(off) - 1} more" if len(off) > 1 else ""
        yield from file.report("test-switched-off", line, name=name[:80], more=more)
    if file.language == "js":
        was = {match[4] for match in _js_tests(file.base) if ".only" in match[2]}
        for line, form, name in _js_calls(file):
            if ".only" in form and name not in was:
                yield from file.report("test-focused", line, name=f"{form}({name[:60]!r})")
                return


def _functions_off(file: ChangedFile) -> Iterator[tuple[int, str]]:
    """Yield the line and name of each test that got a skip mark without a condition."""
    skips = _SKIPS[file.language]
    for old, new in pairs(functions(file.base, file.language), functions(file.head, file.language)):
        name = new.name.rsplit(".", 1)[-1]
        was, now = " ".join(old.words), " ".join(new.words)
        mark = skips.search(now) if re.match(r"[Tt]est", name) else None
        above = now[: mark.start()] if mark else ""
        if mark and above.count("{") - above.count("}") <= 1 and not skips.search(was):
            line = next(
                (t.line for t in new.tokens if re.match(r"skip|xfail|Skip", t.text)), new.start
            )
            if not re.search(r"version|platform|os\.name|\bif\b|condition", file.lines[line - 1]):
                yield line, name


def _js_off(file: ChangedFile) -> Iterator[tuple[int, str]]:
    """Yield the line and name of each JavaScript test that was switched off."""
    off = re.compile(r"^x|\.skip|\.todo")
    was = {match[4]: match[1] + match[2] for match in _js_tests(file.base)}
    for line, form, name in _js_calls(file):
        if off.search(form) and name in was and not off.search(was[name]):
            yield line, name


def _js_tests(text: str) -> Iterator[re.Match[str]]:
    """Yield the tests of a file that are not commented out."""
    for match in _JS_TEST.finditer(text):
        before = text[text.rfind("\n", 0, match.start()) + 1 : match.start()]
        if not re.match(r"\s*(?://|\*|/\*)", before):
            yield match


def _js_calls(file: ChangedFile) -> Iterator[tuple[int, str, str]]:
    """Yield line, call (such as `it.only`) and name of each JavaScript test on an added line."""
    for match in _js_tests(file.head):
        line = file.head.count("\n", 0, match.start()) + 1
        if line in file.added:
            yield line, match[1] + match[2], match[4]
