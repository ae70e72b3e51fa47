"""ModernBERT (Warner et al. 2024): pre-norm, gated, rotary by halves, most layers local, often no biases."""

from __future__ import annotations

from typing import Any

import numpy as np

from bert_jax import forms
from bert_jax.interop.families.table import (
    ACTIVATIONS,
    VOCABULARY,
    Config,
    Entry,
    Family,
    Field,
    Tensors,
    affine,
    into_heads,
    norm,
    out_of_heads,
    table,
)
from bert_jax.models.spec import ModelSpec

_BIASES = ("attention_bias", "mlp_bias", "norm_bias", "classifier_bias")
_FULL, _LOCAL = "full_attention", "sliding_attention"


def _body(spec: ModelSpec) -> tuple[Entry, ...]:
    return (
        *table("embeddings.tok_embeddings", "V E", "encoder/word", VOCABULARY),
        *norm("embeddings.norm", "D", "encoder/embedding_norm", spec.bias),
        *norm("final_norm", "D", "encoder/final_norm", spec.bias),
    )


def _layer(spec: ModelSpec) -> tuple[Entry, ...]:
    three = ("attention/query", "attention/key", "attention/value")
    return (
        *norm("attn_norm", "D", "attention_norm", spec.bias, in_first=False),
        *into_heads("attn.Wqkv", *three, bias=spec.bias),
        *out_of_heads("attn.Wo", "attention/out", spec.bias),
        *norm("mlp_norm", "D", "feed_forward_norm", spec.bias),
        *affine("mlp.Wi", "2F D", "feed_forward_in", "feed_forward_gate", bias=spec.bias),
        *affine("mlp.Wo", "D F", "feed_forward_out", bias=spec.bias),
    )


def _heads(spec: ModelSpec) -> dict[str, tuple[Entry, ...]]:
    def transform(path: str) -> tuple[Entry, ...]:
        dense = affine("head.dense", "D D", f"{path}/dense", bias=spec.bias)
        return (*dense, *norm("head.norm", "D", f"{path}/norm", spec.bias))

    bias = Entry("decoder.bias", "V", ("token_head/bias",), VOCABULARY)
    return {
        "token head": (*transform("token_head"), bias),
        "classifier": (*transform("pooler"), *affine("classifier", "C D", "classifier")),
        "token classifier": (*transform("pooler"), *affine("classifier", "G D", "token_classifier")),
        "span head": (*transform("pooler"), *affine("classifier", "2 D", "span_head")),
    }


def _values(values: dict[str, Any], config: Config) -> dict[str, Any]:
    biases = {name: bool(config.get(name, False)) for name in _BIASES}
    if len(set(biases.values())) > 1:
        raise ValueError(
            f"{', '.join(_BIASES)} are {list(biases.values())}: they must be all true or all false"
        )
    activation = config.get("classifier_activation", "gelu")
    if ACTIVATIONS.get(str(activation)) != values["activation"]:
        raise ValueError(
            f"classifier_activation = {activation!r} is another than hidden_activation: they must be the same"
        )
    pooling = {"cls": "first", "mean": "mean"}.get(str(config.get("classifier_pooling", "cls")))
    if pooling is None:
        raise ValueError(f'classifier_pooling = {config["classifier_pooling"]!r}: it must be "cls" or "mean"')
    window, every = _windows(values["layers"], config)
    return {
        **values,
        "bias": biases["norm_bias"],
        "pooling": pooling,
        "local_window": window,
        "global_every": every,
        "rope_theta": _theta(config, _FULL, "global_rope_theta", 160_000.0),
        "local_rope_theta": _theta(config, _LOCAL, "local_rope_theta", 10_000.0),
    }


def _windows(layers: int, config: Config) -> tuple[int, int]:
    """Returns the window of local layers, 0 where there is none, and every which layer is global."""
    types = config.get("layer_types")
    if types is None:
        every = _whole(config, "global_attn_every_n_layers", 3)
        types = [_LOCAL if i % every else _FULL for i in range(layers)]
    if not isinstance(types, list):
        raise ValueError(f"layer_types = {types!r}: it must be a list")
    if _LOCAL not in types:
        return 0, 3
    every = next((i for i, kind in enumerate(types) if i and kind == _FULL), layers)
    if types == [_LOCAL if i % every else _FULL for i in range(layers)]:
        # As there: half of it to each side, an odd one rounded down.
        return _whole(config, "local_attention", 128) // 2 * 2, every
    raise ValueError(
        f"layer_types = {types}: the global layers must be 0, n, 2n.. of {layers}, each other one {_LOCAL!r}"
    )


def _whole(config: Config, key: str, default: int) -> int:
    value = config.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"{key} = {value!r}: it must be a whole number, at least 1")
    return value


def _theta(config: Config, kind: str, old: str, default: float) -> float:
    """Returns the base of the rotary frequencies of a kind of layer, as of today's and of older files."""
    given = config.get("rope_parameters") or {}
    parameters = (given.get(kind) or {}) if isinstance(given, dict) else None
    if not isinstance(parameters, dict):
        raise ValueError(f"rope_parameters = {given!r}: it must be an object with one for {kind}")
    scaled = parameters.get("rope_type", "default") != "default" or config.get("rope_scaling")
    if scaled:
        raise ValueError(
            f"rope_parameters of {kind} are {parameters}: only the rope_type 'default' can be read"
        )
    theta = parameters.get("rope_theta", config.get(old, default))
    if theta is None:  # local layers as global ones
        theta = config.get("global_rope_theta", 160_000.0)
    if not forms.NUMBER.fits(theta) or theta < 1:
        raise ValueError(f"rope_theta of {kind} = {theta!r}: it must be a number, at least 1")
    return float(theta)


def _extra(spec: ModelSpec) -> dict[str, Any]:
    is_local = [bool(spec.local_window) and i % spec.global_every > 0 for i in range(spec.layers)]
    thetas = {_FULL: spec.rope_theta, _LOCAL: spec.local_rope_theta}
    return {
        **dict.fromkeys(_BIASES, spec.bias),
        "classifier_activation": {"gelu_tanh": "gelu_new"}.get(spec.activation, spec.activation),
        "classifier_pooling": {"mean": "mean"}.get(spec.pooling, "cls"),
        "decoder_bias": True,
        "embedding_dropout": spec.dropout,
        "layer_types": [_LOCAL if local else _FULL for local in is_local],
        "local_attention": spec.local_window or 128,
        "rope_parameters": {
            kind: {"rope_type": "default", "rope_theta": theta} for kind, theta in thetas.items()
        },
    }


def _prepared(tensors: Tensors, config: Config, spec: ModelSpec) -> Tensors:
    without = config.get("decoder_bias", True) is False
    if without and "head.dense.weight" in tensors and "classifier.weight" not in tensors:
        return {**tensors, "decoder.bias": np.zeros(spec.vocab_size, np.float32)}
    return tensors


FAMILY = Family(
    name="modernbert",
    prefix="model.",
    fields=(
        Field("vocab_size", "vocab_size", least=1),
        Field("hidden_size", "hidden_size", least=1),
        Field("num_hidden_layers", "layers", least=1),
        Field("num_attention_heads", "heads", least=1),
        Field("intermediate_size", "feed_forward_size", least=1),
        Field("max_position_embeddings", "max_positions", least=1),
        Field("hidden_activation", "activation", "gelu"),
        Field("norm_eps", "norm_eps", 1e-5),
        Field("mlp_dropout", "dropout", 0.0),
        Field("attention_dropout", "attention_dropout", 0.0),
        Field("classifier_dropout", "classifier_dropout", 0.0),
        Field("initializer_range", "init_std", 0.02),
    ),
    fixed={
        "norm": ("pre",),
        "first_norm": (False,),
        "gated": (True,),
        "position": ("rotary",),
        "rope_layout": ("half",),
        "segments": (0,),
        "pooler": ("norm",),
        **dict.fromkeys(
            ("bias", "pooling", "rope_theta", "local_window", "global_every", "local_rope_theta"), ()
        ),
    },
    body=_body,
    layer=_layer,
    layer_key="layers.{}.",
    heads=_heads,
    classes=(
        ("ModernBertForMaskedLM", ("token head",)),
        ("ModernBertForSequenceClassification", ("classifier",)),
        ("ModernBertForTokenClassification", ("token classifier",)),
        ("ModernBertForQuestionAnswering", ("span head",)),
        ("ModernBertModel", ()),
    ),
    decoder="decoder.weight",
    tokens={
        "pad_token_id": "pad_id",
        "bos_token_id": "cls_id",
        "eos_token_id": "sep_id",
        "cls_token_id": "cls_id",
        "sep_token_id": "sep_id",
    },
    values=_values,
    extra=_extra,
    prepared=_prepared,
)
