"""What a model is: the static description that every module is built from."""

from __future__ import annotations

import dataclasses
import json
import math
from typing import Any

import flax.linen as nn
import jax.numpy as jnp
from ml_collections import ConfigDict

from bert_jax import config_rules, jsonl
from bert_jax.kernels import BLOCKS_FROM, PLATFORMS

FORMAT = 1  # version of model.json
VOCAB_MULTIPLE = 128  # tables are padded to whole TPU lanes, and so that a mesh axis divides them


@dataclasses.dataclass(frozen=True)
class ModelSpec:
    """The model group of the config, with what the tokenizer and the task add to it."""

    vocab_size: int  # V, the tokenizer's; tables have `padded_vocab_size` rows
    mask_id: int  # token of the "mask_token" query and of a rotary T-TA's first query
    kind: str = "encoder"
    tta_query: str = "position"
    hidden_size: int = 768
    embedding_size: int = 0
    layers: int = 12
    heads: int = 12
    feed_forward_size: int = 3072
    gated: bool = False
    share_layers: bool = False
    bias: bool = True
    max_positions: int = 512
    position_offset: int = 0
    segments: int = 2
    position: str = "learned"
    rope_theta: float = 10_000.0
    rope_layout: str = "adjacent"
    local_window: int = 0
    global_every: int = 3
    local_rope_theta: float = 10_000.0
    mask: str = "full"
    attention: str = "dot"
    attention_kernel: str = "auto"  # "dense", "blocks", "splash", "cudnn": how it is computed, not what
    attention_block: int = 128  # queries at once, of "blocks"
    norm: str = "post"
    first_norm: bool = True
    norm_eps: float = 1e-12
    activation: str = "gelu"
    dropout: float = 0.1
    attention_dropout: float = 0.1
    init_std: float = 0.02
    mlm_head: str = "tied"
    nsp_head: str = "pooled"
    pooler: str = "tanh"
    pooling: str = "first"
    see_self: bool = False  # T-TA: the diagonal of its mask is lifted
    generator_fraction: float = 0.25
    scan: bool = False
    remat: str = "none"
    dtype: Any = jnp.float32
    has_mlm: bool = True  # a head that predicts tokens: MLM, T-TA, left-to-right and prefix
    has_nsp: bool = False  # a head that tells true pairs from false ones: NSP and SOP
    has_rtd: bool = False  # a head that tells replaced tokens (ELECTRA's discriminator)
    has_generator: bool = False  # with has_rtd: the masked LM that makes the replacements
    labels: int = 0  # classes of the classifier; 0 is none, 1 a regression
    token_labels: int = 0  # classes of each token, or word; 0 is none
    token_head: str = "linear"  # over words: "linear", "crf", "bilstm" or "bilstm_crf"
    lstm_size: int = 256  # of each direction of a BiLSTM
    # What IOB2 rules out of a CRF's paths (`crf.constrained`): nothing ("none"), or what breaks it, where a
    # path is chosen ("decode") or in training too ("train").
    crf_constraints: str = "none"
    # Marked tokens, or spans, whose joined states the classifier reads; 0: it reads the pooled state.
    marked: int = 0
    has_spelling: bool = False  # with has_mlm: a detector of wrong tokens, which masks them softly
    gru_size: int = 256  # of each direction of the detector
    has_span: bool = False  # a head for where an answer starts and ends
    has_pooler: bool = False  # a pooler though no head needs it, as sentence encoders have one
    classifier_dropout: float = 0.1

    @property
    def embedded_size(self) -> int:
        """E, the width of the embedding tables."""
        return self.embedding_size or self.hidden_size

    @property
    def head_size(self) -> int:
        """K."""
        return self.hidden_size // self.heads

    @property
    def padded_vocab_size(self) -> int:
        return -(-self.vocab_size // VOCAB_MULTIPLE) * VOCAB_MULTIPLE

    @property
    def pools(self) -> bool:
        """Whether the model has a pooler, for a head's sake or for its own."""
        return (
            self.has_pooler
            or bool(self.labels and not self.marked)
            or (self.has_nsp and self.nsp_head == "pooled")
        )

    @property
    def generator(self) -> ModelSpec:
        """The spec of ELECTRA's generator: as deep, narrower, with heads of the same size."""
        heads = max(1, round(self.heads * self.generator_fraction))
        return dataclasses.replace(
            self,
            embedding_size=self.embedded_size,
            hidden_size=heads * self.head_size,
            heads=heads,
            feed_forward_size=max(1, round(self.feed_forward_size * self.generator_fraction)),
            has_mlm=True,
            has_nsp=False,
            has_rtd=False,
            has_generator=False,
        )


def from_config(model: ConfigDict, *, vocab_size: int, mask_id: int, **heads: Any) -> ModelSpec:
    """Returns the spec of a config's model group.

    Args:
      model: `config.model`; its own vocab_size of 0 stands for the tokenizer's.
      vocab_size: the tokenizer's number of tokens.
      mask_id: the tokenizer's mask token.
      **heads: further fields: the heads (`has_*`, `labels`, `token_labels`, ..) and what belongs to them.

    Raises:
      ValueError: the tokenizer has ids beyond the model's table.
    """
    size = model.vocab_size or vocab_size
    if vocab_size > size:
        raise ValueError(
            f"the tokenizer has {vocab_size} tokens and model.vocab_size = {size}: "
            "ids beyond the table; take the model's own vocabulary or set model.vocab_size = 0"
        )
    values = {key: model[key] for key in model if key not in ("vocab_size", "dtype")}
    return ModelSpec(vocab_size=size, mask_id=mask_id, dtype=jnp.dtype(model.dtype).type, **values, **heads)


def kernel(spec: ModelSpec, seq_len: int) -> str:
    """Returns how attention over rows of this length is computed: "dense", "blocks", "splash" or "cudnn"."""
    if spec.attention_kernel == "auto":
        return "blocks" if spec.attention == "dot" and seq_len >= BLOCKS_FROM else "dense"
    return spec.attention_kernel


def dense_init(spec: ModelSpec, *axes: str) -> nn.initializers.Initializer:
    """Returns BERT's truncated-normal initialiser, its array's axes named for the sharding rules."""
    return nn.with_logical_partitioning(nn.initializers.truncated_normal(spec.init_std), axes)


def layer_norm(spec: ModelSpec, name: str) -> nn.LayerNorm:
    """Returns LayerNorm, computed in float32, with the spec's epsilon."""
    return nn.LayerNorm(
        epsilon=spec.norm_eps,
        dtype=spec.dtype,
        scale_init=nn.with_logical_partitioning(nn.initializers.ones, ("norm",)),
        bias_init=nn.with_logical_partitioning(nn.initializers.zeros, ("norm",)),
        use_bias=spec.bias,
        name=name,
    )


def dense(spec: ModelSpec, size: int, axes: tuple[str, str], name: str, bias: bool = True) -> nn.Dense:
    """Returns an affine map of the last axis to `size`, its kernel's axes named; linear without `bias`."""
    return nn.Dense(
        size,
        use_bias=bias,
        dtype=spec.dtype,
        kernel_init=dense_init(spec, *axes),
        bias_init=nn.with_logical_partitioning(nn.initializers.zeros, axes[1:]),
        name=name,
    )


def recurrent_inits() -> dict[str, nn.initializers.Initializer]:
    """Returns the initialisers of a recurrent cell, its arrays' axes named for the sharding rules."""
    return {
        "kernel_init": nn.with_logical_partitioning(nn.initializers.lecun_normal(), ("embed", "labels")),
        "recurrent_kernel_init": nn.with_logical_partitioning(
            nn.initializers.orthogonal(), ("embed_out", "labels")
        ),
        "bias_init": nn.with_logical_partitioning(nn.initializers.zeros, ("labels",)),
    }


def to_json(spec: ModelSpec, label_names: tuple[str, ...] = ()) -> str:
    """Returns the spec, with the names of its labels, as indented JSON."""
    values = {**dataclasses.asdict(spec), "dtype": jnp.dtype(spec.dtype).name}
    if spec.attention_kernel in PLATFORMS:  # of the device of the run, not of all that read the model
        values["attention_kernel"] = "auto"
    return json.dumps({"format": FORMAT, "label_names": label_names, **values}, indent=2) + "\n"


def from_json(text: str | bytes, origin: str = "model.json") -> tuple[ModelSpec, tuple[str, ...]]:
    """Returns the spec and the label names that `to_json` wrote.

    Args:
      text: UTF-8.
      origin: where it is from, for messages.

    Raises:
      ValueError: it was written in another format version, or is damaged.
    """
    try:
        values = jsonl.parse(text)
        if not isinstance(values, dict):
            raise ValueError("it must be a JSON object")
        if values.pop("format", None) != FORMAT:
            raise ValueError(f"another format than {FORMAT}, the one this version reads")
        names = values.pop("label_names", None)
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise ValueError(f"label_names = {names!r}: they must be a list of texts")
        return ModelSpec(**_checked(values)), tuple(names)
    except ValueError as error:
        raise ValueError(f"{origin} does not describe a model: {error}") from error


def _checked(values: dict[str, Any]) -> dict[str, Any]:
    """Returns the values of a spec in JSON as a spec takes them; ValueError where they are none."""
    kinds = {field.name: field.type for field in dataclasses.fields(ModelSpec)}
    for name in kinds | values:
        if name not in values or name not in kinds:
            raise ValueError(f"it has {'no' if name in kinds else 'the unknown key'} {name}")
        value, kind, key = values[name], kinds[name], f"model.{name}"
        if name == "dtype":
            continue
        like = {"int": int, "float": int | float, "bool": bool, "str": str}[kind]
        fits = isinstance(value, like) and (kind == "bool" or not isinstance(value, bool))
        if fits and key in config_rules.CHOICES:
            fits = value in config_rules.CHOICES[key]
        if fits and kind in ("int", "float"):
            low, high = config_rules.RANGES.get(key, (0, None))
            fits = (low or 0) <= value < math.inf and (high is None or value <= high)
        if not fits:
            raise ValueError(f"{name} = {value!r}")
    if values["hidden_size"] % values["heads"]:
        raise ValueError(
            f"hidden_size = {values['hidden_size']} is not a multiple of heads = {values['heads']}"
        )
    if values["position"] == "rotary" and values["hidden_size"] // values["heads"] % 2:
        raise ValueError('position = "rotary" needs heads of an even size')
    if values["position"] == "sinusoidal" and (values["embedding_size"] or values["hidden_size"]) % 2:
        raise ValueError('position = "sinusoidal" needs an even embedding_size')
    if values["dtype"] not in config_rules.CHOICES["model.dtype"]:
        raise ValueError(f"dtype = {values['dtype']!r}")
    return {**values, "dtype": jnp.dtype(values["dtype"]).type}
