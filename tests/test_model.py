"""The model against an independent BERT in NumPy, and what must not change its numbers."""

import functools
import math
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax import config
from bert_jax.models import spec as spec_lib
from bert_jax.models.dropout import Dropout
from bert_jax.models.model import Model
from bert_jax.objectives.tokens import token_sums

B, S, M, D, HEADS, VOCAB = 3, 9, 4, 16, 4, 50


@functools.cache
def _build(**values: Any) -> tuple[Model, Any]:
    heads = {k: values.pop(k) for k in ("has_nsp", "has_mlm", "labels") if k in values}
    model = config.default().model
    model.update({
        "hidden_size": D, "layers": 2, "heads": HEADS, "feed_forward_size": 24, "max_positions": 12,
        "scan": True, **values,
    })  # fmt: skip
    made = Model(spec_lib.from_config(model, vocab_size=VOCAB, mask_id=4, **heads))
    shapes = nn.unbox(jax.eval_shape(made.init, jax.random.key(0), _batch())["params"])
    rng = np.random.default_rng(1)
    return made, jax.tree.map(lambda s: rng.normal(size=s.shape, scale=0.3).astype(s.dtype), shapes)


def _batch() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {
        "tokens": rng.integers(0, VOCAB, (B, S)).astype(np.int32),
        "segment_ids": np.array([[1] * 9, [1] * 6 + [0] * 3, [1] * 4 + [2] * 5], np.int32),
        "positions": np.array([range(9), range(9), [0, 1, 2, 3, 0, 1, 2, 3, 4]], np.int32),
        "type_ids": rng.integers(0, 2, (B, S)).astype(np.int32),
        "mlm_positions": rng.integers(0, S, (B, M)).astype(np.int32),
        "mlm_labels": rng.integers(0, VOCAB, (B, M)).astype(np.int32),
        "mlm_weights": np.array([[1, 1, 1, 1], [0, 0, 0, 0], [1, 0, 0, 0]], np.float32),
    }


@functools.cache
def _compiled(model: Model) -> Any:
    return jax.jit(lambda params, batch: model.apply({"params": params}, batch))


def _apply(model: Model, params: Any, batch: Any) -> dict[str, np.ndarray]:
    return jax.device_get(_compiled(model)(params, batch))


# An independent BERT, written from the paper with other axes and no shared code.


def _norm(x: np.ndarray, p: dict[str, np.ndarray]) -> np.ndarray:
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-12) * p["scale"] + p["bias"]


def _gelu(x: np.ndarray) -> np.ndarray:
    return x * 0.5 * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))


def _bert(params: Any, batch: dict[str, np.ndarray], pre: bool) -> np.ndarray:
    e = params["encoder"]
    out = []
    for tokens, segments, positions, types in zip(
        *(batch[k] for k in ("tokens", "segment_ids", "positions", "type_ids")), strict=True
    ):
        x = _norm(e["word"][tokens] + e["position"][positions] + e["segment"][types], e["embedding_norm"])
        for i in range(2):
            layer = jax.tree.map(lambda p: p[i], e["layers"])  # noqa: B023
            a = layer["attention"]
            y = _norm(x, layer["attention_norm"]) if pre else x
            mixed = np.zeros_like(x)
            for h in range(HEADS):
                q, k, v = (y @ a[n]["kernel"][:, h] + a[n]["bias"][h] for n in ("query", "key", "value"))
                for s in range(S):
                    seen = [t for t in range(S) if segments[t] == segments[s] > 0]
                    if seen:
                        scores = np.exp(q[s] @ k[seen].T / math.sqrt(D / HEADS))
                        mixed[s] += scores / scores.sum() @ v[seen] @ a["out"]["kernel"][h]
            x = x + mixed + a["out"]["bias"]
            x = x if pre else _norm(x, layer["attention_norm"])
            y = _norm(x, layer["feed_forward_norm"]) if pre else x
            y = _gelu(y @ layer["feed_forward_in"]["kernel"] + layer["feed_forward_in"]["bias"])
            x = x + y @ layer["feed_forward_out"]["kernel"] + layer["feed_forward_out"]["bias"]
            x = x if pre else _norm(x, layer["feed_forward_norm"])
        out.append(_norm(x, e["final_norm"]) if pre else x)
    return np.stack(out)


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_forward_equals_numpy(norm: str) -> None:
    model, params = _build(norm=norm, has_nsp=True, labels=3)
    batch = _batch()
    found = _apply(model, params, batch)
    wide = jax.tree.map(lambda p: p.astype(np.float64), params)
    hidden = _bert(wide, batch, norm == "pre")
    np.testing.assert_allclose(found["hidden"], hidden, rtol=1e-4, atol=1e-4)

    head = wide["token_head"]
    chosen = np.take_along_axis(hidden, batch["mlm_positions"][..., None], axis=1)
    x = _norm(_gelu(chosen @ head["dense"]["kernel"] + head["dense"]["bias"]), head["norm"])
    logits = x @ wide["encoder"]["word"].T + head["bias"]
    np.testing.assert_allclose(found["mlm_logits"][..., :VOCAB], logits[..., :VOCAB], rtol=1e-4, atol=1e-3)

    pooled = np.tanh(hidden[:, 0] @ wide["pooler"]["dense"]["kernel"] + wide["pooler"]["dense"]["bias"])
    nsp = pooled @ wide["nsp_head"]["dense"]["kernel"] + wide["nsp_head"]["dense"]["bias"]
    np.testing.assert_allclose(found["nsp_logits"], nsp, rtol=1e-4, atol=1e-4)
    classes = pooled @ wide["classifier"]["kernel"] + wide["classifier"]["bias"]
    np.testing.assert_allclose(found["logits"], classes, rtol=1e-4, atol=1e-4)


def test_plain_heads_are_one_matrix_each() -> None:
    model, params = _build(mlm_head="plain", nsp_head="single", has_nsp=True)
    assert jax.tree.map(np.shape, params["token_head"]) == {"kernel": (D, 128)}
    assert jax.tree.map(np.shape, params["nsp_head"]) == {"dense": {"kernel": (D, 1)}}
    assert "pooler" not in params
    found = _apply(model, params, _batch())
    chosen = np.take_along_axis(found["hidden"], _batch()["mlm_positions"][..., None], axis=1)
    expected = chosen @ params["token_head"]["kernel"]
    np.testing.assert_allclose(found["mlm_logits"][..., :VOCAB], expected[..., :VOCAB], rtol=1e-4, atol=1e-4)
    nsp = found["hidden"][:, 0] @ params["nsp_head"]["dense"]["kernel"]
    np.testing.assert_allclose(found["nsp_logits"], nsp, rtol=1e-4, atol=1e-4)
    assert (jax.nn.softmax(found["mlm_logits"])[..., VOCAB:] == 0).all()


def test_padded_vocabulary_has_probability_zero_and_no_gradient() -> None:
    model, params = _build()
    batch = _batch()

    def loss(params: Any) -> tuple[jax.Array, jax.Array]:
        logits = model.apply({"params": params}, batch)["mlm_logits"]
        return token_sums(logits, batch["mlm_labels"], batch["mlm_weights"])["loss"], logits

    (_, logits), gradient = jax.device_get(jax.jit(jax.value_and_grad(loss, has_aux=True))(params))
    assert logits.shape == (B, M, 128)
    p = np.asarray(jax.nn.softmax(logits))
    assert (p[..., VOCAB:] == 0).all()
    np.testing.assert_allclose(p[..., :VOCAB].sum(-1), 1, rtol=1e-5)
    assert not gradient["encoder"]["word"][VOCAB:].any()
    assert not gradient["token_head"]["bias"][VOCAB:].any()


def _loss_and_gradient(model: Model, params: Any) -> Any:
    batch = _batch()

    def loss(params: Any) -> jax.Array:
        out = model.apply({"params": params}, batch, True, rngs={"dropout": jax.random.key(3)})
        return token_sums(out["mlm_logits"], batch["mlm_labels"], batch["mlm_weights"])["loss"]

    return jax.device_get(jax.jit(jax.value_and_grad(loss))(params))


@functools.cache
def _scanned() -> Any:
    return _loss_and_gradient(*_build())


@pytest.mark.parametrize(
    ("scan", "remat"),
    [
        (False, "none"),
        (True, "full"),
        (True, "dots"),
        pytest.param(True, "feed_forward", marks=pytest.mark.slow),
        pytest.param(False, "full", marks=pytest.mark.slow),
        pytest.param(False, "dots", marks=pytest.mark.slow),
    ],
)
def test_unrolling_and_recomputation_change_no_number(scan: bool, remat: str) -> None:
    # With dropout: the masks must be the same too, or the numbers could not be.
    found = _loss_and_gradient(_build(scan=scan, remat=remat)[0], _build()[1])
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-5), found, _scanned())


def test_bfloat16_keeps_parameters_logits_and_gradients_in_float32() -> None:
    model, params = _build(dtype="bfloat16", has_nsp=True, labels=2)
    assert {p.dtype for p in jax.tree.leaves(params)} == {np.dtype("float32")}
    found = _apply(model, params, _batch())
    assert found["hidden"].dtype == jnp.bfloat16
    assert {found[k].dtype for k in ("mlm_logits", "nsp_logits", "logits")} == {np.dtype("float32")}
    assert all(np.isfinite(x.astype(np.float32)).all() for x in found.values())  # padded rows too
    exact = _apply(_build(has_nsp=True, labels=2)[0], params, _batch())
    np.testing.assert_allclose(found["hidden"].astype(np.float32), exact["hidden"], atol=0.15)


def test_padding_and_neighbours_change_nothing() -> None:
    model, params = _build()
    batch = {k: v for k, v in _batch().items() if not k.startswith("mlm")}
    whole = _apply(model, params, batch)["hidden"]
    noisy = {**batch, "tokens": np.where(batch["segment_ids"] == 0, 7, batch["tokens"])}
    noisy["tokens"][2, 4:] = 9  # the other unit of the packed row
    np.testing.assert_array_equal(_apply(model, params, noisy)["hidden"][1, :6], whole[1, :6])
    np.testing.assert_array_equal(_apply(model, params, noisy)["hidden"][2, :4], whole[2, :4])
    alone = {k: v[1:2, :6] for k, v in batch.items()}
    np.testing.assert_allclose(_apply(model, params, alone)["hidden"][0], whole[1, :6], rtol=1e-5, atol=1e-5)
    second = {k: v[2:, 4:] for k, v in batch.items()}
    np.testing.assert_allclose(_apply(model, params, second)["hidden"][0], whole[2, 4:], rtol=1e-5, atol=1e-5)
    # Without ids of its own a batch is unpadded text, counted from 0.
    bare = {"tokens": batch["tokens"][:1]}
    spelt = {k: v[:1] for k, v in batch.items()} | {"type_ids": np.zeros((1, S), np.int32)}
    np.testing.assert_array_equal(
        _apply(model, params, bare)["hidden"], _apply(model, params, spelt)["hidden"]
    )


def test_rotary_model_has_no_position_table_and_knows_distances_only() -> None:
    model, params = _build(position="rotary")
    assert "position" not in params["encoder"]
    batch = {k: v for k, v in _batch().items() if not k.startswith("mlm")}
    hidden = _apply(model, params, batch)["hidden"]
    shifted = _apply(model, params, {**batch, "positions": batch["positions"] + 100})["hidden"]
    np.testing.assert_allclose(shifted, hidden, atol=1e-4)
    spread = _apply(model, params, {**batch, "positions": batch["positions"] * 2})["hidden"]
    assert np.abs(spread - hidden).max() > 50 * np.abs(shifted - hidden).max()


def test_dropout_rate_and_scale() -> None:
    x = jnp.full((400, 500), 3.0)
    out = np.asarray(Dropout(0.1).apply({}, x, True, rngs={"dropout": jax.random.key(0)}))
    assert set(np.unique(out)) == {0.0, np.float32(out.max())}
    assert out.max() == pytest.approx(3 / 0.9, rel=1e-4)
    # 200,000 draws: the standard error of the share is 0.0007.
    assert (out == 0).mean() == pytest.approx(0.1, abs=0.003)
    assert (out == 0).mean(axis=0).std() == pytest.approx(math.sqrt(0.09 / 400), rel=0.2)
    np.testing.assert_array_equal(Dropout(0.1).apply({}, x, False), x)
    np.testing.assert_array_equal(Dropout(0.0).apply({}, x, True), x)
    half = Dropout(0.5).apply({}, x.astype(jnp.bfloat16), True, rngs={"dropout": jax.random.key(0)})
    assert half.dtype == jnp.bfloat16 and set(np.unique(half.astype(jnp.float32))) == {0.0, 6.0}


def test_layers_drop_differently() -> None:
    """With nothing but ones to add, three layers that dropped alike could give two values, not four."""
    model, params = _build(norm="pre", layers=3, dropout=0.5, attention_dropout=0.0, has_mlm=False)
    zeros = jax.tree.map(np.zeros_like, params)
    zeros["encoder"]["layers"]["feed_forward_out"]["bias"] += 1
    zeros["encoder"]["final_norm"]["scale"] += 1
    batch = {"tokens": np.zeros((16, 12), np.int32)}
    hidden = jax.jit(lambda p, k: model.apply({"params": p}, batch, True, rngs={"dropout": k})["hidden"])
    first = np.asarray(hidden(zeros, jax.random.key(0)))
    counts = [len(np.unique(np.round(token, 4))) for token in first.reshape(-1, D)]
    assert max(counts) == 4 and np.mean(counts) > 2.5
    np.testing.assert_array_equal(first, hidden(zeros, jax.random.key(0)))
    assert (first != hidden(zeros, jax.random.key(1))).mean() > 0.5


def test_spec_json_round_trip() -> None:
    spec = _build(dtype="bfloat16")[0].spec
    assert spec_lib.from_json(spec_lib.to_json(spec, ("no", "yes"))) == (spec, ("no", "yes"))
    with pytest.raises(ValueError, match=r"model\.json"):
        spec_lib.from_json(spec_lib.to_json(spec).replace('"format": 1', '"format": 99'))


def test_a_tokenizer_beyond_the_table_is_refused() -> None:
    model = config.default().model
    model.vocab_size = 100
    with pytest.raises(ValueError, match=r"101 tokens and model\.vocab_size = 100"):
        spec_lib.from_config(model, vocab_size=101, mask_id=4)


def test_initialisation_is_a_truncated_normal() -> None:
    """As the released code's: cut at two standard deviations, which leaves 0.88 of them."""
    model = config.default().model
    model.update({"hidden_size": 64, "layers": 1, "heads": 4, "feed_forward_size": 64})
    made = Model(spec_lib.from_config(model, vocab_size=500, mask_id=4))
    batch = {"tokens": np.zeros((1, 2), np.int32)}
    params = jax.device_get(nn.unbox(jax.jit(made.init)(jax.random.key(0), batch)["params"]))
    for table in (params["encoder"]["word"], params["encoder"]["layers"]["attention"]["query"]["kernel"]):
        assert table.std() == pytest.approx(0.02 * 0.8796, rel=0.03)
        assert 0.039 < np.abs(table).max() <= 0.04
    assert (params["encoder"]["embedding_norm"]["scale"] == 1).all()
    assert not params["token_head"]["bias"].any()
