"""The comparison of models: its plan, its curves and tables, and the command, killed and gone on with."""

import csv
import itertools
import json
import pathlib
import re
import signal
import subprocess
import time
from typing import Any

import pytest
import small
import tiny_models

from bert_jax import config as config_lib
from bert_jax import workdir as workdir_lib
from bert_jax.comparison import curves, evaluation, heldout, plan, table, training
from bert_jax.comparison.plan import ComparisonError
from bert_jax.config import ConfigError
from bert_jax.data import files

RECIPE = tiny_models.ROOT / "configs" / "compare.py"
SIZE = plan.Size(steps=100, hidden=64, batch=4, seq_len=32, vocab_size=100)


def planned(root: pathlib.Path, *models: tuple[str, int], seeds: int = 1, **size: int) -> list[plan.Planned]:
    return plan.runs(RECIPE, root, models, seeds, plan.Size(**{**vars(SIZE), **size}))


def test_runs_differ_in_what_is_compared_alone(tmp_path: pathlib.Path) -> None:
    models = [("tta", 3), ("tta_mask", 3), ("tta_rope", 3), ("mlm", 3), ("causal_rope", 3), ("mlm", 6)]
    made = planned(tmp_path, *models, seeds=2)
    assert [run.name for run in made] == [
        f"{variant}-L{layers}-seed{seed}" for variant, layers in models for seed in (0, 1)
    ]
    assert [run.method for run in made[::2]] == ["tta", "tta", "tta", "pll", "causal", "pll"]
    flat = {run.name: config_lib.flatten(run.config) for run in made}
    may_differ = {
        "seed", "model.kind", "model.tta_query", "model.position", "model.mask", "model.layers",
        "objective.mlm.weight", "objective.tta.weight", "objective.causal.weight",
    }  # fmt: skip
    for a, b in itertools.combinations(flat.values(), 2):
        assert {key for key in a if a[key] != b[key]} <= may_differ
    of = flat["tta-L3-seed0"]
    assert (of["train.steps"], of["train.batch_size"], of["data.seq_len"], of["model.hidden_size"]) == (
        100, 4, 32, 64,
    )  # fmt: skip
    assert of["objective.tta.rate"] == 1.0 and of["model.position"] == "learned"
    assert of["checkpoint.every"] % of["train.log_every"] == 0
    assert config_lib.differing_keys(made[0].config, made[1].config) == ["seed: 1 -> 0"]


def test_which_models_there_are() -> None:
    assert plan.models(["a", "b"], ["c"], ["3", "6", "12"]) == [("a", 3), ("b", 3), ("c", 6), ("c", 12)]
    for arguments, message in (
        ((["a"], ["a"], ["3", "3"]), "a of 3 layers comes twice"),
        ((["a"], [], ["0"]), "--depths: '0': it must be a whole number from 1"),
        ((["a"], [], ["x"]), "--depths: 'x'"),
        (([], ["a"], ["3"]), "name no model"),
        ((["a"], [], []), "name no model"),
    ):
        with pytest.raises(ComparisonError, match=re.escape(message)):
            plan.models(*arguments)


def test_what_cannot_be_compared_is_refused(tmp_path: pathlib.Path) -> None:
    with pytest.raises(ComparisonError, match=r"variant 'bert': .* has tta, tta_mask"):
        planned(tmp_path, ("bert", 3))
    with pytest.raises(config_lib.ConfigError, match=r"data\.seq_len"):
        planned(tmp_path, ("tta", 3), seq_len=2)
    with pytest.raises(ComparisonError, match="there is no such file"):
        plan.runs(tmp_path / "none.py", tmp_path, [("tta", 3)], 1, SIZE)
    (tmp_path / "bare.py").write_text("VARIANTS = ()\n")
    with pytest.raises(ComparisonError, match="defines no get_config"):
        plan.runs(tmp_path / "bare.py", tmp_path, [("tta", 3)], 1, SIZE)
    (run,) = planned(tmp_path, ("tta", 3))
    workdir_lib.claim(run.workdir, run.config)
    (run.workdir / "checkpoints" / "10").mkdir(parents=True)
    assert planned(tmp_path, ("tta", 3), ("mlm", 3))[0].workdir == run.workdir
    with pytest.raises(ConfigError, match=r"another config \(.*train\.steps: 100 -> 200"):
        planned(tmp_path, ("tta", 3), steps=200)


def test_the_text_is_gathered_once_and_kept(tmp_path: pathlib.Path) -> None:
    text = tmp_path / "text"
    (text / "in").mkdir(parents=True)
    for name in ("b.txt", "in/a.md", "c.csv"):
        (text / name).write_text("Some words.\n")
    root = tmp_path / "out"
    plan.gather_text([str(text), str(text / "b.txt"), str(text / "in" / "*")], root)
    links = sorted((root / plan.TEXT).iterdir())
    assert [link.name for link in links] == ["00000-b.txt", "00001-a.md"]
    assert links[1].read_text() == "Some words.\n"
    plan.gather_text([str(text / "b.txt")], root)  # nothing was trained yet
    assert [link.name for link in (root / plan.TEXT).iterdir()] == ["00000-b.txt"]
    plan.keep_text(root, "one")
    plan.keep_text(root, "two")
    (root / plan.RUNS / "some").mkdir(parents=True)
    plan.gather_text([str(text / "b.txt")], root)
    with pytest.raises(ComparisonError, match="on other --text"):
        plan.gather_text([str(text)], root)
    plan.keep_text(root, "two")
    with pytest.raises(ComparisonError, match="has changed since"):
        plan.keep_text(root, "three")
    with pytest.raises(ComparisonError, match=r"must end in one of .txt"):
        plan.gather_text([str(text / "c.csv")], tmp_path / "other")
    with pytest.raises(files.CorpusError, match="no such file"):
        plan.gather_text([str(text / "none")], tmp_path / "other")


def test_curves_count_tokens_and_seconds_of_training(tmp_path: pathlib.Path) -> None:
    lines = [
        {"step": 10, "split": "train", "loss": 5.0, "tokens_per_second": 200.0, "step_seconds": 0.5},
        {"step": 10, "split": "eval", "loss": 5.5, "seconds": 99.0},
        {"step": 15, "split": "train", "loss": 4.0, "tokens_per_second": 100.0, "step_seconds": 1.0},
        {"step": 15, "split": "eval", "loss": 4.5},
    ]
    (run,) = planned(tmp_path, ("tta", 3))
    run.workdir.mkdir(parents=True)
    (run.workdir / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    expected = [
        (10, "train", 1000, 5.0, 5.0),
        (10, "eval", 1000, 5.0, 5.5),
        (15, "train", 1500, 10.0, 4.0),
        (15, "eval", 1500, 10.0, 4.5),
    ]
    assert curves.read(run.workdir) == [curves.Point(*each) for each in expected]
    assert curves.write([run], tmp_path) == {run.name: [curves.Point(*each) for each in expected]}
    rows = list(csv.reader((tmp_path / "curves.csv").read_text().splitlines()))
    assert rows[0] == ["model", "layers", "seed", "objective", "step", "split", "tokens", "seconds", "loss"]
    assert rows[1] == ["tta", "3", "0", "tta", "10", "train", "1000", "5.0", "5.0"]


def _row(model: str, seed: int, loss: float, **values: Any) -> dict[str, Any]:
    of_all = {"model": model, "layers": 3, "positions": "learned", "first_query": "", "seed": seed}
    return {**of_all, "parameters": 1234567, "updates": 100, "heldout_loss": loss, **values}


def test_the_table_keeps_quantities_apart(tmp_path: pathlib.Path) -> None:
    made = [
        _row("tta", 0, 4.0, pseudo_perplexity=50.0, stsb_pearson=0.5),
        _row("tta", 1, 5.0, pseudo_perplexity=70.0, stsb_pearson=0.5),
        _row("causal", 0, 3.0, perplexity=40.0, stsb_pearson=0.25),
        _row("causal", 1, 3.0, perplexity=40.0, stsb_pearson=0.25),
    ]
    lines = table.write(made, tmp_path, sentences=7).splitlines()
    assert lines == (tmp_path / "table.md").read_text().splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[:4]]
    assert cells[0] == [
        "model", "layers", "positions", "first query", "parameters", "updates", "held-out loss",
        "pseudo-perplexity", "perplexity", "STS-B, Pearson x 100",
    ]  # fmt: skip
    # Each quantity has a column of its own, and nothing is sorted by any.
    assert cells[2] == [
        "tta", "3", "learned", "", "1,234,567", "100", "4.500 ± 0.707", "60 ± 14.14", "", "50.0"
    ]  # fmt: skip
    assert cells[3] == ["causal", "3", "learned", "", "1,234,567", "100", "3.000", "", "40", "25.0"]
    notes = "\n".join(lines[4:])
    assert "are different quantities" in notes and "of 7 sentences" in notes and "over 2 seeds" in notes
    assert "left out: BLiMP (--blimp), re-ranking (--nbest)." in notes
    found = list(csv.DictReader((tmp_path / "table.csv").read_text().splitlines()))
    assert [(row["model"], row["seed"], row["pseudo_perplexity"], row["perplexity"]) for row in found] == [
        ("tta", "0", "50.0", ""), ("tta", "1", "70.0", ""), ("causal", "0", "", "40.0"),
        ("causal", "1", "", "40.0"),
    ]  # fmt: skip


def test_lists_of_one_input_are_on_one_side(tmp_path: pathlib.Path) -> None:
    for name, ids in (("a", "012"), ("b", "2103")):
        (tmp_path / name).write_text("".join(f"{i} ||| text {name} ||| -1\n" for i in ids))
    reference = tmp_path / "reference"
    reference.write_text("zero\none\ntwo\nthree\n")
    found = evaluation.read_lists([tmp_path / "a", tmp_path / "b"], reference, "none")
    assert [some.id for some in found.dev] == ["0", "2", "2", "0"]
    assert [some.id for some in found.test] == ["1", "1", "3"]
    assert found.test[-1].reference == "three" and found.tokenize == "none"
    with pytest.raises(ComparisonError, match="list 0 has no reference"):
        evaluation.read_lists([tmp_path / "a"], None, "none")
    (tmp_path / "one").write_text("1 ||| text ||| -1\n")
    with pytest.raises(ComparisonError, match="cannot be both"):
        evaluation.read_lists([tmp_path / "one"], reference, "none")


def test_sentences_are_of_the_held_out_tail(tmp_path: pathlib.Path) -> None:
    text = tmp_path / "text"
    text.mkdir()
    for name in "ab":
        said = [f"Sentence {name} {i:02d} is here. It {name} has {i:02d} words." for i in range(20)]
        (text / f"{name}.txt").write_text("\n\n".join(said))
    config = small.config(tmp_path, **{"data.holdout": "tail", "data.eval_fraction": 0.11})
    held_out = [
        said for name in "ab" for i in (18, 19)
        for said in (f"Sentence {name} {i:02d} is here.", f"It {name} has {i:02d} words.")
    ]  # fmt: skip
    assert heldout.draw(config, 100) == held_out
    some = heldout.draw(config, 5)
    assert len(some) == 5 and some == [text for text in held_out if text in some]
    assert heldout.draw(config, 5) == some


def test_a_failed_run_is_told(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = planned(tmp_path, ("tta", 3), ("mlm", 3))
    saved = tmp_path / "saved"

    def start(run: plan.Planned, recipe: Any, cores: list[int], lock: int) -> subprocess.Popen:
        run.workdir.mkdir(parents=True)
        if run.variant == "tta":
            (run.workdir / training.LOG).write_text("some\nerror: the loss is no number\n")
            return subprocess.Popen(["sh", "-c", "sleep 1; exit 2"])
        return subprocess.Popen(["sh", "-c", f"trap 'touch {saved}; exit' TERM; while :; do sleep .1; done"])

    monkeypatch.setattr(training, "_start", start)
    with training.alone(tmp_path) as lock, pytest.raises(ComparisonError) as raised:
        training.train(made, RECIPE, 2, lock)
    assert str(raised.value).startswith("tta-L3-seed0 failed: the loss is no number (all of it: ")
    assert saved.exists()  # the other one was stopped, and not killed


@pytest.mark.slow
def test_the_command_killed_and_gone_on_with(tmp_path: pathlib.Path) -> None:
    small.write_text(tmp_path / "text")
    (tmp_path / "pairs.jsonl").write_text(
        '{"sentence_good": "Bar kos.", "sentence_bad": "Kos kos lir.", "UID": "made"}\n' * 2
    )
    (tmp_path / "alike.tsv").write_text(
        "sentence1\tsentence2\tscore\nBar kos.\tKos lir.\t1\nBar.\tBar.\t5\nMuv new.\tNew.\t3\n"
    )
    (tmp_path / "nbest").write_text(
        "".join(f"{i} ||| bar kos lir muv {t} ||| -1\n" for i in (0, 1) for t in "xy")
    )
    (tmp_path / "reference").write_text("bar kos lir muv x\nbar kos lir muv y\n")
    arguments = [
        "--text=text", "--output=out", "--depths=1,2", "--variants=causal", "--deep_variants=tta",
        "--steps=4", "--hidden=16", "--batch=4", "--seq_len=32", "--vocab_size=150", "--sentences=20",
        "--blimp=pairs.jsonl", "--stsb=alike.tsv", "--jobs=1",
    ]  # fmt: skip
    words, keys = tiny_models.command(tmp_path, "compare", *arguments)
    keys["env"]["BERT_JAX_CACHE"] = str(tmp_path / "cache")
    first, second = (tmp_path / "out" / "runs" / name for name in ("causal-L1-seed0", "tta-L2-seed0"))
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, **keys)
    deadline = time.monotonic() + 600
    # Not before the run itself is at work: it writes its config.
    while process.poll() is None and not (second / "config.json").exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    _, said = process.communicate()
    assert process.returncode == -signal.SIGKILL, said.decode()
    before = (first / "result.json").stat().st_mtime_ns

    done = subprocess.run(words, capture_output=True, check=False, **keys)
    assert done.returncode == 0, done.stderr.decode()
    # What the killed one had begun went on without it, and was waited for.
    assert b"2 runs, 2 of them complete" in done.stderr, done.stderr.decode()
    assert (first / "result.json").stat().st_mtime_ns == before
    rows = list(csv.DictReader((tmp_path / "out" / "table.csv").read_text().splitlines()))
    assert [(row["model"], row["layers"], row["updates"]) for row in rows] == [
        ("causal", "1", "4"), ("tta", "2", "4")
    ]  # fmt: skip
    for row in rows:
        one, other = ("perplexity", "pseudo_perplexity")[:: 1 if row["model"] == "causal" else -1]
        assert float(row[one]) > 1 and not row[other]
        assert row["blimp_accuracy"] in ("0.0", "1.0") and -1 <= float(row["stsb_pearson"]) <= 1
        assert float(row["sentences_per_second"]) > 0
        assert "bleu_reranked" not in row
    points = list(csv.DictReader((tmp_path / "out" / "curves.csv").read_text().splitlines()))
    for name in ("tta", "causal"):
        mine = [point for point in points if point["model"] == name]
        assert [int(point["step"]) for point in mine] == [1, 1, 2, 2, 3, 3, 4, 4]
        for axis in ("tokens", "seconds"):
            values = [float(point[axis]) for point in mine]
            assert values == sorted(values) and values[0] > 0 and len(set(values)) == 4
    assert (tmp_path / "out" / "curves.png").read_bytes().startswith(b"\x89PNG")

    # With more data, what was found stays, and only what is new is found.
    kept = json.loads((first / evaluation.KEPT).read_text())
    size = plan.Size(steps=4, hidden=16, batch=4, seq_len=32, vocab_size=150)
    run, _ = plan.runs(RECIPE, tmp_path / "out", [("causal", 1), ("tta", 2)], 1, size)
    assert run.workdir == first
    sentences = heldout.draw(run.config, 20)
    lists = evaluation.read_lists([tmp_path / "nbest"], tmp_path / "reference", "none")
    found = evaluation.evaluate(run, evaluation.Data(sentences, None, None, lists))
    now = json.loads((first / evaluation.KEPT).read_text())
    assert {name: now[name] for name in kept} == kept and set(now) - set(kept) == {"reranking"}
    assert found["sentences_per_second"] == float(rows[0]["sentences_per_second"])
    assert found["perplexity"] == float(rows[0]["perplexity"])
    assert "blimp_accuracy" not in found
    assert found["bleu_oracle"] == pytest.approx(100.0)
    again = evaluation.evaluate(run, evaluation.Data(sentences[:-1], None, None, None))
    assert again["sentences_per_second"] != found["sentences_per_second"]

    done = tiny_models.run(tmp_path, "compare", *arguments, "--steps=5")
    assert done.returncode == 2
    assert "holds a run with another config (" in done.stderr.decode().splitlines()[-1]
