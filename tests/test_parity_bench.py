"""The peer of the benchmarks does the same work as ours, or a comparison of speeds says nothing."""

import json
import sys
import warnings

import numpy as np
import pytest
import small
import tiny_models

from bert_jax import convert, train
from bert_jax.benchmarks import finetuning, scoring, training
from bert_jax.benchmarks import peer as peer_lib
from bert_jax.interop import load
from bert_jax.scoring import Scorer

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # theirs, not ours
    pytest.importorskip("torch", reason="PyTorch is not installed: bash launch/test.sh --parity")
    pytest.importorskip("transformers", reason="it is not installed: bash launch/test.sh --parity")


def test_stock_and_gathered_have_the_same_loss(tmp_path):
    config = small.config(tmp_path, **{"objective.nsp.weight": 1.0})
    config.model.dropout = config.model.attention_dropout = 0.0
    result = training.measure(config, rounds=1, steps=1, peers=("stock", "gathered"), python=sys.executable)
    assert result["ratio_stock"] > 0
    assert result["ratio_gathered_spread"] == [result["ratio_gathered"]] * 2
    run = training.build.build(*training.completion.complete(config, None))
    phase = run.phases[0]
    with peer_lib.Peer(sys.executable) as peer:
        given = peer.give([phase.train.batch(i, np.arange(phase.train.batch_size)) for i in range(4)])
        losses = {}
        for kind in ("stock", "gathered"):
            training._theirs(peer, kind, config, phase, given, 1)
            losses[kind] = [peer.ask("steps", name=kind, count=1)["loss"] for _ in range(6)]
    np.testing.assert_allclose(losses["stock"], losses["gathered"], rtol=1e-5)
    assert losses["stock"][-1] < losses["stock"][0]


def test_fine_tuning_starts_from_the_same_weights_and_learns_as_ours_does(tmp_path):
    pretraining = small.config(tmp_path, **{"train.steps": 1})
    train.train(pretraining, tmp_path / "run")
    source = load.read(tmp_path / "run")
    convert.convert(source, tmp_path / "run", tmp_path / "hf", "hf")
    data = tmp_path / "data"
    data.mkdir()
    draw = np.random.default_rng(0)
    for name, rows in (("train", 64), ("dev", 32)):
        lines = ["text\tlabel"]
        for _ in range(rows):
            words = draw.choice(["basr", "kost", "list"], 4)
            lines.append(f"{' '.join(words)}\t{'yes' if 'basr' in words[:2] else 'no'}")
        (data / f"{name}.tsv").write_text("\n".join(lines) + "\n")
    config = small.config(tmp_path, **{
        "task.name": "classification", "task.text": "text", "task.label": "label", "data.path": str(data),
        "init_from": str(tmp_path / "hf"), "data.source": "text", "train.steps": 40,
        "optimizer.learning_rate": 3e-3, "data.eval_fraction": 0.0,
    })  # fmt: skip
    summary = finetuning.measure(
        config, tmp_path / "bench", seeds=2, peers=("transformers",), python=sys.executable
    )
    assert [len(summary[side]["values"]) for side in ("ours", "transformers")] == [2, 2]
    assert summary["ours"]["mean"] > 0.8 and summary["transformers"]["mean"] > 0.8
    assert summary["difference"] == pytest.approx(summary["ours"]["mean"] - summary["transformers"]["mean"])
    kept = json.loads((tmp_path / "bench" / "transformers" / "0.json").read_text())
    assert kept["accuracy"] == summary["transformers"]["values"][0]
    again = finetuning.measure(
        config, tmp_path / "bench", seeds=2, peers=("transformers",), python=sys.executable
    )
    assert again == summary  # nothing is trained again


def test_a_worker_that_fails_says_why():
    with peer_lib.Peer(sys.executable) as peer, pytest.raises(peer_lib.PeerError, match="KeyError"):
        peer.ask("steps", name="none", count=1)


def test_masked_scores_are_the_same_on_both_sides(tmp_path):
    tokenizer = tiny_models.tokenizer(tmp_path)
    made = tiny_models.source(tokenizer)
    tiny_models.save(tmp_path / "run", made)
    done = tiny_models.run(tmp_path, "convert", "--source=run", "--target=hf", "--format=hf")
    assert done.returncode == 0, done.stderr.decode()
    texts = ["the cat sat on a mat .", "a dog runs", "running"]
    expected = sum(scored.log_prob for scored in Scorer(made).score(texts))
    with peer_lib.Peer(sys.executable) as peer:
        for budget in (12, 1000):
            given = peer.give(scoring.masked_batches(tokenizer, texts, 20, budget))
            peer.ask(
                "load_scorer", name="one", config={}, batches=given, threads=1, weights=str(tmp_path / "hf")
            )
            assert peer.ask("score", name="one")["log_prob"] == pytest.approx(expected, abs=1e-3)
    config = small.config(tmp_path, **{"data.tokenizer": str(tmp_path / "vocab.txt")})
    result = scoring.measure(config, texts, rounds=1, peers=("transformers",), python=sys.executable)
    speeds = result["sentences_per_second"]
    assert result["ratio_transformers"] == pytest.approx(speeds["tta"] / speeds["transformers"])
    assert result["ratio_transformers_mlm_spread"] == [result["ratio_transformers_mlm"]] * 2
