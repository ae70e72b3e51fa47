"""What the family's options do: shared and factorised weights, masks, windows, Synthesizer, ELECTRA."""

import dataclasses
import functools
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax import config, optimizer
from bert_jax.models import spec as spec_lib
from bert_jax.models.encoder import mask_of
from bert_jax.models.model import Model
from bert_jax.objectives.rtd import ReplacedTokens
from bert_jax.objectives.tokens import token_sums

B, S, M, VOCAB = 2, 9, 3, 50
SPEC = spec_lib.ModelSpec(
    vocab_size=VOCAB, mask_id=4, hidden_size=16, layers=3, heads=2, feed_forward_size=24,
    max_positions=12, segments=0, has_mlm=False, scan=True, dropout=0.0, attention_dropout=0.0,
)  # fmt: skip
BATCH = {
    "tokens": np.random.default_rng(0).integers(5, VOCAB, (B, S)).astype(np.int32),
    "segment_ids": np.array([[1] * S, [1] * 7 + [0] * 2], np.int32),
    "positions": np.broadcast_to(np.arange(S, dtype=np.int32), (B, S)),
    "type_ids": np.zeros((B, S), np.int32),
    "mlm_positions": np.array([[1, 4, 7], [2, 5, 0]], np.int32),
    "mlm_labels": np.array([[10, 11, 12], [13, 14, 0]], np.int32),
    "mlm_weights": np.array([[1, 1, 1], [1, 1, 0]], np.float32),
}
STREAMS = {"sample": jax.random.key(3)}


@functools.cache
def _made(**values: Any) -> tuple[Model, Any]:
    model = Model(dataclasses.replace(SPEC, **values))
    streams = {"params": jax.random.key(0), **STREAMS}
    shapes = nn.unbox(jax.eval_shape(model.init, streams, BATCH)["params"])
    rng = np.random.default_rng(1)
    return model, jax.tree.map(lambda s: rng.normal(size=s.shape, scale=0.3).astype(s.dtype), shapes)


@functools.cache
def _jitted(model: Model) -> Any:
    return jax.jit(lambda params, batch: model.apply({"params": params}, batch, rngs=STREAMS))


def _run(model: Model, params: Any, **changed: Any) -> dict[str, np.ndarray]:
    return jax.device_get(_jitted(model)(params, {**BATCH, **changed}))


def test_shared_layers_are_the_same_layer_many_times() -> None:
    shared, params = _made(share_layers=True, embedding_size=6)
    apart, _ = _made(embedding_size=6)
    encoder = {k: v for k, v in params["encoder"].items() if k != "shared_layer"}
    assert encoder["word"].shape == (128, 6) and encoder["embedding_projection"]["kernel"].shape == (6, 16)
    layers = jax.tree.map(lambda x: np.stack([x] * 3), params["encoder"]["shared_layer"])
    expected = _run(apart, {"encoder": {**encoder, "layers": layers}})["hidden"]
    np.testing.assert_allclose(_run(shared, params)["hidden"], expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "values",
    [
        {"share_layers": True, "embedding_size": 6},
        {"norm": "pre", "first_norm": False, "bias": False, "gated": True, "position": "rotary",
         "local_window": 4, "global_every": 2, "rope_layout": "half"},
        {"attention": "random"},
        {"has_rtd": True, "has_generator": True, "generator_fraction": 0.5},
    ],
)  # fmt: skip
def test_scanned_and_unrolled_layers_agree(values: dict[str, Any]) -> None:
    scanned, params = _made(**values)
    unrolled = Model(dataclasses.replace(scanned.spec, scan=False))
    for name, value in _run(scanned, params).items():
        np.testing.assert_allclose(_run(unrolled, params)[name], value, rtol=1e-4, atol=1e-5, err_msg=name)


def test_position_offset_skips_rows_of_the_table() -> None:
    offset, params = _made(position_offset=2)
    plain, _ = _made()
    assert params["encoder"]["position"].shape == (14, 16)
    shifted = {**params, "encoder": {**params["encoder"], "position": params["encoder"]["position"][2:]}}
    np.testing.assert_array_equal(_run(offset, params)["hidden"], _run(plain, shifted)["hidden"])


def test_without_biases_there_are_none() -> None:
    _, params = _made(bias=False, norm="pre", has_mlm=True, embedding_size=6, has_pooler=True, pooler="norm")
    names = ["/".join(k.key for k in path) for path, _ in jax.tree_util.tree_leaves_with_path(params)]
    assert [name for name in names if name.endswith("bias")] == ["token_head/bias"]


def test_a_wide_window_is_no_window_and_a_narrow_one_hides() -> None:
    rotary = {"norm": "pre", "position": "rotary", "global_every": 3}
    everywhere, params = _made(**rotary)
    wide, _ = _made(**rotary, local_window=2 * S)
    narrow, _ = _made(**rotary, local_window=2)
    expected = _run(everywhere, params)["hidden"]
    np.testing.assert_allclose(_run(wide, params)["hidden"], expected, rtol=1e-5, atol=1e-6)
    assert np.abs(_run(narrow, params)["hidden"] - expected).max() > 1e-3


def test_local_layers_have_their_own_frequencies() -> None:
    rotary = {"norm": "pre", "position": "rotary", "local_window": 2 * S}
    same, params = _made(**rotary)
    other, _ = _made(**rotary, local_rope_theta=100.0)
    only_global, _ = _made(**rotary, local_rope_theta=100.0, global_every=1)
    expected = _run(same, params)["hidden"]
    assert np.abs(_run(other, params)["hidden"] - expected).max() > 1e-4
    np.testing.assert_allclose(_run(only_global, params)["hidden"], expected, rtol=1e-5, atol=1e-6)


def test_first_norm_is_left_out_of_the_first_layer_alone() -> None:
    without, params = _made(norm="pre", first_norm=False)
    scale = np.array(params["encoder"]["layers"]["attention_norm"]["scale"])
    gradient = jax.grad(
        lambda p: jnp.sum(without.apply({"params": p}, BATCH)["hidden"] ** 2)
    )(params)["encoder"]["layers"]["attention_norm"]["scale"]  # fmt: skip
    assert scale.shape == (3, 16)
    assert (gradient[0] == 0).all() and (np.abs(gradient[1:]).sum(axis=1) > 0).all()


def _influence(model: Model, params: Any, batch: dict[str, Any]) -> np.ndarray:
    """Returns (S, S) booleans of row 0: does output i depend on the embedding of token j?"""

    def hidden(embedded: jax.Array) -> jax.Array:
        mask = mask_of(model.spec, batch["segment_ids"], batch.get("prefix"))

        def through(m: Model, x: jax.Array) -> jax.Array:
            return m.encoder.contextualize(x, None, mask, batch["positions"], False)

        return model.apply({"params": params}, embedded, method=through)

    start = jnp.asarray(np.random.default_rng(2).normal(size=(B, S, 16)).astype(np.float32))
    jacobian = jax.jacrev(lambda x: hidden(start.at[0].set(x))[0].sum(axis=-1) ** 2)(start[0])
    return np.abs(np.asarray(jacobian)).sum(axis=-1) > 0


def test_causal_sees_the_left_only() -> None:
    model, params = _made(mask="causal")
    np.testing.assert_array_equal(_influence(model, params, BATCH), np.tril(np.ones((S, S), bool)))


def test_prefix_sees_the_source_and_its_left() -> None:
    model, params = _made(mask="prefix")
    prefix = np.zeros((B, S), np.int32)
    prefix[:, :4] = 1
    expected = np.tril(np.ones((S, S), bool))
    expected[:, :4] = True
    np.testing.assert_array_equal(_influence(model, params, {**BATCH, "prefix": prefix}), expected)
    full, _ = _made()
    whole = _run(model, params)["hidden"]  # without the array all of a text is its source
    np.testing.assert_allclose(whole, _run(full, params)["hidden"], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("attention", ["random", "fixed_random"])
def test_synthesizer_attention_does_not_depend_on_the_text(attention: str) -> None:
    model, params = _made(attention=attention)
    names = set(params["encoder"]["layers"]["attention"])
    assert names == {"logits", "value", "out"}

    def weights(tokens: np.ndarray) -> Any:
        _, seen = model.apply({"params": params}, {**BATCH, "tokens": tokens}, mutable=["attention"])
        return jax.tree.leaves(seen)[0]

    one, other = weights(BATCH["tokens"]), weights(BATCH["tokens"][:, ::-1].copy())
    np.testing.assert_array_equal(one, other)
    logits = params["encoder"]["layers"]["attention"]["logits"][:, :, :S, :S].astype(np.float64)
    shares = np.exp(logits) / np.exp(logits).sum(axis=-1, keepdims=True)
    np.testing.assert_allclose(one[:, 0], shares, rtol=1e-5)  # of row 0, which has no padding
    assert (one[:, 1, :, :, 7:] == 0).all()

    def loss(p: Any) -> jax.Array:
        return jnp.sum(model.apply({"params": p}, BATCH)["hidden"][..., 0] ** 2)

    c = config.default().optimizer
    c.weight_decay, c.learning_rate = 0.5, 0.1
    update = optimizer.make(c, 10)
    step, _ = update.update(jax.grad(loss)(params), update.init(params), params)
    moved = np.abs(step["encoder"]["layers"]["attention"]["logits"]).max()
    assert (moved == 0) == (attention == "fixed_random")


ELECTRA = {"has_rtd": True, "has_generator": True, "generator_fraction": 0.5}


def test_generator_fills_the_masked_positions_only() -> None:
    model, params = _made(**ELECTRA)
    assert params["generator"]["encoder"]["embedding_projection"]["kernel"].shape == (16, 8)
    assert set(params["generator"]["encoder"]) == {"embedding_projection", "layers"}
    found = _run(model, params)
    weights, where = BATCH["mlm_weights"], BATCH["mlm_positions"]
    allowed = np.zeros((B, S), bool)
    for row in range(B):
        allowed[row, where[row][weights[row] > 0]] = True
    assert found["rtd_labels"].any() and not found["rtd_labels"][~allowed].any()

    # A generator that is sure of the labels puts every original back.
    sure = jax.tree.map(np.array, params)
    sure["generator"]["token_head"]["bias"][:] = -1e6
    sure["generator"]["token_head"]["bias"][10] = 0
    same = _run(model, sure, mlm_labels=np.full((B, M), 10, np.int32))
    assert not same["rtd_labels"].any()
    # Then the discriminator sees the original text: what a model without a generator sees.
    original = BATCH["tokens"].copy()
    original[allowed] = 10
    alone = Model(dataclasses.replace(model.spec, has_generator=False))
    seen = _run(alone, {k: v for k, v in params.items() if k != "generator"}, tokens=original)
    np.testing.assert_allclose(same["rtd_logits"], seen["rtd_logits"], rtol=1e-5, atol=1e-6)


def test_no_gradient_flows_through_the_draw() -> None:
    model, params = _made(**ELECTRA)

    def losses(p: Any) -> tuple[jax.Array, jax.Array]:
        outputs = model.apply({"params": p}, BATCH, rngs=STREAMS)
        mlm = token_sums(outputs["mlm_logits"], BATCH["mlm_labels"], BATCH["mlm_weights"])["loss"]
        c = config.default().objective.rtd
        return mlm, ReplacedTokens(c).sums(BATCH, outputs)["loss"]

    def size(tree: Any) -> float:
        return max(float(jnp.abs(x).max()) for x in jax.tree.leaves(tree))

    of_mlm = jax.grad(lambda p: losses(p)[0])(params)
    of_rtd = jax.grad(lambda p: losses(p)[1])(params)
    assert size(of_rtd["generator"]) == 0 and size(of_rtd["encoder"]) > 0
    assert size(of_mlm["rtd_head"]) == 0 and size(of_mlm["encoder"]["layers"]) == 0
    assert size(of_mlm["generator"]) > 0 and size(of_mlm["encoder"]["word"]) > 0


def test_draws_follow_the_generator() -> None:
    model, params = _made(**ELECTRA)
    rows = 2000
    batch = {k: np.repeat(v[:1], rows, axis=0) for k, v in BATCH.items()}
    outputs = jax.jit(lambda p, b: model.apply({"params": p}, b, rngs=STREAMS))(params, batch)
    shares = np.asarray(jax.nn.softmax(outputs["mlm_logits"][0], axis=-1))  # (M, V)
    kept = 1 - np.asarray(outputs["rtd_labels"]).mean(axis=0)[BATCH["mlm_positions"][0]]
    expected = shares[np.arange(M), BATCH["mlm_labels"][0]]
    deviation = np.sqrt(expected * (1 - expected) / rows)
    assert (np.abs(kept - expected) < 4.5 * deviation + 1e-9).all()


def test_pooled_mean_leaves_padding_out() -> None:
    model, params = _made(pooling="mean", pooler="relu", has_pooler=True, labels=2)
    found = _run(model, params)
    states = found["hidden"][1, :7].mean(axis=0)
    pooled = np.maximum(states @ params["pooler"]["dense"]["kernel"] + params["pooler"]["dense"]["bias"], 0)
    logits = pooled @ params["classifier"]["kernel"] + params["classifier"]["bias"]
    np.testing.assert_allclose(found["logits"][1], logits, rtol=1e-4, atol=1e-5)


def test_token_and_span_heads_judge_every_token() -> None:
    model, params = _made(token_labels=5, has_span=True)
    found = _run(model, params)
    for name, head in (("token_labels_logits", "token_classifier"), ("span_logits", "span_head")):
        expected = found["hidden"] @ params[head]["kernel"] + params[head]["bias"]
        np.testing.assert_allclose(found[name], expected, rtol=1e-4, atol=1e-5)
    assert found["span_logits"].shape == (B, S, 2) and "pooler" not in params
