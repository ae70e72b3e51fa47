"""The step: what it counts, what it leaves alone, and what it does with nothing to learn from."""

import math
import types
from typing import Any

import devices_worker
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax import config, sharding, step
from bert_jax.models import spec as spec_lib


def _placed(batch: dict[str, np.ndarray], setup: step.Setup) -> dict[str, jax.Array]:
    return sharding.to_devices(batch, devices_worker.ROWS, setup.mesh)


def _host(tree: Any) -> Any:
    return jax.tree.map(np.array, jax.device_get(tree))


def _adam(opt_state: Any) -> Any:
    return next(part for part in opt_state if hasattr(part, "mu"))


@pytest.fixture(scope="module")
def trained() -> types.SimpleNamespace:
    """One set-up, its first state and its compiled steps, shared: compiling is what takes the time."""
    setup = devices_worker.make_setup(**{"optimizer.weight_decay": 0.1})
    data = devices_worker.batches()
    state = step.create_state(setup, data[0], seed=0)
    return types.SimpleNamespace(
        setup=setup, update=step.make_train_step(setup), evaluate=step.make_eval_step(setup), data=data,
        start=_host(state), places=jax.tree.map(lambda x: x.sharding, state),
    )  # fmt: skip


def _state(trained: types.SimpleNamespace) -> step.State:
    return jax.device_put(trained.start, trained.places)


def test_metrics_are_sums_over_the_batch(trained: types.SimpleNamespace) -> None:
    batch = trained.data[0]
    state = _state(trained)
    params = _host(state.params)
    out = jax.jit(lambda p, b: trained.setup.model.apply({"params": p}, b))(params, batch)
    logits, labels, weights = (
        np.asarray(out["mlm_logits"], np.float64),
        batch["mlm_labels"],
        batch["mlm_weights"],
    )
    log_p = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    mlm = -(np.take_along_axis(log_p, labels[..., None], -1)[..., 0] * weights).sum() / weights.sum()
    hits = ((logits.argmax(-1) == labels) * weights).sum() / weights.sum()
    margin = np.asarray(out["nsp_logits"], np.float64) @ [-1, 1] * np.where(batch["pair_labels"] == 1, 1, -1)
    nsp = (np.log1p(np.exp(-margin)) * batch["pair_weights"]).sum() / batch["pair_weights"].sum()

    new, sums = trained.update(state, _placed(batch, trained.setup))
    found = step.means(step.add(None, sums))
    assert found["mlm_loss"] == pytest.approx(mlm, rel=1e-5)
    assert found["mlm_accuracy"] == pytest.approx(hits)
    assert found["nsp_loss"] == pytest.approx(nsp, rel=1e-5)
    assert found["loss"] == pytest.approx(mlm + 0.5 * nsp, rel=1e-5)
    assert found["learning_rate"] == pytest.approx(0.01)
    assert found["tokens"] == (batch["segment_ids"] > 0).sum()
    assert found["row_length"] == devices_worker.LENGTH
    assert float(sums["mlm_loss"][1]) == weights.sum() and float(sums["nsp_loss"][1]) == 15
    assert int(new.step) == 1
    # The first moment is a tenth of the clipped gradient; the log has its norm before clipping.
    clipped = math.sqrt(
        sum((m.astype(np.float64) ** 2).sum() for m in jax.tree.leaves(_host(_adam(new.opt_state).mu)))
    )
    assert found["grad_norm"] > 0.5
    assert found["clipped"] == 1 and found["clip_scale"] == pytest.approx(0.5 / found["grad_norm"])
    assert clipped == pytest.approx(0.1 * 0.5, rel=1e-4)

    sums, outputs, _ = trained.evaluate(params, _placed(batch, trained.setup))
    evaluated = step.means(step.add(None, sums))
    assert evaluated["mlm_loss"] == pytest.approx(mlm, rel=1e-5)
    assert evaluated["nsp_loss"] == pytest.approx(nsp, rel=1e-5)
    shares = np.arange(devices_worker.VOCAB) + 1.0
    baseline = -(np.log(shares / shares.sum())[labels] * weights).sum() / weights.sum()
    assert evaluated["unigram_cross_entropy"] == pytest.approx(baseline, rel=1e-5)
    assert outputs == {}  # no classifier


def test_a_batch_without_targets_gives_no_nan_and_no_gradient(trained: types.SimpleNamespace) -> None:
    batch = {name: np.zeros_like(x) for name, x in trained.data[0].items()}
    state = _state(trained)
    before = _host(state.params)
    new, sums = trained.update(state, _placed(batch, trained.setup))
    found = step.means(step.add(None, sums))
    assert (found["loss"], found["mlm_loss"], found["nsp_loss"], found["grad_norm"]) == (0, 0, 0, 0)
    assert (found["clipped"], found["clip_scale"]) == (0, 1)
    after = _host(new.params)
    # Weights decay as they always do, by lr * decay; biases and norms stay bit for bit.
    np.testing.assert_allclose(
        after["encoder"]["word"], before["encoder"]["word"] * (1 - 0.01 * 0.1), rtol=1e-6
    )
    for name in ("bias", "scale"):
        np.testing.assert_array_equal(
            after["encoder"]["embedding_norm"][name], before["encoder"]["embedding_norm"][name]
        )
    # Evaluation tells that there was nothing: it must add nothing to a mean over batches.
    nothing, *_ = trained.evaluate(after, _placed(batch, trained.setup))
    something, *_ = trained.evaluate(after, _placed(trained.data[0], trained.setup))
    assert math.isnan(step.means(step.add(None, nothing))["mlm_loss"])
    both = step.add(step.add(None, something), nothing)
    assert step.means(both) == step.means(step.add(None, something))


def test_means_over_batches_weigh_by_count(trained: types.SimpleNamespace) -> None:
    params = _state(trained).params
    evaluated = [trained.evaluate(params, _placed(batch, trained.setup))[0] for batch in trained.data[:2]]
    (a, n), (b, m) = ((float(x) for x in sums["mlm_loss"]) for sums in evaluated)
    total = step.add(step.add(None, evaluated[0]), evaluated[1])
    assert step.means(total)["mlm_loss"] == pytest.approx((a + b) / (n + m), rel=1e-9)
    assert isinstance(total["mlm_loss"][0], np.float64)


def test_literal_means() -> None:
    total = step.add(None, {"loss": (jnp.float32(6.0), jnp.float32(3.0))})
    total = step.add(total, {"loss": (jnp.float32(1.0), jnp.float32(1.0))})
    assert step.means(total) == {"loss": 7 / 4}
    assert math.isnan(step.means({"loss": (np.float64(0), np.float64(0))})["loss"])


def test_same_seed_same_state_and_steps(trained: types.SimpleNamespace) -> None:
    def run(state: step.State) -> Any:
        for batch in trained.data[:2]:
            state, _ = trained.update(state, _placed(batch, trained.setup))
        return _host(state)

    again = step.create_state(trained.setup, trained.data[0], seed=0)
    jax.tree.map(np.testing.assert_array_equal, _host(again), trained.start)
    end = run(again)
    jax.tree.map(np.testing.assert_array_equal, end, run(_state(trained)))
    # The key never moves: a step's dropout is a function of the key and the number of the step.
    np.testing.assert_array_equal(end.key, trained.start.key)
    assert int(end.step) == 2
    other = step.create_state(trained.setup, trained.data[0], seed=1)
    assert (_host(other.params["encoder"]["word"]) != trained.start.params["encoder"]["word"]).any()
    assert (_host(other.key) != trained.start.key).any()


def test_abstract_state_tells_the_real_one(trained: types.SimpleNamespace) -> None:
    expected = step.abstract_state(trained.setup, trained.data[0], 0)
    assert jax.tree.structure(expected) == jax.tree.structure(trained.start)
    shapes = [(x.shape, x.dtype) for x in jax.tree.leaves(trained.start)]
    assert [(x.shape, x.dtype) for x in jax.tree.leaves(expected)] == shapes
    assert [x.sharding for x in jax.tree.leaves(expected)] == jax.tree.leaves(trained.places)


def test_compiled_once(trained: types.SimpleNamespace, caplog: pytest.LogCaptureFixture) -> None:
    state = _state(trained)
    state, _ = trained.update(state, _placed(trained.data[0], trained.setup))
    with jax.log_compiles(), caplog.at_level("WARNING"):
        for batch in trained.data[1:]:
            state, _ = trained.update(state, _placed(batch, trained.setup))
    assert "Compiling" not in caplog.text


def test_l2_adds_lambda_times_the_weight_and_dropout_follows_the_step() -> None:
    """One more compilation serves all: l2, dropout and rbg keys, seen one at a time."""
    data = devices_worker.batches()
    empty = {name: np.zeros_like(x) for name, x in data[0].items()}
    setup = devices_worker.make_setup(
        l2=0.01, dropout=0.5,
        **{"train.prng": "rbg", "optimizer.clip": 0.0, "optimizer.learning_rate": 0.0},
    )  # fmt: skip
    update = step.make_train_step(setup)
    state = step.create_state(setup, data[0], seed=0)
    params = _host(state.params)
    squares = sum(
        (p.astype(np.float64) ** 2).sum()
        for path, p in jax.tree_util.tree_flatten_with_path(params)[0]
        if path[-1].key not in ("bias", "scale")
    )
    # Nothing to predict: the loss and its gradient are the penalty's alone.
    state, sums = update(state, _placed(empty, setup))
    found = step.means(step.add(None, sums))
    assert found["loss"] == pytest.approx(0.005 * squares, rel=1e-5)
    assert found["mlm_loss"] == 0
    mu = _host(_adam(state.opt_state).mu)
    np.testing.assert_allclose(mu["encoder"]["word"], 0.1 * 0.01 * params["encoder"]["word"], rtol=1e-4)
    kernel = ("encoder", "layers", "feed_forward_in", "kernel")
    found_kernel, weight = mu, params
    for part in kernel:
        found_kernel, weight = found_kernel[part], weight[part]
    np.testing.assert_allclose(found_kernel, 0.001 * weight, rtol=1e-4)
    assert not mu["encoder"]["embedding_norm"]["scale"].any()
    # With a learning rate of 0 the parameters stay, and only dropout tells one step from another.
    losses = []
    for _ in range(2):
        state, sums = update(state, _placed(data[0], setup))
        losses.append(step.means(step.add(None, sums))["mlm_loss"])
    assert losses[0] != losses[1]
    again = state.replace(step=state.step - 1)
    _, sums = update(again, _placed(data[0], setup))
    assert step.means(step.add(None, sums))["mlm_loss"] == losses[1]


def test_mesh_that_does_not_fit_is_refused() -> None:
    c = config.default()
    c.mesh.tensor = 2
    with pytest.raises(ValueError, match=r"mesh\.tensor = 2, mesh\.sequence = 1 do not make up the 1 "):
        sharding.make_mesh(c.mesh)
    c.mesh.tensor, c.mesh.data = 1, 3
    with pytest.raises(ValueError, match=r"mesh\.data = 3"):
        sharding.make_mesh(c.mesh)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            {"train.batch_size": 6},
            r"train\.batch_size / train\.accumulation = 6 .* mesh\.data \* mesh\.fsdp = 4",
        ),
        ({"train.batch_size": 8, "train.accumulation": 4}, r"train\.accumulation = 2"),
        ({"train.eval_batch_size": 5}, r"train\.eval_batch_size = 5"),
        ({"model.hidden_size": 63}, r"model\.hidden_size = 63 .* mesh\.fsdp = 2"),
        ({"model.embedding_size": 33}, r"model\.embedding_size = 33 .* mesh\.fsdp = 2"),
        ({"model.generator_fraction": 0.5}, r"heads of the generator .* = 4 .* mesh\.tensor = 8"),
        ({"model.heads": 4}, r"model\.heads = 4 .* mesh\.tensor = 8"),
        ({"data.seq_len": 128}, r"a row's length = 128 .* mesh\.sequence = 3"),
        ({"train.vocabulary_parts": 32}, r"padded vocabulary = 128 .* mesh\.tensor \* train\.v.* = 256"),
        ({"model.feed_forward_size": 12}, r"model\.feed_forward_size = 12 .* mesh\.tensor = 8"),
    ],
)
def test_sizes_that_do_not_divide_are_refused(values: dict[str, int], message: str) -> None:
    c = config.default()
    c.model.update({"hidden_size": 64, "heads": 8, "feed_forward_size": 64})
    mesh = types.SimpleNamespace(shape={"data": 2, "fsdp": 2, "tensor": 8, "sequence": 3})
    c.train.batch_size, c.data.seq_len = 8, 126

    def check() -> None:
        spec = spec_lib.from_config(c.model, vocab_size=128, mask_id=4, has_rtd=True, has_generator=True)
        sharding.check(c, mesh, spec, c.train.batch_size)

    c.model.generator_fraction = 1.0
    check()
    c.update_from_flattened_dict(values)
    with pytest.raises(ValueError, match=message):
        check()


def test_only_the_first_axis_goes_from_slice_to_slice() -> None:
    devices = [
        types.SimpleNamespace(id=i, slice_index=i % 2, platform="cpu", device_kind="cpu", process_index=0)
        for i in range(16)
    ]
    laid = sharding.over_slices((4, 2, 2, 1), 2, devices)
    slices = np.vectorize(lambda device: device.slice_index)(laid)
    np.testing.assert_array_equal(slices, np.array([0, 0, 1, 1])[:, None, None, None] + np.zeros_like(slices))
    assert sorted(device.id for device in laid.flat) == list(range(16))
    with pytest.raises(ValueError, match=r"mesh\.slices = 4, and the devices that there are make up 2"):
        sharding.over_slices((4, 2, 2, 1), 4, devices)
    with pytest.raises(ValueError, match=r"mesh\.data = 1 is not a multiple of mesh\.slices = 2"):
        sharding.over_slices((1, 2, 8, 1), 2, devices)
    c = config.default()
    c.mesh.slices = 2
    with pytest.raises(ValueError, match=r"mesh\.slices = 2, and the devices that there are make up 1"):
        sharding.make_mesh(c.mesh)


def test_rows_of_one_process() -> None:
    setup = types.SimpleNamespace(mesh=sharding.make_mesh(config.default().mesh))
    np.testing.assert_array_equal(sharding.local_rows(6, setup.mesh), np.arange(6))
    placed = sharding.to_devices({"x": np.arange(12).reshape(6, 2)}, 6, setup.mesh)
    np.testing.assert_array_equal(placed["x"], np.arange(12).reshape(6, 2))
