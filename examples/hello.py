# /// script
# requires-python = ">=3.11"
# dependencies = ["glue-agents"]
# ///
"""A model with one tool: `python hello.py`, with ANTHROPIC_API_KEY set."""

from glue import Agent, tool


@tool
def weather(city: str) -> str:
    """Say what the weather is in a city."""
    return f"{city}: 21 degrees, dry"


agent = Agent("anthropic:claude-haiku-4-5", tools=[weather], instructions="Answer in one line.")

if __name__ == "__main__":
    print(agent.run_sync("What is the weather in Toronto?").text)
