# /// script
# requires-python = ">=3.11"
# dependencies = ["glue-agents", "httpx"]
# ///
"""A Telegram bot with a memory per chat: `TELEGRAM_TOKEN=... python telegram_bot.py`.

It asks the server for messages (long polling), so it needs neither an open port nor a certificate.
"""

import os
import sys
import time
from typing import Any

import httpx

from glue import Agent, GlueError, Limits, SQLiteStore
from glue.providers import default

BASE = os.environ.get("TELEGRAM_BASE_URL", "https://api.telegram.org")
WAIT = 50  # seconds that the server holds a request open until a message arrives


def call(client: httpx.Client, method: str, **fields: Any) -> Any:
    """Call a method of the Bot API and return its result. Repeat the call if the connection fails.

    A response that is not JSON also causes another attempt. The pause between two attempts is
    5 seconds. If Telegram refuses the call, exit with an error.
    """
    while True:
        try:
            answer = client.post(method, json=fields).json()
        except (httpx.TransportError, ValueError) as error:
            print(f"{method} failed: {error}; next attempt in 5 s", file=sys.stderr)
            time.sleep(5)
            continue
        if not answer["ok"]:
            raise SystemExit(f"error: Telegram refused {method}: {answer['description']}")
        return answer["result"]


def run(client: httpx.Client, agent: Agent[None, None], allowed: set[str]) -> None:
    """Answer the messages of the allowed chats until the program is stopped."""
    store, after = SQLiteStore("chats.db"), 0
    while True:
        for update in call(client, "getUpdates", offset=after, timeout=WAIT):
            after = update["update_id"] + 1  # the server forgets the messages before it
            message = update.get("message", {})
            chat = str(message.get("chat", {}).get("id", ""))
            if chat not in allowed or not message.get("text"):
                print(f"ignored an update from chat {chat or '(none)'}", file=sys.stderr)
                continue
            try:
                text = agent.session(chat, store=store).run_sync(message["text"]).text
            except GlueError as error:
                text = f"No answer: {error}"
            call(client, "sendMessage", chat_id=chat, text=text[:4096])


if __name__ == "__main__":
    if not (token := os.environ.get("TELEGRAM_TOKEN")):
        sys.exit("error: set TELEGRAM_TOKEN to the token that @BotFather sent you")
    bot: Agent[None, None] = Agent(
        default(), instructions="Answer in one line.", limits=Limits(seconds=60)
    )
    with httpx.Client(base_url=f"{BASE}/bot{token}/", timeout=WAIT + 10) as http:
        run(http, bot, set(os.environ.get("ALLOWED_CHATS", "").split(",")))
