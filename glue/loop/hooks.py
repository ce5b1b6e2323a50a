"""Functions that call the hooks of policies, choose one answer, and store added messages."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, cast

from glue import events, policies
from glue.errors import Cancelled
from glue.limits import Outcome
from glue.loop.state import State, watched
from glue.loop.transcript import check_messages, estimate
from glue.loop.turn import cut_short
from glue.messages import Message, Request, UserMessage
from glue.policies import Policy, Say, Stop

if TYPE_CHECKING:
    from glue.policies import Action, Deliver, Poll

# The names of the types that a hook may return, in `glue.policies`.
_ANSWERS = {
    "before_request": ("Say", "Stop", "Change", "Rewrite", "Poll"),
    "on_reply": ("Stop",),
    "after_tools": ("Say", "Stop", "Poll"),
    "on_settle": ("Say", "Stop", "Deliver", "Poll"),
}

# Outcomes by rank. If several policies stop the run, the outcome with the first rank is used.
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
    """Call `before_request` of policies, store their messages, and return the request or a Stop.

    The request contains all changes of the policies. After the first Stop, no other policy is
    called, and the messages are not stored.
    """
    messages = request.messages
    says: list[Say | Poll] = []
    waiting = list(state.hooked["before_request"])
    changed: list[Policy] = []  # policies that changed the messages
    while waiting:
        policy = waiting.pop(0)
        answer = await _ask(state, policy, "before_request", request)
        if answer is None:
            continue
        if isinstance(answer, Stop):
            return answer
        if isinstance(answer, policies.Change):
            if _report_change(state, policy, request.messages, answer.request.messages):
                changed.append(policy)
            request = answer.request
        elif isinstance(answer, policies.Rewrite):
            shorter = check_messages(f"{type(policy).__name__}: messages", answer.messages)
            from glue.compaction import rewrite  # start-up: few runs shorten their transcript

            await rewrite(state, shorter)
            messages = state.recorder.history.view(state.messages)
            request = replace(request, messages=messages)
            # The policies that changed the old messages are called again for the new messages.
            waiting, changed = [*changed, *waiting], []
        elif isinstance(answer, (Say, policies.Poll)) and not state.in_chain:
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
    """Emit ContextChanged if a policy changed the messages of a request. Return whether it did."""
    name = type(policy).__name__
    if after is before or check_messages(f"{name}: messages", after) == list(before):
        return False
    old, new = ({message.id: message for message in each} for each in (before, after))
    state.emit(
        events.ContextChanged(
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
    """Call `hook` of every policy. Return the Stop, Say or Deliver that has priority, or None.

    The hook is called with `given`. None means that no policy wants to change the run. If the run
    is cancelled meanwhile, the answer is a Stop.

    A Stop is used rather than messages, except that a delivery precedes `stalled` and the outcomes
    after it in `_RANK`. If several policies add messages, those of the first policy are used.
    """
    stops: list[Stop] = []
    others: list[Say | Poll | Deliver] = []
    delivers = False
    for policy in state.hooked[hook]:
        answer = await _ask(state, policy, hook, given)
        if state.cancel.cancelled:
            return Stop(Outcome.CANCELLED, Cancelled())
        if answer is None:
            continue
        if isinstance(answer, Stop):
            stops.append(answer)
        elif isinstance(answer, policies.Deliver) or (
            isinstance(answer, (Say, policies.Poll)) and (hook != "on_settle" or state.may_say)
        ):
            others.append(answer)
            delivers |= policy.place == "delivery"
    if not stops and not others:
        return None
    stop = min(stops, key=lambda each: _RANK.index(each.outcome), default=None)
    stalled = _RANK.index(Outcome.STALLED)
    if stop is not None and not (delivers and _RANK.index(stop.outcome) >= stalled):
        return stop
    for other in others:
        if isinstance(other, policies.Deliver):
            return other
        if (say := await _read(state, other)).messages:
            return say
    return stop


async def _ask(state: State, policy: Policy, hook: str, given: object) -> Action:
    """Call a hook of a policy. Return its answer, or a Stop if the run is cancelled meanwhile.

    An async hook is awaited. If the run is out of time meanwhile, the answer is a Stop too. Raise
    TypeError if the answer has a type that the hook may not return.
    """
    answer = getattr(policy, hook)(state, given)
    if answer is None:
        return None
    if inspect.isawaitable(answer):
        with watched(state) as scope:
            answer = await answer
        if scope.cancelled_caught:
            return cut_short(state)
    if isinstance(answer, Say):
        # Only the caller's prompt has the origin "user". At the end of a run, a message with the
        # origin "nudge" that has no reply is removed.
        own = tuple(
            replace(each, origin="nudge") if each.origin == "user" else each
            for each in answer.messages
        )
        answer = replace(answer, messages=own) if own else None
    if hook == "before_request" and isinstance(answer, Request):
        answer = policies.Change(answer)
    names = _ANSWERS[hook]
    if answer is None or isinstance(answer, tuple(getattr(policies, name) for name in names)):
        return cast("Action", answer)
    allowed = ", ".join(name for name in names if name != "Poll")
    raise TypeError(f"{type(policy).__name__}.{hook} must return None or {allowed}, not {answer!r}")


async def _read(state: State, say: Say | Poll) -> Say:
    """Return a Say with the messages to add. If `say` is a Poll, read them from its source.

    A source may forget the messages that it returns, so the caller must store them now. If the run
    is cancelled while the source is read, there are no messages.
    """
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
    """Store the messages that a policy adds, report each to `say.sent`, and return the messages.

    The source of the messages may have forgotten them. So a cancellation takes effect only after
    all messages are stored.
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
