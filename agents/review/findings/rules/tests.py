"""Tests that a change weakens, switches off or deletes, and new behaviour that comes without one."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from glue.agents.review.findings.rules.rule import SOURCE, Rule
from glue.agents.review.findings.rules.view import Edit, Project, View, is_test
from glue.agents.review.records import Finding, Line

REVERSED = Rule(
    name="test-reversed",
    category="tests",
    severity="high",
    confidence="high",
    title="A test that expected a failure now expects success",
    body="The test used to make sure that this is refused (`{old}`). It was rewritten to expect the opposite, so "
    "nothing guards "
    "the old behaviour any more. If the behaviour was meant to change, say so; if not, the code is wrong and not the "
    "test.",
    acceptance="The refusal is tested again, or the description says why it is no longer wanted.",
)
WEAKENED = Rule(
    name="test-weakened",
    category="tests",
    severity="medium",
    confidence="medium",
    title="The test no longer checks `{what}`",
    body="The assertion on `{what}` was replaced, in the same change that touches the code it guards. What it made "
    "sure of is "
    "now tested nowhere in this test.",
    acceptance="`{what}` is asserted again, or the description says why it no longer holds.",
)
ASSERTS_GONE = Rule(
    name="assertions-removed",
    category="tests",
    severity="medium",
    confidence="high",
    title="Assertions were removed from a test that stays",
    body="{count} were deleted and nothing took their place, so the test passes in more cases than before.",
    acceptance="The assertions are back, or the description says why they no longer hold.",
)
SKIPPED = Rule(
    name="test-skipped",
    category="tests",
    severity="medium",
    confidence="high",
    title="Test switched off: `{what}`",
    body="A skipped test looks green and guards nothing. Mend it, or delete it and say why; if it has to wait, name "
    "the issue.",
    acceptance="The test runs, or the skip names an issue.",
)
DELETED = Rule(
    name="test-deleted",
    category="tests",
    severity="medium",
    confidence="high",
    title="The test `{what}` was deleted",
    body="The change removes `{what}` and adds no test in its place, while the code it covered is still there.",
    acceptance="The test is back, or the description says why it is no longer wanted.",
)
UNTESTED_FLAG = Rule(
    name="untested-flag",
    category="tests",
    severity="medium",
    confidence="high",
    title="Missing test: the new flag `{what}` is not covered",
    body="The change adds the flag `{what}` and what it does, and touches no test at all. Add one that runs the "
    "command with it.",
    acceptance="A test runs the command with `{what}` and checks what changes.",
)
UNTESTED = Rule(
    name="untested-code",
    category="tests",
    severity="medium",
    confidence="medium",
    title="Missing test for the new `{what}`",
    body="`{what}` is new, public and has logic of its own, and the change touches no test. Add one for its normal "
    "case and one "
    "for its edge.",
    acceptance="A test calls `{what}` and fails when its logic is broken.",
)
_ASSERT = re.compile(
    r"^\s*(?:assert\b|self\.assert\w+\(|expect\(|assert\w*[.(]|await expect\(|t\.(?:Error|Fatal)\w*\(|require\.\w+\("
    r"|with pytest\.raises"
    r"|\w+\.should\b|\.(?:toBe|toEqual|toThrow|toHave\w*)\()"
)
_GO_CHECK = re.compile(r"^\s*if\s+(?P<what>.+?)\s*\{\s*$")
_REFUSES = re.compile(
    r"status\w*\s*(?:==|,|\)\.toBe\()\s*\(?\s*(?:HTTP_)?(?:status\.)?(?:HTTP_)?4\d\d|raises\(|toThrow|rejects\."
    r"|assertRaises|err == nil|ErrorIs\("
    r"|assertFalse\(|assert not\b|toBe\(false\)|toBeFalsy"
)
_ACCEPTS = re.compile(
    r"status\w*\s*(?:==|,|\)\.toBe\()\s*\(?\s*(?:HTTP_)?(?:status\.)?(?:HTTP_)?2\d\d|not\.toThrow|resolves\."
    r"|err != nil|NoError\("
    r"|assertTrue\(|toBe\(true\)|toBeTruthy"
)
_SKIPS = {
    "python": re.compile(
        r"(?P<what>@(?:pytest\.mark\.(?:skip|xfail)|unittest\.skip|skip\b)\w*|\bpytest\.skip\(|self\.skipTest\()"
    ),
    "js": re.compile(r"(?<![\w.])(?P<what>(?:it|test|describe|suite)\.(?:skip|todo)|x(?:it|describe|test))\s*\("),
    "go": re.compile(r"\b(?P<what>t\.Skip\w*)\("),
}
_CONDITIONAL = re.compile(
    r"skipif|skipUnless|skipIf|importorskip|testing\.Short|os\.Getenv|runtime\.GOOS", re.IGNORECASE
)
_ISSUE = re.compile(r"#\d+|[A-Z]{2,10}-\d+|https?://")
_TEST_NAME = re.compile(
    r"^\s*(?:async\s+)?(?:def\s+(?P<py>test_\w+)|func\s+(?P<go>Test\w+)|(?:it|test)\(\s*(?P<quote>['\"`])(?P<js>.+?)(?P=quote))"
)
_FLAG = re.compile(
    r"(?:\.(?:Bool|String|Int|Int64|Duration|Float64|Uint)Var\(\s*&[\w.]+,|flag\.(?:Bool|String|Int|Int64|Duration|Float64|Uint)\(|add_argument\(|click\.option\(|@\w*\.?option\(|\.option\()\s*"
    r"['\"](?P<name>-{0,2}[\w-]+)['\"]?"
)
_GO_EXPORTED = re.compile(r"^func\s+(?P<name>(?:New)?[A-Z]\w*)\s*[\[(]")
_GO_METHOD = re.compile(r"^func\s+\((?:\w+\s+)?\*?(?P<type>\w+)\)\s+(?P<name>[A-Z]\w*)\(")
_EXAMPLE = re.compile(r"(?:^|/)(?:examples?|samples?|demos?|docs?|scripts?|bench\w*)/")
_LOGIC = re.compile(r"\b(?:if|for|switch|while|elif|case)\b")


def check(project: Project) -> Iterator[Finding]:
    for view in project.views:
        if view.is_test and view.language:
            yield from _edited(view, project)
            yield from _skipped(view)
    yield from _deleted_files(project)
    if not project.tests_touched and project.has_tests is not False:
        yield from _untested(project)


def _edited(view: View, project: Project) -> Iterator[Finding]:
    for edit in view.edits:
        removed = [line for line in edit.removed if _is_check(line, view)]
        added = [line for line in edit.added if _is_check(line, view)]
        if not removed:
            yield from _deleted(view, edit, project)
            continue
        reversed_ = _reversal(removed, added)
        if reversed_ is not None:
            spot = _test_start(edit) or reversed_[1]
            yield from REVERSED.at(view, spot, max(reversed_[1], spot), old=reversed_[0].strip())
        elif (
            not added
            and edit.after is not None
            and edit.after.new
            and not _moved(removed, view)
            and not _names(edit.removed)
        ):
            word = "An assertion" if len(removed) == 1 else f"{len(removed)} assertions"
            yield from ASSERTS_GONE.at(view, edit.after.new, count=word)
        elif added and _code_touched(project):
            yield from _replaced(view, edit, removed, added, project)
        yield from _deleted(view, edit, project)


def _is_check(line: Line, view: View) -> bool:
    if _ASSERT.match(line.text):
        return True
    return view.language == "go" and _GO_CHECK.match(line.text) is not None and "err != nil" not in line.text


def _reversal(removed: list[Line], added: list[Line]) -> tuple[str, int] | None:
    refused = next((line for line in removed if _REFUSES.search(line.text)), None)
    accepted = next((line for line in added if _ACCEPTS.search(line.text) and not _REFUSES.search(line.text)), None)
    still = any(_REFUSES.search(line.text) for line in added)
    if refused is None or accepted is None or still or accepted.new is None:
        return None
    return refused.text, accepted.new


def _test_start(edit: Edit) -> int | None:
    return next((line.new for line in edit.added if _TEST_NAME.match(line.text)), None)


def _replaced(view: View, edit: Edit, removed: list[Line], added: list[Line], project: Project) -> Iterator[Finding]:
    """The thing an old assertion looked at is looked at by none of the new ones in the same test."""
    subjects = [subject for line in removed if (subject := _subject(line.text))]
    block = view.function_at(added[0].new or 0)
    body = block.body if block else "\n".join(line.text for line in edit.added)
    for subject in subjects:
        name = subject.rsplit(".", 1)[-1]
        if re.search(rf"\b{re.escape(subject)}\b", body) or "." not in subject or _renamed(name, project):
            continue
        first, last = added[0].new or 0, added[-1].new or 0
        yield from WEAKENED.at(view, first, min(last, first + 1), what=subject)
        return


def _subject(text: str) -> str:
    """What an assertion looks at: the first dotted name in it."""
    text = re.sub(r"['\"`].*?['\"`]", "", text)
    found = re.findall(r"\b(?!(?:self|assert\w*|expect|require|t)\.)([a-zA-Z_]\w*(?:\.\w+)+)(?!\w*\()", text)
    return str(found[0]) if found else ""


def _renamed(name: str, project: Project) -> bool:
    """Whether the code gave the name up, so that the test had to follow."""
    word = re.compile(rf"\b{re.escape(name)}\b")
    views = tuple(project.code_views())
    gone = any(word.search(line.text) for view in views for line in view.file.deleted)
    return gone and not any(word.search(view.source.code) for view in views)


def _moved(lines: list[Line], view: View) -> bool:
    """Whether the same assertions were added somewhere else in the file."""
    new = {" ".join(line.text.split()) for line in view.file.added}
    return all(" ".join(line.text.split()) in new for line in lines)


def _code_touched(project: Project) -> bool:
    return any(True for _ in project.code_views())


def _skipped(view: View) -> Iterator[Finding]:
    for number in sorted(view.added):
        code = view.source.code_line(number)
        match = _SKIPS[view.language].search(code)
        near = view.source.line(number) + view.source.line(number - 1)
        if re.match(r"\s*(?:if|elif|else|except|case)\b", view.source.code_line(number - 1)):
            continue  # skipped only where it cannot run
        if match and not _CONDITIONAL.search(near + view.source.line(number - 2)) and not _ISSUE.search(near):
            yield from SKIPPED.at(view, number, what=match["what"].strip("(@"))


def _names(lines: tuple[Line, ...]) -> list[str]:
    found = [match for line in lines if (match := _TEST_NAME.match(line.text))]
    return [match["py"] or match["go"] or match["js"] for match in found]


def _deleted(view: View, edit: Edit, project: Project) -> Iterator[Finding]:
    gone, new = _names(edit.removed), _names(edit.added)
    gone = [name for name in gone if name not in project.added]
    if gone and not new and edit.after is not None and edit.after.new:
        yield from DELETED.at(view, edit.after.new, what=gone[0])


def _deleted_files(project: Project) -> Iterator[Finding]:
    """A deleted test file has no line on the right side: it is listed in the summary."""
    for file in project.bundle.files:
        if file.status != "deleted" or not is_test(file.path) or not any(project.code_views()):
            continue
        names = _names(file.deleted)
        if names and not any(name in project.added for name in names) and file.deleted[0].old is not None:
            first = next(line for line in file.deleted if _TEST_NAME.match(line.text))
            what = f"{file.path} ({len(names)} tests)" if len(names) > 1 else names[0]
            yield Finding(
                path=file.path,
                quote=first.text,
                title=DELETED.title.format(what=what),
                body=DELETED.body.format(what=what),
                severity=DELETED.severity,
                confidence=DELETED.confidence,
                category=DELETED.category,
                acceptance=DELETED.acceptance,
                rule=DELETED.name,
                source=SOURCE,
                line=first.old,
                side="LEFT",
                anchor="deleted",
            )


@dataclass(frozen=True, slots=True)
class _New:
    rule: Rule
    start: int
    end: int
    what: str


def _untested(project: Project) -> Iterator[Finding]:
    """New flags and exported functions in a change without any test; at most three are named."""
    flagged = [(view, new) for view in project.code_views() for new in _new_flags(view)]
    code = [(view, new) for view in project.code_views() for new in _new_exported(view)] if flagged else []
    if project.has_tests:
        code = code or [(view, new) for view in project.code_views() for new in _new_exported(view)]
    for view, new in (*flagged[:1], *code[:2]):
        yield from new.rule.at(view, new.start, new.end, what=new.what)


def _new_flags(view: View) -> Iterator[_New]:
    for number in sorted(view.added):
        match = _FLAG.search(view.source.bare_line(number))
        if (
            match is None
            or (view.language != "go" and not match["name"].startswith("--"))
            or _EXAMPLE.search(view.path)
        ):
            continue
        name = match["name"].lstrip("-")
        # Where the flag is used says more than where it is declared.
        field = re.search(r"&\w+\.(\w+)", view.source.line(number))
        word = re.compile(rf"\b{re.escape(field[1] if field else name.replace('-', '_'))}\b")
        uses = [
            n
            for n in sorted(view.added)
            if n > number and word.search(view.source.code_line(n)) and _LOGIC.search(view.source.code_line(n))
        ]
        spot = uses[0] if uses else number
        yield _New(UNTESTED_FLAG, spot, spot + (2 if uses else 0), f"--{name}")


def _new_exported(view: View) -> Iterator[_New]:
    if view.language != "go" or view.path.endswith("main.go"):
        return
    types = {
        match[1]
        for number in view.added
        if (match := re.match(r"type\s+(\w+)\s+struct", view.source.code_line(number)))
    }
    for block in view.functions:
        if not all(number in view.added for number in (block.start, block.end)):
            continue
        function = _GO_EXPORTED.match(block.header)
        method = _GO_METHOD.match(block.header)
        if function and (_LOGIC.search(block.body) or function["name"].startswith("New")):
            yield _New(UNTESTED, block.start, block.start, function["name"])
        elif method and method["type"] in types and _LOGIC.search(block.body):
            yield _New(UNTESTED, block.start, block.start, f"{method['type']}.{method['name']}")
