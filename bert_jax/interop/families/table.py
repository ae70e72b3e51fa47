"""What a family's table is made of: its arrays, the fields of its config.json, its heads and classes.

One table serves both ways: each entry says how an array of the file becomes ours and how ours becomes
the file's again, and each field names a key of config.json and the field of ModelSpec that it is.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from bert_jax.models.spec import ModelSpec

Tensors = dict[str, np.ndarray]
Config = Mapping[str, Any]


class Change(NamedTuple):
    """How an array of a file becomes ours, and back; the one undoes the other."""

    read: Callable[[np.ndarray, ModelSpec], np.ndarray]
    write: Callable[[np.ndarray, ModelSpec], np.ndarray]


def _padded(x: np.ndarray, spec: ModelSpec) -> np.ndarray:
    return np.pad(x, [(0, spec.padded_vocab_size - len(x))] + [(0, 0)] * (x.ndim - 1))


SAME = Change(lambda x, spec: x, lambda x, spec: x)
TRANSPOSED = Change(lambda x, spec: x.T, lambda x, spec: x.T)  # PyTorch keeps (out, in)
VOCABULARY = Change(_padded, lambda x, spec: x[: spec.vocab_size])
# (H * K, D) to (D, H, K), and a bias (H * K,) to (H, K)
INTO_HEADS = Change(
    lambda x, spec: x.T.reshape(spec.hidden_size, spec.heads, -1),
    lambda x, spec: x.reshape(spec.hidden_size, -1).T,
)
HEADS_BIAS = Change(lambda x, spec: x.reshape(spec.heads, -1), lambda x, spec: x.reshape(-1))
# (D, H * K) to (H, K, D)
OUT_OF_HEADS = Change(
    lambda x, spec: x.T.reshape(spec.heads, -1, spec.hidden_size),
    lambda x, spec: x.reshape(-1, spec.hidden_size).T,
)


class Entry(NamedTuple):
    """One array of a file.

    Attributes:
      key: its name there.
      shape: its sizes there: numbers and letters, with a number before a letter as its factor. V words,
        P rows of the position table, T segments, E embedding, D hidden, F feed-forward, C labels, G token
        labels.
      paths: where it goes here; several where it holds equal parts one after another.
      change: how it is read and written, each part for itself.
      in_first: whether layer 0 has it too; where it has not, it is ones (a bias: zeros) here.
    """

    key: str
    shape: str
    paths: tuple[str, ...]
    change: Change = SAME
    in_first: bool = True

    def sizes(self, spec: ModelSpec) -> tuple[int, ...]:
        """Returns the array's shape in a file of this model."""
        known = {
            "V": spec.vocab_size,
            "P": spec.max_positions + spec.position_offset,
            "T": spec.segments,
            "E": spec.embedded_size,
            "D": spec.hidden_size,
            "F": spec.feed_forward_size,
            "C": spec.labels,
            "G": spec.token_labels,
            "": 1,
        }
        terms = [re.fullmatch(r"(\d*)([A-Z]?)", term) for term in self.shape.split()]
        return tuple(int(term[1] or 1) * known[term[2]] for term in terms)

    def read(self, x: np.ndarray, spec: ModelSpec) -> list[np.ndarray]:
        """Returns what stands at each of `paths`, of a file's array."""
        return [np.ascontiguousarray(self.change.read(p, spec)) for p in np.split(x, len(self.paths))]

    def write(self, parts: list[np.ndarray], spec: ModelSpec) -> np.ndarray:
        """Returns a file's array, of what stands at each of `paths`."""
        return np.ascontiguousarray(np.concatenate([self.change.write(part, spec) for part in parts]))


def table(key: str, shape: str, path: str, change: Change = SAME) -> tuple[Entry]:
    """Returns the entry of an embedding table."""
    return (Entry(f"{key}.weight", shape, (path,), change),)


def norm(key: str, size: str, path: str, bias: bool = True, in_first: bool = True) -> tuple[Entry, ...]:
    """Returns the entries of a LayerNorm."""
    scale = Entry(f"{key}.weight", size, (f"{path}/scale",), SAME, in_first)
    return (scale, *([Entry(f"{key}.bias", size, (f"{path}/bias",), SAME, in_first)] if bias else []))


def affine(key: str, shape: str, *paths: str, bias: bool = True) -> tuple[Entry, ...]:
    """Returns the entries of a dense layer (out, in), or of several in one array."""
    kernel = Entry(f"{key}.weight", shape, tuple(f"{path}/kernel" for path in paths), TRANSPOSED)
    out = Entry(f"{key}.bias", shape.split()[0], tuple(f"{path}/bias" for path in paths))
    return (kernel, *([out] if bias else []))


def into_heads(key: str, *paths: str, bias: bool = True) -> tuple[Entry, ...]:
    """Returns the entries of the query's, key's or value's projection, or of several in one array."""
    size = f"{len(paths)}D"
    kernel = Entry(f"{key}.weight", f"{size} D", tuple(f"{path}/kernel" for path in paths), INTO_HEADS)
    out = Entry(f"{key}.bias", size, tuple(f"{path}/bias" for path in paths), HEADS_BIAS)
    return (kernel, *([out] if bias else []))


def out_of_heads(key: str, path: str, bias: bool = True) -> tuple[Entry, ...]:
    """Returns the entries of the projection after attention."""
    kernel = Entry(f"{key}.weight", "D D", (f"{path}/kernel",), OUT_OF_HEADS)
    return (kernel, *([Entry(f"{key}.bias", "D", (f"{path}/bias",))] if bias else []))


REQUIRED: Any = object()
ACTIVATIONS = {"gelu": "gelu", "gelu_new": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh", "relu": "relu"}


class Field(NamedTuple):
    """A key of config.json and the field of ModelSpec that it is; the default is for a file without it."""

    key: str
    field: str
    default: Any = REQUIRED
    least: float = 0


@dataclasses.dataclass(frozen=True)
class Family:
    """A model_type of config.json.

    Attributes:
      name: the model_type.
      prefix: what stands before the encoder's keys in a file that has heads.
      fields: what of config.json is a field of ModelSpec.
      fixed: what the family's models are, as fields of ModelSpec: the allowed values, or () for any, on
        which `reason` has a say; what is not named here or in `fields` has ModelSpec's default.
      expected: keys of config.json that must have this value where they are there.
      body: the encoder's arrays outside its layers.
      layer: the arrays of a layer.
      layer_key: what stands before a layer's keys, {} for its number.
      heads: the arrays of each head; that of a "pooler" belongs to the encoder.
      classes: names of classes and the heads that each holds, in the order in which one is chosen.
      decoder: key of the token head's matrix, which must be the word table.
      aliases: other keys of an array, and the key of the table.
      tokens: keys of config.json that name special tokens, and the tokenizer's attribute.
      values: ModelSpec's fields as `fields` give them, and config.json, to all of them.
      extra: what else config.json says of a spec.
      prepared: a file's arrays and config.json, to arrays that the table names.
      computed: arrays of a file that are no parameters, of a spec.
      reason: why no class of the family computes what a spec says, or None.
    """

    name: str
    prefix: str
    fields: tuple[Field, ...]
    body: Callable[[ModelSpec], tuple[Entry, ...]]
    layer: Callable[[ModelSpec], tuple[Entry, ...]]
    layer_key: str
    heads: Callable[[ModelSpec], Mapping[str, tuple[Entry, ...]]]
    classes: tuple[tuple[str, tuple[str, ...]], ...]
    decoder: str
    fixed: Mapping[str, tuple[Any, ...]] = dataclasses.field(default_factory=dict)
    expected: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    aliases: Mapping[str, str] = dataclasses.field(default_factory=dict)
    tokens: Mapping[str, str] = dataclasses.field(default_factory=lambda: {"pad_token_id": "pad_id"})
    values: Callable[[dict[str, Any], Config], dict[str, Any]] = lambda values, config: values
    extra: Callable[[ModelSpec], dict[str, Any]] = lambda spec: {}
    prepared: Callable[[Tensors, Config, ModelSpec], Tensors] = lambda tensors, config, spec: tensors
    computed: Callable[[ModelSpec], Tensors] = lambda spec: {}
    reason: Callable[[ModelSpec], str | None] = lambda spec: None

    def unfit(self, spec: ModelSpec) -> str | None:
        """Returns why no model of the family computes what the spec says, or None where one does."""
        for field in self.fields:
            value = getattr(spec, field.field)
            if isinstance(value, int | float) and value < field.least and field.field != "embedding_size":
                return f"model.{field.field} = {value}, and a {self.name} has at least {field.least:g}"
        free = {field.field for field in self.fields} | _WITHOUT_EFFECT | unused(spec)
        defaults = {field.name: field.default for field in dataclasses.fields(ModelSpec)}
        for name, default in defaults.items():
            if name in free or name.startswith("has_"):
                continue
            value, allowed = getattr(spec, name), self.fixed.get(name, (default,))
            if name == "embedding_size" and value == spec.hidden_size:
                value = 0
            if allowed and value not in allowed:
                return f"model.{name} = {value!r}, and a {self.name} has {' or '.join(map(repr, allowed))}"
        return self.reason(spec)


# Heads are told by their arrays; the rest changes training, place or speed.
_WITHOUT_EFFECT = {
    "vocab_size", "mask_id", "dropout", "attention_dropout", "classifier_dropout", "init_std", "scan",
    "remat", "dtype", "attention_kernel", "attention_block", "labels", "token_labels", "generator_fraction",
    "gru_size",
}  # fmt: skip


def unused(spec: ModelSpec) -> set[str]:
    """Returns the fields that mean nothing beside the others."""
    names = set()
    if spec.kind != "tta":
        names |= {"tta_query", "see_self"}
    if spec.position != "rotary":
        names |= {"rope_theta", "rope_layout", "local_rope_theta"}
    if spec.position != "learned":
        names |= {"position_offset"}
    if not spec.local_window:
        names |= {"global_every", "local_rope_theta"}
    if spec.norm == "post":
        names |= {"first_norm"}
    if not spec.pools and not (spec.pooler == "norm" and (spec.token_labels or spec.has_span)):
        names |= {"pooler"}
    if not spec.pools:
        names |= {"pooling"}
    if not spec.has_mlm and not spec.has_generator:
        names |= {"mlm_head"}
    if not spec.has_nsp:
        names |= {"nsp_head"}
    return names
