"""Similarity: poolings and correlations against NumPy, whatever the batch, and the command."""

import json
import pathlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny_models
from scipy import stats

from bert_jax.models.model import Model
from bert_jax.scoring import similarity, vectors

TEXTS = [
    "the cat sat",
    "",
    "a dog runs on the mat.",
    "the cat sat on a mat " * 5,
    "run",
    "the cats are running",
]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return tiny_models.tokenizer(tmp_path_factory.mktemp("vocabulary"))


@pytest.mark.parametrize(("kind", "heads"), [("tta", {}), ("encoder", {"has_pooler": True})])
def test_poolings_are_those_of_the_sentence_alone(tokenizer: Any, kind: str, heads: dict[str, Any]) -> None:
    source = tiny_models.source(tokenizer, heads=heads, kind=kind)
    embedder = vectors.Embedder(source, batch_tokens=64)
    assert embedder.poolings == (vectors.POOLINGS if heads else vectors.POOLINGS[:-1])
    found = np.stack(list(embedder.vectors(TEXTS)))
    assert embedder.cut == 1

    @jax.jit
    def states(params: Any, batch: dict[str, jax.Array]) -> tuple[jax.Array, Any]:
        model = Model(source.spec)
        hidden = model.apply({"params": params}, batch, method="hidden")
        pooler = params.get("pooler", {}).get("dense")
        return hidden, pooler and jnp.tanh(hidden[:, 0] @ pooler["kernel"] + pooler["bias"][None])

    for text, ours in zip(TEXTS, found, strict=True):
        ids = tokenizer.encode(text).ids
        ids = ids if len(ids) <= 20 else [*ids[:19], tokenizer.sep_id]
        segments = np.array([[1] * len(ids) + [0] * (20 - len(ids))])
        batch = {"tokens": np.array([[*ids, *[0] * (20 - len(ids))]]), "segment_ids": segments}
        hidden, pooled = jax.device_get(states(source.params, batch))
        hidden = hidden[0, : len(ids)]
        own = hidden[1:-1] if text else np.zeros((1, 16))
        expected = [own.mean(0), hidden.mean(0), hidden[0], own.max(0), *([pooled[0]] if heads else [])]
        np.testing.assert_allclose(ours, expected, rtol=0, atol=1e-4)

    few = vectors.Embedder(source, ["max", "mean"], batch_tokens=1000)
    np.testing.assert_allclose(
        np.stack(list(few.vectors(TEXTS[::-1]))), found[::-1, [3, 0]], rtol=0, atol=1e-4
    )
    with pytest.raises(ValueError, match="pooling middle: the model has mean, "):
        vectors.Embedder(source, ["middle"])


def test_cosines() -> None:
    a, b = np.array([[1.0, 0], [3, 4], [0, 0]]), np.array([[1.0, 1], [-6, -8], [1, 2]])
    np.testing.assert_allclose(vectors.cosines(a, b), [0.5**0.5, -1, 0], atol=1e-12)


def test_sts_b_is_read(test_data: pathlib.Path) -> None:
    pairs = similarity.read(test_data / "glue" / "STS-B" / "dev.tsv", "sentence1", "sentence2", "score")
    assert len(pairs) == 1500
    assert pairs[1] == ("A young child is riding a horse.", "A child is riding a horse.", 4.75)


def test_the_command(tmp_path: pathlib.Path, tokenizer: Any) -> None:
    source = tiny_models.source(tokenizer, kind="tta")
    tiny_models.save(tmp_path / "run", source)
    draw = np.random.default_rng(0)
    rows = [
        [" ".join(draw.choice(tiny_models.WORDS[:5], draw.integers(1, 9))) for _ in range(2)]
        for _ in range(30)
    ]
    gold = draw.uniform(0, 5, 30).round(2)
    lines = [f'{n}\t{a}\t"{b}\t{g}' for n, ((a, b), g) in enumerate(zip(rows, gold, strict=True))]
    (tmp_path / "pairs.tsv").write_text("\n".join(["n\tleft\tright\tgold", *lines]))
    columns = ["--first=left", "--second=right", "--gold=gold"]
    done = tiny_models.run(
        tmp_path, "similarity", "--model=run", "--input=pairs.tsv", *columns, "--output=out.jsonl"
    )
    assert done.returncode == 0, done.stderr
    found = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [(x["first"], x["second"], x["gold"]) for x in found] == [
        (a, '"' + b, g) for (a, b), g in zip(rows, gold, strict=True)
    ]
    embedder = vectors.Embedder(source, ["mean", "first"])
    a, b = (np.stack(list(embedder.vectors([x[side] for x in found]))) for side in ("first", "second"))
    table = {line.split()[0]: line.split()[1:] for line in done.stdout.decode().splitlines()}
    for i, name in enumerate(embedder.poolings):
        dots = (a[:, i] * b[:, i]).sum(1)
        cosine = dots / np.sqrt((a[:, i] ** 2).sum(1) * (b[:, i] ** 2).sum(1))
        np.testing.assert_allclose([x["cosine"][name] for x in found], cosine, rtol=0, atol=1e-5)
        pearson = np.corrcoef(cosine, gold)[0, 1]
        spearman = np.corrcoef(stats.rankdata(cosine), stats.rankdata(gold))[0, 1]
        assert [float(x) for x in table[name]] == pytest.approx([100 * pearson, 100 * spearman], abs=0.006)
    assert table.keys() == {"pooling", "mean", "mean_with_ends", "first", "max", "30"}

    done = tiny_models.run(tmp_path, "similarity", "--model=run", "--input=pairs.tsv", *columns[:2])
    assert done.returncode == 2
    assert b"there is no column 'score', but 'n', 'left'" in done.stderr.splitlines()[-1]
