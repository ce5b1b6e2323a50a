# /// script
# dependencies = ["glue-agents"]
# ///
"""One agent on several models: it answers the same prompt on each.

python examples/swap.py anthropic:claude-haiku-5-5 gemini ollama:qwen3:0.6b
"""

import sys

import glue
from glue.providers import default


@glue.tool
def weather(city: str) -> str:
    """Return the weather in a city."""
    return f"{city}: 21 degrees, dry"


agent: glue.Agent[None, None] = glue.Agent(
    "offline", tools=[weather], instructions="Answer in one line."
)


def main(models: list[str]) -> int:
    failed = False
    for model in models or [default(otherwise="offline:stand-in")]:
        try:
            result = agent.run_sync(
                "What is the weather in Toronto?", model=model, tool_log=sys.stderr
            )
            print(f"{model}: {result.text}")
        except glue.GlueError as error:
            failed = True
            print(error, file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main([name for name in sys.argv[1:] if name not in ("-m", "--model")]))
