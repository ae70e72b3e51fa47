"""A search: each member is what it is alone, however many train in one program and whatever ends some."""

import json
import os
import pathlib
import shutil
import signal
from typing import Any

import jax
import numpy as np
import pytest
import small
import tasks_data
from ml_collections import ConfigDict

from bert_jax import checkpoint, sweep, sweep_table, tasks, train, trees
from bert_jax import config as config_lib
from bert_jax.config import ConfigError
from bert_jax.data import tokenizer as tokenizer_lib
from bert_jax.interop import load

RATES = (1e-3, 1e-2)
MEMBERS = [(seed, rate) for rate in RATES for seed in (3, 4)]
SEARCH = {"seed": 3, "sweep.seeds": 2, "sweep.learning_rate": RATES, "sweep.together": 8}


def config(folder: pathlib.Path, **keys: Any) -> ConfigDict:
    """A classification of two words by their order, by a tiny model with dropout; keys as "group.key"."""
    data = folder / "data"
    if not data.exists():
        data.mkdir()
        lines = [
            f"{x} {y} c{' d' * (n % 7)},{int(x < y)}\n" for n in range(5) for x in "abcd" for y in "abcd"
        ]
        (data / "train.csv").write_text("say,kind\n" + "".join(lines[::2]))
        (data / "dev.csv").write_text("say,kind\n" + "".join(lines[1::8]))
        tasks_data.tokenizer(data)
    c = config_lib.default()
    values = {
        "task.name": "classification", "task.text": "say", "task.label": "kind", "data.path": str(data),
        "data.tokenizer": str(data / "vocab.txt"), "data.lowercase": True, "data.seq_len": 12,
        "data.workers": 1, "model.hidden_size": 8, "model.layers": 1, "model.heads": 2,
        "model.feed_forward_size": 16, "model.max_positions": 12, "model.init_std": 0.2, "train.steps": 8,
        "train.batch_size": 4, "train.eval_every": 4, "train.log_every": 1, "checkpoint.every": 3,
        "checkpoint.keep": 1, "optimizer.warmup_steps": 2,
        "train.compilation_cache": str(folder.parent / "compiled"), **keys,
    }  # fmt: skip
    for key, value in values.items():
        group, _, leaf = key.rpartition(".")
        (c[group] if group else c)[leaf] = value
    config_lib.validate(c)
    return c


def lines(workdir: pathlib.Path, split: str) -> list[dict[str, Any]]:
    return [line for line in small.metrics(workdir) if line["split"] == split]


def assert_alike(member: pathlib.Path, alone: pathlib.Path) -> None:
    """The same curves, parameters, checkpoints, config and answers."""
    for split in ("train", "eval"):
        a, b = lines(alone, split), lines(member, split)
        assert [x["step"] for x in a] == [x["step"] for x in b]
        for name in ("loss", "task_loss", "grad_norm", "learning_rate", "accuracy"):
            if name in a[0]:
                np.testing.assert_allclose([x[name] for x in b], [x[name] for x in a], rtol=0, atol=1e-5)
    assert (member / "config.json").read_text() == (alone / "config.json").read_text()
    for name in ("checkpoints", "predictions"):
        found = [sorted(file.name for file in (folder / name).iterdir()) for folder in (member, alone)]
        assert found[0] == found[1]
    a, b = (checkpoint.read_params(folder / "checkpoints") for folder in (alone, member))
    # A key's bias has no gradient but for rounding, of which Adam makes steps of the learning rate's size.
    jax.tree.map(lambda x, y: np.testing.assert_allclose(y, x, rtol=0, atol=1e-4), a, b)
    results = [json.loads((folder / "result.json").read_text()) for folder in (member, alone)]
    assert results[0].keys() == results[1].keys()
    assert results[0]["value"] == results[1]["value"]


def assert_same_bits(a: pathlib.Path, b: pathlib.Path, count: int = 4) -> None:
    for number in range(count):
        x, y = (checkpoint.read_params(root / "members" / str(number) / "checkpoints") for root in (a, b))
        jax.tree.map(np.testing.assert_array_equal, x, y)
        ends = [json.loads((root / f"members/{number}/result.json").read_text())["loss"] for root in (a, b)]
        assert ends[0] == ends[1]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    return tmp_path_factory.mktemp("search")


@pytest.fixture(scope="module")
def searched(folder: pathlib.Path) -> tuple[pathlib.Path, dict[str, Any]]:
    """A search of two seeds and two rates in one program."""
    jax.config.update("jax_disable_most_optimizations", True)
    return folder / "run", train.train(config(folder, **SEARCH), folder / "run")


def test_each_member_is_what_it_is_alone(folder, searched) -> None:
    root, _ = searched
    for number in (1, 2):  # another seed than the first's, and another rate
        seed, rate = MEMBERS[number]
        alone = config(folder, **{"seed": seed, "optimizer.learning_rate": rate})
        train.train(alone, folder / f"alone{number}")
        assert_alike(root / "members" / str(number), folder / f"alone{number}")
        # Its directory is that of a run that is complete.
        before = (root / f"members/{number}/metrics.jsonl").read_text()
        assert train.train(alone, root / "members" / str(number))["steps"] == 8
        assert (root / f"members/{number}/metrics.jsonl").read_text() == before
    curves = {tuple(x["loss"] for x in lines(root / "members" / str(n), "train")) for n in range(4)}
    assert len(curves) == 4


def test_the_result_tells_members_settings_and_the_best(searched) -> None:
    root, result = searched
    assert result == json.loads((root / "result.json").read_text())
    told = [(m["member"], m["seed"], m["learning_rate"], m["batch_size"]) for m in result["members"]]
    assert told == [(n, seed, rate, 4) for n, (seed, rate) in enumerate(MEMBERS)]
    values = np.array([m["value"] for m in result["members"]]).reshape(2, 2)
    own = [json.loads((root / f"members/{n}/result.json").read_text()) for n in range(4)]
    assert values.ravel().tolist() == [each["accuracy"] for each in own]
    for setting, rate, of_it in zip(result["settings"], RATES, values, strict=True):
        assert setting["learning_rate"] == rate
        assert setting["value"] == pytest.approx(of_it.mean())
        assert setting["std"] == pytest.approx(of_it.std(ddof=1))
        assert (setting["seeds"], setting["failed"]) == (2, 0)
    chosen = int(values.mean(axis=1).argmax())
    assert result["value"] == pytest.approx(values[chosen].mean())
    assert result["loss"] == pytest.approx(np.mean([each["loss"] for each in own[2 * chosen :][:2]]))
    assert result["best"] == result["members"][int(values.argmax())]


def test_the_directory_opens_the_best_member(searched) -> None:
    root, result = searched
    source = load.read(root)
    best = root / "members" / str(result["best"]["member"])
    jax.tree.map(
        np.testing.assert_array_equal,
        source.params,
        checkpoint.read_params(best / "checkpoints", "best"),
    )
    assert source.labels == ("0", "1")
    with pytest.raises(load.ModelDirectoryError, match="holds no model"):
        load.read(root / "members")


def test_the_table_by_hand() -> None:
    def row(member: int, rate: float, value: float | None, **more: Any) -> dict[str, Any]:
        result = {"task": "cola", "metric": "mcc", "value": value, "steps": 9, "seconds": 1.5, **more}
        setting = {"learning_rate": rate, "batch_size": 32, "epochs": 3.0}
        return {"member": member, "seed": member % 2, **setting, "result": result}

    rows = [row(0, 2e-5, 0.25, loss=1.0), row(1, 2e-5, 0.35, loss=2.0), row(2, 5e-5, 0.9, loss=3.0)]
    rows.append(row(3, 5e-5, None, failed="loss = nan in step 4: nothing was saved"))
    found = sweep_table.summary(rows)
    # The setting with a failure has the higher mean, and is not chosen.
    assert (found["value"], found["loss"], found["seconds"]) == (pytest.approx(0.3), 1.5, 6.0)
    assert found["std"] == pytest.approx(0.0707107, rel=1e-5)
    assert found["best"]["member"] == 2
    assert [s["value"] for s in found["settings"]] == [pytest.approx(0.3), 0.9]
    assert [(s["std"] is None, s["failed"]) for s in found["settings"]] == [(False, 0), (True, 1)]
    assert found["members"][3]["value"] is None
    assert sweep_table.table(found) == [
        "member  seed learning rate  batch  epochs           mcc",
        "     0     0         2e-05     32       3        0.2500",
        "     1     1         2e-05     32       3        0.3500",
        "     2     0         5e-05     32       3        0.9000",
        "     3     1         5e-05     32       3             -  failed: loss = nan in step 4",
        "setting      learning rate  batch  epochs      mean mcc  deviation  seeds",
        "                     2e-05     32       3        0.3000     0.0707      2",
        "                     5e-05     32       3        0.9000          -      2  1 failed",
        "mcc 0.3000 +- 0.0707, the best of 2 settings and chosen on the same data",
        "best member: 2, seed 0, learning rate 5e-05, batch 32, epochs 3: mcc 0.9000; the search's directory "
        "opens its model",
    ]
    for each in rows:  # of a loss the least is best
        each["result"]["metric"] = "loss"
    assert sweep_table.summary(rows)["best"]["member"] == 0
    with pytest.raises(ValueError, match=r"every member of the search has failed; the first: loss = nan"):
        sweep_table.summary(rows[3:])


def test_a_search_that_is_told_to_stop_goes_on_to_the_same_bits(folder, searched, monkeypatch) -> None:
    write = train.log_lib.Log.write

    def write_and_stop(self: Any, step: int, *rest: Any) -> None:
        write(self, step, *rest)
        if step == 5 and "member 1" in self._name:
            os.kill(os.getpid(), signal.SIGTERM)

    with monkeypatch.context() as patch:
        patch.setattr(train.log_lib.Log, "write", write_and_stop)
        with pytest.raises(SystemExit) as exit_info:
            train.train(config(folder, **SEARCH), folder / "stopped")
    assert exit_info.value.code == 128 + signal.SIGTERM
    for number in range(4):
        assert (folder / f"stopped/members/{number}/checkpoints/5").is_dir()
    assert not (folder / "stopped" / "result.json").exists()
    with pytest.raises(load.ModelDirectoryError, match="a search without a result"):
        load.read(folder / "stopped")
    result = train.train(config(folder, **SEARCH), folder / "stopped")
    assert result["value"] == searched[1]["value"]
    assert_same_bits(folder / "stopped", searched[0])


def test_a_search_that_died_while_it_saved_goes_on_from_what_all_have(folder, searched, monkeypatch) -> None:
    save = checkpoint.Checkpoints.save

    class DeadError(Exception):
        pass

    def save_or_die(self: Any, step: int, *rest: Any) -> None:
        if step == 6 and self._directory.parent.name == "2":
            raise DeadError
        save(self, step, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint.Checkpoints, "save", save_or_die)
        with pytest.raises(DeadError):
            train.train(config(folder, **SEARCH), folder / "died")
    saved = [
        {int(step.name) for step in (folder / f"died/members/{n}/checkpoints").iterdir()} for n in range(4)
    ]
    assert [6 in steps for steps in saved] == [True, True, False, False]
    assert all(3 in steps for steps in saved)  # though only one is to be kept
    train.train(config(folder, **SEARCH), folder / "died")
    assert_same_bits(folder / "died", searched[0])
    for number in range(4):
        steps = [line["step"] for line in lines(folder / f"died/members/{number}", "train")]
        assert steps == list(range(1, 9))
        kept, whole = (sorted(os.listdir(r / f"members/{number}/checkpoints")) for r in
                       (folder / "died", searched[0]))  # fmt: skip
        assert kept == whole


def test_what_is_complete_is_not_trained_again(folder, searched, caplog) -> None:
    root = folder / "part"
    shutil.copytree(searched[0], root)
    (root / "result.json").unlink()
    (root / "members/3/result.json").unlink()
    shutil.rmtree(root / "members/3/checkpoints")
    trained = []

    def spy(configs: Any, workdirs: Any, names: Any) -> Any:
        trained.extend(workdirs)
        return train.train_together(configs, workdirs, names)

    result = sweep.run(config(folder, **SEARCH), root, spy)
    assert [path.name for path in trained] == ["3"]
    assert [m["value"] for m in result["members"]] == [m["value"] for m in searched[1]["members"]]
    again = sweep.run(config(folder, **{**SEARCH, "sweep.keep": "best", "sweep.together": 1}), root, spy)
    assert [path.name for path in trained] == ["3"]
    best = again["best"]["member"]
    assert [(root / f"members/{n}/checkpoints").exists() for n in range(4)] == [n == best for n in range(4)]
    load.read(root)
    # And those without their checkpoints are still complete.
    assert sweep.run(config(folder, **{**SEARCH, "sweep.keep": "best"}), root, spy) == again
    assert [path.name for path in trained] == ["3"]
    with pytest.raises(ConfigError, match=r"another config \(sweep.learning_rate: \(0.001, 0.01\) ->"):
        train.train(config(folder, **{**SEARCH, "sweep.learning_rate": (0.5,)}), root)


@pytest.mark.parametrize("together", [8, 1])
def test_one_that_fails_ends_alone(folder, searched, together) -> None:
    root = folder / f"failed{together}"
    bad = {**SEARCH, "sweep.seeds": 1, "sweep.learning_rate": (1e-3, 1e38, 1e-2), "optimizer.clip": 0.0}
    bad |= {"sweep.together": together}
    result = train.train(config(folder, **bad), root)
    assert [m["value"] is None for m in result["members"]] == [False, True, False]
    assert "in step" in result["members"][1]["failed"]
    assert [s["failed"] for s in result["settings"]] == [0, 1, 0]
    assert result["best"]["member"] != 1
    own = json.loads((root / "members/1/result.json").read_text())
    assert own["value"] is None
    assert own["failed"] == result["members"][1]["failed"]
    assert not [step for step in (root / "members/1/checkpoints").iterdir() if step.name == "8"]
    alone = config(folder, **{"seed": 3, "optimizer.learning_rate": 1e-2, "optimizer.clip": 0.0})
    train.train(alone, folder / "unclipped")
    assert_alike(root / "members/2", folder / "unclipped")
    before = (root / "members/1/result.json").stat().st_mtime_ns
    assert train.train(config(folder, **bad), root)["members"] == result["members"]
    assert (root / "members/1/result.json").stat().st_mtime_ns == before
    # Alone, it is not complete: it is trained again, and told so.
    alone = config(folder, **{"seed": 3, "optimizer.learning_rate": 1e38, "optimizer.clip": 0.0})
    with pytest.raises(train.TrainingError, match="in step"):
        train.train(alone, root / "members/1")


def test_each_ends_when_it_is_out_of_patience(folder, monkeypatch) -> None:
    evaluate = train.Evaluator.__call__

    def grown(self: Any, params: Any) -> dict[str, float]:
        """How far the biases are from 0, where they start: more with each of the first steps."""
        biases = [x for name, x in trees.named(params) if name.endswith("bias")]
        return evaluate(self, params) | {"accuracy": round(sum(float((x**2).sum()) for x in biases), 4)}

    monkeypatch.setattr(train.Evaluator, "__call__", grown)
    keys = {"train.eval_every": 1, "train.patience": 2, "checkpoint.every": 100}
    rates = (1e-12, 3e-2)  # the first gets no better
    search = {"seed": 3, "sweep.learning_rate": rates, "sweep.together": 2}
    train.train(config(folder, **keys, **search), folder / "patience")
    steps = []
    for number, rate in enumerate(rates):
        alone = config(folder, **keys, **{"seed": 3, "optimizer.learning_rate": rate})
        steps.append(train.train(alone, folder / f"patient{number}")["steps"])
        assert_alike(folder / f"patience/members/{number}", folder / f"patient{number}")
        own = json.loads((folder / f"patience/members/{number}/result.json").read_text())
        assert (own["steps"], own["stopped_early"]) == (steps[-1], steps[-1] < 8)
    assert steps[0] == 3 < steps[1]


def test_rows_of_other_lengths_train_by_seed(folder) -> None:
    c = config(folder, **{**SEARCH, "data.buckets": (8,)})
    members = sweep._members(c, folder / "buckets")
    assert [[m.number for m in group] for group in sweep._groups(c, members, 8)] == [[0, 2], [1, 3]]
    train.train(c, folder / "buckets")
    alone = config(folder, **{"seed": 4, "optimizer.learning_rate": RATES[1], "data.buckets": (8,)})
    train.train(alone, folder / "bucket")
    task = tasks.make(c, tokenizer_lib.load(c.data.tokenizer, lowercase=True))
    lengths = [
        [x.batch(step, np.arange(4))["tokens"].shape[1] for step in range(8)]
        for x in (task.train, task.train.seeded(4))
    ]
    assert {*lengths[0]} == {*lengths[1]} == {8, 12}
    assert lengths[0] != lengths[1]
    assert_alike(folder / "buckets/members/3", folder / "bucket")


def test_which_train_together(folder, monkeypatch) -> None:
    c = config(
        folder,
        **{
            **SEARCH,
            "sweep.batch_size": (4, 8),
            "sweep.epochs": (1, 2.5),
            "train.steps": 0,
            "train.epochs": 0.0,
        },
    )
    members = sweep._members(c, folder / "none")
    assert len(members) == 16
    own = [m.config for m in members]
    assert [(x.optimizer.learning_rate, x.train.batch_size, x.train.epochs, x.seed) for x in own[:5]] == [
        (1e-3, 4, 1.0, 3), (1e-3, 4, 1.0, 4), (1e-3, 4, 2.5, 3), (1e-3, 4, 2.5, 4), (1e-3, 8, 1.0, 3),
    ]  # fmt: skip
    assert members[5].name == "member 5 (seed 4, learning rate 0.001, batch size 8, epochs 1)"

    def numbers(most: int) -> list[list[int]]:
        return [[m.number for m in group] for group in sweep._groups(c, members, most)]

    assert numbers(0) == [[0, 1, 8, 9], [2, 3, 10, 11], [4, 5, 12, 13], [6, 7, 14, 15]]
    assert numbers(3)[:3] == [[0, 1, 8], [9], [2, 3, 10]]
    assert numbers(1) == [[n] for group in numbers(0) for n in group]
    # On a CPU nothing is gained; other kinds of keys draw the first member's numbers for all.
    assert sweep._most_together(c) == 8
    c.sweep.together = 0
    assert sweep._most_together(c) == 1
    with monkeypatch.context() as patch:
        patch.setattr(jax, "default_backend", lambda: "gpu")
        assert sweep._most_together(c) == 0
        c.train.prng = "rbg"
        assert sweep._most_together(c) == 1
        c.train.prng = "threefry2x32"
        patch.setattr(jax, "device_count", lambda: 4)
        assert sweep._most_together(c) == 1


def test_those_left_at_other_steps_train_apart(tmp_path) -> None:
    c = config(tmp_path, **SEARCH)
    for number, steps in enumerate([(3, 6), (), (6,), ()]):
        for step in steps:
            (tmp_path / f"run/members/{number}/checkpoints/{step}").mkdir(parents=True)
    members = sweep._members(c, tmp_path / "run")
    assert [[m.number for m in g] for g in sweep._groups(c, members, 0)] == [[0, 2], [1, 3]]
    assert [[m.number for m in g] for g in sweep._groups(c, members[::2], 0)] == [[0, 2]]


def test_pretraining_in_phases(tmp_path) -> None:
    keys = {
        "model.hidden_size": 16, "model.layers": 1, "model.feed_forward_size": 16, "model.dropout": 0.1,
        "data.seq_len": 16, "train.phases": ((16, 2), (32, 2, 4)), "train.steps": 0, "train.log_every": 1,
        "train.accumulation": 2,
    }  # fmt: skip
    rates = {"sweep.learning_rate": (1e-3, 1e-2), "sweep.seeds": 2, "sweep.together": 3}
    result = train.train(small.config(tmp_path, **keys, **rates), tmp_path / "run")
    assert result["metric"] == "loss"
    assert result["best"]["value"] == min(m["value"] for m in result["members"])
    alone = small.config(tmp_path, **keys, **{"seed": 1, "optimizer.learning_rate": 1e-3})
    train.train(alone, tmp_path / "alone")
    a, b = (lines(folder, split) for folder, split in
            ((tmp_path / "alone", "train"), (tmp_path / "run/members/1", "train")))  # fmt: skip
    assert [x["step"] for x in b] == [1, 2, 3, 4]
    np.testing.assert_allclose([x["loss"] for x in b], [x["loss"] for x in a], rtol=0, atol=1e-5)
    # Its evaluation has masks of its own seed.
    ends = [json.loads((tmp_path / f / "result.json").read_text()) for f in ("alone", "run/members/1")]
    assert ends[0]["loss"] == pytest.approx(ends[1]["loss"], abs=1e-5)
    assert ends[0]["unigram_cross_entropy"] == ends[1]["unigram_cross_entropy"]


def test_all_of_glue_searches_each_task(tmp_path) -> None:
    for name, labels in (("RTE", ("entailment", "not_entailment")), ("WNLI", ("1", "0"))):
        (tmp_path / name).mkdir()
        rows = "".join(f"{n}\ta\tb\t{label}\n" for n, label in enumerate(labels))
        for file in ("train.tsv", "dev.tsv"):
            (tmp_path / name / file).write_text(f"index\tsentence1\tsentence2\tlabel\n{rows}")
    keys = {"task.name": "glue", "task.text": "", "task.label": "", "data.path": str(tmp_path)}
    c = config(tmp_path, **keys, **{"sweep.learning_rate": RATES, "train.steps": 1, "train.batch_size": 2})
    result = train.train(c, tmp_path / "run")
    assert result["tasks"].keys() == {"rte", "wnli"}
    assert [len(result["tasks"][name]["settings"]) for name in ("rte", "wnli")] == [2, 2]


def test_evaluation_is_of_one_member(folder) -> None:
    with pytest.raises(ConfigError, match="this config is a search"):
        train.evaluate(config(folder, **SEARCH), folder / "run")


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"sweep.learning_rate": (0.0,)}, "sweep.learning_rate = (0.0,): it must be a tuple of numbers ab"),
        ({"sweep.learning_rate": (float("inf"),)}, "sweep.learning_rate = (inf,): it must be a tuple of"),
        ({"sweep.batch_size": (4, 4.5)}, "sweep.batch_size = (4, 4.5): it must be a tuple of whole numbers"),
        ({"sweep.epochs": (-1.0,)}, "sweep.epochs = (-1.0,): it must be a tuple of numbers above 0"),
        ({"sweep.learning_rate": (1e-3, 0.001)}, "(0.001, 0.001): each value must be named once"),
        ({"sweep.epochs": (1, 2)}, "sweep.epochs = (1, 2) cannot go with train.steps, which decides"),
        ({"sweep.batch_size": (4, 6), "train.accumulation": 4}, "(4, 6): each must be a multiple of"),
        ({"seed": 2**31 - 2, "sweep.seeds": 3}, "the last seed, 2147483648, must be below 2147483648"),
        ({"sweep.together": -1}, "sweep.together = -1: it must be at least 0"),
        ({"sweep.keep": "none"}, "sweep.keep = 'none': it must be one of 'all', 'best'"),
    ],
)  # fmt: skip
def test_what_cannot_be_searched_is_refused(tmp_path, keys, message) -> None:
    with pytest.raises(ConfigError) as error:
        config(tmp_path, **keys)
    assert message in str(error.value)
