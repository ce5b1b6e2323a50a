"""Tokens and functions of source files."""

from __future__ import annotations

import pytest

from glue.agents.review.change.syntax import blanked, edits, functions, is_test, lex, pairs


def test_strings_and_comments_are_blanked() -> None:
    text = 'a = "x // y"; // z\nb = `t ${u}`; /* c\nd */ e = /[/"]/.test(f);\n'
    code = blanked(text, "js")

    assert code.split("\n")[0] == 'a = "      ";     '
    assert len(code) == len(text)


def test_functions_have_names_with_classes_and_lines_with_decorators() -> None:
    text = (
        "export default function A({ x }: P) {\n"
        "  const f = async (y) => {\n"
        "    go();\n"
        "  };\n"
        "}\n"
        "class B {\n"
        "  run(z: T): void {\n"
        "  }\n"
        "}\n"
    )
    python = "class A:\n    @x\n    def f(self):\n        return 1\n"

    assert [(one.name, one.start, one.end) for one in functions(text, "js")] == [
        ("A", 1, 5),
        ("f", 2, 4),
        ("run", 7, 8),
    ]
    assert [(one.name, one.start, one.end) for one in functions(python, "python")] == [
        ("A.f", 2, 4)
    ]


def test_layout_quotes_and_trailing_commas_do_not_change_tokens() -> None:
    assert [t.text for t in lex("f('a',\n  b,\n)", "js")] == [
        t.text for t in lex('f("a", b)', "js")
    ]
    ((old, new_one),) = pairs(
        functions("def f(a):\n    g(a)\n    h(a)\n", "python"),
        functions("def f(a):\n    h(a)\n", "python"),
    )
    (edit,) = edits(old, new_one) or ()
    assert (" ".join(edit.old), edit.new, edit.line) in {("g ( a ) ;", (), 2), ("( a ) ; g", (), 2)}


@pytest.mark.parametrize(
    "path", ["tests/a.py", "test_a.py", "a_test.go", "src/a.spec.ts", "x/__tests__/a.js"]
)
def test_test_files_are_recognised_by_their_path(path: str) -> None:
    assert is_test(path)
