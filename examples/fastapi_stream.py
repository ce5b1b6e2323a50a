# /// script
# requires-python = ">=3.11"
# dependencies = ["fastapi", "glue-agents[web]"]
# ///
"""Streaming answers from FastAPI as server-sent events: `python fastapi_stream.py`.

curl -N "http://127.0.0.1:8000/ask?q=Weather+in+Oslo%3F&conversation=demo"
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import uvicorn
from fastapi import FastAPI, Query
from starlette.responses import Response

from glue import Agent, Limits, SQLiteStore, tool
from glue.providers import default
from glue.web import sse


@tool
def weather(city: str) -> str:
    """Return the weather in a city."""
    return f"{city}: 21 degrees, dry"


# Created once: an agent may serve many requests at the same time. Without a key, `default()` raises
# MissingKey, so the server does not start.
agent = Agent(default(), tools=[weather], limits=Limits(max_turns=8, seconds=60))
store = SQLiteStore("conversations.db")


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    yield
    await agent.aclose()  # closes the connections to the provider


app = FastAPI(lifespan=lifespan)


@app.get("/ask")
async def ask(
    q: str = Query(max_length=4000), conversation: str = Query(pattern=r"^[\w-]{1,64}$")
) -> Response:
    """Stream the events of a run; if the client disconnects, the run is cancelled."""
    session = agent.session(conversation, store=store, queue=True)
    return sse(session.stream(q))


if __name__ == "__main__":
    uvicorn.run(app, port=8000)
