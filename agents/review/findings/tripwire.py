"""Text that talks to the reviewer instead of to people, and characters that nobody can see."""

from __future__ import annotations

import re
from collections.abc import Iterator

from glue.agents.review.findings.view import Rule, View
from glue.agents.review.records import Bundle, Finding

INSTRUCTION = Rule(
    name="injection-tripwire",
    category="attack",
    severity="high",
    confidence="high",
    title="Text addressed to an automated reviewer",
    body="This line reads as an instruction to a model that reviews the change, not as code or as text for people. "
    "It was not "
    "followed. A person should decide what it is doing here.",
    acceptance="The text is gone, or a maintainer has said why it belongs here.",
)
HIDDEN = Rule(
    name="hidden-characters",
    category="attack",
    severity="high",
    confidence="high",
    title="Invisible or direction-changing characters ({what})",
    body="The line holds characters that are not shown, or that change the order in which text is shown: what people "
    "read is not "
    "what the machine reads.",
    acceptance="The line holds visible characters only.",
)

_TELLS = re.compile(
    r"\b(?:ignore|disregard|forget|override)\s+(?:all\s+|any\s+|every\s+|the\s+|your\s+|these\s+|my\s+)*(?:previous|prior|above|earlier|preceding|system|"
    r"foregoing|existing)\s+(?:\w+\s+)?(?:instruction|prompt|rule|direction|message|guideline|context|polic)\w*"
    r"|\byou are now (?:an?|the) (?:\w+ ){0,3}(?:ai|assistant|language model|llm|chatbot|reviewer|code review\w*)\b"
    r"|\byou are (?:an?|the) (?:\w+ ){0,3}(?:reviewer|code review\w*|review(?:ing)? (?:bot|agent|model))\b"
    r"|\b(?:ai|llm|automated|bot|model)[- ](?:code[- ])?(?:reviewers?|assistants?|agents?)\b.{0,40}\b(?:must|should"
    r"|please|ignore|approve|do not|don't|skip|say|output|report)\b"
    r"|\b(?:note|attention|message|instruction)s?\s+(?:to|for)\s+(?:the\s+|any\s+|all\s+)?(?:ai|llm|automated"
    r"|language|code review\w*|review(?:er|ing)? (?:bot|model|agent))\b"
    r"|\b(?:do not|don't|never)\s+(?:report|flag|mention|comment on|raise)\s+(?:any\s+|this\s+|these\s+|the\s+)*"
    r"(?:issues?|findings?|problems?|bugs?|vulnerabilit\w+|concerns?|file|code|change|pr|pull request)\b"
    r"|\b(?:approve|merge|lgtm)\s+(?:this|the)\s+(?:pr|pull request|change|merge request|diff)\b.{0,40}\b(?:without"
    r"|immediately|regardless|no matter|automatically)\b"
    r"|\b(?:reply|respond|answer|output|say|print)\s+(?:only\s+|just\s+"
    r"|exactly\s+)*(?:with\s+)?(?:only\s+)?[\"'`]?(?:lgtm|no (?:issues|concerns|findings)|approved|looks good)"
    r"|\b(?:reveal|print|output|show|repeat|leak|send|post|include)\s+(?:me\s+|us\s+)?(?:your"
    r"|the)\s+(?:system\s+prompt|instructions|api[- ]?keys?|secrets?|environment variables?|tokens?)\b"
    r"|\b(?:new|updated|real) (?:system )?(?:instructions|prompt)\s*:",
    re.IGNORECASE,
)
_CHAT = re.compile(
    r"<\|(?:im_start|im_end|system|endoftext)\|>|\[/?INST\]|<</?SYS>>|</?(?:system|tool_call|invoke|function_calls)>",
    re.IGNORECASE,
)
_BIDI = re.compile("[\u202a-\u202e\u2066-\u2069\u200e\u200f\u061c]")
_TAGS = re.compile("[\U000e0000-\U000e007f]")
# Khmer, Thai, Lao and Burmese part words with a zero-width space; only beside ASCII does it hide something.
_ZERO = re.compile(
    "[\u2060-\u2064\ufeff\u180e]|(?<=[\x21-\x7e])[\u200b-\u200d\u00ad]+(?=[\x21-\x7e])|[\u200b\u00ad]{3,}"
)
_TEMPLATE = re.compile(r"<(?=[|\uff5c])|(?<=[|\uff5c])>|\[(?=/?INST\])|<(?=<?/?SYS>)|<(?=/?(?:tool_call|think)s?>)")
_FLAG_EMOJI = re.compile("\U0001f3f4[\U000e0000-\U000e007f]+")


def check(view: View) -> Iterator[Finding]:
    """The first line of a file that talks to the reviewer; marks of chat templates are the business of some tests."""
    text = "\n".join(line.text for line in view.file.added)
    if not text.isascii():
        yield from _hidden(view)
    if _found(text) is None and (view.is_test or not _CHAT.search(text)):
        return
    for number in sorted(view.added):
        line = view.lines[number - 1]
        marked = not view.is_test and _CHAT.search(line)
        if marked or talks(line) or talks(f"{line} {_joined(view, number)}", start=line):
            yield from INSTRUCTION.at(view, number)
            return


def _hidden(view: View) -> Iterator[Finding]:
    """The first line with invisible characters; a byte order mark may stand at the start of a file."""
    for number in sorted(view.added):
        line = view.lines[number - 1]
        what = hidden_in(line if number > 1 else line.removeprefix("\ufeff"))
        if what:
            yield from HIDDEN.at(view, number, what=what)
            return


def _joined(view: View, number: int) -> str:
    """The next line without its comment sign: an instruction may be broken over two."""
    following = view.lines[number] if number + 1 in view.added else ""
    return re.sub(r"^\s*(?:#|//|\*|--|<!--)?\s*", "", following)


def talks(text: str, start: str = "") -> bool:
    """Whether a text addresses the reviewing machine. With `start`, only a match that begins in it counts."""
    match = _found(text[:20_000])
    return match is not None and (not start or match.start() < len(" ".join(start.split())))


def _found(text: str) -> re.Match[str] | None:
    if not text.isascii():
        text = _TAGS.sub(lambda match: chr(ord(match.group()) - 0xE0000), text)
        text = _ZERO.sub("", text)
    # Comment signs at the start of a line do not part a sentence.
    plain = " ".join(re.sub(r"\n\s*(?:#|//|\*|--|<!--)", "\n", text).split())
    return _TELLS.search(plain)


def hidden_in(text: str) -> str:
    """What kind of invisible character a text holds, or nothing."""
    if _BIDI.search(text):
        return "bidirectional controls"
    if _TAGS.search(_FLAG_EMOJI.sub("", text)):
        return "tag characters"
    return "zero-width characters" if _ZERO.search(text) else ""


def strip_hidden(text: str) -> str:
    """Take out what people cannot see, and break the marks of chat templates, before a model reads it."""
    text = _TAGS.sub("", _BIDI.sub("", _ZERO.sub("", text)))
    return _TEMPLATE.sub(lambda match: f"{match.group()} " if match.group() != ">" else " >", text)


def about(bundle: Bundle, views: tuple[View, ...]) -> tuple[str, ...]:
    """What the tripwire has to say of texts that stand on no line: title, description, commit messages, file names."""
    change = bundle.change
    texts = [("the title", change.title), ("the description", change.body), ("the branch name", change.head_ref)]
    texts += [(f"the message of commit {commit.sha[:10]}", commit.message) for commit in change.commits]
    texts += [("a file name", re.sub(r"[_\-./]", " ", file.path)) for file in bundle.files]
    # What is too short to be quoted gets no finding of its own.
    texts += [(f"the file {view.path}", view.head) for view in views if len(view.head) < 80]
    said = [
        f"{where} holds text that is addressed to an automated reviewer"
        for where, text in texts
        if talks(text) or _CHAT.search(text)
    ]
    said += [f"{where} holds invisible characters" for where, text in texts if hidden_in(text)]
    return tuple(dict.fromkeys(said))
