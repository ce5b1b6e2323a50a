# /// script
# requires-python = ">=3.11"
# dependencies = ["glue-agents"]
# ///
"""A conversation that outlives the process: run it again and again.

python remember.py "My name is Ada."
python remember.py "What is my name?"
"""

import sys

from glue import Agent, FileStore

agent = Agent("anthropic:claude-haiku-4-5", instructions="Answer in one line.")
session = agent.session("demo", store=FileStore(".glue"))

if __name__ == "__main__":
    prompt = " ".join(sys.argv[1:]) or "What have we talked about?"
    print(session.prompt_sync(prompt).text)
