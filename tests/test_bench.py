"""What the benchmarks count and compare; no speed is asserted."""

import csv
import dataclasses
import json

import numpy as np
import pytest
import small
import tiny_models

from bert_jax import benchmarks, build, completion, flops
from bert_jax.benchmarks import curves, inputs, peer, preparation, scoring, training
from bert_jax.data import corpus
from bert_jax.flags import UsageError
from bert_jax.models import spec as spec_lib
from bert_jax.scoring import cost


def test_every_round_asks_all_in_turn():
    asked = []

    def contender(name, seconds):
        def measure():
            asked.append(name)
            return next(seconds)

        return measure

    found = benchmarks.in_turns(
        {
            "ours": contender("ours", iter([1.0, 2.0, 4.0])),
            "theirs": contender("theirs", iter([3.0, 3.0, 8.0])),
        },
        rounds=3,
    )  # fmt: skip
    assert asked == ["ours", "theirs"] * 3
    assert found == {"ours": [1.0, 2.0, 4.0], "theirs": [3.0, 3.0, 8.0]}
    assert benchmarks.ratios(found["ours"], found["theirs"]) == {"median": 2.0, "lowest": 1.5, "highest": 3.0}


def test_the_train_step_is_measured_by_the_models_own_flops(tmp_path):
    config = small.config(tmp_path)
    result = training.measure(config, rounds=2, steps=2)
    length, size = config.data.seq_len, config.train.batch_size
    spec = spec_lib.from_config(config.model, vocab_size=109, mask_id=4)  # all that the text gives
    assert result["model_flops"] == flops.train_step(spec, size, length, result["predictions"])
    assert result["tokens_per_second"] == pytest.approx(size * length / result["step_seconds"])
    run = build.build(*completion.complete(config, None))
    batches = [run.phases[0].train.batch(i, np.arange(size)) for i in range(8)]
    real = np.mean([batch["segment_ids"] > 0 for batch in batches])
    assert 0 < real < 1
    assert result["real_tokens_per_second"] == pytest.approx(real * result["tokens_per_second"])
    low, high = result["peak_share_spread"]
    assert 0 < low <= result["peak_share"] <= high
    assert "peers" not in result


def test_the_pipeline_is_measured_by_the_rows_that_it_made(tmp_path):
    config = small.config(tmp_path)
    result = inputs.measure(config, rounds=2, steps=3)
    places = config.data.seq_len * config.train.batch_size
    each = result["tokens_per_second"] / result["examples_per_second"]
    assert each == pytest.approx(places / config.train.batch_size, rel=0.5)  # medians of two rounds each
    assert result["core_seconds_per_token"] > 0 and result["batch_size"] == config.train.batch_size


def test_curves_have_a_point_for_each_value(tmp_path):
    config = small.config(tmp_path, **{"model.layers": 1})
    length = 2 * config.data.seq_len
    values = {"B": [2], "S": [length], "L": []}
    result = curves.measure(config, values, ("dense", "blocks"), tmp_path / "out", rounds=1, steps=1)
    points = {(p["axis"], p["value"], p["kernel"]): p for p in result["points"]}
    assert [*points] == [("B", 2, "auto"), ("S", length, "dense"), ("S", length, "blocks")]
    assert all(p["step_seconds"] > 0 and p["temporary_bytes"] > 0 for p in points.values())
    places = [round(p["tokens_per_second"] * p["step_seconds"]) for p in points.values()]
    size = config.train.batch_size
    assert places == [2 * config.data.seq_len, size * length, size * length]
    assert len({p["model_flops"] for p in points.values()}) == 2  # the kernel changes none
    with (tmp_path / "out" / "curves.csv").open() as table:
        assert [row["axis"] for row in csv.DictReader(table)] == ["B", "S", "S"]
    assert (tmp_path / "out" / "curves.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("given", (["0"], ["x"], ["4", "-1"]))
def test_values_of_curves_are_numbers(given):
    with pytest.raises(UsageError, match=r"--lengths=.*whole numbers above 0"):
        curves.read_values("lengths", given)


def test_preparation_is_timed_over_sizes(tmp_path):
    config = small.config(tmp_path, **{"data.vocab_size": 120})
    whole = sum(len(p.text.encode()) + 2 for p in corpus.paragraphs(config))
    sizes = [whole / 2e6, whole * 2.5 / 1e6]  # the text begins again for the second
    result = preparation.measure(config, sizes, tmp_path / "out")
    first, second = result["points"]
    assert whole / 2 <= first["megabytes"] * 1e6 < whole / 2 + whole / 6
    assert 2.5 * whole <= second["megabytes"] * 1e6 < 2.7 * whole
    per_byte = [point["tokens"] / point["megabytes"] for point in (first, second)]
    assert per_byte[0] == pytest.approx(per_byte[1], rel=0.05)
    assert all(p["tokens_per_second"] == p["tokens"] / p["seconds"] > 0 for p in (first, second))
    rows = list(csv.DictReader((tmp_path / "out" / "prepare.csv").read_text().splitlines()))
    assert [{k: float(v) for k, v in row.items()} for row in rows] == [first, second]
    assert (tmp_path / "out" / "prepare.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("sizes", ["", "3,1", "0,1", "1,x", "nan"])
def test_sizes_must_rise(sizes):
    with pytest.raises(UsageError, match="rising numbers above 0"):
        preparation.read_sizes(sizes.split(","))


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"position": "rotary"}, "model.position"),
        ({"gated": True}, "model.gated"),
        ({"kind": "tta"}, "model.kind"),
    ],
)
def test_a_model_that_the_peer_lacks_is_refused(tmp_path, change, named):
    config = small.config(tmp_path).model
    config.update(change)
    with pytest.raises(UsageError, match=named):
        peer.bert_config(spec_lib.from_config(config, vocab_size=200, mask_id=4))


def test_the_command_prints_and_writes_json(tmp_path):
    config = small.write(small.config(tmp_path), tmp_path / "config.py")
    done = tiny_models.run(
        tmp_path, "bench", f"--config={config}", "--rounds=1", "--steps=1", f"--output={tmp_path / 'r.json'}"
    )
    assert done.returncode == 0, done.stderr.decode()
    assert json.loads(done.stdout) == json.loads((tmp_path / "r.json").read_text())


def test_an_absent_peer_is_told_with_the_mend(tmp_path):
    config = small.write(small.config(tmp_path), tmp_path / "config.py")
    done = tiny_models.run(
        tmp_path, "bench", f"--config={config}", "--peer=transformers", f"--peer_python={tmp_path / 'none'}"
    )
    assert done.returncode == 2
    assert (
        done.stderr.decode()
        .splitlines()[-1]
        .startswith("error: --peer=transformers needs a Python with torch")
    )


def test_scoring_is_measured_beside_what_the_products_allow(tmp_path):
    tokenizer = tiny_models.tokenizer(tmp_path)
    config = small.config(tmp_path, **{"data.tokenizer": str(tmp_path / "vocab.txt"), "data.lowercase": True})
    texts = ["the cat sat on a mat", "", "a dog runs", "the " * 40]
    result = scoring.measure(config, texts, rounds=2)
    spec = spec_lib.from_config(config.model, vocab_size=tokenizer.vocab_size, mask_id=4)
    tta = dataclasses.replace(spec, kind="tta")
    assert result["sentences"] == 2 and result["tokens"] == 6 + 4
    assert result["ceiling"] == cost.ceiling(tta, spec, [6, 4]) > 1
    assert result["ceiling_share"] == pytest.approx(result["ratio"] / result["ceiling"])
    low, high = result["ratio_spread"]
    assert 0 < low <= result["ratio"] <= high
    assert set(result["sentences_per_second"]) == {"tta", "mlm"}
    with pytest.raises(UsageError, match="no line has tokens"):
        scoring.measure(config, ["", " "], rounds=1)
    config.data.tokenizer = ""
    with pytest.raises(UsageError, match="needs a vocabulary"):
        scoring.measure(config, texts, rounds=1)


def test_the_peer_gets_all_masked_copies_in_padded_batches(tmp_path):
    tokenizer = tiny_models.tokenizer(tmp_path)
    the, cat, sat, mask, pad = (
        tiny_models.VOCABULARY.index(t) for t in ("the", "cat", "sat", "[MASK]", "[PAD]")
    )
    start, end = tokenizer.cls_id, tokenizer.sep_id
    one, two = scoring.masked_batches(tokenizer, ["sat", "the cat"], 20, budget=8)
    assert one["tokens"].tolist() == [[start, mask, cat, end], [start, the, mask, end]]
    assert one["places"].tolist() == [1, 2] and one["targets"].tolist() == [the, cat]
    assert two["tokens"].tolist() == [[start, mask, end]]
    assert two["targets"].tolist() == [sat]
    (whole,) = scoring.masked_batches(tokenizer, ["sat", "the cat"], 20, budget=100)
    assert whole["tokens"].tolist() == [*one["tokens"].tolist(), [start, mask, end, pad]]
    assert whole["segment_ids"].tolist() == [[1] * 4, [1] * 4, [1, 1, 1, 0]]
    assert scoring.masked_batches(tokenizer, ["the cat"], 20, budget=1)[1]["places"].tolist() == [2]


def test_fine_tuning_needs_a_place(tmp_path):
    config = small.write(small.config(tmp_path), tmp_path / "config.py")
    done = tiny_models.run(tmp_path, "bench", "--what=finetune", f"--config={config}")
    assert done.returncode == 2
    assert b"error: --what=finetune needs --workdir" in done.stderr
    done = tiny_models.run(tmp_path, "bench", "--what=scoring", f"--config={config}")
    assert done.returncode == 2
    assert b"error: --what=scoring needs --input" in done.stderr
