# /// script
# requires-python = ">=3.11"
# dependencies = ["glue-agents"]
#
# [tool.glue]
# max_turns = 16
# ///
"""An agent with cases: `glue eval NAME.py NAME.jsonl -m anthropic -m openai` compares models."""

from glue import Agent, RunResult, tool
from glue.cases import Case
from glue.providers import default


@tool
def weather(city: str) -> str:
    """Return the current weather in a city.

    Args:
        city: the name of the city, in English
    """
    return f"{city}: 21 degrees, dry"  # call a real service here


agent = Agent(
    # GLUE_MODEL, or the first provider whose key is set. -m selects another one.
    default(otherwise="offline:stand-in"),
    tools=[weather],
    instructions="Answer in one line. Look up the weather before you talk about it.",
)


def is_short(case: Case, result: RunResult[None]) -> bool | str:
    """Return True if the answer has few enough words, or else a text such as "12 words".

    A case uses this check by naming the function in its field "python".
    """
    words = len(result.text.split())
    return words <= case.data["words"] or f"{words} words"


if __name__ == "__main__":
    agent.cli()
