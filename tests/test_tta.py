"""T-TA: no token sees itself, each sees all others, at every depth, length, mask and precision."""

import itertools
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax import config
from bert_jax.models import spec as spec_lib
from bert_jax.models.masks import Mask
from bert_jax.models.model import Model

MASK = 3
# One row for each way to lie in a row of 7: alone, in two, all 7, packed twice, packed with one alone.
SEGMENTS = np.array(
    [
        [1, 0, 0, 0, 0, 0, 0],
        [1, 1, 0, 0, 0, 0, 0],
        [1, 1, 1, 1, 1, 1, 1],
        [1, 1, 1, 2, 2, 2, 2],
        [1, 1, 2, 3, 3, 3, 0],
    ],
    np.int32,
)
POSITIONS = np.array(
    [[int(i - np.argmax(row == s)) for i, s in enumerate(row)] for row in SEGMENTS], np.int32
)
SAME_UNIT = (SEGMENTS[:, :, None] == SEGMENTS[:, None]) & (SEGMENTS[:, None] > 0)
ITSELF = np.eye(7, dtype=bool)[None]


def make(**values: Any) -> tuple[Model, Any, dict[str, np.ndarray]]:
    model = config.default().model
    model.update({
        "kind": "tta", "hidden_size": 16, "layers": 2, "heads": 2, "feed_forward_size": 24,
        "max_positions": 8, "scan": True, **values,
    })  # fmt: skip
    made = Model(spec_lib.from_config(model, vocab_size=20, mask_id=MASK))
    rng = np.random.default_rng(0)
    batch = {
        # [MASK] too, which is a token like others: mask_token's query shares its row of the table.
        "tokens": rng.integers(MASK, 20, SEGMENTS.shape).astype(np.int32),
        "segment_ids": SEGMENTS,
        "positions": POSITIONS,
        "type_ids": rng.integers(0, 2, SEGMENTS.shape).astype(np.int32),
    }
    shapes = nn.unbox(jax.eval_shape(made.init, jax.random.key(0), batch)["params"])
    params = jax.tree.map(lambda s: rng.normal(size=s.shape, scale=0.3).astype(np.float32), shapes)
    return made, params, batch


def gradients(
    model: Model, params: Any, batch: dict[str, np.ndarray], see_self: bool, train: bool = False
) -> np.ndarray:
    """Returns how far logits at i move with token j's embedding as key and value, (B, 7, 7).

    It is the largest gradient of the token's own logit and of a random mixture of all logits, so that
    a leak into any of them shows. The query stream, which holds no token, is a constant.
    """
    size = model.spec.vocab_size
    # Rows are independent: a copy of the batch for each of 7 positions and 2 readings asks all at once.
    rows = {name: np.tile(x, (14, 1)) for name, x in batch.items()}
    mixture = np.random.default_rng(1).normal(size=size).astype(np.float32)
    own = np.eye(size, dtype=np.float32)[batch["tokens"]]
    readings = np.stack([np.broadcast_to(mixture, own.shape), own])  # (2, B, 7, V)
    # (reading, position asked, B, position, V)
    cotangents = np.einsum("rbpv,qp->rqbpv", readings, np.eye(7)).reshape(-1, 7, size).astype(np.float32)

    def total(embedded: jax.Array, model: Model) -> tuple[jax.Array, jax.Array]:
        query = model.encoder.embed(None, rows["positions"], rows["type_ids"])
        mask = Mask(jnp.asarray(rows["segment_ids"]), diagonal=not see_self)
        hidden = model.encoder.contextualize(embedded, query, mask, rows["positions"], train)
        logits = model.token_logits(hidden)[..., :size]
        return jnp.sum(logits * cotangents), logits

    @jax.jit
    def run(params: Any) -> tuple[jax.Array, jax.Array]:
        variables, rngs = {"params": params}, {"dropout": jax.random.key(1)}
        embedded = model.apply(
            variables, method=lambda m: m.encoder.embed(rows["tokens"], rows["positions"], rows["type_ids"])
        )
        moved, logits = jax.grad(
            lambda e: model.apply(variables, method=lambda m: total(e, m), rngs=rngs), has_aux=True
        )(embedded)
        return jnp.abs(moved.astype(jnp.float32)).max(axis=-1), logits

    moved, logits = jax.device_get(run(params))
    assert np.isfinite(logits).all() and np.isfinite(moved).all()
    return moved.reshape(2, 7, *SEGMENTS.shape).max(axis=0).transpose(1, 0, 2)


FLAVOURS = {
    "position": {},
    "mask_token": {"tta_query": "mask_token"},
    "rotary": {"position": "rotary"},
}
GRID = list(itertools.product(FLAVOURS, ("post", "pre"), ("float32", "bfloat16"), (1, 3, 6)))
# Nine of the 36 in which each pair of values meets; the slow test runs them all.
FEW = [
    (flavour, ("post", "pre")[(i + j) % 2], ("float32", "bfloat16")[(i + j // 2) % 2], layers)
    for i, flavour in enumerate(FLAVOURS)
    for j, layers in enumerate((1, 3, 6))
]


def assert_sees_exactly_the_others(flavour: str, norm: str, dtype: str, layers: int, **values: Any) -> None:
    model, params, batch = make(layers=layers, dtype=dtype, norm=norm, **FLAVOURS[flavour], **values)
    moved = gradients(model, params, batch, see_self=False)
    np.testing.assert_array_equal(moved > 0, SAME_UNIT & ~ITSELF)


@pytest.mark.parametrize(("flavour", "norm", "dtype", "layers"), FEW)
def test_no_token_sees_itself_and_each_sees_the_others(
    flavour: str, norm: str, dtype: str, layers: int
) -> None:
    assert_sees_exactly_the_others(flavour, norm, dtype, layers)


@pytest.mark.slow
@pytest.mark.parametrize(("flavour", "norm", "dtype", "layers"), GRID)
@pytest.mark.parametrize("scan", [True, False])
def test_no_token_sees_itself_anywhere_on_the_grid(
    flavour: str, norm: str, dtype: str, layers: int, scan: bool
) -> None:
    assert_sees_exactly_the_others(flavour, norm, dtype, layers, scan=scan, remat="none" if scan else "full")


@pytest.mark.parametrize("flavour", ["position", "rotary"])
def test_the_leak_shows_when_the_diagonal_is_lifted(flavour: str) -> None:
    model, params, batch = make(layers=1, **FLAVOURS[flavour])
    moved = gradients(model, params, batch, see_self=True)
    np.testing.assert_array_equal(moved > 0, SAME_UNIT)


def test_no_leak_through_dropout() -> None:
    model, params, batch = make(layers=3, dropout=0.2, attention_dropout=0.2)
    moved = gradients(model, params, batch, see_self=False, train=True)
    assert not moved[~(SAME_UNIT & ~ITSELF)].any()
    assert (moved[SAME_UNIT & ~ITSELF] > 0).mean() > 0.9  # dropout may cut one off by chance


def test_the_whole_model_does_not_know_the_token_it_predicts() -> None:
    """Not by gradients but by replacing each token in turn, through `Model.__call__`."""
    model, params, batch = make(layers=3)
    rows = {name: np.tile(x, (8, 1)) for name, x in batch.items()}
    for i in range(7):
        of_copy = slice(5 * (i + 1), 5 * (i + 2))
        rows["tokens"][of_copy, i] = (rows["tokens"][of_copy, i] - MASK + 5) % (20 - MASK) + MASK

    def apply(params: Any, batch: Any) -> tuple[jax.Array, Any]:
        out, sown = model.apply({"params": params}, batch, mutable=["attention"])
        return out["tta_logits"], sown["attention"]["encoder"]["layers"]["attention"]["weights"][0]

    logits, weights = jax.device_get(jax.jit(apply)(params, rows))
    logits = logits.reshape(8, 5, 7, -1)
    for i in range(7):
        changed = (logits[i + 1] != logits[0]).any(axis=-1)  # (B, 7)
        np.testing.assert_array_equal(changed, (SAME_UNIT & ~ITSELF)[:, :, i])
    # Where nothing can be seen, the weights are zeros in every layer and head.
    assert weights.shape == (3, 40, 2, 7, 7)
    lonely = np.tile(~(SAME_UNIT & ~ITSELF).any(axis=-1), (8, 1))
    assert lonely[0, 0] and lonely[4, 2]  # of length 1: alone in a row, and packed with others
    assert not weights.transpose(1, 3, 0, 2, 4)[lonely].any()


def test_parameter_gradients_are_finite_with_lonely_and_padded_tokens() -> None:
    model, params, batch = make(layers=2, dtype="bfloat16")

    def loss(params: Any) -> jax.Array:
        return jnp.sum(jax.nn.logsumexp(model.apply({"params": params}, batch)["tta_logits"], axis=-1))

    gradients = jax.device_get(jax.jit(jax.grad(loss))(params))
    assert all(np.isfinite(g).all() and g.dtype == np.float32 for g in jax.tree.leaves(gradients))


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_first_query_holds_no_token(flavour: str) -> None:
    model, params, batch = make(**FLAVOURS[flavour])
    word, position = params["encoder"]["word"], params["encoder"].get("position")
    total = params["encoder"]["segment"][batch["type_ids"]]
    if flavour != "position":
        total = total + word[MASK]
    if flavour != "rotary":
        total = total + position[batch["positions"]]
    mean, deviation = total.mean(-1, keepdims=True), total.std(-1, keepdims=True)
    norm = params["encoder"]["embedding_norm"]
    expected = (total - mean) / deviation * norm["scale"] + norm["bias"]
    query = model.apply(
        {"params": params},
        method=lambda m: m.encoder.embed(None, batch["positions"], batch["type_ids"]),
    )
    np.testing.assert_allclose(query, expected, rtol=1e-4, atol=1e-5)
