"""The hooks of a run: the loop calls every policy at each hook, and uses one of the answers."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import replace
from typing import cast

from glue.compaction import rewrite
from glue.errors import Cancelled
from glue.events import ContextChanged
from glue.limits import Outcome
from glue.loop.state import State, watched
from glue.loop.transcript import check_messages, estimate
from glue.loop.turn import cut_short
from glue.messages import Message, Request, UserMessage
from glue.policies import Action, Change, Deliver, Policy, Poll, Rewrite, Say, Stop

# The types that a hook may return.
_ANSWERS: dict[str, tuple[type, ...]] = {
    "before_request": (Say, Stop, Change, Rewrite, Poll),
    "on_reply": (Stop,),
    "after_tools": (Say, Stop, Poll),
    "on_settle": (Say, Stop, Deliver, Poll),
}

# The outcome that wins if several policies stop the run.
_RANK = (
    Outcome.CANCELLED,
    Outcome.FAILED,
    Outcome.REFUSED,
    Outcome.CONTEXT_WINDOW,
    Outcome.PAUSED,
    Outcome.MAX_TURNS,
    Outcome.BUDGET,
    Outcome.HALTED,
    Outcome.TRUNCATED,
    # A delivery, or a nudge to deliver, ranks here.
    Outcome.STALLED,
    Outcome.WRAPPED_UP,
    Outcome.DONE,
)


async def prepare_request(state: State, request: Request) -> Request | Stop:
    """Return the request after the changes of all policies; then store the messages they add."""
    messages = request.messages
    says: list[Say | Poll] = []
    waiting = list(state.hooked["before_request"])
    changed: list[Policy] = []  # policies that changed the messages
    while waiting:
        policy = waiting.pop(0)
        answer = await _ask(state, policy, "before_request", request)
        if isinstance(answer, Stop):
            return answer
        if isinstance(answer, Change):
            if _report_change(state, policy, request.messages, answer.request.messages):
                changed.append(policy)
            request = answer.request
        elif isinstance(answer, Rewrite):
            shorter = check_messages(f"{type(policy).__name__}: messages", answer.messages)
            await rewrite(state, shorter)
            messages = state.recorder.history.view(state.messages)
            request = replace(request, messages=messages)
            waiting, changed = [*changed, *waiting], []  # ask again about the new messages
        elif isinstance(answer, (Say, Poll)) and not state.in_chain:
            says.append(answer)
    added: list[UserMessage] = []
    for say in says:
        added += await store_say(state, await _read(state, say))
    if not added:
        return request
    if request.messages is messages:
        return replace(request, messages=state.recorder.history.view(state.messages))
    return replace(request, messages=(*request.messages, *added))


def _report_change(
    state: State, policy: Policy, before: Sequence[Message], after: Sequence[Message]
) -> bool:
    """Emit an event if a policy changed the messages of a request, and return whether it did."""
    name = type(policy).__name__
    if after is before or check_messages(f"{name}: messages", after) == list(before):
        return False
    old, new = ({message.id: message for message in each} for each in (before, after))
    state.emit(
        ContextChanged(
            policy=name,
            before=estimate(before, state.limits.estimator),
            after=estimate(after, state.limits.estimator),
            added=tuple(key for key in new if key not in old),
            removed=tuple(key for key in old if key not in new),
            edited=tuple(key for key in new if key in old and new[key] != old[key]),
        )
    )
    return True


async def ask_policies(state: State, hook: str, given: object) -> Stop | Say | Deliver | None:
    """Call a hook of every policy, and return the answer to use.

    A Stop wins over messages, except that a delivery wins over `stalled` and lower outcomes. Of
    several messages, those of the first policy are used.
    """
    stops: list[Stop] = []
    others: list[Say | Poll | Deliver] = []
    delivers = False
    for policy in state.hooked[hook]:
        answer = await _ask(state, policy, hook, given)
        if state.cancel.cancelled:
            return Stop(Outcome.CANCELLED, Cancelled())
        if isinstance(answer, Stop):
            stops.append(answer)
        elif isinstance(answer, Deliver) or (
            isinstance(answer, (Say, Poll)) and (hook != "on_settle" or state.may_say)
        ):
            others.append(answer)
            delivers |= policy.place == "delivery"
    stop = min(stops, key=lambda each: _RANK.index(each.outcome), default=None)
    stalled = _RANK.index(Outcome.STALLED)
    if stop is not None and not (delivers and _RANK.index(stop.outcome) >= stalled):
        return stop
    for other in others:
        if isinstance(other, Deliver):
            return other
        if (say := await _read(state, other)).messages:
            return say
    return stop


async def _ask(state: State, policy: Policy, hook: str, given: object) -> Action:
    """Call one hook of a policy and await its answer; raise TypeError for a wrong one."""
    answer = getattr(policy, hook)(state, given)
    if answer is None:
        return None
    if inspect.isawaitable(answer):
        with watched(state) as scope:
            answer = await answer
        if scope.cancelled_caught:
            return cut_short(state)
    if isinstance(answer, Say):
        # Only the caller's prompt has the origin "user". END removes a nudge without a reply.
        own = tuple(
            replace(each, origin="nudge") if each.origin == "user" else each
            for each in answer.messages
        )
        answer = replace(answer, messages=own) if own else None
    if hook == "before_request" and isinstance(answer, Request):
        answer = Change(answer)
    if answer is not None and not isinstance(answer, _ANSWERS[hook]):
        allowed = ", ".join(kind.__name__ for kind in _ANSWERS[hook] if kind is not Poll)
        raise TypeError(
            f"{type(policy).__name__}.{hook} must answer None or {allowed}, not {answer!r}"
        )
    return cast(Action, answer)


async def _read(state: State, say: Say | Poll) -> Say:
    """Return the messages to add; a source is read here, because they will be stored now."""
    if isinstance(say, Say):
        return say
    waiting = say.source()
    if inspect.isawaitable(waiting):
        with watched(state) as scope:
            waiting = await waiting
        if scope.cancelled_caught:
            return Say(())
    return say.say(waiting)


async def store_say(state: State, say: Say) -> tuple[UserMessage, ...]:
    """Store the messages of a policy and return them.

    They have left their source, so a cancellation takes effect after all of them are stored.
    """

    async def work() -> None:
        for index, message in enumerate(say.messages):
            try:
                await state.store(message)
            except BaseException:
                state.messages.extend(say.messages[index + 1 :])  # the journal failed
                state.new.extend(say.messages[index + 1 :])
                raise
            if say.sent is not None:
                say.sent(message)

    await state.recorder.finish(work())
    return say.messages
