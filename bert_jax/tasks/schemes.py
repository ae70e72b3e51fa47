"""How tags of words spell entities: the schemes IOB1, IOB2 and IOBES, checked, told apart and converted.

A tag is O, or a prefix, "-" and a type. In IOB2 an entity is B-, I-, I- and so on; in IOB1 (Ramshaw and
Marcus 1995) it begins with I-, and with B- only right after another of its type; in IOBES (BIOES) it ends in
E-, and S- is one of a single word. Inside, all are IOB2 (`tags_of`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

IOB1, IOB2, IOBES = NAMES = ("iob1", "iob2", "iobes")


class Entity(NamedTuple):
    """Words start to stop - 1 are one entity of a type."""

    type: str
    start: int
    stop: int


def entities(tags: Sequence[str]) -> list[Entity]:
    """Returns the entities that tags of any scheme spell, in their order, as conlleval counts them.

    Tags that break their scheme spell something too: a tag with the prefix I or E that goes on from no
    entity of its type begins one, and one that is not ended by E- ends where another tag begins.
    """
    found: list[Entity] = []
    start, before, type_before = 0, "O", ""
    for place, tag in enumerate((*tags, "O")):
        prefix, _, type_ = tag.partition("-")
        within = before != "O"
        ends = within and (before in "ES" or prefix in "BSO" or type_ != type_before)
        if ends:
            found.append(Entity(type_before, start, place))
        if prefix != "O" and (ends or not within):
            start = place
        before, type_before = prefix, type_
    return found


def tags_of(spelt: Sequence[Entity], length: int) -> list[str]:
    """Returns the IOB2 tags of `length` words with these entities."""
    tags = ["O"] * length
    for entity in spelt:
        tags[entity.start : entity.stop] = [f"I-{entity.type}"] * (entity.stop - entity.start)
        tags[entity.start] = f"B-{entity.type}"
    return tags


def names_of(types: Sequence[str]) -> tuple[str, ...]:
    """Returns the IOB2 tags of types: O, B-1, I-1, B-2, I-2 and so on, as `crf.constrained` reads them."""
    return ("O", *(f"{prefix}-{type_}" for type_ in types for prefix in "BI"))


def is_tag(tag: str) -> bool:
    """Returns whether a tag is one of any scheme: O, or a prefix with a type."""
    prefix, dash, type_ = tag.partition("-")
    return tag == "O" or (prefix in ("B", "I", "E", "S") and bool(dash) and bool(type_))


def problems(tags: Sequence[str], scheme: str) -> Iterator[tuple[int, str]]:
    """Yields (place, what is wrong) of each tag of a sentence that a scheme does not allow there."""
    allowed = "BIES" if scheme == IOBES else "BI"
    for place, (before, tag, after) in enumerate(zip(("O", *tags), tags, (*tags[1:], "O"), strict=False)):
        prefix, _, type_ = tag.partition("-")
        if prefix == "O":
            continue
        goes_on = before[0] in ("BI" if scheme != IOB1 else "BIES") and before[2:] == type_
        ended = after[0] in "IE" and after[2:] == type_
        if prefix not in allowed:
            yield place, f"{tag} has a prefix that is none of {', '.join(allowed)}"
        elif scheme == IOB1 and prefix == "B" and not goes_on:
            yield place, f"{tag} after {before}: only an entity right after one of its type begins with B"
        elif scheme == IOB2 and prefix == "I" and not goes_on:
            yield place, f"{tag} after {before}: an entity begins with B"
        elif scheme == IOBES and prefix in "IE" and not goes_on:
            yield place, f"{tag} after {before}: an entity begins with B or S"
        elif scheme == IOBES and prefix in "BI" and not ended:
            yield place, f"{tag} before {after}: an entity ends in E or S"
