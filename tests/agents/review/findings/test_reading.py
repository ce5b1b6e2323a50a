"""Reports of models in the forms that models write."""

from __future__ import annotations

import json
from typing import Any

import pytest

from glue.agents.review.findings.reading import (
    read_confidence,
    read_reply,
    read_report,
    read_reports,
    read_severity,
)

REPORT = {"path": "a.py", "quote": "x = 1", "title": "Wrong", "body": "It is wrong."}
SUMMARY = "Sets a value. I read it."


@pytest.mark.parametrize(
    ("value", "severity"),
    [
        ("high", "high"),
        ("HIGH", "high"),
        ("Major", "high"),
        ("blocker", "critical"),
        ("P1", "high"),
        ("warning", "medium"),
        ("medium-high", "high"),
        ("nit", "info"),
        ("🔴", "high"),
        (5, "critical"),
        (4, "high"),
        (3, "medium"),
        (0.95, "critical"),
        (0.9, "critical"),
        (1.0, "critical"),
        (0.7, "high"),
        (0.4, "medium"),
        (0.21, "low"),
        (0.2, "info"),
        (1.5, "low"),
        (1, "info"),
        (6, "medium"),
        (9, "critical"),
        ("8.8 (CVSS)", "high"),
        ("1", "info"),
        ("1.0", "critical"),
        ("1/5", "info"),
        ("4 out of 5", "high"),
        ("3/4", "high"),
        ("2/0", "critical"),
        ("terrible", "medium"),
        (None, "medium"),
    ],
)
def test_severity_is_read_in_any_spelling(value: object, severity: str) -> None:
    assert read_severity(value) == severity


@pytest.mark.parametrize(
    ("value", "confidence"),
    [
        ("High", "high"),
        (0.9, "high"),
        ("90%", "high"),
        (95, "high"),
        (8, "high"),
        (0.5, "medium"),
        (0.1, "low"),
        ("very likely", "medium"),
        (True, "high"),
        (False, "low"),
        (None, "medium"),
        ("75%", "high"),
        (0.75, "high"),
        (0.4, "medium"),
        (0.39, "low"),
        (1, "high"),
        (5, "high"),
        (6, "medium"),
        (75, "high"),
        (250, "high"),
    ],
)
def test_confidence_is_read_in_any_spelling(value: object, confidence: str) -> None:
    assert read_confidence(value) == confidence


def test_other_field_names_are_read() -> None:
    finding = read_report(
        {
            "filePath": "b.py",
            "code_snippet": "y = 2",
            "issue": "Too small",
            "description": "It should be 3.",
            "lineNumber": "12-14",
            "type": "Performance",
            "anything": [1, 2],
        }
    )

    assert (finding.path, finding.quote, finding.claimed) == ("b.py", "y = 2", 12)
    assert (finding.title, finding.body) == ("Too small", "It should be 3.")
    assert finding.category == "performance"


@pytest.mark.parametrize(
    ("given", "place"),
    [
        ({"path": "a.py:7"}, ("a.py", 7)),
        ({"path": "a.py#L7-L9"}, ("a.py", 7)),
        ({"path": "`a.py`, line 7"}, ("a.py", 7)),
        ({"path": "a.py", "location": {"line": 7}}, ("a.py", 7)),
        ({"location": {"file": "a.py", "startLine": 7}}, ("a.py", 7)),
        ({"path": "a.py", "line": [7, 9]}, ("a.py", 7)),
        ({"path": "a.py", "line": True}, ("a.py", None)),
        ({"location": "a.py:7"}, ("a.py", 7)),
        ({"path": "a.py", "line": {"start": 7, "end": 9}}, ("a.py", 7)),
        ({"path": "a.py", "line": {"line": 7}}, ("a.py", 7)),
        ({"path": "a.py", "line": ()}, ("a.py", None)),
        ({"path": "a.py", "line": -5}, ("a.py", None)),
        ({"path": "a.py", "line": 1}, ("a.py", 1)),
        ({"path": "a.py", "line": 9_999_999}, ("a.py", 9_999_999)),
        ({"path": "a.py", "line": 10_000_000}, ("a.py", None)),
    ],
)
def test_place_is_read_in_any_form(given: dict[str, Any], place: tuple[str, int | None]) -> None:
    finding = read_report({"title": "Wrong", **given})

    assert (finding.path, finding.claimed) == place


def test_title_is_taken_from_the_body_and_the_body_from_the_title() -> None:
    assert read_report({"body": "It fails. Always."}).title == "It fails"
    assert read_report({"body": "x" * 130}).title == "x" * 120
    assert read_report({"title": "It fails"}).body == "It fails"
    assert read_report({"title": "It fails", "body": 42}).body == "42"
    with pytest.raises(ValueError, match="must not be empty"):
        read_report({"path": "a.py", "quote": "x = 1", "title": " "})


FORMS = {
    "object": json.dumps({"findings": [REPORT], "summary": SUMMARY}),
    "fence": f"Sure!\n```json\n{json.dumps({'findings': [REPORT]})}\n```\nDone.",
    "list": json.dumps([REPORT]),
    "issues": json.dumps({"issues": [REPORT]}),
    "nested": json.dumps({"review": {"comments": [REPORT]}}),
    "nested twice": json.dumps({"response": {"data": {"findings": [REPORT]}}}),
    "long Python": str({**REPORT, "body": ""}).replace("''", "'" + "x" * 199_936 + "'"),
    "after 1,999 brackets": "{x " * 1_999 + json.dumps(REPORT),
    "by number": json.dumps({"findings": {"1": REPORT}}),
    "one object": json.dumps(REPORT),
    "lines": f"{json.dumps(REPORT)}\n",
    "trailing commas": json.dumps({"findings": [REPORT]}).replace("}]}", "},],}"),
    "line break in a string": json.dumps([REPORT]).replace("It is", "It\nis"),
    "cut off": json.dumps([REPORT, REPORT])[:-30],
    "Python": repr({"findings": [REPORT], "summary": None}),
    "call": json.dumps({"name": "report_finding", "arguments": REPORT}),
    "call with text": json.dumps(
        {"function": {"name": "report_finding", "arguments": json.dumps(REPORT)}}
    ),
}


@pytest.mark.parametrize("text", FORMS.values(), ids=FORMS.keys())
def test_review_is_read_from_a_text(text: str) -> None:
    found = read_reply(text)

    assert found is not None
    assert [report["path"] for report in found.reports] == ["a.py"]


def test_summary_is_read_from_a_text() -> None:
    called = json.dumps({"name": "finish_review", "arguments": {"summary": SUMMARY}})

    nested = json.dumps({"review": {"findings": []}, "summary": SUMMARY})
    both = json.dumps({"review": {"findings": [], "summary": SUMMARY}, "summary": "Other."})
    overview = json.dumps({"overview": SUMMARY, "issues": []})

    for text in (FORMS["object"], called, overview, nested, both):
        found = read_reply(text)
        assert found is not None
        assert found.summary == SUMMARY


@pytest.mark.parametrize(
    "text",
    [
        "The cache is shared.",
        "I looked at `rows[0]`, at `{}` and at []; nothing is wrong.",
        '{"findings": "none"}',
        '{"findings": [1, 2]}',
        "[" * 100_000,
        "",
        "[] is what I found.",
        json.dumps({"response": {"data": {"result": {"findings": [REPORT]}}}}),
        str({**REPORT, "body": ""}).replace("''", "'" + "x" * 199_937 + "'"),
        "{x " * 2_000 + json.dumps(REPORT),
    ],
    ids=lambda text: text[:30],
)
def test_other_texts_are_not_a_review(text: str) -> None:
    assert read_reply(text) is None


def test_empty_list_is_a_review_without_findings() -> None:
    for text in ("[]", '```json\n{"findings": []}\n```'):
        found = read_reply(text)
        assert found is not None
        assert found.reports == ()


def test_item_that_is_not_a_report_is_kept_so_that_it_counts_as_refused() -> None:
    found = read_reply(json.dumps({"findings": [REPORT, {"file": "b.py"}]}))

    assert found is not None
    assert len(found.reports) == 2


def test_arguments_of_a_call_may_be_a_list_or_contain_mistakes() -> None:
    assert len(read_reports(json.dumps({"findings": [REPORT, REPORT]}))) == 2
    assert read_reports(json.dumps(REPORT)[:-1] + ",}") == (REPORT,)
    with pytest.raises(ValueError, match="not a JSON object"):
        read_reports("a.py is wrong")


@pytest.mark.parametrize(
    ("value", "code"),
    [
        ("x = 1", "x = 1"),
        ("```python\nx = 1\n```", "x = 1"),
        ("~~~\nx = 1\ny = 2\n~~~\n", "x = 1\ny = 2"),
        ("```\nx = 1", "```\nx = 1"),
        ({"code": "x = 1", "text": "y"}, "x = 1"),
        ({"new": "x = 1"}, "x = 1"),
        ({"other": "x = 1"}, None),
        (7, None),
    ],
)
def test_suggestion_is_read_in_any_form(value: object, code: str | None) -> None:
    assert read_report({"title": "Wrong", "suggestion": value}).suggestion == code


def test_arguments_of_a_call_may_contain_several_objects() -> None:
    assert read_reports(json.dumps(REPORT) + json.dumps({"note": 1})) == (REPORT, {"note": 1})


def test_escaped_characters_of_json_are_read_as_json() -> None:
    found = read_reply('{"path": "a.py", "title": "\\ud83d\\udd34 Wrong"}')

    assert found is not None
    assert [report["title"] for report in found.reports] == ["🔴 Wrong"]
