"""Characters that can make a line of code look harmless."""

from __future__ import annotations

import re
from collections.abc import Mapping

from glue.text import MARKS, NOTHING, TAGS, TURNS

# Khmer, Thai, Lao and Burmese separate words with a zero-width space, and other scripts and emoji
# need joiners. They are suspicious only between ASCII characters.
_JOINS = "(?<=[\x21-\x7e])[\u200b-\u200d\u00ad]+(?=[\x21-\x7e])|[\u200b\u00ad]{3,}"
# Characters that can make a line of code look harmless, by kind. They include
# direction marks. `clean_text` keeps direction marks, because prose needs them.
HIDDEN_CHARACTERS: Mapping[str, re.Pattern[str]] = {
    "bidirectional controls": re.compile(f"[{TURNS}{MARKS}]"),
    "tag characters": re.compile(f"[{TAGS}]"),
    "zero-width characters": re.compile(f"[{NOTHING}]|{_JOINS}"),
}
