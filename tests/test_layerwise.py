"""What fine-tuning does to each layer: rates, frozen and renewed ones, weights held to the given ones."""

import json
import pathlib
import shutil
from typing import Any

import jax
import numpy as np
import pytest
import tasks_data
import tiny_models

from bert_jax import build, checkpoint, completion, layerwise, optimizer, sharding, train
from bert_jax import config as config_lib
from bert_jax import step as step_lib
from bert_jax.config import ConfigError
from bert_jax.interop import load
from bert_jax.trees import named

LAYERS = 3
SENTENCES = ["the cat sat", "cat the sat", "a dog runs .", "dog a on", "the mat", "mat the ."]


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> load.Source:
    tokenizer = tiny_models.tokenizer(tmp_path_factory.mktemp("vocabulary"))
    return tiny_models.source(tokenizer, layers=LAYERS, heads={"has_pooler": True})


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory, given: load.Source) -> pathlib.Path:
    return tiny_models.save(tmp_path_factory.mktemp("given") / "model", given)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory, model: pathlib.Path) -> Any:
    """Three steps without any of the options."""
    return stepped(task_config(tmp_path_factory.mktemp("plain"), model), 3)


@pytest.fixture(scope="module")
def frozen_1(tmp_path_factory: pytest.TempPathFactory, model: pathlib.Path) -> Any:
    """Three steps with the embeddings and the lowest layer frozen."""
    return stepped(task_config(tmp_path_factory.mktemp("frozen"), model, optimizer__freeze_layers=1), 3)


def task_config(tmp_path: pathlib.Path, model: pathlib.Path, **keys: Any) -> Any:
    """CoLA's form, with gradients so large that every weight moves."""
    data = tmp_path / "CoLA"
    data.mkdir(exist_ok=True)
    rows = "".join(f"x\t{(i + 1) % 2}\t\t{s}\n" for i, s in enumerate(SENTENCES))
    (data / "train.tsv").write_text(rows)
    (data / "dev.tsv").write_text(rows)
    c = tasks_data.config("cola", data)
    c.init_from, c.train.steps, c.data.workers, c.model.scan = str(model), 4, 1, True
    c.train.compilation_cache = str(tmp_path.parent / "compiled")
    c.optimizer.learning_rate, c.optimizer.weight_decay, c.optimizer.schedule = 1e-2, 0.1, "constant"
    c.optimizer.clip = 0.0
    c.task.dropout = c.model.dropout = c.model.attention_dropout = 0.0
    for key, value in keys.items():
        *groups, leaf = key.split("__")
        (c[groups[0]] if groups else c)[leaf] = value
    config_lib.validate(c)
    return c


def stepped(config: Any, steps: int) -> tuple[Any, list[Any], list[dict[str, float]]]:
    """Returns the run, its states on the host from step 0 on, and each step's metrics."""
    run = build.build(*completion.complete(config, None)[:2])
    examples = run.phases[0].train
    rows = np.arange(examples.batch_size)
    state = run.initial_state(examples.batch(0, rows))
    states, metrics = [host(state)], []
    update = step_lib.make_train_step(run.setup)
    for number in range(steps):
        batch = sharding.to_devices(examples.batch(number, rows), examples.batch_size, run.setup.mesh)
        state, sums = update(state, batch)
        states.append(host(state))
        metrics.append(step_lib.means(step_lib.add(None, sums)))
    return run, states, metrics


def host(tree: Any) -> Any:
    return jax.tree.map(np.array, jax.device_get(tree))


def changed(before: Any, after: Any) -> dict[str, np.ndarray]:
    """Of each array whether it moved: of a stack, (L,) for each layer."""
    pairs = zip(named(before), jax.tree.leaves(after), strict=True)
    return {
        name: (a != b).reshape(LAYERS if "/layers/" in name else 1, -1).any(axis=1) for (name, a), b in pairs
    }


def expected_to_move(name: str, frozen: int) -> list[bool]:
    if "/layers/" in name:
        return [i >= frozen for i in range(LAYERS)]
    return [not name.startswith("encoder/") or frozen < 0]


# A key's bias shifts all of a query's scores alike, and its gradient is rounding.
UNMOVED = "key/bias"


@pytest.mark.parametrize(
    ("frozen", "keys"),
    [
        (0, {"optimizer__name": "lamb"}),
        (2, {"model__scan": False, "train__accumulation": 2, "task__l2": 0.1}),
        (LAYERS, {}),
    ],
)
def test_frozen_weights_keep_their_bits_and_cost_no_state(
    tmp_path: pathlib.Path, model: pathlib.Path, given: load.Source, frozen: int, keys: dict[str, Any]
) -> None:
    c = task_config(tmp_path, model, optimizer__freeze_layers=frozen, **keys)
    _, states, metrics = stepped(c, 2)
    initial = dict(named(given.params))
    for name, moved in changed(states[0].params, states[-1].params).items():
        if UNMOVED not in name or not any(expected_to_move(name, frozen)):
            assert moved.tolist() == expected_to_move(name, frozen), name
    for name, array in named(states[-1].params):
        if name in initial and not any(expected_to_move(name, frozen)):
            np.testing.assert_array_equal(array, initial[name], err_msg=name)
    trained = sum(x.size * np.mean(expected_to_move(name, frozen)) for name, x in named(states[0].params))
    moments = [x for x in jax.tree.leaves(states[0].opt_state) if np.issubdtype(x.dtype, np.floating)]
    assert sum(x.size for x in moments) == 2 * round(trained)
    assert metrics[-1]["grad_norm"] > 0


def test_all_is_trained_by_default_and_upper_layers_alike(plain: Any, frozen_1: Any) -> None:
    """What is above sees the same: the first update of the upper layers is that without frozen ones."""
    (_, whole, _), (_, part, _) = plain, frozen_1
    for name, moved in changed(whole[0].params, whole[1].params).items():
        assert moved.all() or UNMOVED in name, name
    for (name, a), b in zip(named(whole[1].params), jax.tree.leaves(part[1].params), strict=True):
        if "/layers/" in name and UNMOVED not in name:
            np.testing.assert_allclose(a[1:], b[1:], rtol=1e-4, atol=1e-5, err_msg=name)


def test_parts_are_joined_to_the_same_bits(given: load.Source) -> None:
    params = {**given.params, "classifier": {"kernel": np.ones((2, 2), np.float32)}}
    for frozen in range(-1, LAYERS + 1):
        for renewed in range(LAYERS - max(frozen, 0) + 1):
            layers = layerwise.Layers(LAYERS, frozen, renewed)
            trained, kept = layers.split(params)
            again = layers.join(layers.with_given(trained, layers.given(trained)), kept)
            assert jax.tree.structure(again) == jax.tree.structure(params)
            jax.tree.map(np.testing.assert_array_equal, again, params)


@pytest.mark.parametrize("name", ["adamw", "lamb"])
@pytest.mark.parametrize("frozen", [-1, 0, 1])
def test_layer_decay_is_a_factor_a_layer_below_the_top(given: load.Source, name: str, frozen: int) -> None:
    params = {**given.params, "classifier": {"kernel": np.ones((2, 2), np.float32)}}
    params["encoder"] = {**params["encoder"], "final_norm": {"scale": np.ones(2, np.float32)}}
    trained, _ = layerwise.Layers(LAYERS, frozen).split(params)
    gradients = jax.tree.map(lambda x: 0.5 * x, trained)

    def updates(**values: Any) -> dict[str, Any]:
        c = config_lib.default().optimizer
        c.update({"schedule": "constant", "clip": 0.0, "name": name, **values})
        made = optimizer.make(c, 10, None, 2.0)
        return dict(named(made.update(gradients, made.init(trained), trained)[0]))

    plain, decayed = updates(), updates(layer_decay=0.5)
    assert plain.keys() == decayed.keys()
    for path, update in plain.items():
        factor = np.ones((), np.float32)
        if "/layers/" in path:
            # 1/8, 1/4, 1/2 from the lowest of three; a frozen one takes no other's factor.
            factor = np.array([1 / 8, 1 / 4, 1 / 2][max(frozen, 0) :], np.float32)
            factor = factor.reshape(-1, *(1,) * (update.ndim - 1))
        elif path.startswith("encoder/") and "final_norm" not in path:
            factor = np.float32(1 / 16)
        np.testing.assert_allclose(decayed[path], update * factor, rtol=1e-6, err_msg=path)
    # No part of the optimizer's state: a run may be gone on with that began without the key.
    made = [optimizer.make(config_lib.default().optimizer, 10)] * 2
    assert jax.tree.structure(made[0].init(trained)) == jax.tree.structure(made[1].init(trained))


def test_the_penalty_is_of_the_distance_to_the_given_weights(
    tmp_path: pathlib.Path, model: pathlib.Path, given: load.Source, frozen_1: Any
) -> None:
    """The loss that is told has lambda / 2 of the squared distance, from the weights before the step."""
    c = task_config(tmp_path, model, task__l2_start=0.3, optimizer__freeze_layers=1)
    _, states, metrics = stepped(c, 3)
    free = frozen_1[1]

    def distance(state: Any) -> float:
        pairs = zip(named(state.params["encoder"]), jax.tree.leaves(given.params["encoder"]), strict=True)
        return sum(float(((a - b).astype(np.float64) ** 2).sum()) for (_, a), b in pairs)

    for state, found in zip(states, metrics, strict=False):
        penalty = found["loss"] - found["task_loss"]
        assert penalty == pytest.approx(0.15 * distance(state), rel=1e-4, abs=1e-6)
    assert metrics[0]["loss"] == metrics[0]["task_loss"]  # it begins there
    assert distance(states[3]) < 0.95 * distance(free[3])
    # The new classifier is not held to anything, nor what is frozen kept twice.
    assert {name.split("/")[0] for name, _ in named(states[0].start)} == {"layers"}
    assert all(len(x) == LAYERS - 1 for x in jax.tree.leaves(states[0].start))
    jax.tree.map(np.testing.assert_array_equal, states[0].start, states[3].start)


def test_mixout_literally() -> None:
    w = {"a": {"kernel": np.full((40, 50), 3.0, np.float32), "bias": np.ones(2, np.float32)}}
    u = {"a": {"kernel": np.full((40, 50), 1.0, np.float32), "bias": np.zeros(2, np.float32)}}
    mixed = layerwise.mixout(w, u, 0.75, jax.random.key(0))
    np.testing.assert_array_equal(mixed["a"]["bias"], w["a"]["bias"])
    # (M w + (1 - M) u - p u) / (1 - p): 1, or (3 - .75) / .25 = 9.
    values, counts = np.unique(np.asarray(mixed["a"]["kernel"]), return_counts=True)
    assert values.tolist() == [1.0, 9.0]
    assert counts[0] / 2000 == pytest.approx(0.75, abs=0.05)
    draws = jax.vmap(lambda key: layerwise.mixout(w, u, 0.75, key)["a"]["kernel"].mean())(
        jax.random.split(jax.random.key(1), 200)
    )
    assert float(draws.mean()) == pytest.approx(3.0, abs=0.03)  # deviation: 8 sqrt(3/16 / 400,000) = .005
    for rate, same in ((0.0, w), (1.0, u)):
        found = layerwise.mixout(w, u, rate, jax.random.key(0))
        np.testing.assert_array_equal(found["a"]["kernel"], same["a"]["kernel"])


def test_mixout_in_the_step(
    tmp_path: pathlib.Path, model: pathlib.Path, given: load.Source, plain: Any
) -> None:
    c = task_config(tmp_path, model, task__mixout=0.9)
    run, states, metrics = stepped(c, 3)
    _, free, without = plain
    # At first the weights are the given ones, whatever is mixed; the gradient is of a tenth of them.
    assert metrics[0]["task_loss"] == pytest.approx(without[0]["task_loss"], rel=1e-6)
    assert metrics[1]["task_loss"] != pytest.approx(without[1]["task_loss"], rel=1e-4)
    kernel = next(x for name, x in named(states[1].opt_state) if "mu" in name and "out/kernel" in name)
    assert np.mean(kernel == 0) == pytest.approx(0.9, abs=0.05)
    other = next(x for name, x in named(free[1].opt_state) if "mu" in name and "out/kernel" in name)
    assert np.mean(other == 0) < 0.01
    # Each step draws anew, and with all elements given the function is the given model's.
    later = next(x for name, x in named(states[2].opt_state) if "mu" in name and "out/kernel" in name)
    assert np.mean((kernel == 0) & (later == 0)) == pytest.approx(0.81, abs=0.06)
    trained, kept = run.setup.layers.split(states[3].params)
    groups = layerwise.mixout(run.setup.layers.given(trained), states[3].start, 1.0, jax.random.key(0))
    mixed = run.setup.layers.join(run.setup.layers.with_given(trained, groups), kept)
    for (name, a), b in zip(named(mixed["encoder"]), jax.tree.leaves(given.params["encoder"]), strict=True):
        if name.endswith("kernel"):
            np.testing.assert_array_equal(a, b, err_msg=name)


def test_only_the_top_layers_and_the_pooler_are_drawn_anew(
    tmp_path: pathlib.Path, model: pathlib.Path, given: load.Source
) -> None:
    renewed = 2
    keys = {"task__reinit_layers": renewed, "task__l2_start": 1.0, "task__mixout": 0.5}
    _, states, metrics = stepped(task_config(tmp_path, model, **keys), 2)
    found = dict(named(states[0].params))
    for name, array in named({group: given.params[group] for group in ("encoder", "pooler")}):
        same = found[name] == array
        if "/layers/" in name:
            at = LAYERS - renewed
            assert same[:at].all(), name
            assert not same[at:].reshape(renewed, -1).all(axis=1).any(), name
        else:
            assert same.all() == (not name.startswith("pooler")), name
    kernel = found["encoder/layers/feed_forward_in/kernel"][-1]
    assert kernel.std() == pytest.approx(0.02, rel=0.2)  # model.init_std
    # They are held to nothing.
    assert metrics[0]["loss"] == metrics[0]["task_loss"] < metrics[1]["loss"]
    assert {len(x) for x in jax.tree.leaves(states[0].start["layers"])} == {LAYERS - renewed}


def test_a_run_goes_on_to_the_same_bits_without_the_model_it_began_with(
    tmp_path: pathlib.Path, given: load.Source
) -> None:
    model = tiny_models.save(tmp_path / "model", given)
    c = task_config(
        tmp_path, model, task__l2_start=0.1, task__mixout=0.5, task__reinit_layers=1, checkpoint__every=2,
        optimizer__freeze_layers=1, optimizer__layer_decay=0.8,
    )  # fmt: skip
    whole = train.train(c, tmp_path / "run")
    before = checkpoint.read_params(tmp_path / "run/checkpoints", 4)
    (tmp_path / "run/result.json").unlink()
    shutil.rmtree(tmp_path / "run/checkpoints/4")
    shutil.rmtree(model / "checkpoints")  # it is not read again
    again = train.train(c, tmp_path / "run")
    assert again["loss"] == whole["loss"]
    after = checkpoint.read_params(tmp_path / "run/checkpoints", 4)
    jax.tree.map(np.testing.assert_array_equal, before, after)
    c.task.l2_start = 0.2
    with pytest.raises(ConfigError, match=r"task.l2_start: 0.1 -> 0.2"):
        train.train(c, tmp_path / "run")


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"init_from": "", "optimizer__freeze_layers": 0}, "optimizer.freeze_layers = 0 keeps weights"),
        ({"init_from": "", "task__mixout": 0.1}, "task.mixout = 0.1 is of a task that starts from a model"),
        ({"init_from": "", "task__l2_start": 1.0}, "task.l2_start = 1 is of a task that"),
        ({"init_from": "", "task__reinit_layers": 1}, "task.reinit_layers = 1 is of a task that"),
        ({"task__mixout": 1.0}, "task.mixout = 1.0: it must be between 0 and 0.999"),
        ({"task__l2_start": -1.0}, "task.l2_start = -1.0: it must be at least 0"),
        ({"optimizer__layer_decay": 0.0}, "optimizer.layer_decay = 0.0: it must be between"),
        ({"optimizer__layer_decay": 1.5}, "optimizer.layer_decay = 1.5: it must be between"),
        ({"optimizer__freeze_layers": -2}, "optimizer.freeze_layers = -2: it must be at least -1"),
        ({"optimizer__layer_decay": 0.9, "model__share_layers": True},
         "optimizer.layer_decay = 0.9 has a rate for each layer"),
    ],
)  # fmt: skip
def test_values_that_do_not_fit(tmp_path: pathlib.Path, keys: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        task_config(tmp_path, tmp_path, **keys)


@pytest.mark.parametrize(
    ("keys", "shared", "message"),
    [
        ({"optimizer__freeze_layers": LAYERS + 1}, False, "the model has 3 layers; -1 freezes nothing"),
        ({"task__reinit_layers": LAYERS + 1}, False, "task.reinit_layers = 4: the model has 3 layers"),
        ({"task__reinit_layers": 2, "optimizer__freeze_layers": 2}, False, "2 of them frozen"),
        ({"optimizer__freeze_layers": LAYERS, "task__mixout": 0.1}, False, "set both to 0"),
        ({"optimizer__layer_decay": 0.9}, True, "all layers have one layer's weights: set it to 1"),
        ({"optimizer__freeze_layers": 1}, True, "set 0, the embeddings, or 3, all of the encoder"),
        ({"task__reinit_layers": 1}, True, "the top ones cannot be drawn anew alone"),
    ],
)
def test_values_that_do_not_fit_the_given_model(
    tmp_path: pathlib.Path, given: load.Source, keys: dict[str, Any], shared: bool, message: str
) -> None:
    made = tiny_models.source(given.tokenizer, layers=LAYERS, share_layers=shared)
    c = task_config(tmp_path, tiny_models.save(tmp_path / "model", made), **keys)
    with pytest.raises(ValueError, match=message) as error:
        train.train(c, tmp_path / "run")
    assert "\n" not in str(error.value)
    assert not (tmp_path / "run").exists()


def test_shared_layers_are_frozen_as_one(tmp_path: pathlib.Path, given: load.Source) -> None:
    made = tiny_models.source(given.tokenizer, layers=LAYERS, share_layers=True, embedding_size=8)
    model = tiny_models.save(tmp_path / "model", made)
    c = task_config(tmp_path, model, optimizer__freeze_layers=0, task__l2_start=1.0)
    run, states, _ = stepped(c, 2)
    for (name, a), b in zip(named(states[0].params), jax.tree.leaves(states[2].params), strict=True):
        kept = name.startswith("encoder/") and "shared_layer" not in name
        if UNMOVED not in name:
            assert (a == b).all() == kept, name
    trained, kept = layerwise.of(run.setup.model.spec, LAYERS, 0).split(states[0].params)
    assert (set(kept), trained["encoder"]) == (set(states[0].params["encoder"]), {})


def test_domain_adaptation_freezes_too(tmp_path: pathlib.Path) -> None:
    import small

    train.train(small.config(tmp_path, **{"train.steps": 1}), tmp_path / "first")
    keys = {"init_from": str(tmp_path / "first"), "optimizer.freeze_layers": 1, "train.steps": 2}
    train.train(small.config(tmp_path, **keys), tmp_path / "second")
    a, b = (dict(named(checkpoint.read_params(tmp_path / x / "checkpoints"))) for x in ("first", "second"))
    np.testing.assert_array_equal(a["encoder/word"], b["encoder/word"])
    kernel = "encoder/layers/feed_forward_in/kernel"
    assert (a[kernel] == b[kernel]).reshape(2, -1).all(axis=1).tolist() == [True, False]
    assert (a["token_head/bias"] != b["token_head/bias"]).any()
    assert json.loads((tmp_path / "second/result.json").read_text())["steps"] == 2
