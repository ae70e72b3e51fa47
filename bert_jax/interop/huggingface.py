"""Reads BERT directories in Hugging Face's layout: config.json and safetensors files.

Every array that can be read stands in one of the tables below, with its shape and what is done to
it. Arrays that no table names are left out and reported.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from etils import epath

from bert_jax.interop.huggingface_files import HuggingFaceError, Tensors, read_json, read_tensors
from bert_jax.models.spec import ModelSpec


class _Entry(NamedTuple):
    """One array: its key and shape in the file, its path here, and how the one becomes the other.

    Shapes in letters: V words, P positions, T segments, D hidden, F feed-forward, 2 as it stands, and C
    labels.
    """

    key: str
    shape: str
    path: str
    change: Callable[[np.ndarray, ModelSpec], np.ndarray]


def _same(x: np.ndarray, spec: ModelSpec) -> np.ndarray:
    return x


def _transposed(x: np.ndarray, spec: ModelSpec) -> np.ndarray:
    return x.T  # PyTorch keeps (out, in)


def _to_heads(x: np.ndarray, spec: ModelSpec) -> np.ndarray:
    return x.T.reshape(spec.hidden_size, spec.heads, -1)  # (H * K, D) to (D, H, K)


def _bias_to_heads(x: np.ndarray, spec: ModelSpec) -> np.ndarray:
    return x.reshape(spec.heads, -1)


def _from_heads(x: np.ndarray, spec: ModelSpec) -> np.ndarray:
    return x.T.reshape(spec.heads, -1, spec.hidden_size)  # (D, H * K) to (H, K, D)


def _padded(x: np.ndarray, spec: ModelSpec) -> np.ndarray:
    return np.pad(x, [(0, spec.padded_vocab_size - len(x))] + [(0, 0)] * (x.ndim - 1))


_EMBEDDINGS = (
    _Entry("embeddings.word_embeddings.weight", "VD", "encoder/word", _padded),
    _Entry("embeddings.position_embeddings.weight", "PD", "encoder/position", _same),
    _Entry("embeddings.LayerNorm.weight", "D", "encoder/embedding_norm/scale", _same),
    _Entry("embeddings.LayerNorm.bias", "D", "encoder/embedding_norm/bias", _same),
)
_SEGMENTS = _Entry("embeddings.token_type_embeddings.weight", "TD", "encoder/segment", _same)
# Under "encoder.layer.N." there, and stacked over the layers under "encoder/layers/" here.
_LAYER = (
    _Entry("attention.self.query.weight", "DD", "attention/query/kernel", _to_heads),
    _Entry("attention.self.query.bias", "D", "attention/query/bias", _bias_to_heads),
    _Entry("attention.self.key.weight", "DD", "attention/key/kernel", _to_heads),
    _Entry("attention.self.key.bias", "D", "attention/key/bias", _bias_to_heads),
    _Entry("attention.self.value.weight", "DD", "attention/value/kernel", _to_heads),
    _Entry("attention.self.value.bias", "D", "attention/value/bias", _bias_to_heads),
    _Entry("attention.output.dense.weight", "DD", "attention/out/kernel", _from_heads),
    _Entry("attention.output.dense.bias", "D", "attention/out/bias", _same),
    _Entry("attention.output.LayerNorm.weight", "D", "attention_norm/scale", _same),
    _Entry("attention.output.LayerNorm.bias", "D", "attention_norm/bias", _same),
    _Entry("intermediate.dense.weight", "FD", "feed_forward_in/kernel", _transposed),
    _Entry("intermediate.dense.bias", "F", "feed_forward_in/bias", _same),
    _Entry("output.dense.weight", "DF", "feed_forward_out/kernel", _transposed),
    _Entry("output.dense.bias", "D", "feed_forward_out/bias", _same),
    _Entry("output.LayerNorm.weight", "D", "feed_forward_norm/scale", _same),
    _Entry("output.LayerNorm.bias", "D", "feed_forward_norm/bias", _same),
)
_HEADS = {
    "pooler": (
        _Entry("pooler.dense.weight", "DD", "pooler/dense/kernel", _transposed),
        _Entry("pooler.dense.bias", "D", "pooler/dense/bias", _same),
    ),
    "token head": (
        _Entry("cls.predictions.transform.dense.weight", "DD", "token_head/dense/kernel", _transposed),
        _Entry("cls.predictions.transform.dense.bias", "D", "token_head/dense/bias", _same),
        _Entry("cls.predictions.transform.LayerNorm.weight", "D", "token_head/norm/scale", _same),
        _Entry("cls.predictions.transform.LayerNorm.bias", "D", "token_head/norm/bias", _same),
        _Entry("cls.predictions.bias", "V", "token_head/bias", _padded),
    ),
    "next-sentence head": (
        _Entry("cls.seq_relationship.weight", "2D", "nsp_head/dense/kernel", _transposed),
        _Entry("cls.seq_relationship.bias", "2", "nsp_head/dense/bias", _same),
    ),
    "classifier": (
        _Entry("classifier.weight", "CD", "classifier/kernel", _transposed),
        _Entry("classifier.bias", "C", "classifier/bias", _same),
    ),
}
_ACTIVATIONS = {"gelu": "gelu", "gelu_new": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh", "relu": "relu"}


def read(
    directory: epath.PathLike, mask_id: int
) -> tuple[ModelSpec, dict[str, Any], tuple[str, ...], list[str]]:
    """Reads a BERT model: the encoder and those heads that the files hold.

    Keys may have the prefix "bert." or not, and LayerNorms their old names gamma and beta. Arrays of
    16 bits become float32. The decoder's bias stands for a missing `cls.predictions.bias`.

    Args:
      directory: holds config.json, and model.safetensors or model.safetensors.index.json with the
        files that it names; local or gs://.
      mask_id: the tokenizer's mask token.

    Returns:
      The spec, the parameters as nested dicts of float32 arrays, the names of the classifier's labels,
      and lines that say what was loaded, left out, and is not there.

    Raises:
      HuggingFaceError: the model is none that is read here, or an array is missing or misshapen.
    """
    folder = epath.Path(directory)
    config = read_json(folder / "config.json")
    spec = _spec(config, mask_id, str(folder / "config.json"))
    tensors, ignored = read_tensors(folder)
    classes = config.get("architectures") or []
    if classes and not any(str(name).endswith("ForSequenceClassification") for name in classes):
        # Of another class, BertForTokenClassification say: no label of a text.
        for key in ("classifier.weight", "classifier.bias"):
            if tensors.pop(key, None) is not None:
                ignored.append(key)

    entries = [*_EMBEDDINGS, *([_SEGMENTS] if spec.segments else [])]
    names = [entry.key for entry in entries]
    names += [f"encoder.layer.{i}.{entry.key}" for i in range(spec.layers) for entry in _LAYER]
    missing = [name for name in names if name not in tensors]
    if missing:
        raise HuggingFaceError(
            f"{folder}: {missing[0]} is missing, the first of {len(missing)} missing of the encoder's "
            f"{len(names)} arrays: the files are incomplete, or belong to another config.json"
        )
    heads = _heads(tensors, str(folder))
    labels: tuple[str, ...] = ()
    if "classifier" in heads:
        labels = _labels(config, len(tensors["classifier.weight"]), str(folder))
    spec = dataclasses.replace(
        spec,
        has_mlm="token head" in heads,
        has_nsp="next-sentence head" in heads,
        has_pooler="pooler" in heads,
        labels=len(labels),
    )

    def take(entry: _Entry, prefix: str = "") -> np.ndarray:
        key = prefix + entry.key
        return entry.change(_checked(tensors.pop(key), key, entry.shape, spec), spec)

    params: dict[str, Any] = {}
    for entry in [*entries, *(entry for head in heads for entry in _HEADS[head])]:
        _put(params, entry.path, take(entry))
    for entry in _LAYER:
        layers = [take(entry, f"encoder.layer.{i}.") for i in range(spec.layers)]
        _put(params, f"encoder/layers/{entry.path}", np.stack(layers))

    report = [f"loaded: encoder of {spec.layers} layers", *(f"loaded: {head}" for head in heads)]
    report += [f"not in the files: {head}" for head in _HEADS if head not in heads]
    report += [f"left out: {key}" for key in sorted([*tensors, *ignored])]
    return spec, params, labels, report


def _spec(config: Mapping[str, Any], mask_id: int, origin: str) -> ModelSpec:
    """Returns the spec of a config.json, heads aside. What BERT's own config leaves out has BERT's value."""
    kind = config.get("model_type")
    if kind is None and any(str(name).startswith("Bert") for name in config.get("architectures") or []):
        kind = "bert"
    if kind != "bert":
        found = "has no model_type" if kind is None else f"has model_type {kind!r}"
        raise HuggingFaceError(f'{origin} {found}: only "bert" can be read')
    activation = config.get("hidden_act", "gelu")
    if activation not in _ACTIVATIONS:
        known = ", ".join(_ACTIVATIONS)
        raise HuggingFaceError(f"{origin}: hidden_act = {activation!r}: it must be one of {known}")
    position = config.get("position_embedding_type", "absolute")
    if position != "absolute":
        raise HuggingFaceError(
            f'{origin}: position_embedding_type = {position!r}: only "absolute" can be read'
        )
    for name in ("is_decoder", "add_cross_attention"):
        if config.get(name):
            raise HuggingFaceError(f"{origin}: {name} is true: only encoders can be read")

    def number(name: str, default: float | None = None, least: float = 0) -> Any:
        value = config.get(name, default)
        whole = default is None or isinstance(default, int)
        if isinstance(value, bool) or not isinstance(value, int if whole else int | float) or value < least:
            rule = f"{'a whole number' if whole else 'a number'}, at least {least}"
            raise HuggingFaceError(f"{origin}: {name} = {value!r}: it must be {rule}")
        return value

    spec = ModelSpec(
        vocab_size=number("vocab_size", least=1),
        mask_id=mask_id,
        kind="encoder",
        tta_query="position",
        hidden_size=number("hidden_size", least=1),
        layers=number("num_hidden_layers", least=1),
        heads=number("num_attention_heads", least=1),
        feed_forward_size=number("intermediate_size", least=1),
        max_positions=number("max_position_embeddings", least=1),
        segments=number("type_vocab_size", 2),
        position="learned",
        rope_theta=10_000.0,
        rope_layout="adjacent",
        norm="post",
        norm_eps=number("layer_norm_eps", 1e-12),
        activation=_ACTIVATIONS[activation],
        dropout=number("hidden_dropout_prob", 0.1),
        attention_dropout=number("attention_probs_dropout_prob", 0.1),
        init_std=number("initializer_range", 0.02),
        mlm_head="tied",
        nsp_head="pooled",
        scan=False,
        remat="none",
        dtype=jnp.float32,
    )
    if spec.hidden_size % spec.heads:
        raise HuggingFaceError(
            f"{origin}: hidden_size = {spec.hidden_size} is not a multiple of "
            f"num_attention_heads = {spec.heads}"
        )
    dropout = config.get("classifier_dropout")
    return dataclasses.replace(spec, classifier_dropout=spec.dropout if dropout is None else dropout)


def _heads(tensors: Tensors, origin: str) -> list[str]:
    """Returns which heads are there, all of each; a bias or table that the decoder shares is put in place."""
    decoder, decoder_bias = (f"cls.predictions.decoder.{name}" for name in ("weight", "bias"))
    if decoder_bias in tensors:
        tensors.setdefault("cls.predictions.bias", tensors[decoder_bias])
        del tensors[decoder_bias]
    table = tensors.pop(decoder, None)
    if table is not None and not np.array_equal(table, tensors["embeddings.word_embeddings.weight"]):
        raise HuggingFaceError(f"{origin}: {decoder} is not the word table: only tied decoders can be read")

    heads = []
    for head, entries in _HEADS.items():
        absent = [entry.key for entry in entries if entry.key not in tensors]
        if not absent:
            heads.append(head)
        elif len(absent) < len(entries):
            raise HuggingFaceError(f"{origin}: {absent[0]} is missing, though others of the {head} are there")
    for head in ("next-sentence head", "classifier"):
        if head in heads and "pooler" not in heads:
            raise HuggingFaceError(f"{origin}: pooler.dense.weight is missing, which the {head} needs")
    return heads


def _labels(config: Mapping[str, Any], count: int, origin: str) -> tuple[str, ...]:
    """Returns the names of the classifier's labels, LABEL_0 and so on where config.json has none."""
    names = config.get("id2label") or {str(i): f"LABEL_{i}" for i in range(count)}
    if sorted(names) != sorted(str(i) for i in range(count)):
        raise HuggingFaceError(
            f"{origin}: classifier.weight has {count} rows, and id2label of config.json "
            f"names {len(names)} labels"
        )
    return tuple(str(names[str(i)]) for i in range(count))


def _checked(x: np.ndarray, key: str, letters: str, spec: ModelSpec) -> np.ndarray:
    """Returns the array itself if its shape is what config.json asks for."""
    sizes = {
        "V": spec.vocab_size,
        "P": spec.max_positions,
        "T": spec.segments,
        "D": spec.hidden_size,
        "F": spec.feed_forward_size,
        "C": spec.labels,
        "2": 2,
    }
    expected = tuple(sizes[letter] for letter in letters)
    if x.shape != expected:
        raise HuggingFaceError(f"{key} has the shape {x.shape}, and config.json asks for {expected}")
    return x


def _put(tree: dict[str, Any], path: str, value: np.ndarray) -> None:
    *groups, leaf = path.split("/")
    for group in groups:
        tree = tree.setdefault(group, {})
    tree[leaf] = np.ascontiguousarray(value)
