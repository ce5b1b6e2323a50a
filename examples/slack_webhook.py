# /// script
# requires-python = ">=3.11"
# dependencies = ["fastapi", "glue-agents[web]", "httpx"]
# ///
"""A slash command of Slack that an agent answers: `python slack_webhook.py`.

Slack waits three seconds for a response. So the request is acknowledged at once, and the answer is
posted to the address that Slack sent.
"""

import hashlib
import hmac
import html
import os
import sys
import time
from urllib.parse import parse_qs

import httpx
import uvicorn
from fastapi import BackgroundTasks, FastAPI, HTTPException, Request

from glue import Agent, Limits
from glue.providers import default

SECRET = os.environ.get("SLACK_SIGNING_SECRET", "")
HOOKS = os.environ.get("SLACK_HOOKS", "https://hooks.slack.com/")

# Without a key, `default()` raises MissingKey, so the server does not start.
agent = Agent(default(), instructions="Answer in one line.", limits=Limits(seconds=60))
app = FastAPI()


def is_signed(body: bytes, timestamp: str, signature: str) -> bool:
    """Return whether the request was signed with the secret in the last five minutes."""
    if not SECRET or not timestamp.isdecimal() or abs(time.time() - int(timestamp)) > 300:
        return False
    signed = b"v0:%b:%b" % (timestamp.encode(), body)
    digest = "v0=" + hmac.new(SECRET.encode(), signed, hashlib.sha256).hexdigest()
    return hmac.compare_digest(digest.encode(), signature.encode())


async def answer(question: str, address: str) -> None:
    result = await agent.run(question, unwrap=False)
    # The text of a run that did not end well may be partial.
    text = result.text if result.complete else f"No answer: {result.outcome.value}."
    async with httpx.AsyncClient() as client:
        # Escaped, so that the model cannot write <!channel> and notify everybody.
        await client.post(address, json={"text": html.escape(text, quote=False)})


@app.post("/slack")
async def command(request: Request, later: BackgroundTasks) -> dict[str, str]:
    body = b""
    async for block in request.stream():
        body += block
        if len(body) > 65_536:
            raise HTTPException(413)
    given = [request.headers.get(f"x-slack-{n}", "") for n in ("request-timestamp", "signature")]
    if not is_signed(body, *given):
        raise HTTPException(401, "not signed by Slack, or older than five minutes")
    fields = parse_qs(body.decode("utf-8", "replace"))
    question, address = (fields.get(name, [""])[0] for name in ("text", "response_url"))
    if not question or not address.startswith(HOOKS):
        return {"text": "Usage: /ask QUESTION"}
    later.add_task(answer, question, address)
    return {"text": "Looking it up ..."}


if __name__ == "__main__":
    if not SECRET:
        sys.exit("error: set SLACK_SIGNING_SECRET; it is in Basic Information of your Slack app")
    uvicorn.run(app, port=8000)
