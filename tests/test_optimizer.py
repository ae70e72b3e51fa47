"""Schedules as literal numbers, and updates against NumPy."""

import logging
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from ml_collections import ConfigDict

from bert_jax import config, optimizer


def _config(**values: Any) -> ConfigDict:
    c = config.default().optimizer
    c.update({"learning_rate": 1.0, **values})
    return c


def _rates(steps: int, **values: Any) -> list[float]:
    rate = optimizer.schedule(_config(**values), steps)
    return [float(rate(i)) for i in range(steps)]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"schedule": "linear"}, [1, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1]),
        ({"schedule": "linear", "warmup_steps": 4}, [0.25, 0.5, 0.75, 1, *(1 - i / 6 for i in range(6))]),
        ({"schedule": "linear", "warmup_fraction": 0.2}, [0.5, 1, *(1 - i / 8 for i in range(8))]),
        ({"schedule": "linear", "warmup_steps": 1}, [1, *(1 - i / 9 for i in range(9))]),
        (
            {"schedule": "linear", "end_factor": 0.5, "learning_rate": 2.0},
            [2, 1.9, 1.8, 1.7, 1.6, 1.5, 1.4, 1.3, 1.2, 1.1],
        ),
        (
            {"schedule": "cosine", "warmup_steps": 2},
            [0.5, 1, *((1 + math.cos(math.pi * i / 8)) / 2 for i in range(8))],
        ),
        (
            {"schedule": "wsd", "warmup_steps": 2, "decay_fraction": 0.4},
            [0.5, 1, 1, 1, 1, 1, 1, 0.75, 0.5, 0.25],
        ),
        ({"schedule": "constant", "warmup_steps": 2}, [0.5] + [1] * 9),
    ],
)  # fmt: skip
def test_schedule(values: dict[str, Any], expected: list[float]) -> None:
    np.testing.assert_allclose(_rates(10, **values), expected, rtol=1e-5)


def test_a_warmup_that_does_not_fit_is_cut_and_that_is_said(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        rates = _rates(20, schedule="constant", warmup_steps=10_000)
    assert rates == [0.5, *[1.0] * 19]
    assert "optimizer.warmup_steps = 10000 does not fit a run of 20 steps" in caplog.text
    assert "cut to 2 steps" in caplog.text
    caplog.clear()
    assert _rates(3, schedule="linear", warmup_steps=10_000) == pytest.approx([1, 2 / 3, 1 / 3])
    assert _rates(10, schedule="constant", warmup_fraction=1.0)[-1] == 1.0


PARAMS = {
    "encoder": {
        "word": np.array([[1.0, -2.0], [0.5, 3.0]], np.float32),
        "embedding_norm": {"scale": np.ones(2, np.float32), "bias": np.zeros(2, np.float32)},
        "layers": {
            "feed_forward_in": {
                # Two layers of very different size: their trust ratios are not one.
                "kernel": np.array([[[1.0, 2.0]], [[30.0, -40.0]]], np.float32),
                "bias": np.zeros((2, 2), np.float32),
            },
            "attention_norm": {"scale": np.ones((2, 2), np.float32), "bias": np.zeros((2, 2), np.float32)},
        },
    },
    "token_head": {"bias": np.zeros(2, np.float32)},
}
DECAYED = {("encoder", "word"), ("encoder", "layers", "feed_forward_in", "kernel")}


def _flat(tree: Any) -> dict[tuple[str, ...], np.ndarray]:
    leaves = jax.tree_util.tree_flatten_with_path(tree)[0]
    return {tuple(part.key for part in path): np.asarray(leaf, np.float64) for path, leaf in leaves}


def _gradients(seed: int) -> Any:
    rng = np.random.default_rng(seed)
    return jax.tree.map(lambda p: rng.normal(size=p.shape).astype(np.float32) * 3, PARAMS)


def test_biases_and_norms_never_decay() -> None:
    assert {path for path, decayed in _flat(optimizer.decays(PARAMS)).items() if decayed} == DECAYED


def _updated(gradients: list[Any], **values: Any) -> dict[tuple[str, ...], np.ndarray]:
    made = optimizer.make(_config(schedule="constant", **values), 10)
    params = jax.tree.map(jnp.asarray, PARAMS)
    state = made.init(params)
    for g in gradients:
        updates, state = made.update(g, state, params)
        params = optax.apply_updates(params, updates)
    return _flat(params)


def _numpy_adam(
    gradients: list[Any], lr: float, clip: float, decay: float, lamb: bool, eps: float = 1e-6
) -> dict[tuple[str, ...], np.ndarray]:
    b1, b2 = 0.9, 0.999
    params = _flat(PARAMS)
    first = {k: np.zeros_like(v) for k, v in params.items()}
    second = {k: np.zeros_like(v) for k, v in params.items()}
    for t, tree in enumerate(gradients, 1):
        flat = _flat(tree)
        norm = math.sqrt(sum((g**2).sum() for g in flat.values()))
        for k, g in flat.items():
            g = g * min(1.0, clip / norm) if clip else g
            first[k] = b1 * first[k] + (1 - b1) * g
            second[k] = b2 * second[k] + (1 - b2) * g**2
            change = first[k] / (1 - b1**t) / (np.sqrt(second[k] / (1 - b2**t)) + eps)
            if k in DECAYED:
                change = change + decay * params[k]
                if lamb:
                    layers = range(2) if "layers" in k else [slice(None)]
                    for i in layers:
                        change[i] *= np.linalg.norm(params[k][i]) / np.linalg.norm(change[i])
            params[k] = params[k] - lr * change
    return params


@pytest.mark.parametrize("name", ["adamw", "lamb"])
def test_updates_equal_numpy(name: str) -> None:
    gradients = [_gradients(i) for i in range(3)]
    found = _updated(gradients, name=name, learning_rate=0.1, weight_decay=0.1)
    expected = _numpy_adam(gradients, 0.1, clip=1.0, decay=0.1, lamb=name == "lamb")
    for path, value in expected.items():
        np.testing.assert_allclose(found[path], value, rtol=2e-5, atol=1e-6, err_msg=str(path))


def test_clip_is_by_the_global_norm() -> None:
    # With eps far above the root of the second moment an update is the gradient itself over eps.
    gradients = _gradients(0)
    norm = math.sqrt(sum((g**2).sum() for g in _flat(gradients).values()))
    before, raw = _flat(PARAMS), _flat(gradients)
    for clip, factor in ((1.0, 1 / norm), (2 * norm, 1.0), (0.0, 1.0)):
        after = _updated([gradients], eps=1e4, learning_rate=1e4, weight_decay=0.0, clip=clip)
        for path, g in raw.items():
            np.testing.assert_allclose(before[path] - after[path], factor * g, rtol=2e-3, atol=1e-5)


def test_lamb_moves_a_layer_by_its_own_norm() -> None:
    path = ("encoder", "layers", "feed_forward_in", "kernel")
    after = _updated([_gradients(0)], name="lamb", learning_rate=0.01, weight_decay=0.0)
    moved = np.linalg.norm((after[path] - _flat(PARAMS)[path]).reshape(2, -1), axis=1)
    np.testing.assert_allclose(moved, [0.01 * math.sqrt(5), 0.01 * 50], rtol=1e-4)
    # What starts at 0 moves by Adam's own step, not by 0.
    bias = after[("token_head", "bias")]
    np.testing.assert_allclose(np.abs(bias), 0.01, rtol=1e-3)


def test_lamb_moves_a_weight_of_zeros() -> None:
    made = optimizer.make(_config(name="lamb", schedule="constant"), 10)
    params = {"kernel": jnp.zeros((2, 2))}
    updates, _ = made.update({"kernel": jnp.ones((2, 2))}, made.init(params), params)
    np.testing.assert_allclose(updates["kernel"], -1.0, rtol=1e-3)


def test_a_first_moment_of_bfloat16_takes_a_quarter_off_the_state() -> None:
    rng = np.random.default_rng(0)
    params = {"kernel": jnp.asarray(rng.normal(size=(64, 64)), jnp.float32)}

    def after(steps: int, **values: Any) -> tuple[Any, Any]:
        made = optimizer.make(_config(schedule="constant", clip=0.0, **values), steps)
        state, moved, draw = made.init(params), params, np.random.default_rng(1)
        update = jax.jit(made.update)
        for _ in range(steps):
            grads = {"kernel": jnp.asarray(draw.normal(size=(64, 64)), jnp.float32)}
            updates, state = update(grads, state, moved)
            moved = optax.apply_updates(moved, updates)
        return moved["kernel"], next(part for part in state if hasattr(part, "mu"))

    (plain, whole), (short, half) = after(5), after(5, moment_dtype="bfloat16")
    assert (half.mu["kernel"].dtype, half.nu["kernel"].dtype) == (jnp.bfloat16, jnp.float32)
    sizes = [sum(x["kernel"].nbytes for x in (part.mu, part.nu)) for part in (whole, half)]
    assert sizes[1] == 0.75 * sizes[0]
    # The moment is rounded to 8 bits in each step, the update but for that the same.
    moved = np.abs(plain - params["kernel"])
    assert 0 < np.abs(plain - short).max() < 0.02 * moved.max()
