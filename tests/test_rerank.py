"""Re-ranking: n-best lists read, the weight tuned by WER and BLEU, and the command."""

import gzip
import json
import pathlib
from typing import Any

import jiwer
import numpy as np
import pytest
import sacrebleu
import tiny_models

from bert_jax.scoring import Scorer, nbest, tuning


def made(
    hypotheses: list[list[tuple[str, float, float]]], references: list[str], metric: Any
) -> tuning.Lists:
    """Lists of (text, first pass's score, log-probability)."""
    lists = [
        nbest.NBest(str(i), [text for text, _, _ in some], [score for _, score, _ in some], reference)
        for i, (some, reference) in enumerate(zip(hypotheses, references, strict=True))
    ]
    log_probs = [np.array([log_prob for _, _, log_prob in some]) for some in hypotheses]
    lengths = [np.array([len(text.split()) for text in some.texts]) for some in lists]
    return tuning.Lists(lists, log_probs, lengths, tuning.counts_of(lists, metric))


def test_moses_lists(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "nbest.gz"
    file.write_bytes(gzip.compress(
        b"0||| the cat  ||| d= 0 -1 lm= -2 ||| -3.5\n"
        b"0 ||| the dog ||| lm= 1 ||| -1.25e0 ||| 0-0 1-1\r\n"
        b"7 |||  ||| -2\n"
    ))  # fmt: skip
    references = tmp_path / "reference"
    references.write_text("a cat\n" + "\n" * 6 + "nothing\n")
    expected = [
        nbest.NBest("0", ["the cat", "the dog"], [-3.5, -1.25], "a cat"),
        nbest.NBest("7", [""], [-2.0], "nothing"),
    ]
    assert nbest.read(file, references) == expected
    assert [some.first_best for some in expected] == [1, 0]
    for text, message in (
        (b"0 ||| a\n", "line 1: '0 ||| a': it must be"),
        (b"0 ||| a ||| b ||| c\n", "line 1: score 'c': it must be a number"),
        (b"0 ||| a ||| 1\n1 ||| a ||| 1\n0 ||| a ||| 1\n", "line 3: list 0 was there before"),
        (b"9 ||| a ||| 1\n", "no line for list 9"),
        (b"\n", "no n-best list"),
    ):
        (tmp_path / "bad").write_bytes(text)
        with pytest.raises(ValueError, match=message.replace("|", r"\|")):
            nbest.read(tmp_path / "bad", references)


def test_json_lists(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "lists.jsonl"
    rows = [
        {"id": 3, "text": "a ||| b", "score": 1},
        {"id": 3, "text": "\ud800", "score": 2.5, "reference": "a"},
        {"id": "x", "text": "", "score": -1, "reference": ""},
    ]
    file.write_text("\n".join(map(json.dumps, rows)))
    assert nbest.read(file) == [
        nbest.NBest("3", ["a ||| b", "\ud800"], [1.0, 2.5], "a"),
        nbest.NBest("x", [""], [-1.0], ""),
    ]
    file.write_text('{"id": 1, "text": "a", "score": true}')
    with pytest.raises(ValueError, match="line 1: score True"):
        nbest.read(file)


def test_the_real_lists(test_data: pathlib.Path) -> None:
    folder = test_data / "nbest" / "moses_europarl"
    lists = nbest.read(folder / "nbest.2.gz", folder / "reference")
    assert [some.id for some in lists] == [str(i) for i in range(10)]
    assert sum(len(some.texts) for some in lists) == 1000
    assert lists[0].scores[:2] == [0.514045, 0.511602]
    references = [some.reference for some in lists]
    texts = [some.texts[some.first_best] for some in lists]
    bleu, wer = tuning.Bleu("none"), tuning.WordErrorRate()
    zeros = [np.zeros(len(some.texts)) for some in lists]
    for metric, expected in (
        (bleu, sacrebleu.corpus_bleu(texts, [references], tokenize="none", force=True).score),
        (wer, 100 * jiwer.wer(references, texts)),
    ):
        found = tuning.Lists(lists, zeros, zeros, tuning.counts_of(lists, metric))
        assert found.value(metric, found.first_best()) == pytest.approx(expected)
        best, first = (found.value(metric, x) for x in (found.oracle(metric), found.first_best()))
        assert metric.sign * best > metric.sign * first


@pytest.mark.parametrize("metric", [tuning.WordErrorRate(), tuning.Bleu()])
def test_metrics_are_those_of_their_packages(metric: Any) -> None:
    draw = np.random.default_rng(0)
    words = ["a", "b", "c", "d,", "e."]
    texts, references = (
        [" ".join(draw.choice(words, draw.integers(1, 12))) for _ in range(20)] for _ in range(2)
    )
    counts = [metric.counts(*pair) for pair in zip(references, texts, strict=True)]
    of_package = {
        "WER": lambda r, t: 100 * jiwer.wer(r, t),
        "BLEU": lambda r, t: sacrebleu.corpus_bleu(t, [r], force=True).score,
    }[metric.name]
    assert metric.value(sum(counts)) == pytest.approx(of_package(references, texts))
    if metric.name == "BLEU":
        expected = sacrebleu.sentence_bleu(texts[3], [references[3]]).score
        assert metric.of_sentence(counts[3]) == pytest.approx(expected)


@pytest.mark.parametrize("metric", [tuning.WordErrorRate(), tuning.Bleu("none")])
def test_the_weight_is_the_smallest_best_one(metric: Any) -> None:
    right, wrong = "a b c d e", "a x c y e"
    # The right one wins from 1 - w < w, w > .5, in the first list, and below w < .804 in the second.
    hypotheses = [
        [(wrong, 1.0, 0.0), (right, 0.0, 1.0)],
        [(right, 4.1, 0.0), (wrong, 0.0, 1.0)],
    ]
    lists = made(hypotheses, [right, right], metric)
    values = [lists.value(metric, lists.chosen(weight, False)) for weight in tuning.GRID]
    perfect = metric.value(metric.counts(right, right))
    assert [w for w, value in zip(tuning.GRID, values, strict=True) if value == perfect] == [
        0.55, 0.6, 0.65, 0.7, 0.75, 0.8
    ]  # fmt: skip
    assert tuning.tune(lists, metric, by_length=False) == 0.55
    assert lists.chosen(0.0, False) == lists.first_best() == [0, 0]
    assert lists.oracle(metric) == [1, 0]
    # Divided by 5 tokens each log-probability counts a fifth: from w > 5/6, and below w < .953.
    assert tuning.tune(lists, metric, by_length=True) == 0.85
    np.testing.assert_allclose(lists.combined(0, 0.85, True), [0.15, 0.17])
    said = tuning.table({"dev": lists}, {False: 0.55, True: 0.5}, metric, "tta").splitlines()
    half = metric.value(metric.counts(right, right) + metric.counts(right, wrong))
    rows = [line.rsplit(None, 1) for line in said[1:-1]]
    assert [name for name, _ in rows] == ["first pass", "tta, w = 0.55", "tta by length, w = 0.5", "oracle"]
    assert [float(value) for _, value in rows] == pytest.approx([half, perfect, half, perfect], abs=0.005)


def test_lists_without_references_are_chosen_from_but_not_judged() -> None:
    lists = tuning.Lists(
        [nbest.NBest("4", ["a", "b"], [1.0, 0.0], None)], [np.array([0.0, 3.0])], [np.array([1, 1])], None
    )
    assert lists.chosen(0.5, False) == [1]
    with pytest.raises(ValueError, match="list 4 has no reference"):
        tuning.tune(lists, tuning.WordErrorRate(), False)


def test_the_command(tmp_path: pathlib.Path) -> None:
    source = tiny_models.source(tiny_models.tokenizer(tmp_path), kind="tta")
    tiny_models.save(tmp_path / "run", source)
    words = ["the cat sat", "a dog runs", "the cat run on", "a mat sat"]
    for name, order in (("dev", (0, 1, 2, 3)), ("test", (3, 1, 0, 2))):
        rows = [f"{i} ||| {words[k]} ||| lm= 1 ||| {-j}" for i in range(2) for j, k in enumerate(order)]
        (tmp_path / name).write_text("\n".join(rows))
        (tmp_path / f"{name}.ref").write_text("the cat sat\na mat sat\n")
    arguments = ["--model=run", "--dev=dev", "--dev_references=dev.ref"]
    done = tiny_models.run(
        tmp_path, "rerank", *arguments, "--input=test", "--references=test.ref", "--output=out.jsonl"
    )
    assert done.returncode == 0, done.stderr
    log_probs = {text: one.log_prob for text, one in zip(words, Scorer(source).score(words), strict=True)}
    found = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    said = done.stdout.decode().splitlines()
    assert said[0].split() == ["WER", "dev", "test"]
    assert said[1].split() == ["first", "pass", "33.33", "33.33"]
    assert said[-1] == "dev 2 lists, test 2 lists"
    weights = [float(line.partition("w = ")[2].split()[0]) for line in said[2:4]]
    assert found[0]["text"] == found[1]["text"]
    for line in found:
        assert line["log_prob"] == pytest.approx(log_probs[line["text"]], abs=1e-4)
        scores = {
            (w, n): (1 - w) * line["first_pass"] + w * line["log_prob"] / n
            for w, n in zip(weights, (1, len(line["text"].split()) + ("runs" in line["text"])), strict=True)
        }
        assert any(line["score"] == pytest.approx(score, abs=1e-4) for score in scores.values())
        assert line["first_pass_rank"] == 1 - line["first_pass"]

    done = tiny_models.run(tmp_path, "rerank", *arguments, "--input=dev", "--output=out.jsonl")
    assert done.returncode == 2
    assert b"--dev and --input are one file" in done.stderr.splitlines()[-1]
