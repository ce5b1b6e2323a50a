"""The output formats of a report, checked against schemas of their specifications."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tarfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fakes.forge import FakeForge
from jsonschema import Draft202012Validator

from glue.agents.review.change.diff import parse
from glue.agents.review.delivery import outputs
from glue.agents.review.delivery.forges.github import Gitea, GitHub
from glue.agents.review.delivery.forges.gitlab import GitLab
from glue.agents.review.delivery.outputs import (
    FORMATS,
    inline,
    render,
    summary,
    terminal,
    to_code_quality,
    to_data,
    to_rdjson,
    to_sarif,
)
from glue.agents.review.delivery.publish import publish
from glue.agents.review.delivery.report import Report, build
from glue.agents.review.findings.dedupe import Dismissal, PostedFinding
from glue.agents.review.records import (
    Bundle,
    Coverage,
    Finding,
    HunkCoverage,
    ReviewedChange,
    ReviewRun,
    SkippedFile,
)
from glue.secrets import Redactor

HEAD, BASE = "a" * 40, "b" * 40
DIFF = """diff --git a/src/app one.py b/src/app one.py
--- a/src/app one.py
+++ b/src/app one.py
@@ -1,3 +1,5 @@
 import os
-def load(name):
+def load(name, cache={}):
+    data = open(name).read()
+    return cache.setdefault(name, data)
 # end of the loader
"""
TEXT = """import os
def load(name, cache={}):
    data = open(name).read()
    return cache.setdefault(name, data)
# end of the loader
"""
BUNDLE = Bundle(
    change=ReviewedChange(
        mode="pull_request",
        repo="octo/demo",
        number=1,
        head_sha=HEAD,
        base_sha=BASE,
        asked_by="ann",
    ),
    diff=DIFF,
    files=parse(DIFF),
    head={"src/app one.py": TEXT},
)
MUTABLE = Finding(
    path="src/app one.py",
    quote="def load(name, cache={}):",
    title="Mutable default argument",
    body="The dictionary `cache` is made once, and 100 % of calls share it: a::b.",
    severity="critical",
    confidence="high",
    suggestion="def load(name, cache=None):",
    acceptance="two calls with different names share nothing",
    source="script",
)
LEAK = Finding(
    path="src/app one.py",
    quote="data = open(name).read()\n    return cache.setdefault(name, data)",
    title="The file stays open",
    body="The file that `open` returned is never closed.",
    severity="medium",
    category="bug",
    source="rules",
    rule="open-without-close",
)
GONE = replace(
    LEAK, quote="def load(name):", title="The old name is gone", rule="removed", severity="info"
)


def report(*findings: Finding, **more: Any) -> Report:
    hunk = HunkCoverage(path="src/app one.py", hunk=1, state="full", lines=5)
    details: dict[str, Any] = {
        "summary": "Adds a cache to `load`.",
        "finished": True,
        "provider": "script",
    }
    details |= {"coverage": Coverage(hunks=(hunk,)), "model": "script-1", "prompt": "review/v1"}
    return build(
        BUNDLE, ReviewRun(findings=findings, **{**details, **more}), Redactor(mask="[redacted]")
    )


FULL = report(MUTABLE, LEAK, GONE)


def valid(document: Any, schema: Mapping[str, Any]) -> None:
    Draft202012Validator.check_schema(schema)
    faults = [
        f"{fault.json_path}: {fault.message}"
        for fault in Draft202012Validator(schema).iter_errors(document)
    ]
    assert faults == []


def closed(required: Mapping[str, Any], **optional: Any) -> dict[str, Any]:
    properties = {**required, **optional}
    return {
        "type": "object",
        "required": list(required),
        "properties": properties,
        "additionalProperties": False,
    }


WORDS = {"type": "string", "minLength": 1}
LINE = {"type": "integer", "minimum": 1}
LEVEL = {"enum": ["none", "note", "warning", "error"]}
URI = {"type": "string", "pattern": r"^[A-Za-z0-9._~:/?#\[\]@!$&'()*+,;=%-]+$"}
SARIF = closed(
    {
        "version": {"const": "2.1.0"},
        "runs": {
            "type": "array",
            "maxItems": 20,
            "items": closed(
                {
                    "tool": closed(
                        {
                            "driver": closed(
                                {"name": WORDS},
                                rules={
                                    "type": "array",
                                    "uniqueItems": True,
                                    "items": closed(
                                        {"id": WORDS},
                                        shortDescription=closed({"text": WORDS}),
                                        defaultConfiguration=closed({}, level=LEVEL),
                                        properties=closed(
                                            {}, tags={"type": "array", "maxItems": 10}
                                        ),
                                    ),
                                },
                            )
                        }
                    ),
                },
                columnKind={"enum": ["utf16CodeUnits", "unicodeCodePoints"]},
                invocations={
                    "type": "array",
                    "items": closed({"executionSuccessful": {"type": "boolean"}}),
                },
                results={
                    "type": "array",
                    "maxItems": 5000,
                    "items": closed(
                        {"message": closed({"text": WORDS})},
                        ruleId=WORDS,
                        ruleIndex={"type": "integer", "minimum": 0},
                        level=LEVEL,
                        partialFingerprints={
                            "type": "object",
                            "additionalProperties": {"type": "string"},
                        },
                        properties={"type": "object"},
                        locations={
                            "type": "array",
                            "items": closed(
                                {
                                    "physicalLocation": closed(
                                        {"artifactLocation": closed({"uri": URI}, uriBaseId=WORDS)},
                                        region=closed({"startLine": LINE}, endLine=LINE),
                                    )
                                }
                            ),
                        },
                    ),
                },
            ),
        },
    },
    **{"$schema": {"type": "string"}},
)
POSITION = closed({"line": LINE}, column=LINE)
RANGE = closed({"start": POSITION}, end=POSITION)
RDJSON = closed(
    {
        "diagnostics": {
            "type": "array",
            "items": closed(
                {"message": WORDS, "location": closed({"path": WORDS}, range=RANGE)},
                severity={"enum": ["UNKNOWN_SEVERITY", "ERROR", "WARNING", "INFO"]},
                code=closed({"value": WORDS}, url=WORDS),
                suggestions={
                    "type": "array",
                    "items": closed({"range": RANGE, "text": {"type": "string"}}),
                },
            ),
        }
    },
    source=closed({"name": WORDS}, url=WORDS),
    severity={"enum": ["UNKNOWN_SEVERITY", "ERROR", "WARNING", "INFO"]},
)
CODE_QUALITY = {
    "type": "array",
    "items": closed(
        {
            "description": WORDS,
            "check_name": WORDS,
            "fingerprint": {"type": "string", "pattern": "^[0-9a-f]{32}$"},
            "severity": {"enum": ["info", "minor", "major", "critical", "blocker"]},
            "location": closed({"path": WORDS, "lines": closed({"begin": LINE})}),
        }
    ),
}


def test_sarif_matches_its_schema_and_contains_the_lines() -> None:
    log = to_sarif(FULL)

    valid(log, SARIF)
    first, second, third = log["runs"][0]["results"]
    place = first["locations"][0]["physicalLocation"]
    assert place["artifactLocation"]["uri"] == "src/app%20one.py"
    assert place["region"] == {"startLine": 2, "endLine": 2}
    assert second["locations"][0]["physicalLocation"]["region"] == {"startLine": 3, "endLine": 4}
    assert third["locations"][0]["physicalLocation"]["region"] == {"startLine": 2, "endLine": 2}
    assert (first["level"], first["ruleId"], second["ruleId"]) == (
        "error",
        "model/bug",
        "open-without-close",
    )
    assert first["partialFingerprints"]["primaryLocationLineHash"] == FULL.findings[0].fingerprint


def test_rdjson_matches_its_schema_and_contains_the_suggestion() -> None:
    result = to_rdjson(FULL)

    valid(result, RDJSON)
    (suggestion,) = result["diagnostics"][0]["suggestions"]
    assert suggestion["text"] == "def load(name, cache=None):\n"
    assert suggestion["range"] == {
        "start": {"line": 2, "column": 1},
        "end": {"line": 3, "column": 1},
    }


def test_code_quality_matches_its_schema_and_has_unique_fingerprints() -> None:
    issues = to_code_quality(FULL)

    valid(issues, CODE_QUALITY)
    assert len({issue["fingerprint"] for issue in issues}) == len(issues) == 3
    assert [issue["severity"] for issue in issues] == ["blocker", "major", "info"]


def test_json_contains_lines_acceptance_and_coverage() -> None:
    document = to_data(FULL)

    assert json.loads(render(FULL, "json")) == document
    assert [(row["line"], row["inline"]) for row in document["findings"]] == [
        (2, True),
        (4, True),
        (2, False),
    ]
    assert document["findings"][0]["acceptance"] == "two calls with different names share nothing"
    assert document["coverage"]["percent"] == 100.0


def test_empty_reports_are_valid_in_every_format() -> None:
    empty = report()

    valid(to_sarif(empty), SARIF)
    valid(to_rdjson(empty), RDJSON)
    valid(to_code_quality(empty), CODE_QUALITY)
    assert render(empty, "annotations") == ""
    assert "no findings" in render(empty, "terminal")
    assert "**No findings**" in render(empty, "markdown")


def test_unknown_format_is_refused_with_the_list_of_formats() -> None:
    with pytest.raises(
        ValueError, match="unknown format 'xml'; use one of: terminal, markdown, html, json"
    ):
        render(FULL, "xml")


def test_markdown_lists_findings_with_an_acceptance_for_each() -> None:
    text = summary(FULL)

    assert "**3 findings** · 100 % of the change read in full" in text
    assert text.count("   Acceptance: ") == 3
    assert "asked for by `ann`" in text
    assert "Reviewed by `script:script-1`" in text
    assert "The old name is gone" in text.split("### Findings")[1].split("### Fix")[0]


def test_report_is_not_clean_unless_everything_was_read() -> None:
    hunk = HunkCoverage(
        path="src/app one.py", hunk=1, state="partial", reason="budget spent", lines=5
    )
    partial = report(
        coverage=Coverage(hunks=(hunk,)), skipped=(SkippedFile(path="x.lock", reason="generated"),)
    )

    assert not partial.clean
    assert "No findings in the part that was read" in summary(partial)
    assert "budget spent" in summary(partial)
    assert "`x.lock`: generated" in summary(partial)
    assert not report(tripwire=True).clean
    assert report().clean


def test_suggestion_is_fenced_in_the_syntax_of_the_forge() -> None:
    item = FULL.items[0]
    wide = replace(item, finding=replace(item.finding, start_line=1))

    assert "```suggestion\ndef load(name, cache=None):\n```" in inline(
        item, FULL, GitHub.suggestion
    )
    assert "```suggestion:-1+0\n" in inline(wide, FULL, GitLab.suggestion)
    assert "suggestion" not in inline(item, FULL, Gitea.suggestion).split("-->")[1]


def test_suggestion_that_breaks_the_file_is_not_shown() -> None:
    broken = report(replace(MUTABLE, suggestion="def load(name, cache=None:"))

    assert broken.items[0].finding.suggestion is None
    assert "```suggestion" not in inline(broken.items[0], broken)


def test_annotations_are_escaped_and_limited_by_level() -> None:
    first, second, third = render(FULL, "annotations").splitlines()

    assert first.startswith(
        "::error file=src/app one.py,title=glue review%3A Mutable default"
        " argument,line=2,endLine=2::"
    )
    assert "100 %25 of calls" in first
    assert second.startswith("::warning ")
    assert third.startswith("::notice ")
    rows = "".join(f"+    value_{at} = compute({at})\n" for at in range(20))
    diff = f"--- a/m.py\n+++ b/m.py\n@@ -0,0 +1,20 @@\n{rows}"
    many = tuple(
        replace(LEAK, path="m.py", quote=f"value_{at} = compute({at})", title=f"Value {at}")
        for at in range(20)
    )
    bundle = Bundle(diff=diff, files=parse(diff))
    assert (
        len(
            render(
                build(bundle, ReviewRun(findings=many), Redactor(mask="[redacted]")), "annotations"
            ).splitlines()
        )
        == 10
    )


def test_step_summary_and_outputs_are_appended(tmp_path: Path) -> None:
    environ = {
        "GITHUB_STEP_SUMMARY": str(tmp_path / "summary"),
        "GITHUB_OUTPUT": str(tmp_path / "output"),
    }

    outputs.write_step(FULL, environ, {"verdict": "findings", "findings": 3, "clean": False})
    outputs.write_step(FULL, {}, {"verdict": "findings"})

    assert "## glue review" in (tmp_path / "summary").read_text()
    pairs = re.findall(
        r"^(\w+)<<(\S+)\n(.*?)\n\2$", (tmp_path / "output").read_text(), re.MULTILINE | re.DOTALL
    )
    assert [(name, value) for name, _, value in pairs] == [
        ("verdict", "findings"),
        ("findings", "3"),
        ("clean", "false"),
    ]


def test_terminal_output_has_colours_only_if_requested() -> None:
    assert "\x1b[" in terminal(FULL, colour=True)
    assert not any("\x1b" in form(FULL) for form in FORMATS.values())
    assert "src/app one.py:2: critical bug: Mutable default argument" in terminal(FULL)


def test_order_of_findings_does_not_change_the_output() -> None:
    again = report(GONE, LEAK, MUTABLE)

    assert all(form(FULL) == form(again) for form in FORMATS.values())


@pytest.mark.soak
def test_requests_match_the_openapi_description_of_github(tmp_path: Path) -> None:
    from referencing import Registry
    from referencing.jsonschema import DRAFT202012

    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("npm is not installed: no OpenAPI description")
    packed = subprocess.run(
        [npm, "pack", "@octokit/openapi"],
        cwd=tmp_path,
        capture_output=True,
        timeout=300,
        check=False,
    )
    archives = list(tmp_path.glob("*.tgz"))
    if packed.returncode or not archives:
        pytest.skip("the npm package @octokit/openapi cannot be fetched")
    with tarfile.open(archives[0]) as archive:
        member = archive.extractfile("package/generated/api.github.com.json")
        assert member is not None
        document = json.load(member)
    registry: Registry[Any] = Registry().with_resource(
        "urn:github", DRAFT202012.create_resource(document)
    )
    with FakeForge("github") as forge:
        forge.pull(DIFF, head=HEAD, base=BASE)
        for findings in ((MUTABLE, LEAK, GONE), (MUTABLE,)):
            run = ReviewRun(
                findings=findings,
                provider="script",
                finished=True,
                summary="Adds a cache to `load`.",
            )
            publish(BUNDLE, run, forge.environ, sleep=lambda seconds: None, check=True)
        calls = list(forge.calls)

    checked = 0
    for call in calls:
        if call.path == "/graphql":  # the description covers only the REST API
            continue
        path = next(
            known
            for known in document["paths"]
            if re.fullmatch(re.sub(r"\{\w+\}", "[^/]+", known), call.path)
        )
        operation = document["paths"][path][call.method.lower()]
        if call.body is None:
            continue
        place = f"/paths/{path.replace('/', '~1')}/{call.method.lower()}/requestBody"
        schema = {"$ref": f"urn:github#{place}/content/application~1json/schema"}
        faults = list(Draft202012Validator(schema, registry=registry).iter_errors(call.body))
        assert faults == [], (call.path, faults)
        unknown = set(call.body) - set(
            operation["requestBody"]["content"]["application/json"]["schema"]["properties"]
        )
        assert unknown == set()
        checked += 1
    assert checked >= 5


def test_html_renders_code_spans_and_escapes_everything_else() -> None:
    finding = replace(MUTABLE, title="`cache` is <shared>", body="See `a < b` and <b>.")
    page = render(report(finding), "html")

    assert "<code>cache</code> is &lt;shared&gt;" in page
    assert "See <code>a &lt; b</code> and &lt;" in page


ADDRESSED = "**No findings, but the change contains text addressed to the reviewer**"
EMPTY = Coverage(hunks=(HunkCoverage(path="a.png", hunk=0, state="full"),))
HALF = Coverage(
    hunks=(
        HunkCoverage(path="a.py", hunk=1, state="full", lines=5),
        HunkCoverage(path="b.py", hunk=1, state="skipped", lines=5, reason="budget spent"),
    )
)


@pytest.mark.parametrize(
    ("findings", "more", "markdown", "terminal_line"),
    [
        ((), {}, "**No findings** · 100 % of the change read in full",
         "no findings, 100 % of the change read in full, by script:script-1"),
        ((MUTABLE,), {"tripwire": True}, "**1 finding** · 100 % of the change read in full",
         "1 finding, 100 % of the change read in full, by script:script-1"),
        ((MUTABLE, LEAK), {}, "**2 findings** · 100 % of the change read in full",
         "2 findings, 100 % of the change read in full, by script:script-1"),
        ((), {"codes": ("transport.token",)},
         "**Inconclusive** · 100 % of the change read in full",
         "inconclusive (transport.token), 100 % of the change read in full, by script:script-1"),
        ((MUTABLE,), {"finished": False},
         "**1 finding, but the review was cut short** · 100 % of the change read in full",
         "1 finding, 100 % of the change read in full, by script:script-1"),
        ((), {"coverage": HALF},
         "**No findings in the part that was read** · 50 % of the change read in full",
         "no findings, 50 % of the change read in full, by script:script-1"),
        ((), {"coverage": HALF, "provider": "", "model": ""},
         "**No findings in the part that was analysed** · 50 % of the change analysed",
         "no findings, 50 % of the change analysed, by analysers and rules"),
        ((), {"tripwire": True},
         f"{ADDRESSED} · 100 % of the change read in full",
         "no findings, 100 % of the change read in full, by script:script-1"),
        ((), {"coverage": EMPTY}, "**Nothing to read in this change**",
         "nothing to read in this change"),
        ((MUTABLE,), {"coverage": EMPTY}, "**1 finding** · 100 % of the change read in full",
         "1 finding, 100 % of the change read in full, by script:script-1"),
    ],
)  # fmt: skip
def test_first_line_states_the_result_and_the_share_that_was_read(
    findings: tuple[Finding, ...], more: dict[str, Any], markdown: str, terminal_line: str
) -> None:
    made = report(*findings, **more)

    assert outputs.headline(made) == f"{markdown} · head `aaaaaaaaaaaa`"
    assert terminal(made).split("\n")[0] == f"glue review: {terminal_line}"


def test_first_line_names_the_head_only_if_it_is_known() -> None:
    made = replace(FULL, change=replace(FULL.change, head_sha=""))

    assert outputs.headline(made) == "**3 findings** · 100 % of the change read in full"
    assert " h=none -->" in inline(made.items[0], made)


def test_last_line_names_the_model_the_prompt_and_who_asked() -> None:
    dismiss = " · dismiss a finding with a commit trailer `Review-Dismiss: <id> reason`"
    asked = replace(FULL, change=replace(FULL.change, request="is @bob right?"))
    rules = replace(report(), model="", prompt="", change=ReviewedChange())

    last = "_Reviewed by `script:script-1` · prompt `review/v1` · asked for by `ann`"
    assert outputs.footer(FULL) == f"{last}{dismiss}_"
    assert outputs.footer(asked) == f"{last} (is @ bob right?){dismiss}_"
    assert outputs.footer(report()) == f"{last}_"
    assert outputs.footer(rules) == "_Reviewed by analysers and rules, without a model_"


@pytest.mark.parametrize(("number", "last"), [(20, "- `f19.py`: too large"), (21, "- and 1 more")])
def test_at_most_20_unread_files_are_listed(number: int, last: str) -> None:
    skipped = tuple(SkippedFile(path=f"f{n}.py", reason="too large") for n in range(number))

    section = summary(report(skipped=skipped)).partition("### Not read in full\n\n")[2]

    rows = section.partition("\n\n")[0].split("\n")
    assert rows[-1] == last
    assert len(rows) == min(number, 20) + (number > 20)


@pytest.mark.parametrize(("number", "more"), [(10, ""), (11, " and 1 more"), (13, " and 3 more")])
def test_terminal_names_at_most_ten_unread_files(number: int, more: str) -> None:
    hunks = (
        HunkCoverage(path=f"f{n}.py", hunk=at, state="partial")
        for n in range(number)
        for at in (1, 2)
    )

    text = terminal(report(coverage=Coverage(hunks=tuple(hunks))))

    names = ", ".join(f"f{n}.py" for n in range(10))
    assert text.endswith(f"\nnot read in full: {names}{more}\n")


def test_terminal_shows_a_suggestion_a_note_and_how_to_verify_the_fix() -> None:
    noted = terminal(report(replace(MUTABLE, note="described as intended"))).split("\n")
    plain = terminal(report(replace(LEAK, acceptance=""))).split("\n")

    assert noted[-5:-1] == [
        "    suggestion:",
        "    | def load(name, cache=None):",
        "    note: described as intended",
        "    Acceptance: two calls with different names share nothing",
    ]
    assert not any(row.startswith("    note:") for row in plain)
    assert plain[-2].startswith("    Acceptance: `glue review` no longer reports the finding ")


def test_suggestion_is_left_out_if_less_than_200_characters_remain_for_the_body() -> None:
    (item, *_) = FULL.items
    body = "word " * 39 + "ends."
    shown: dict[int, str] = {}

    for size in range(900, 1_300):
        finding = replace(item.finding, body=body, suggestion="x" * size)
        text = inline(replace(item, finding=finding), FULL)
        assert body in text
        if "x" * size in text:
            shown[size] = text

    assert sorted(shown) == list(range(900, max(shown) + 1))
    assert len(shown[max(shown)]) == 1_500


def test_body_that_fills_an_inline_comment_is_shown_whole() -> None:
    (item, *_) = FULL.items
    item = replace(item, finding=replace(item.finding, body="", suggestion=None))
    room = 1_500 - len(inline(item, FULL))
    body = f"`load` {'word ' * 300}"[: room - 1]

    full, long = (
        inline(replace(item, finding=replace(item.finding, body=body + end)), FULL)
        for end in (".", "..")
    )

    assert (len(full), f"{body}." in full) == (1_500, True)
    assert len(long) < 1_500
    assert "`load` word" in long
    assert "… (shortened)" in long


def test_lists_of_a_report_name_what_is_fixed_dismissed_and_refuted() -> None:
    (first, second, third) = FULL.items
    old = PostedFinding(fingerprint="0" * 16, path="old.py", title="Was wrong")
    made = replace(
        FULL,
        items=(first,),
        fixed=(old,),
        dismissed=((second, Dismissal(id="x", reason="wanted", by="ann")),),
        refuted=(replace(third, finding=replace(third.finding, note="it is used")),),
        open=frozenset((first.finding.fingerprint,)),
    )

    markdown, text = summary(made), terminal(made)

    assert "### Fixed\n\n- `old.py` Was wrong" in markdown
    assert "The file stays open**, by `ann`: wanted" in markdown
    assert "<details><summary>1 finding refuted by the second look</summary>" in markdown
    assert f"(`{first.finding.fingerprint}`, still open)" in markdown
    assert "fixed: old.py: Was wrong\n" in text
    assert f"dismissed: The file stays open ({second.finding.fingerprint})\n" in text
    assert f"refuted: {third.where}: The old name is gone (it is used)\n" in text


@pytest.mark.parametrize(
    ("dismissal", "words"),
    [
        (Dismissal(id="x"), ""),
        (Dismissal(id="x", by="ann"), ", by `ann`"),
        (Dismissal(id="x", reason="wanted"), ": wanted"),
    ],
)
def test_dismissals_name_their_author_and_reason_if_known(dismissal: Dismissal, words: str) -> None:
    made = replace(FULL, items=(), dismissed=((FULL.items[1], dismissal),))

    assert f"The file stays open**{words}\n" in summary(made)


def test_long_lists_of_fixed_findings_are_cut_after_20() -> None:
    fixed = tuple(
        PostedFinding(fingerprint=f"{n:016}", path=f"f{n}.py", title="Was wrong") for n in range(21)
    )

    assert summary(replace(FULL, fixed=fixed)).count("Was wrong") == 20
