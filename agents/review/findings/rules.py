"""Rules that report secrets, conflict markers, hidden text, prompt injections and disabled tests.

A rule needs no model and reports only certain problems. Finding bugs is the work of analysers and
of the model. The texts of the findings are in `rules.toml`.
"""

from __future__ import annotations

import logging
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.resources import files
from itertools import pairwise
from pathlib import PurePosixPath
from typing import Any

from glue.agents.review.change.config import CONFIG_FILES, DISMISSED_FILE, GUIDELINE_FILES
from glue.agents.review.change.languages import (
    Function,
    functions,
    indentation,
    is_doc,
    is_generated,
    is_test,
    language,
)
from glue.agents.review.findings.anchor import MIN_QUOTE
from glue.agents.review.findings.dedupe import rank
from glue.agents.review.records import Bundle, FileDiff, Finding
from glue.hidden import HIDDEN_CHARACTERS
from glue.secrets import name_secrets

_log = logging.getLogger("glue.review")
RULES: Mapping[str, Mapping[str, Any]] = tomllib.loads(
    files("glue.agents.review.findings").joinpath("rules.toml").read_text(encoding="utf-8")
)


_ADDRESSING = re.compile("".join(RULES["injection-tripwire"]["pattern"]), re.IGNORECASE)
# A mark that skips a test in every case, on its own line.
_SKIPS = {
    "python": re.compile(
        r"\s*@(?:pytest\.mark\.(?:skip|xfail)|(?:unittest\.)?(?:skip|expectedFailure))\s*"
        r"(?:$|\(\s*(?!.*\bcondition\s*=)(?:\)|[bfru]?[\"']|\w+\s*=))"
    ),
    "go": re.compile(r"\s*t\.Skip(?:Now|f)?\("),
}
_CONDITION = re.compile(r"version|platform|os\.name|\bif\b|condition")
_JS_TEST = re.compile(r"\b(x?(?:it|test|describe))((?:\.\w+)*)\s*\(\s*(['\"`])((?:\\.|(?!\3).)+)\3")
_EXAMPLE = re.compile(
    r"example|sample|dummy|fake|insecure|snakeoil|placeholder|x{6}|0{8}|1234567|abcdef|your[-_]",
    re.IGNORECASE,
)
# A line that searches for a key or compares with it does not contain a key.
_COMPARES_KEY = re.compile(
    r"\b(?:re\.|regex|match|search|startswith|includes|contains|in\b.*\bif|test\()|\.\.\."
)


@dataclass(frozen=True, slots=True)
class ChangedFile:
    """A changed text file for the rules to check, with its texts before and after the change."""

    diff: FileDiff
    path: str
    language: str
    is_test: bool
    is_doc: bool
    head: str
    base: str
    whole: bool  # whether both texts are known; if not, `head` may contain only the hunks
    lines: list[str]
    added: dict[int, str]  # line number -> text of the added lines, in order

    def report(self, rule: str, line: int, **names: object) -> Iterator[Finding]:
        """Yield a finding of `rule` on line number `line`, or nothing if the line cannot be quoted.

        A line cannot be quoted if no hunk has it. If the quoted line is too short, lines next to it
        are added to the quote. If the quote stays too short, nothing is yielded. `names` fill the
        placeholders in the texts of the rule.
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
    """Yield the files of a change that the rules check.

    Deleted, binary, generated and skipped files are left out.
    """
    left_out = {skip.path for skip in bundle.skipped}
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
        yield ChangedFile(file, path, *kinds, head, base or "", whole, lines, added)


def _from_hunks(file: FileDiff) -> str:
    """Return the new text of a file, built from its hunks. Lines outside the hunks are empty."""
    lines: list[str] = []
    for line in (line for hunk in file.hunks for line in hunk.lines):
        if line.new is not None and line.new < 1_000_000:
            lines += [""] * (line.new - len(lines))
            lines[line.new - 1] = line.text
    return "\n".join(lines)


def check(bundle: Bundle, *, disable: tuple[str, ...] = ()) -> tuple[Finding, ...]:
    """Return the findings of all rules, the most severe first.

    For each line and category, only the first finding is returned. Findings of the rules in
    `disable`, and findings that a comment `review: ignore` switches off, are left out.
    """
    found: list[Finding] = []
    for file in changed_files(bundle):
        for family in (_addressed, _contents, _tests):
            try:
                found += family(file)
            except (RecursionError, ValueError, IndexError, KeyError, TypeError, AttributeError):
                # A rule that fails on odd text must not stop the others.
                _log.warning("the rules in %s failed on a file", family.__name__, exc_info=True)
    kept: dict[tuple[str, int | None, str], Finding] = {}
    for finding in sorted(found, key=rank):
        if finding.rule in disable or _ignored(finding, bundle):
            continue
        kept.setdefault((finding.path, finding.line, finding.category), finding)
    return tuple(kept.values())


def _ignored(finding: Finding, bundle: Bundle) -> bool:
    """Return whether a line of a finding, or the line above, contains `review: ignore RULE`.

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
    """Yield findings for the first added line with hidden characters and the first with an attack.

    An attack is a line that addresses the reviewer or contains marks of chat templates. In tests,
    marks of chat templates are not reported, because there they are often test data.
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
    """Return the text without invisible characters, and with marks of chat templates broken up.

    A space breaks them up: `<|im_start|>` becomes `< |im_start| >`.
    Every untrusted text is passed through this function before a model reads it.
    """
    text = _without_hidden(text)
    return _TEMPLATE.sub(lambda match: f"{match.group()} " if match.group() != ">" else " >", text)


def _without_hidden(text: str) -> str:
    for pattern in () if text.isascii() else HIDDEN_CHARACTERS.values():
        text = pattern.sub("", text)
    return text


def notices(bundle: Bundle) -> tuple[str, ...]:
    """Return warnings about attacks in texts that no finding can quote, such as the title.

    These texts are the title, description, branch name, commit messages, file names, and files that
    are too short to be quoted. An attack is a text that addresses the reviewer, marks of chat
    templates, or invisible characters.
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
    """Yield findings for added conflict markers and secrets, and for changed review settings.

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


def _tests(file: ChangedFile) -> Iterator[Finding]:
    """Yield one finding for all tests that were switched off, and one for the first new `it.only`.

    Only changed test files whose texts before and after the change are known are checked.
    """
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
    """Yield the line and name of each test that got a skip mark without a condition.

    The mark is a decorator, or a call in the body of the test that is not inside another block.
    """
    skips = _SKIPS.get(file.language)
    if skips is None:
        return
    ran = {
        function.name
        for function in functions(file.base)
        if not any(map(skips.match, _own_lines(file.base.split("\n"), function)))
    }
    for function in functions(file.head):
        if not re.match(r"[Tt]est", function.name) or function.name not in ran:
            continue
        for at, line in enumerate(_own_lines(file.lines, function), function.start):
            if at in file.added and skips.match(line) and not _CONDITION.search(line):
                yield at, function.name
                break


def _own_lines(lines: list[str], function: Function) -> list[str]:
    """Return the decorators and body of a function; lines of inner blocks are empty strings.

    The header is an empty string too. A decorator of several lines is joined on its first line.
    """
    above = lines[function.start - 1 : function.header - 1]
    starts = [at for at, line in enumerate(above) if line.lstrip().startswith("@")]
    decorators = [""] * len(above)
    for at, end in pairwise([*starts, len(above)]):
        decorators[at] = " ".join(line.strip() for line in above[at:end])
    body = lines[function.header : function.end]
    depth = next((indentation(line) for line in body if line.strip()), 0)
    own = [line if indentation(line) == depth else "" for line in body]
    return [*decorators, "", *own]


def _js_off(file: ChangedFile) -> Iterator[tuple[int, str]]:
    """Yield the line and name of each JavaScript test that was switched off."""
    off = re.compile(r"^x|\.skip|\.todo")
    was = {match[4]: match[1] + match[2] for match in _js_tests(file.base)}
    for line, form, name in _js_calls(file):
        if off.search(form) and name in was and not off.search(was[name]):
            yield line, name


def _js_tests(text: str) -> Iterator[re.Match[str]]:
    """Yield a match for each JavaScript test in a text, unless the test is commented out."""
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
