"""Findings of ruff, and of other tools in SARIF and RDJSON files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from glue.agents.review.change.collect import from_texts
from glue.agents.review.findings import analysers
from glue.agents.review.records import Bundle
from glue.errors import ConfigError

BUG = "def f(seen=[]):\n    return seen\n"
CALM = "def f(seen=None):\n    return seen\n"


def rules(before: dict[str, str], after: dict[str, str]) -> list[str]:
    return [finding.rule for finding in analysers.ruff(from_texts(before, after))]


def test_only_new_results_are_reported() -> None:
    assert rules({"a.py": CALM}, {"a.py": BUG}) == ["ruff/B006"]
    assert rules({"a.py": BUG}, {"a.py": f"import os\n\n\n{BUG}\nprint(os)\n"}) == []
    assert rules({"a.py": BUG}, {"b.py": BUG}) == []  # moved to another file
    assert rules({"a.py": BUG}, {"a.py": BUG + BUG.replace("f(", "g(")}) == ["ruff/B006"]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("def f(x):\n    return u(x)  # noqa\n", "def f(x):\n    return u(x)\n"),
        (
            "def f(x):\n    return u(x)  # not yet\n",
            "def f(x):\n    return u(x)  # pylint: disable=all\n",
        ),
        ("def f(x):\n    print('a', u(x))\n", 'def f(x):\n    print(f"a {u(x)}")\n'),
        (
            "def f(a, seen=[]):\n    return seen\n",
            "def f(a: int, seen: list[int] = [], b=1):\n    return seen\n",
        ),
    ],
    ids=["silenced", "another comment", "reformatted", "edited around it"],
)
def test_old_result_is_not_new_if_the_code_around_it_changes(old: str, new: str) -> None:
    assert rules({}, {"a.py": new}) != []
    assert rules({"a.py": old}, {"a.py": new}) == []


@pytest.mark.parametrize(
    "text",
    [
        "def f(kwargs={}, *, names=['a']):\n    return print(*names, names=names, **kwargs)\n",
        "def test_a():\n    with pytest.raises(ValueError):\n        1 == approx(1)\n",
        "try:\n    TimeoutError = TimeoutError\nexcept NameError:\n    TimeoutError = OSError\n",
        "TEXT_TYPES = str,\n\n\nclass A:\n    __requires__ = 'a',\n",
        "import os\n\nos.system('make all')\n",
        "def test_a(c):\n    assert c == c\n",
        "import pdb\n\n\ndef debugger():\n    return pdb.Pdb\n",
        "import task\n\n\ndef f(tasks):\n    for task in tasks:\n        task()\n",
    ],
    ids=[
        "default is only read",
        "raises",
        "a name that may be missing",
        "plural",
        "constant",
        "equality",
        "import",
        "local",
    ],
)
def test_intended_code_is_not_reported(text: str) -> None:
    known = "from x import approx, pytest\n" if "approx" in text else ""

    assert rules({}, {"a.py": known + text}) == []


@pytest.mark.parametrize(
    "body",
    [
        "self.seen = seen",
        "seen.append(1)",
        "seen[0] = 1",
        "seen += [1]",
        "yield seen",
        "del seen[0]",
    ],
)
def test_shared_mutable_default_is_reported(body: str) -> None:
    assert rules({}, {"a.py": f"def f(self, é='é', *, seen=[]):\n    {body}\n"}) == ["ruff/B006"]


@pytest.mark.parametrize(
    "text",
    [
        "x = 1\rbreakpoint()\r",
        "x = 1\x0c\nbreakpoint()\n",
        "type X = int\n\n\ndef f(a: X = []):\n    a.b()\n",
    ],
)
def test_odd_line_endings_and_new_syntax_are_accepted(text: str) -> None:
    assert set(rules({}, {"a.py": text})) <= {"ruff/T100"}


def test_each_place_is_reported_once() -> None:
    assert len(rules({}, {"a.py": 'def f(a):\n    return "{:a} {:b} {:t}".format(a)\n'})) == 1


def test_removed_import_is_reported_on_the_unchanged_line_that_uses_it() -> None:
    body = (
        "\n\n\n\n\n\n\ndef f():\n    return json.dumps(1)\n\n\ndef g():\n    return json.dumps(2)\n"
    )

    (finding,) = analysers.ruff(from_texts({"a.py": "import json\n" + body}, {"a.py": body}))

    assert (finding.rule, finding.severity, finding.line, finding.claimed) == (
        "ruff/F821",
        "high",
        None,
        9,
    )


def test_patterns_of_ruff_rules_exclude_results() -> None:
    assert rules({}, {"a.py": "def f(x):\n    return unicode(x)\n"}) == []
    assert rules({}, {"a.py": "a = b = 1\na = a\n"}) == ["ruff/PLW0127"]
    assert rules({}, {"a.py": "a = b = 1\na, b = a, 2\n"}) == []


def test_unparsable_and_vendored_files_are_not_reported() -> None:
    assert rules({"a.py": "print 1\n"}, {"a.py": BUG}) == []
    assert (
        rules(
            {},
            {"a.py": "try:\n    f = open('x')\nexcept IOError, e:\n    raise ValueError(e.args)\n"},
        )
        == []
    )
    assert rules({}, {"a.py": "def f(:\n"}) == []
    assert rules({}, {"vendor/a.py": BUG, "docs/a.py": BUG, "a_pb2.py": BUG}) == []


def test_test_data_is_not_reported() -> None:
    assert (
        rules(
            {},
            {
                "tests/slices.py": "slice[a.b : c.d]\n",
                "tests/data/cases/long.py": "print(some_name)\n",
            },
        )
        == []
    )
    assert rules({}, {"tests/unit/test_a.py": "print(some_name)\n"}) == ["ruff/F821"]
    assert rules({}, {"latest/a.py": "print(some_name)\n"}) == [
        "ruff/F821"
    ]  # not a folder of tests


def test_change_cannot_configure_ruff(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "ruff.toml").write_text('lint.ignore = ["B006"]\n')
    (tmp_path / "pyproject.toml").write_text("[tool.ruff.lint]\nignore = ['B006']\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RUFF_CONFIG", str(tmp_path / "ruff.toml"))

    config = {
        "ruff.toml": 'lint.ignore = ["B006"]\n',
        "pyproject.toml": "[tool.ruff.lint]\nignore = ['B006']\n",
    }
    assert rules({}, {**config, "a.py": BUG}) == ["ruff/B006"]


def test_ruff_sees_no_environment_variables(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    spy = tmp_path / "ruff"
    spy.write_text(
        f"#!/bin/sh\n/usr/bin/env > {tmp_path}/seen\n/bin/pwd >> {tmp_path}/seen\necho '[]'\n"
    )
    spy.chmod(0o755)
    monkeypatch.setattr(analysers, "find_ruff", lambda: str(spy))
    monkeypatch.setenv("OPENAI_API_KEY", "sk-" + "not-to-be-seen")

    assert rules({}, {"a.py": BUG}) == []
    seen = (tmp_path / "seen").read_text()
    assert "not-to-be-seen" not in seen
    assert str(Path.cwd()) not in seen.split()


def test_without_ruff_there_are_no_results(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(analysers, "find_ruff", lambda: "")

    assert rules({}, {"a.py": BUG}) == []


def test_every_rule_has_a_reason_and_a_severity() -> None:
    for code, rule in analysers.RUFF_RULES.items():
        assert rule["severity"] in ("high", "medium", "low"), code
        assert rule["why"].endswith("."), code


def sarif(*results: tuple[str, str, int], tool: str = "semgrep", **more: Any) -> dict[str, Any]:
    rows = [
        {
            "ruleId": rule,
            "level": "error",
            "message": {"text": f"{rule} found"},
            "locations": [
                {
                    "physicalLocation": {
                        "artifactLocation": {"uri": path},
                        "region": {"startLine": line},
                    }
                },
            ],
            **more,
        }
        for rule, path, line in results
    ]
    return {"version": "2.1.0", "runs": [{"tool": {"driver": {"name": tool}}, "results": rows}]}


def change() -> Bundle:
    return from_texts(
        {"a.js": "one();\ntwo();\nold();\n"}, {"a.js": "one();\nbad();\ntwo();\nold();\n"}
    )


def write(path: Path, data: Any) -> str:
    path.write_text(json.dumps(data))
    return str(path)


def test_results_on_added_lines_are_new(tmp_path: Path) -> None:
    file = write(
        tmp_path / "a.sarif",
        sarif(("no-bad", "./a.js", 2), ("no-old", "a.js", 4), ("x", "other.js", 1)),
    )

    (finding,) = analysers.handed_in(change(), [("sarif", file)]).findings

    assert (finding.rule, finding.line, finding.severity, finding.source) == (
        "semgrep/no-bad",
        2,
        "medium",
        "semgrep",
    )


def test_results_of_the_base_are_not_new(tmp_path: Path) -> None:
    now = write(
        tmp_path / "now.sarif",
        sarif(("no-old", "a.js", 4), ("no-two", "a.js", 3), ("no-bad", "a.js", 2)),
    )
    before = write(tmp_path / "base.sarif", sarif(("no-old", "a.js", 3)))

    found = analysers.handed_in(change(), [("sarif", now)], [("sarif", before)]).findings

    assert [finding.rule for finding in found] == ["semgrep/no-bad", "semgrep/no-two"]


def test_suppressed_and_unchanged_results_are_left_out(tmp_path: Path) -> None:
    for more in ({"suppressions": [{"kind": "inSource"}]}, {"baselineState": "unchanged"}):
        file = write(tmp_path / "a.sarif", sarif(("no-bad", "a.js", 2), **more))
        assert analysers.handed_in(change(), [("sarif", file)]).findings == ()


def test_rdjson_results_are_read(tmp_path: Path) -> None:
    row = {
        "message": "Bad call",
        "location": {"path": "a.js", "range": {"start": {"line": 2}}},
        "severity": "WARNING",
    }
    data = {"source": {"name": "eslint"}, "diagnostics": [{**row, "code": {"value": "no-bad"}}]}

    given = [("rdjson", write(tmp_path / "a.json", data))]
    (finding,) = analysers.handed_in(change(), given).findings

    assert (finding.rule, finding.title, finding.severity) == (
        "eslint/no-bad",
        "Bad call",
        "medium",
    )


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"runs": 3}', "[" * 5_000])
def test_file_that_is_not_sarif_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.sarif").write_text(text)

    with pytest.raises(ConfigError, match="is not SARIF"):
        analysers.handed_in(change(), [("sarif", str(tmp_path / "a.sarif"))])


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("db.execute(f\"SELECT a FROM t WHERE name LIKE '%{name}%'\")", True),
        ('db.execute("SELECT a FROM t WHERE id = " + name)', True),
        ('db.execute(f"DELETE FROM t WHERE id = {name}")', True),
        ("db.execute(\"SELECT a FROM t WHERE id = '%s'\" % name)", True),
        ('db.execute(f"SELECT {name} FROM t WHERE id = ?", (1,))', False),
        ('db.execute(f"SELECT a FROM {name} WHERE id = ?", (1,))', False),
    ],
)
def test_values_in_sql_are_reported_and_table_names_are_not(code: str, told: bool) -> None:
    assert rules({}, {"a.py": f"def f(db, name):\n    return {code}\n"}) == (
        ["ruff/S608"] if told else []
    )


def test_absolute_paths_of_another_checkout_are_made_relative(tmp_path: Path) -> None:
    places = ("file:///builds/42/a.js", "/builds/42/a.js", "file://host/builds/42/a.js")
    for place in places:
        log = sarif(("no-bad", place, 2), ("no-bad", "file:///builds/42/lib/a.js", 2))
        given = [("sarif", write(tmp_path / "a.sarif", log))]

        found = analysers.handed_in(change(), given)

        assert [finding.where for finding in found.findings] == ["a.js:2"]
        assert found.notes[0].endswith("2 results, 1 in changed files, 1 elsewhere")
        assert found.analysed == {"a.js": "semgrep"}


def test_file_of_the_same_name_in_a_folder_of_the_checkout_is_another_file(
    tmp_path: Path,
) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    link, real = tmp_path / "link", tmp_path / "real"
    for root, top in ((real, real), (link, link), (link, real)):
        log = sarif(("no-bad", f"{top.as_uri()}/lib/a.js", 2))
        given = [("sarif", write(tmp_path / "a.sarif", log))]

        assert analysers.handed_in(change(), given, root=str(root)).findings == ()


def test_path_is_joined_with_its_base(tmp_path: Path) -> None:
    log = sarif(("no-bad", "a.js", 2))
    log["runs"][0]["originalUriBaseIds"] = {"SRC": {"uri": f"{tmp_path.as_uri()}/"}}
    place = log["runs"][0]["results"][0]["locations"][0]["physicalLocation"]
    place["artifactLocation"]["uriBaseId"] = "SRC"
    given = [("sarif", write(tmp_path / "a.sarif", log))]

    found = analysers.handed_in(change(), given, root=str(tmp_path)).findings

    assert [finding.where for finding in found] == ["a.js:2"]


@pytest.mark.parametrize(
    ("rule", "properties", "severity"),
    [
        ("E501", {}, "low"),
        ("I001", {}, "low"),
        ("E999", {}, "medium"),
        ("indent", {"tags": ["stylistic"]}, "low"),
        ("no-bad", {}, "medium"),
        ("sql-injection", {"security-severity": "8.1"}, "high"),
        ("remote-code", {"security-severity": "9.8"}, "critical"),
        ("null-deref", {"tags": ["correctness"]}, "high"),
    ],
)
def test_level_error_alone_does_not_make_a_result_high(
    tmp_path: Path, rule: str, properties: dict[str, Any], severity: str
) -> None:
    log = sarif((rule, "a.js", 2))
    log["runs"][0]["tool"]["driver"]["rules"] = [{"id": rule, "properties": properties}]
    given = [("sarif", write(tmp_path / "a.sarif", log))]

    (finding,) = analysers.handed_in(change(), given).findings

    assert finding.severity == severity


def printing(path: Path, command: str) -> str:
    """Return the path of a program that runs a command instead of ruff."""
    path.write_text(f"#!/bin/sh\n{command}\n")
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize(("size", "found"), [(2_000, ["ruff/B006"]), (2_001, [])])
def test_output_of_ruff_beyond_the_limit_is_not_read(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, size: int, found: list[str]
) -> None:
    row = {
        "code": "B006",
        "message": "Do not use mutable data structures",
        "location": {"row": 1, "column": 12},
        "end_location": {"row": 1, "column": 14},
    }
    start = json.dumps([{**row, "filename": "HERE"}])
    (tmp_path / "out").write_text(start.ljust(size - len("head-0/a.py") - 200))
    monkeypatch.setattr(analysers, "MAX_BYTES", 2_000)
    script = (
        'text=$(/bin/sed "s|HERE|$PWD/head-0/a.py|" ' + str(tmp_path / "out") + ")\n"
        f'printf "%-{size}s" "$text"'
    )
    monkeypatch.setattr(analysers, "find_ruff", lambda: printing(tmp_path / "ruff", script))

    assert rules({}, {"a.py": BUG}) == found


def test_long_message_is_split_into_a_title_and_a_text(tmp_path: Path) -> None:
    log = sarif(("no-bad", "a.js", 2), ("no-two", "a.js", 2))
    first, second = log["runs"][0]["results"]
    first["message"]["text"] = f"{'Bad call ' * 20}here. It fails. Always, {'x' * 30}"
    second["message"]["text"] = "Short. And sweet."
    given = [("sarif", write(tmp_path / "a.sarif", log))]

    one, other = sorted(analysers.handed_in(change(), given).findings, key=lambda one: one.rule)

    assert one.title == f"{'Bad call ' * 20}here"
    assert one.body == f"It fails. Always, {'x' * 30} (Reported by semgrep.)"
    assert other.title == "Short. And sweet."
    assert other.body == "Short. And sweet. (Reported by semgrep.)"


def test_result_covers_at_most_six_lines(tmp_path: Path) -> None:
    rows = "".join(f"call({n});\n" for n in range(20))
    span = {"start": {"line": 2}, "end": {"line": 20}}
    row = {"message": "Bad", "location": {"path": "a.js", "range": span}}
    bundle = from_texts({}, {"a.js": rows})
    log = sarif(("no-bad", "a.js", 2))
    log["runs"][0]["results"][0]["locations"][0]["physicalLocation"]["region"]["endLine"] = 20

    for form, data in (("rdjson", {"diagnostics": [row]}), ("sarif", log)):
        file = write(tmp_path / form, data)
        (finding,) = analysers.handed_in(bundle, [(form, file)]).findings
        assert (finding.start_line, finding.line) == (2, 7)


def test_result_is_compared_by_the_whole_line_that_it_flags(tmp_path: Path) -> None:
    bundle = from_texts({"a.js": "one();\nbad(1);\n"}, {"a.js": "one();\nbad(2);\n"})
    now = write(tmp_path / "now.sarif", sarif(("no-bad", "a.js", 2)))
    before = write(tmp_path / "base.sarif", sarif(("no-bad", "a.js", 2)))

    found = analysers.handed_in(bundle, [("sarif", now)], [("sarif", before)]).findings

    assert [finding.line for finding in found] == [2]
