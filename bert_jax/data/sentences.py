"""The sentence rule: where a paragraph is cut into sentences."""

from __future__ import annotations

import re

# Stops with what closes on them. White space must follow, except after those of scripts without it.
_END = re.compile(
    r"([.!?\u2026\u3002\uff01\uff1f])(?:[.!?\u2026\u3002\uff01\uff1f\"')\]\u201d\u2019\u00bb\u300d\u300f\uff09]*)(\s*)"
)
_WIDE = "\u3002\uff01\uff1f"
_OPENING = "\"'\u201c\u2018\u00ab([\u201e\u00bf\u00a1"
_MARKS = _OPENING + "-\u2013\u2014*_"
# fmt: off
_ABBREVIATIONS = frozenset(
    (
        "mr", "mrs", "ms", "messrs", "mme", "mlle", "dr", "prof", "rev", "hon", "st", "mt", "sr", "jr",
        "gen", "col", "capt", "lt", "sgt", "maj", "cmdr", "gov", "sen", "rep", "e.g", "i.e", "cf", "vs",
        "viz", "etc", "al", "fig", "figs", "vol", "vols", "pp", "ed", "eds", "ca", "approx", "dept",
        "inc", "ltd", "co", "corp", "jan", "feb", "mar", "apr", "jun", "jul", "aug", "sep", "sept", "oct",
        "nov", "dec",
    )
)
# fmt: on
_BEFORE_NUMBERS = frozenset(("no", "nos", "p", "ch", "sec", "art"))
_LOOK_BACK = 24  # characters: longer than any abbreviation


def sentences(text: str) -> list[str]:
    """Cuts a paragraph into sentences.

    A sentence ends after `.`, `!`, `?` or an ellipsis, with the quotes and brackets that close on
    it, where white space follows and then a capital, a digit, a letter of a script without case,
    or an opening quote or bracket before one of these. It does not end after the common
    abbreviations ("Mr.", "St.", "e.g.", "etc."), after single capitals and rows of them ("J.",
    "U.S."), nor after "No.", "p.", "ch." before a number. The full-width marks of Chinese and
    Japanese always end one. The rule knows no grammar: "It was I. He knew." stays whole.

    Returns:
      the sentences, stripped, never empty, line breaks replaced by spaces; joined by white space
      they are the text.
    """
    if "\n" in text:
        text = text.replace("\n", " ")
    found: list[str] = []
    start = 0
    for match in _END.finditer(text):
        stop, end = match.start(), match.end()
        if end < len(text) and (match[1] in _WIDE or (match[2] and _ends(text, stop, end))):
            found.append(text[start:end].strip())
            start = end
    found.append(text[start:].strip())
    return [sentence for sentence in found if sentence]


def _ends(text: str, stop: int, after: int) -> bool:
    """Returns whether the mark at `stop` ends a sentence, with the next text at `after`."""
    letter = text[after]
    if letter in _OPENING:
        letter = text[after : after + 8].lstrip(_OPENING)[:1]
    if letter.islower() or not letter.isalnum():
        return False
    if text[stop] != "." or text[stop + 1] == ".":
        return True
    before = text[max(0, stop - _LOOK_BACK) : stop].rsplit(None, 1)
    last = before[-1].strip(_MARKS) if before else ""
    if last.isupper() and all(len(part) == 1 for part in last.split(".")):
        return False
    lower = last.lower()
    return lower not in _ABBREVIATIONS and not (letter.isdigit() and lower in _BEFORE_NUMBERS)
