"""Checks of a model's output before it is posted: eight, in order.

1 channel, 2 transport, 3 evidence, 4 grounding, 5 degeneration, 6 echo, 7 caps, 8 the run. All are deterministic; every
refusal has a code of the form `check.reason`. A run-level code means: post nothing, and ask another provider.
Thresholds are set on recorded reviews and damaged copies of them; `bench/review.py` prints the confusion matrix.
"""

from __future__ import annotations

import itertools
import json
import re
import tomllib
import unicodedata
import zlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from importlib.resources import files
from typing import Any

from glue import StopReason, clean_text
from glue.agents.review.findings.anchor import locate
from glue.agents.review.findings.dedupe import rank, unique
from glue.agents.review.records import SEVERITIES, Bundle, Finding, ReviewRun
from glue.agents.review.secrets import redactor

FINDINGS = 25  # posted
ANSWERED = "grounding.refused"  # the model was told so at once, and could mend it
CONSIDERED = 250  # the worst of a run; nobody reads more
BODY = 1_500  # characters of one finding
SUMMARY = 20_000
TOTAL = 60_000  # bytes of everything posted
# Style: says nothing of worth.
SOFT = frozenset(("transport.cut", "transport.fence", "transport.short", "echo.narration", "caps.summary"))
_CUT_OFF = (StopReason.MAX_TOKENS, StopReason.CONTEXT_WINDOW)
_DATA = tomllib.loads(files(__package__).joinpath("gate.toml").read_text(encoding="utf-8"))
_PATTERNS = {code: "".join(parts) for code, parts in _DATA["patterns"].items()}
_LEAKED = re.compile(_PATTERNS.pop("transport.token"), re.MULTILINE)
_ECHOES = {code: re.compile(pattern, re.IGNORECASE | re.MULTILINE) for code, pattern in _PATTERNS.items()}
_NOT_AFTER = frozenset(_DATA["not_after_an_article"].split())
_COMMON = _NOT_AFTER | frozenset(_DATA["common"].split())
_KEYWORDS = frozenset(_DATA["keywords"].split())
_FENCED = re.compile(r"^[ \t]*(`{3,12}|~{3,12})[^\n]*\n.*?(?:^[ \t]*\1[`~]*[ \t]*$|\Z)", re.MULTILINE | re.DOTALL)
_SPANS = re.compile(r"`[^`\n]*`")
_TOKENS = re.compile("[^\\s\u200b]+")  # some scripts part words with a zero-width space
_WORDS = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)?")
_CALL = re.compile(
    r"""["']?(?:name|tool|function|tool_name)["']?\s*:\s*["'][\w.-]+["']\s*,\s*["'](?:arguments|parameters|input|args)["']\s*:"""
)
_JSON = re.compile(r"^\s*(?:```\w*\s*)?[\[{][\s\S]{2,}[\]}]\s*(?:```)?\s*$")
_DIFF = re.compile(
    r"^(?:diff --git |@@ -\d|index [0-9a-f]{7,}\.\.|--- (?:a/|/dev/null)|\+\+\+ (?:b/|/dev/null))", re.MULTILINE
)
_MOJIBAKE = re.compile(r"Ã[\u0080-\u00bf\u0152-\u2122ƒ‚]|â€|â‚¬|Â[\u00a0-\u00bf]|ï»¿|ï¿½|Ð[\u0080-\u00bf]")
_SENTENCE_END = re.compile(r"""[.!?:;…。！？។।](?:["'”’»)\]*_`]*)\s*$|[)\]`"'”’*]\s*$""")
_FULL_STOP = re.compile(r"""[.!?:…。！？។।](?:["'”’»)\]*_`]*)\s*$""")
_SPAN = re.compile(r"`([^`\n]{1,300})`")
_NAME = re.compile(r"[A-Za-z_$][\w$]{2,}")
_PATH = re.compile(
    r"(?<![\w/.@+-])((?:[\w@+-]+/)+[\w@+.-]+\.[A-Za-z]{1,5}|[\w-]+\.(?:py|js|ts|tsx|jsx|go|rs|rb|java|c|h|cpp|cs|php|md|toml|yaml|yml|json|sql|sh))(?![\w/])"
)
_CASED = re.compile(r"\b(?:[a-z]+[A-Z]\w+|[A-Z][a-z0-9]+[A-Z]\w+|[a-z]+_[a-z]\w+)\b")
REFUSALS: Mapping[str, Mapping[str, str]] = _DATA["refusals"]  # of a summary, of a finding: code -> what to say
ABOUT = 0.50  # of the names in a summary
SHARE = 0.60  # of the names in backticks that must occur in the context


def judge(run: ReviewRun, bundle: Bundle, *, language: str = "en", examples: Sequence[str] = ()) -> ReviewRun:
    """Put a whole run through the gate: only what may be posted is left. Any run-level code means that nothing may."""
    shown = f"{context(bundle)}\n{' '.join(run.seen)}"
    kept: list[Finding] = []
    dropped = list(run.dropped)
    refused = said = sum(finding.dropped != ANSWERED for finding in run.dropped)
    for finding in sorted(run.findings, key=rank)[:CONSIDERED]:
        code = finding.dropped or finding_code(finding, bundle, shown=shown, language=language, examples=examples)
        said += not finding.rule
        if code:
            refused += not finding.rule
            dropped.append(replace(finding, dropped=code))
        else:
            kept.append(finding)
    findings, doubles = unique(kept)
    ordered = sorted(findings, key=rank)
    over = [replace(finding, dropped="caps.findings") for finding in ordered[FINDINGS:]]
    codes = [*run.codes, *_run_codes(run)]
    if (said and refused * 2 > said) or (run.dropped and not said and run.provider and not run.finished):
        codes.append("run.dropped")
    summary = run.summary
    unsound = _summary_faults(run, shown, language, examples)
    if unsound:
        # A sound finding is not lost for how the summary was written; the host writes it then.
        summary = host_summary(bundle, ordered)
        if said == refused and not set(unsound) <= SOFT:
            codes += unsound
    return replace(
        run,
        findings=tuple(ordered[:FINDINGS]),
        dropped=(*dropped, *doubles, *over),
        summary=summary[: 2 * SUMMARY],
        codes=tuple(dict.fromkeys(codes)),
    )


def host_summary(bundle: Bundle, findings: Sequence[Finding]) -> str:
    """Write the summary from the findings: the size of the change, and how many there are of each severity."""
    files = len(bundle.files)
    added = sum(len(file.added) for file in bundle.files)
    deleted = sum(len(file.deleted) for file in bundle.files)
    size = f"The change touches {files} {'file' if files == 1 else 'files'} (+{added}, -{deleted} lines)."
    counts = [(name, sum(one.severity == name for one in findings)) for name in SEVERITIES]
    found = ", ".join(f"{count} {name}" for name, count in counts if count)
    return f"{size} Found: {found}." if found else f"{size} Nothing was found."


def finding_code(
    finding: Finding, bundle: Bundle, *, shown: str = "", language: str = "en", examples: Sequence[str] = ()
) -> str:
    """Say why a finding must not be posted; the empty text where it may."""
    file = bundle.file(finding.path)
    if file is None:
        return "grounding.path"
    if not finding.rule:
        # In a hunk, deleted lines included, or in the rest of the file.
        place = locate(finding.quote, file.path, [file], bundle.head)
        if place is None or place.path != file.path:
            return "grounding.quote"
        found, shown = names(f"{finding.title}\n{finding.body}"), shown or context(bundle)
        # One name alone may be advice.
        if len(found) >= 2 and sum(name in shown for name in found) / len(found) < SHARE:
            return "grounding.names"
    if len(finding.body) > 20 * BODY or len(finding.title) > 2_000:
        return "caps.body"
    if not finding.title.strip() or not finding.body.strip():
        return "transport.empty"
    if finding.rule:
        return ""
    text = f"{finding.title}\n\n{finding.body}"
    if hidden(text) > max(2, len(text) // 100):
        return "degenerate.characters"
    for part, whole in ((finding.body, True), (finding.title, False)):
        codes = text_codes(part, language=language, examples=examples, whole=whole)
        if grave := [code for code in codes if code not in SOFT]:
            return grave[0]
    return ""


def parse_reply(text: str) -> dict[str, Any] | None:
    """Read the one JSON object of a model without tools, with one attempt at repair; None where there is none."""
    for candidate in (text.strip(), re.sub(r",(\s*[}\]])", r"\1", text[max(0, text.find("{")) :])):
        try:
            data, _ = json.JSONDecoder().raw_decode(candidate)  # prose and fences may stand behind it
        except (ValueError, RecursionError):
            continue
        if isinstance(data, dict) and isinstance(data.get("findings"), list) and isinstance(data.get("summary"), str):
            return data
    return None


def summary_codes(text: str, shown: str = "", *, language: str = "en", examples: Sequence[str] = ()) -> tuple[str, ...]:
    """Say why a summary must not be posted."""
    codes = text_codes(text, language=language, examples=examples)
    if len(text.split()) < 3 and not codes:
        codes = ("transport.short",)
    if hidden(text) > max(2, len(text) // 100):
        codes = (*codes, "degenerate.characters")
    if shown and not codes and not on_topic(text, shown):
        codes = ("grounding.topic",)
    return tuple(dict.fromkeys(codes))


def _run_codes(run: ReviewRun) -> list[str]:
    codes: list[str] = []
    if run.canary:  # the token of the system prompt, in any encoding
        watch = redactor({}, run.canary)
        codes += ["canary"] if any(watch.exact(text) for text in _texts(run)) else []
    if not run.provider:
        return codes
    spoke = any(not finding.rule for finding in run.findings)
    if run.stop_reason == StopReason.REFUSAL or (run.stop_reason in _CUT_OFF and not spoke):
        codes.append(f"transport.{run.stop_reason}")
    if not run.finished and not spoke:
        codes.append("channel.nothing")
    return codes


def _summary_faults(run: ReviewRun, shown: str, language: str, examples: Sequence[str]) -> tuple[str, ...]:
    if not run.provider:
        return ()
    if len(run.summary) > 3 * SUMMARY:
        return ("caps.summary",)
    if run.summary.strip():
        return summary_codes(run.summary, shown, language=language, examples=examples)
    return ("transport.cut",)


def _texts(run: ReviewRun) -> Iterable[str]:
    most = 3 * SUMMARY  # what is longer is cut before it is shown
    yield run.summary[:most]
    for finding in run.findings[:CONSIDERED]:
        parts = (finding.path, finding.title, finding.body, finding.suggestion or "", finding.acceptance)
        yield "\n".join(part[:most] for part in parts)
    yield " ".join(finding.title for finding in run.findings)[:most]


def text_codes(text: str, *, language: str = "en", examples: Iterable[str] = (), whole: bool = True) -> tuple[str, ...]:
    """Name every reason not to post a text. `whole`: it should be complete sentences, not a title."""
    prose = _SPANS.sub(" code ", _FENCED.sub("\n", text))
    codes = (*_transport(text, prose, whole), *_degenerate(text, prose, language), *_echo(text, prose, examples))
    return tuple(dict.fromkeys(codes))


def hidden(text: str) -> int:
    """Count the characters that cannot be seen."""
    # Khmer, Thai and others part words with a zero-width space.
    plain = re.sub("(?<=[^\x00-\x7f])\u200b(?=[^\x00-\x7f])", "", text.replace("\r\n", "\n"))
    return len(plain) - len(clean_text(plain, drop=True))


def _transport(text: str, prose: str, whole: bool) -> Iterable[str]:
    shown = "".join(char for char in text if unicodedata.category(char)[0] != "C")
    bare = re.sub(r"^[ \t]*#{1,6}[^\n]*$|```\w*|~~~\w*|[-*_=\s]", "", text, flags=re.MULTILINE)
    if not shown.strip() or not "".join(char for char in bare if char.isalnum()):
        yield "transport.empty"
        return
    if _open_fence(text):
        yield "transport.fence"
    if _LEAKED.search(prose):
        yield "transport.token"
    if _CALL.search(text):
        yield "transport.call"
    if _JSON.match(text) and text.count('"') >= 2:
        yield "transport.json"
    if whole and _cut(text):
        yield "transport.cut"


def _degenerate(text: str, prose: str, language: str) -> Iterable[str]:
    raw = text.encode("utf-8", "replace")
    if len(text) > 400 and len(zlib.compress(raw, 9)) / len(raw) < 0.25:
        yield "degenerate.ratio"
    tokens = _TOKENS.findall(text)
    if tokens:
        if max(len(list(same)) for _, same in itertools.groupby(tokens)) >= 6:
            yield "degenerate.run"
        if len(tokens) >= 40 and len(set(tokens)) / len(tokens) < 0.25:
            yield "degenerate.distinct"
        if len(tokens) >= 24 and _coverage(tokens) > 0.30:
            yield "degenerate.repeat"
        if len(text) >= 60 and sum(map(len, tokens)) / len(tokens) > 25:
            yield "degenerate.length"
    odd = sum(
        char == "\ufffd" or (unicodedata.category(char) in ("Cc", "Co", "Cn", "Cs") and char not in "\n\r\t")
        for char in text
    )
    if odd > max(2, len(text) // 100):
        yield "degenerate.characters"
    if len(_MOJIBAKE.findall(prose)) >= 2:
        yield "degenerate.mojibake"
    if _foreign(prose, language) > 0.20:
        yield "degenerate.script"
    if language != "en":
        return
    words = [word.lower() for word in _WORDS.findall(prose)]
    if len(words) >= 25 and sum(word in _COMMON for word in words) / len(words) < 0.08:
        yield "degenerate.words"
    pairs = re.findall(r"\b(the|a|an)[ \n]+([a-z']+)", prose.lower())
    wrong = sum(follower in _NOT_AFTER for _, follower in pairs)
    if wrong >= 3 and wrong / len(pairs) > 0.15:
        yield "degenerate.order"


def _echo(text: str, prose: str, examples: Iterable[str]) -> Iterable[str]:
    yield from (code for code, pattern in _ECHOES.items() if pattern.search(prose))
    if len(_DIFF.findall(prose)) >= 3:
        yield "echo.diff"
    mine = _shingles(text)
    if mine and any(len(mine & _shingles(example)) / len(mine) > 0.2 for example in examples):
        yield "echo.example"


def _open_fence(text: str) -> bool:
    """Whether a fence is left open; one with a language opens, also inside another, as models nest them."""
    depth = 0
    for row in text.split("\n"):
        match = re.match(r"[ \t]*(?:`{3,}|~{3,})([^`]*)$", row)
        if match is not None:
            depth += 1 if match.group(1).strip() or depth == 0 else -1
    return depth > 0


def _cut(text: str) -> bool:
    """Whether a text that otherwise ends its sentences stops in the middle of one."""
    rows = [row.strip() for row in _FENCED.sub("\n", text).strip().split("\n")]
    rows = [row for row in rows if row and not row.startswith("#") and re.search(r"\w", row)]
    last = text.rstrip().rsplit("\n", 1)[-1].strip()
    if not rows or not re.search(r"\w", last) or last.startswith("#") or last != rows[-1]:
        return False
    if _SENTENCE_END.search(last):
        return last.count("`") % 2 == 1
    ended = sum(bool(_FULL_STOP.search(row)) for row in rows[:-1])
    if len(rows) > 1:
        return ended * 2 >= len(rows) - 1
    return re.search(r"[.!?][)\"'`*]* +[A-Z`]", last) is not None


def _coverage(tokens: list[str]) -> float:
    """How much of a text its most repeated run of two to four tokens covers."""
    best = 0.0
    for size in (2, 3, 4):
        grams = Counter(tuple(tokens[at : at + size]) for at in range(len(tokens) - size + 1))
        gram, count = grams.most_common(1)[0]
        if count >= 4 and any(re.search(r"\w", token) for token in gram):
            best = max(best, count * size / len(tokens))
    return best


def _foreign(prose: str, language: str) -> float:
    """The share of letters of a script that the configured language is not written in."""
    allowed = ("LATIN", *_DATA["scripts"].get(language, ()))
    letters = [char for char in prose if char.isalpha()]
    if len(letters) < 12:
        return 0.0
    foreign = sum(not char.isascii() and not unicodedata.name(char, "").startswith(allowed) for char in letters)
    return foreign / len(letters)


def _shingles(text: str, size: int = 8) -> set[tuple[str, ...]]:
    words = [word.lower() for word in _WORDS.findall(text)]
    return {tuple(words[at : at + size]) for at in range(len(words) - size + 1)}


def context(bundle: Bundle) -> str:
    """Everything the reviewer was shown or could have read of the touched files."""
    names = " ".join(f"{file.path} {file.old_path}" for file in bundle.files)
    texts: Iterable[str] = (names, bundle.change.title, bundle.diff, *bundle.head.values(), *bundle.base.values())
    return "\n".join(texts)


def names(text: str, *, loose: bool = False) -> list[str]:
    """The names a text puts in backticks, outside of fences; `loose` adds those that only look like names."""
    prose = _FENCED.sub("\n", text)
    spans = [name for span in _SPAN.findall(prose) for name in _NAME.findall(span) if name not in _KEYWORDS]
    return spans + _CASED.findall(_SPAN.sub(" ", prose)) if loose else spans


def on_topic(text: str, shown: str) -> bool:
    """Whether a summary speaks of this change at all: its names and its paths occur here."""
    found = names(text, loose=True)
    if found and sum(name in shown for name in found) / len(found) < ABOUT:
        return False
    paths = {path for path in _PATH.findall(_FENCED.sub("\n", text)) if "/" in path}
    return len(found) >= 5 or not paths or any(path in shown for path in paths)
