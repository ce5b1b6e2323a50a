# /// script
# requires-python = ">=3.11"
# dependencies = ["glue-agents"]
# ///
"""Several providers by name: the next is asked when one fails before it has said anything.

Providers without a key are skipped. Set OPENAI_API_KEY and GROQ_API_KEY to see both at work.
"""

from glue import Agent

agent = Agent("openai:gpt-5-nano,groq", instructions="Answer in one line.")

if __name__ == "__main__":
    result = agent.run_sync("What is a failover?")
    print(result.text)
    for attempt in result.attempts:
        print(f"({attempt.provider} {attempt.model} did not answer: {attempt.kind})")
