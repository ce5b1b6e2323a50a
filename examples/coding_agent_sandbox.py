# /// script
# requires-python = ">=3.11"
# dependencies = ["glue-agents"]
# ///
"""A coding agent in a sandbox: `cd my-checkout && python coding_agent_sandbox.py "Fix the test"`.

It reads and edits the files of the current folder and runs commands without a network. You are
asked before a file is written, and before a command that writes.
"""

from glue import Agent, Limits
from glue.providers import default
from glue.tools import coding
from glue.tools.sandbox import Sandbox

tools = coding.tools(
    ".",
    shell=Sandbox(network=False),  # raises an error if no sandbox works on this machine
    questions="writes",  # a command that only reads runs without a question
)

agent = Agent(
    default(otherwise="offline:stand-in"),
    tools=tools,
    instructions=coding.prompt(tools) + "Run the tests before you finish.",
    limits=Limits(max_turns=40, usd_budget=1.0),
)

if __name__ == "__main__":
    agent.cli()
