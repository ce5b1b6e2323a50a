"""The gate: deterministic checks of a model's output before anything of it is posted.

Every refusal has a code of the form `check.reason`. The checks are: canary, provider, channel,
transport, grounding, degenerate, echo, caps, run. A code for the whole run means that nothing of
the model is posted and another provider is asked. The thresholds were chosen with recorded reviews
and damaged copies of them; `bench/review.py` prints the confusion matrix.
"""

from __future__ import annotations

import itertools
import re
import tomllib
import unicodedata
import zlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from importlib.resources import files

from glue import StopReason
from glue.agents.review.findings.anchor import locate
from glue.agents.review.findings.dedupe import covers, rank, says_the_same, unique
from glue.agents.review.records import SEVERITIES, Bundle, Finding, ReviewRun
from glue.secrets import Redactor
from glue.text import clean_text, count

FINDINGS = 25  # findings that are posted at most
DUPLICATE = "duplicate"
_NOT_REFUSED = (DUPLICATE, "caps.findings")
_NOISE = ("transport.", "degenerate.", "echo.")
CONSIDERED = 250  # findings of a run that are checked, the most severe first
BODY = 1_500  # characters of one finding
SUMMARY = 20_000
TOTAL = 60_000  # bytes of a comment
# Faults of style, which do not make the content worthless.
SOFT = frozenset(
    ("transport.cut", "transport.fence", "transport.short", "echo.narration", "caps.summary")
)
_CUT_OFF = (StopReason.MAX_TOKENS, StopReason.CONTEXT_WINDOW)
_DATA = tomllib.loads(files(__package__).joinpath("gate.toml").read_text(encoding="utf-8"))
_PATTERNS = {code: "".join(parts) for code, parts in _DATA["patterns"].items()}
_LEAKED = re.compile(_PATTERNS.pop("transport.token"), re.MULTILINE)
_ECHOES = {
    code: re.compile(pattern, re.IGNORECASE | re.MULTILINE) for code, pattern in _PATTERNS.items()
}
_NOT_AFTER = frozenset(_DATA["not_after_an_article"].split())
_COMMON = _NOT_AFTER | frozenset(_DATA["common"].split())
_KEYWORDS = frozenset(_DATA["keywords"].split())
_FENCED = re.compile(
    r"^[ \t]*(`{3,12}|~{3,12})[^\n]*\n.*?(?:^[ \t]*\1[`~]*[ \t]*$|\Z)", re.MULTILINE | re.DOTALL
)
_SPANS = re.compile(r"`[^`\n]*`")
# Khmer, Thai and other scripts separate words with one zero-width space.
_SEPARATOR = re.compile("(?<=[^\x00-\x7f\u200b])\u200b(?=[^\x00-\x7f\u200b])")
_TOKENS = re.compile("[^\\s\u200b]+")
_WORDS = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)?")
_CALL = re.compile(
    r"""["']?(?:name|tool|function|tool_name)["']?\s*:\s*["'][\w.-]+["']\s*,"""
    r"""\s*["'](?:arguments|parameters|input|args)["']\s*:"""
)
_JSON = re.compile(r"^\s*(?:```\w*\s*)?[\[{][\s\S]{2,}[\]}]\s*(?:```)?\s*$")
_DIFF = re.compile(
    r"^(?:diff --git |@@ -\d|index [0-9a-f]{7,}\.\.|--- (?:a/|/dev/null)|\+\+\+ (?:b/|/dev/null))",
    re.MULTILINE,
)
_MOJIBAKE = re.compile(
    r"Ã[\u0080-\u00bf\u0152-\u2122ƒ‚]|â€|â‚¬|Â[\u00a0-\u00bf]|ï»¿|ï¿½|Ð[\u0080-\u00bf]"
)
_SENTENCE_END = re.compile(r"""[.!?:;…。！？។।](?:["'”’»)\]*_`]*)\s*$|[)\]`"'”’*]\s*$""")
_FULL_STOP = re.compile(r"""[.!?:…。！？។।](?:["'”’»)\]*_`]*)\s*$""")
_SPAN = re.compile(r"`([^`\n]{1,300})`")
_NAME = re.compile(r"[A-Za-z_$][\w$]{2,}")
_PATH = re.compile(
    r"(?<![\w/.@+-])((?:[\w@+-]+/)+[\w@+.-]+\.[A-Za-z]{1,5}"
    r"|[\w-]+\.(?:py|js|ts|tsx|jsx|go|rs|rb|java|c|h|cpp|cs|php|md|toml|yaml|yml|json|sql|sh))"
    r"(?![\w/])"
)
_CASED = re.compile(r"\b(?:[a-z]+[A-Z]\w+|[A-Z][a-z0-9]+[A-Z]\w+|[a-z]+_[a-z]\w+)\b")
# "summary" or "finding" -> code -> reason that the model is told.
REFUSALS: Mapping[str, Mapping[str, str]] = _DATA["refusals"]
_MEANINGS: Mapping[str, str] = _DATA["meanings"]  # code, or its first part -> plain words
ABOUT = 0.50  # share of the names in a summary that must occur in the context


def judge(
    run: ReviewRun, bundle: Bundle, *, language: str = "en", examples: Sequence[str] = ()
) -> ReviewRun:
    """Return a review without the findings, and without the summary, that may not be posted.

    Refused findings are moved to `dropped`, each with its code. A refused summary is replaced by
    "". If the returned run has `codes`, nothing that the model wrote may be posted.
    """
    kept: list[Finding] = []
    dropped = list(run.dropped)
    for finding in sorted(run.findings, key=rank)[:CONSIDERED]:
        code = finding.dropped or finding_code(
            finding, bundle, language=language, examples=examples
        )
        if code:
            dropped.append(replace(finding, dropped=code))
        else:
            kept.append(finding)
    findings, doubles = unique(kept)
    ordered = sorted(findings, key=rank)
    over = [replace(finding, dropped="caps.findings") for finding in ordered[FINDINGS:]]
    codes = [*run.codes, *_run_codes(run)]
    accepted = sum(not finding.rule for finding in kept)
    refused = unresolved(dropped, kept)
    noise = sum(finding.dropped.startswith(_NOISE) for finding in refused)
    if refused and not accepted:
        codes.append("run.refused")
    elif noise * 2 > accepted + len(refused):
        codes.append("run.noise")
    summary = run.summary
    shown = f"{context(bundle)}\n{' '.join(run.seen)}"
    unsound = _summary_faults(run, shown, language, examples)
    if unsound:
        # Findings are not lost because of a bad summary: `build` writes another one.
        summary = ""
        if not accepted and not set(unsound) <= SOFT:
            codes += unsound
    return replace(
        run,
        findings=tuple(ordered[:FINDINGS]),
        dropped=(*dropped, *doubles, *over),
        summary=summary[: 2 * SUMMARY],
        codes=tuple(dict.fromkeys(codes)),
    )


def unresolved(dropped: Iterable[Finding], accepted: Sequence[Finding]) -> tuple[Finding, ...]:
    """Return the refused findings that no accepted finding corrects, without repeats.

    Duplicates, findings beyond the limit, findings of rules, and findings that the second look
    dropped do not count as refused. `accepted` are the findings that the gate accepted.
    """
    refused: list[Finding] = []
    for finding in dropped:
        is_accepted = finding.dropped in _NOT_REFUSED or finding.dropped.startswith("second-look.")
        is_refused = finding.dropped and not is_accepted and not finding.rule
        is_covered = any(covers(other, finding) for other in accepted if not other.rule)
        is_repeated = any(says_the_same(other, finding) for other in refused)
        if is_refused and not is_covered and not is_repeated:
            refused.append(finding)
    return tuple(refused)


def meaning(code: str) -> str:
    """Return the meaning of a refusal code such as "transport.cut", or the code if it has none."""
    return _MEANINGS.get(code) or _MEANINGS.get(code.partition(".")[0]) or code


def tally(refused: Iterable[Finding]) -> str:
    """Return a text with the number of refused reports and the reasons, or "" for no reports.

    For example: "2 reports of the model were refused: the quoted code is not in the change (2)".
    """
    codes = Counter(meaning(finding.dropped) for finding in refused)
    if not codes:
        return ""
    total = codes.total()
    reasons = ", ".join(f"{words} ({number})" for words, number in codes.most_common())
    verb = "was" if total == 1 else "were"
    return f"{count(total, 'report')} of the model {verb} refused: {reasons}"


def by_severity(findings: Iterable[Finding]) -> str:
    """Return a text such as "1 high, 2 low" that counts findings by severity, or "" for none."""
    severities = Counter(finding.severity for finding in findings)
    counts = [(name, severities[name]) for name in SEVERITIES]
    return ", ".join(f"{number} {name}" for name, number in counts if number)


def host_summary(bundle: Bundle, findings: Sequence[Finding], nothing: str = "") -> str:
    """Return a summary that needs no model: the size of the change and the findings by severity.

    If there are no findings, the summary ends with `nothing`.
    """
    files = len(bundle.files)
    added = sum(len(file.added) for file in bundle.files)
    deleted = sum(len(file.deleted) for file in bundle.files)
    noun = "file" if files == 1 else "files"
    size = f"The change touches {files} {noun} (+{added}, -{deleted} lines)."
    found = by_severity(findings)
    return f"{size} Found: {found}." if found else f"{size} {nothing}".strip()


def finding_code(
    finding: Finding, bundle: Bundle, *, language: str = "en", examples: Sequence[str] = ()
) -> str:
    """Return the code of the first reason to refuse a finding, or "" if it may be posted.

    The text of a rule's finding is not checked for noise. Names in backticks are not checked: good
    findings name inputs, tests and callers that are elsewhere in the repository.
    """
    file = bundle.file(finding.path)
    if file is None:
        return "grounding.path"
    if not finding.rule:
        # The quote must be in a hunk, deleted lines included, or in the rest of the file.
        claimed = finding.claimed or finding.line
        place = locate(finding.quote, file.path, [file], bundle.head, claimed)
        if place is None or place.path != file.path:
            return "grounding.quote"
    if len(finding.body) > 20 * BODY or len(finding.title) > 2_000:
        return "caps.body"
    if not finding.title.strip() or not finding.body.strip():
        return "transport.empty"
    if finding.rule:
        return ""
    text = f"{finding.title}\n\n{finding.body}"
    if hidden(text) > max(2, len(text) // 100):
        return "degenerate.characters"
    for part in (finding.body, finding.title):
        codes = text_codes(part, language=language, examples=examples)
        if grave := [code for code in codes if code not in SOFT]:
            return grave[0]
    return ""


def summary_codes(
    text: str, shown: str = "", *, language: str = "en", examples: Sequence[str] = ()
) -> tuple[str, ...]:
    """Return the codes of the reasons to refuse a summary, or () if it may be posted.

    `shown` is the text of the change, which the summary must be about.
    """
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
    if run.canary:
        # A reply must not repeat this token of the system prompt, in any encoding.
        watch = Redactor.from_environment({}, run.canary)
        codes += ["canary"] if any(watch.find_values(text) for text in _texts(run)) else []
    if not run.provider:
        return codes
    has_reported = any(not finding.rule for finding in run.findings)
    if run.stop_reason == StopReason.REFUSAL or (run.stop_reason in _CUT_OFF and not has_reported):
        codes.append(f"transport.{run.stop_reason}")
    has_failed = any(code.startswith("provider.") for code in run.codes)
    if not run.finished and not has_reported and not has_failed:
        codes.append("channel.nothing")
    return codes


def _summary_faults(
    run: ReviewRun, shown: str, language: str, examples: Sequence[str]
) -> tuple[str, ...]:
    if not run.provider:
        return ()
    if len(run.summary) > 3 * SUMMARY:
        return ("caps.summary",)
    if run.summary.strip():
        return summary_codes(run.summary, shown, language=language, examples=examples)
    return ("transport.cut",)


def _texts(run: ReviewRun) -> Iterable[str]:
    most = 3 * SUMMARY  # a longer text is cut before it is shown
    yield run.summary[:most]
    for finding in run.findings[:CONSIDERED]:
        parts = (
            finding.path,
            finding.title,
            finding.body,
            finding.suggestion or "",
            finding.acceptance,
        )
        yield "\n".join(part[:most] for part in parts)
    yield " ".join(finding.title for finding in run.findings)[:most]


def text_codes(text: str, *, language: str = "en", examples: Iterable[str] = ()) -> tuple[str, ...]:
    """Return the codes of all reasons to refuse a text, or () if the text may be posted.

    `examples` are texts of the prompt that a model must not repeat.
    """
    prose = _SPANS.sub(" code ", _FENCED.sub("\n", text))
    codes = (
        *_transport(text, prose),
        *_degenerate(text, prose, language),
        *_echo(text, prose, examples),
    )
    return tuple(dict.fromkeys(codes))


def hidden(text: str) -> int:
    """Return the number of invisible and control characters in a text.

    Zero-width spaces between letters of scripts that use them do not count.
    """
    plain = _SEPARATOR.sub("", text.replace("\r\n", "\n"))
    return len(plain) - len(clean_text(plain, drop=True))


def _transport(text: str, prose: str) -> Iterable[str]:
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
    if _cut(text):
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
        char == "\ufffd"
        or (unicodedata.category(char) in ("Cc", "Co", "Cn", "Cs") and char not in "\n\r\t")
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
    """Return whether a text has a code fence that is not closed.

    A fence with a language opens a block even inside another block, because models nest them.
    """
    depth = 0
    for row in text.split("\n"):
        match = re.match(r"[ \t]*(?:`{3,}|~{3,})([^`]*)$", row)
        if match is not None:
            depth += 1 if match.group(1).strip() or depth == 0 else -1
    return depth > 0


def _cut(text: str) -> bool:
    """Return whether a text stops in the middle of a sentence.

    Return False if the earlier lines do not end with full stops either, as in a list of keywords.
    """
    rows = [row.strip() for row in _FENCED.sub("\n", text).strip().split("\n")]
    rows = [row for row in rows if row and not row.startswith("#") and re.search(r"\w", row)]
    last = text.rstrip().rpartition("\n")[2].strip()
    if not rows or not re.search(r"\w", last) or last.startswith("#") or last != rows[-1]:
        return False
    if _SENTENCE_END.search(last):
        return last.count("`") % 2 == 1
    ended = sum(bool(_FULL_STOP.search(row)) for row in rows[:-1])
    if len(rows) > 1:
        return ended * 2 >= len(rows) - 1
    return re.search(r"[.!?][)\"'`*]* +[A-Z`]", last) is not None


def _coverage(tokens: list[str]) -> float:
    """Return the share of a text, from 0 to 1, that one repeated sequence of tokens covers.

    A sequence has 2 to 4 tokens and occurs at least four times.
    """
    best = 0.0
    for size in (2, 3, 4):
        grams = Counter(tuple(tokens[at : at + size]) for at in range(len(tokens) - size + 1))
        gram, count = grams.most_common(1)[0]
        if count >= 4 and any(re.search(r"\w", token) for token in gram):
            best = max(best, count * size / len(tokens))
    return best


def _foreign(prose: str, language: str) -> float:
    """Return the share of letters from scripts that the language does not use, from 0 to 1.

    Return 0 for a text with fewer than 12 letters.
    """
    allowed = ("LATIN", *_DATA["scripts"].get(language, ()))
    letters = [char for char in prose if char.isalpha()]
    if len(letters) < 12:
        return 0.0
    foreign = sum(
        not char.isascii() and not unicodedata.name(char, "").startswith(allowed)
        for char in letters
    )
    return foreign / len(letters)


def _shingles(text: str, size: int = 8) -> set[tuple[str, ...]]:
    """Return all sequences of `size` words in a text."""
    words = [word.lower() for word in _WORDS.findall(text)]
    return {tuple(words[at : at + size]) for at in range(len(words) - size + 1)}


def context(bundle: Bundle) -> str:
    """Return the paths, the title, the diff and the texts of the changed files as one text."""
    names = " ".join(f"{file.path} {file.old_path}" for file in bundle.files)
    texts: Iterable[str] = (
        names,
        bundle.change.title,
        bundle.diff,
        *bundle.head.values(),
        *bundle.base.values(),
    )
    return "\n".join(texts)


def names(text: str, *, loose: bool = False) -> list[str]:
    """Return the names that a text has in backticks. Skip fenced code and programming keywords.

    `loose` adds words outside of backticks that look like names, such as `camelCase`.
    """
    prose = _FENCED.sub("\n", text)
    spans = [
        name
        for span in _SPAN.findall(prose)
        for name in _NAME.findall(span)
        if name not in _KEYWORDS
    ]
    return spans + _CASED.findall(_SPAN.sub(" ", prose)) if loose else spans


def paths(text: str) -> list[str]:
    """Return the paths of files that a text names, except those in fenced code."""
    return _PATH.findall(_FENCED.sub("\n", text))


def on_topic(text: str, shown: str) -> bool:
    """Return whether a summary is about the change; `shown` is the text of the change.

    At least half of the names in the summary must occur in the change. If the summary has fewer
    than five names but has paths, one of the paths must occur too.
    """
    found = names(text, loose=True)
    if found and sum(name in shown for name in found) / len(found) < ABOUT:
        return False
    named = {path for path in paths(text) if "/" in path}
    return len(found) >= 5 or not named or any(path in shown for path in named)
