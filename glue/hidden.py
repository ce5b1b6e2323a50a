"""Patterns for invisible and direction-changing characters, which can hide malicious code."""

from __future__ import annotations

import re
from collections.abc import Mapping

from glue.text import MARKS, NOTHING, TAGS, TURNS

# Khmer, Thai, Lao and Burmese separate words with a zero-width space, and other scripts and emoji
# need joiners. These characters are suspicious only between ASCII characters.
_JOINS = "(?<=[\x21-\x7e])[\u200b-\u200d\u00ad]+(?=[\x21-\x7e])|[\u200b\u00ad]{3,}"
# Patterns of these characters, by kind. They include direction marks, which `clean_text` keeps,
# because prose needs them.
HIDDEN_CHARACTERS: Mapping[str, re.Pattern[str]] = {
    "bidirectional controls": re.compile(f"[{TURNS}{MARKS}]"),
    "tag characters": re.compile(f"[{TAGS}]"),
    "zero-width characters": re.compile(f"[{NOTHING}]|{_JOINS}"),
}
