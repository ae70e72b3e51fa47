"""Minimal pairs: accuracy by paradigm, ties, intervals, and the command on BLiMP's form."""

import json
import pathlib

import numpy as np
import pytest
import tiny_models

from bert_jax.scoring import Scorer, minimal_pairs


def judged(paradigm: str, good: float, bad: float) -> minimal_pairs.Judged:
    return minimal_pairs.Judged(paradigm, "g", "b", good, bad)


def test_accuracy_ties_and_intervals() -> None:
    some = [judged("x", -1, -2), judged("x", -2, -1), judged("x", -1, -1), judged("x", -1, -1.00005)]
    some += [judged("a", -1.0, -1.001)] * 6
    assert [pair.correct for pair in some] == [True, False, False, False, *[True] * 6]
    assert [pair.is_tie for pair in some] == [False, False, True, True, *[False] * 6]
    lines = [line.split() for line in minimal_pairs.table(some).splitlines()]
    # Wilson's interval by hand: centre and half width from z = 1.959964.
    z = 1.959963984540054
    for line, name, right, count, ties in ((1, "a", 6, 6, 0), (2, "x", 1, 4, 2), (3, "overall", 7, 10, 2)):
        share = right / count
        centre = (share + z * z / (2 * count)) / (1 + z * z / count)
        half = z / (1 + z * z / count) * np.sqrt(share * (1 - share) / count + z * z / (4 * count * count))
        expected = [100 * share, 100 * (centre - half), 100 * (centre + half), count, ties]
        assert lines[line][0] == name
        found = [float(x) for x in lines[line][1:] if x != "-"]
        assert found == pytest.approx(expected, abs=0.0051)
        assert minimal_pairs.interval(right, count) == pytest.approx((centre - half, centre + half))


def test_blimp_is_read(test_data: pathlib.Path) -> None:
    found = minimal_pairs.read(
        str(test_data / "nbest" / "blimp" / "dev"), "sentence_good", "sentence_bad", "UID"
    )
    assert len(found) == 3000
    assert found[0] == ("anaphor_number_agreement", "Susan revealed herself.", "Susan revealed themselves.")
    assert len({paradigm for paradigm, _, _ in found}) == 3


@pytest.mark.parametrize("kind", ["tta", "causal"])
def test_the_command(tmp_path: pathlib.Path, kind: str) -> None:
    model = {"kind": "tta"} if kind == "tta" else {"mask": "causal"}
    source = tiny_models.source(tiny_models.tokenizer(tmp_path), **model)
    tiny_models.save(tmp_path / "run", source)
    draw = np.random.default_rng(0)
    sentences = [" ".join(draw.choice(tiny_models.WORDS[:5], draw.integers(1, 7))) for _ in range(60)]
    (tmp_path / "data").mkdir()
    for number, name in enumerate(("one", "two")):
        rows = [
            {"sentence_good": sentences[30 * number + i], "sentence_bad": sentences[30 * number + 29 - i]}
            for i in range(15)
        ]
        rows[3]["sentence_bad"] = rows[3]["sentence_good"].upper()  # alike to a lower-cased vocabulary
        lines = [json.dumps({**row, "UID": name, "pairID": str(i)}) for i, row in enumerate(rows)]
        (tmp_path / "data" / f"{name}.jsonl").write_text("\n".join(lines))
    done = tiny_models.run(tmp_path, "pairs", "--model=run", "--input=data", "--output=-", "--ends")
    assert done.returncode == 0, done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines()]
    scorer = Scorer(source, ends=True)
    for side in ("good", "bad"):
        expected = [one.log_prob for one in scorer.score([x[side] for x in found])]
        np.testing.assert_allclose([x[f"{side}_log_prob"] for x in found], expected, rtol=0, atol=1e-4)
    right = [x["correct"] for x in found]
    assert right == [x["good_log_prob"] > x["bad_log_prob"] + 1e-4 for x in found]
    assert not right[3] and not right[18]
    table = [line.split() for line in done.stderr.decode().splitlines()[-5:]]
    assert [line[0] for line in table] == ["paradigm", "one", "two", "overall", "a"]
    shares = [sum(right[:15]) / 15, sum(right[15:]) / 15, sum(right) / 30]
    assert [float(line[1]) for line in table[1:4]] == pytest.approx([100 * s for s in shares], abs=0.006)
    assert [line[-2:] for line in table[1:4]] == [["15", "1"], ["15", "1"], ["30", "2"]]
