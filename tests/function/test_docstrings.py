"""Docstrings of tools: Google's style, NumPy's style and the fields of Sphinx."""

from __future__ import annotations

import pytest

import glue
from glue.function.docstrings import arguments_section, summary

NUMPY = """Draw a shape.

    Longer text.

    Parameters
    ----------
    shape : str, optional
        The shape to draw.

        It has corners.
    width, height : int
        In pixels.
    *_rest
    note
        A note: short.

    Other Parameters
    ----------------
    colour : str
        A name.

    Returns
    -------
    width : str
        Not a parameter.
    """
SPHINX = """Draw a shape.

    :param shape: The shape to draw.
        It has corners.
    :param int width: In pixels.
    :type height: int
    :keyword note: A note: short.
    :param height:
    :returns: shape: not a parameter
    """
GOOGLE = """Draw a shape.

    Args:
        shape (str, optional): The shape to draw.
            It has corners.
        width: In pixels.
    """


@pytest.mark.parametrize(
    ("doc", "texts"),
    [
        (
            NUMPY,
            {
                "shape": "The shape to draw. It has corners.",
                "width": "In pixels.",
                "height": "In pixels.",
                "note": "A note: short.",
                "colour": "A name.",
            },
        ),
        (
            SPHINX,
            {
                "shape": "The shape to draw. It has corners.",
                "width": "In pixels.",
                "note": "A note: short.",
            },
        ),
        (GOOGLE, {"shape": "The shape to draw. It has corners.", "width": "In pixels."}),
        ("Draw.", {}),
    ],
    ids=["numpy", "sphinx", "google", "none"],
)
def test_parameters_are_described_in_three_styles_of_docstrings(
    doc: str, texts: dict[str, str]
) -> None:
    def draw(
        shape: str = "", width: int = 1, height: int = 1, note: str = "", colour: str = ""
    ) -> str:
        return ""

    draw.__doc__ = doc

    made = glue.tool(draw)

    properties = made.spec.parameters["properties"]
    assert made.spec.description == "Draw a shape." if texts else "Draw."
    assert {
        name: schema["description"]
        for name, schema in properties.items()
        if "description" in schema
    } == texts


def test_fields_of_sphinx_directly_below_the_summary_are_not_part_of_it() -> None:
    @glue.tool
    def look(name: str) -> str:
        """Look something up.
        :param name: what to look up
        :return: the text
        """
        return name

    assert look.spec.description == "Look something up."
    assert look.spec.parameters["properties"]["name"]["description"] == "what to look up"


def test_a_section_of_numpy_may_be_indented_by_one_space_and_have_other_lines() -> None:
    doc = (
        "Draw.\n\nParameters\n----------\n"
        "shape : str\n  The shape.\n  - odd (line)\n+ no name\n lost\nwidth\n In pixels.\n"
    )

    assert arguments_section(doc) == {"shape": "The shape. - odd (line)", "width": "In pixels."}


def test_the_summary_ends_at_the_first_blank_line() -> None:
    assert summary("One\n  two.\n\nThree.\n\nFour.") == "One two."
    assert summary("One.\n:param x: a\n:returns: b") == "One."
    assert summary("") == ""
