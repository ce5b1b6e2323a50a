# /// script
# requires-python = ">=3.11"
# dependencies = ["glue-agents"]
# ///
"""A refund that a person approves by mail, hours later if need be.

    python approvals_by_mail.py ask "Refund 40 euros for order 1042"
    python approvals_by_mail.py yes SESSION      (or: no SESSION; the mail has both lines)

The first command sends the mail and ends with exit code 6. No process waits for the answer.
"""

import argparse
import os
import smtplib
import sys
import uuid
from email.message import EmailMessage

import glue
from glue.permission import DeferAll
from glue.providers import default


@glue.tool(needs_permission=True, target=lambda given: "{euros} euros for {order}".format(**given))
def refund(order: str, euros: int) -> str:
    """Refund an order."""
    return f"refunded {euros} euros for order {order}"  # call your payment service here


def mail(session: str, result: glue.RunResult[None]) -> None:
    """Mail the tool calls that wait for a decision, and the commands that decide."""
    message = EmailMessage()
    message["From"] = os.environ.get("MAIL_FROM", "agent@localhost")
    message["To"] = os.environ.get("MAIL_TO", "boss@localhost")
    message["Subject"] = "A refund waits for your decision"
    lines = [call.summary for call in result.pending]
    lines += [f"python approvals_by_mail.py {word} {session}" for word in ("yes", "no")]
    message.set_content("\n".join(lines))
    host, _, port = os.environ.get("SMTP_SERVER", "localhost:25").partition(":")
    try:
        with smtplib.SMTP(host, int(port or 25), timeout=30) as server:
            server.send_message(message)
    except OSError as error:  # also the base of all SMTP errors
        sys.exit(f"error: {host} did not accept the mail ({error}); session {session} still waits")


def main() -> int:
    parser = argparse.ArgumentParser(description="A refund that a person approves by mail.")
    parser.add_argument("command", choices=["ask", "yes", "no"])
    parser.add_argument("words", metavar="PROMPT|SESSION")
    given = parser.parse_args()
    agent = glue.Agent(default(), tools=[refund], permission=DeferAll("a person decides by mail"))
    asks = given.command == "ask"
    name = f"refund-{uuid.uuid4().hex[:8]}" if asks else given.words
    session = agent.session(name, store=glue.FileStore("approvals"))
    if asks:
        result = session.run_sync(given.words, unwrap=False)
    else:
        answer = glue.allow() if given.command == "yes" else glue.deny("the refund was refused")
        waiting = {call.id: answer for call in session.pending_sync()}
        if not waiting:
            raise SystemExit(f"error: no tool call waits in session {name}")
        result = session.resume_sync(decisions=waiting, unwrap=False)
    if result.pending:
        mail(name, result)
    print(result.text if result.complete else f"{result.outcome}: {result.error or result.text}")
    return result.outcome.exit_code


if __name__ == "__main__":
    try:
        sys.exit(main())
    except glue.GlueError as error:
        sys.exit(f"error: {error}")
