"""Schemes of entities: read, told apart, converted; their scores against a conlleval of its own."""

import itertools
import random
import re
from collections import Counter

import pytest

from bert_jax.tasks import schemes
from bert_jax.tasks.entity_scores import of_entities

# The same entities in each scheme: a of two words, then right after it one more a, then b of one word.
WORDS = {
    "iob1": "O I-a I-a B-a O I-b I-a O",
    "iob2": "O B-a I-a B-a O B-b B-a O",
    "iobes": "O B-a E-a S-a O S-b S-a O",
}
SPELT = [schemes.Entity(*each) for each in (("a", 1, 3), ("a", 3, 4), ("b", 5, 6), ("a", 6, 7))]


@pytest.mark.parametrize("scheme", schemes.NAMES)
def test_each_scheme_spells_the_same(scheme: str) -> None:
    tags = WORDS[scheme].split()
    assert schemes.entities(tags) == SPELT
    assert schemes.tags_of(SPELT, len(tags)) == WORDS["iob2"].split()
    for other in schemes.NAMES:
        assert bool(list(schemes.problems(tags, other))) == (other != scheme)


@pytest.mark.parametrize(
    ("scheme", "tags", "place", "message"),
    [
        ("iob2", "O I-a", 1, "I-a after O: an entity begins with B"),
        ("iob2", "I-a", 0, "I-a after O"),
        ("iob2", "B-a I-b", 1, "I-b after B-a"),
        ("iob2", "B-a E-a", 1, "E-a has a prefix that is none of B, I"),
        ("iob1", "O B-a", 1, "only an entity right after one of its type begins with B"),
        ("iob1", "I-b B-a", 1, "B-a after I-b"),
        ("iobes", "O I-a E-a", 1, "I-a after O: an entity begins with B or S"),
        ("iobes", "B-a", 0, "B-a before O: an entity ends in E or S"),
        ("iobes", "B-a I-a O", 1, "I-a before O"),
        ("iobes", "S-a E-a", 1, "E-a after S-a"),
        ("iobes", "B-a B-a E-a", 0, "B-a before B-a"),
        ("iobes", "B-a E-b", 0, "B-a before E-b"),
    ],
)
def test_a_breach_is_named(scheme: str, tags: str, place: int, message: str) -> None:
    found = next(schemes.problems(tags.split(), scheme))
    assert found[0] == place and message in found[1]


def test_what_every_scheme_allows() -> None:
    fine = {"iob1": "I-a B-a B-a I-a I-b", "iob2": "B-a B-a I-a B-b", "iobes": "S-a B-a I-a I-a E-a S-a"}
    for scheme, tags in fine.items():
        assert not list(schemes.problems(tags.split(), scheme))
        assert not list(schemes.problems((), scheme))
    tags = ("O", "B-a", "S-x-y", "B", "I-", "X-a", "OB-a", "PER", "")
    assert [tag for tag in tags if schemes.is_tag(tag)] == ["O", "B-a", "S-x-y"]


def test_conversion_there_and_back() -> None:
    draw = random.Random(0)
    for _ in range(300):
        length = draw.randint(1, 8)
        spelt, place = [], 0
        while place < length:
            stop = draw.randint(place + 1, length)
            if draw.random() < 0.6:
                spelt.append(schemes.Entity(draw.choice("ab"), place, stop))
            place = stop
        tags = schemes.tags_of(spelt, length)
        assert schemes.entities(tags) == spelt
        assert not list(schemes.problems(tags, "iob2"))


def conlleval(gold: list[list[str]], said: list[list[str]]) -> tuple[Counter, Counter, Counter]:
    """Right, gold and guessed entities of each type: chunks as regular expressions, not as a loop over pairs.

    A sentence is spelt with a letter a word, of its type, before it a mark where conlleval's rules of two
    neighbours begin a chunk.
    """

    def chunks(tags: list[str]) -> set[tuple[str, int, int]]:
        marks, kinds = "", []
        for before, tag in itertools.pairwise(["O", *tags]):
            new = tag[0] in "BS" or before[0] in "OES" or before[2:] != tag[2:]
            marks += "." if tag == "O" else "<" if new else "-"
            kinds.append(tag[2:])
        return {(kinds[m.start()], m.start(), m.end()) for m in re.finditer("<-*", marks)}

    right, of_gold, of_said = Counter(), Counter(), Counter()
    for a, b in zip(gold, said, strict=True):
        x, y = chunks(a), chunks(b)
        right.update(kind for kind, *_ in x & y)
        of_gold.update(kind for kind, *_ in x)
        of_said.update(kind for kind, *_ in y)
    return right, of_gold, of_said


@pytest.mark.parametrize("prefixes", ["I", "BI", "BIES"])
def test_scores_are_those_of_conlleval(prefixes: str) -> None:
    """Any tags after any others, breaches of every scheme included."""
    draw = random.Random(len(prefixes))
    tags = ["O", "O", *(f"{p}-{t}" for p in prefixes for t in ("x", "y", "long-one"))]
    for _ in range(20):
        gold = [[draw.choice(tags) for _ in range(draw.randint(1, 9))] for _ in range(12)]
        said = [[g if draw.random() < 0.6 else draw.choice(tags) for g in row] for row in gold]
        found = of_entities(gold, said)
        right, of_gold, of_said = conlleval(gold, said)

        def scores(r: int, s: int, g: int) -> dict[str, float]:
            return {"precision": r / max(s, 1), "recall": r / max(g, 1), "f1": 2 * r / max(s + g, 1)}

        wanted = scores(right.total(), of_said.total(), of_gold.total())
        each = {t: scores(right[t], of_said[t], of_gold[t]) for t in of_gold | of_said}
        for kind in list(wanted):
            wanted[f"macro_{kind}"] = sum(x[kind] for x in each.values()) / len(each)
            wanted |= {f"{kind}_{t}": x[kind] for t, x in each.items()}
        assert found == pytest.approx(wanted, abs=1e-12)


def test_scores_by_hand() -> None:
    gold = [["B-a", "I-a", "O", "B-b"], ["O", "B-a"]]
    said = [
        ["B-a", "O", "O", "I-b"],
        ["B-b", "B-a"],
    ]  # a too short; b though it begins with I-; b where none is
    found = of_entities(gold, said)
    assert (found["precision"], found["recall"]) == (2 / 4, 2 / 3)
    assert found["f1"] == pytest.approx(4 / 7)
    assert (found["f1_a"], found["precision_b"], found["recall_b"]) == (0.5, 0.5, 1.0)
    assert found["macro_f1"] == pytest.approx((1 / 2 + 2 / 3) / 2)
    nothing = of_entities([["O", "O"]], [["O", "O"]])
    assert set(nothing.values()) == {0.0}
    missed = of_entities([["B-a"]], [["O"]])
    assert (missed["precision"], missed["recall"], missed["f1"], missed["f1_a"]) == (0, 0, 0, 0)
