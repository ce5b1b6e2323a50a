# /// script
# requires-python = ">=3.11"
# dependencies = ["glue-agents", "pytest"]
# ///
"""Step 5, tests without keys: `python -m pytest -q test_desk.py`."""

from glue import Agent, ToolError, tool
from glue.testing import Script, call, calls

SHELF = {"Emma": 3}


@tool
def stock(title: str) -> int:
    """Return how many copies of a book are in the shop."""
    if title not in SHELF:
        raise ToolError(f"{title!r} is not in the shop")
    return SHELF[title]


def test_the_tool_is_an_ordinary_function() -> None:
    assert stock("Emma") == 3


def test_the_model_reads_the_stock_before_it_answers() -> None:
    model = Script(calls(call("stock", {"title": "Emma"})), "There are 3 copies.")

    result = Agent(model, tools=[stock]).run_sync("Is Emma there?")

    assert result.text == "There are 3 copies."
    assert model.requests[1].messages[-1].text == "3"  # the result of the tool
    model.assert_used_up()


def test_a_wrong_title_is_an_error_that_the_model_can_correct() -> None:
    model = Script(
        calls(call("stock", {"title": "Ema"})), calls(call("stock", {"title": "Emma"})), "3 copies."
    )

    result = Agent(model, tools=[stock]).run_sync("Is Ema there?")

    assert model.requests[1].messages[-1].text == "'Ema' is not in the shop"
    assert result.turns == 2
