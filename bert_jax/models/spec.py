"""What a model is: the static description that every module is built from."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import flax.linen as nn
import jax.numpy as jnp
from ml_collections import ConfigDict

FORMAT = 1  # version of model.json
VOCAB_MULTIPLE = 128  # tables are padded to whole TPU lanes, and so that a mesh axis divides them


@dataclasses.dataclass(frozen=True)
class ModelSpec:
    """The model group of the config, with what the tokenizer and the task add to it."""

    vocab_size: int  # V, the tokenizer's; tables have `padded_vocab_size` rows
    mask_id: int  # token of the "mask_token" query and of a rotary T-TA's first query
    kind: str
    tta_query: str
    hidden_size: int
    layers: int
    heads: int
    feed_forward_size: int
    max_positions: int
    segments: int
    position: str
    rope_theta: float
    rope_layout: str
    norm: str
    norm_eps: float
    activation: str
    dropout: float
    attention_dropout: float
    init_std: float
    mlm_head: str
    nsp_head: str
    scan: bool
    remat: str
    dtype: Any
    has_mlm: bool = True  # a head that predicts tokens (MLM and T-TA)
    has_nsp: bool = False  # a head that tells a true next segment from a random one
    labels: int = 0  # classes of the classifier; 0 is none, 1 a regression
    has_pooler: bool = False  # a pooler though no head needs it, as sentence encoders have one
    classifier_dropout: float = 0.1

    @property
    def padded_vocab_size(self) -> int:
        return -(-self.vocab_size // VOCAB_MULTIPLE) * VOCAB_MULTIPLE

    @property
    def pools(self) -> bool:
        """Whether the model has a pooler, for a head's sake or for its own."""
        return self.has_pooler or bool(self.labels) or (self.has_nsp and self.nsp_head == "pooled")


def from_config(model: ConfigDict, *, vocab_size: int, mask_id: int, **heads: Any) -> ModelSpec:
    """Returns the spec of a config's model group.

    Args:
      model: `config.model`; its own vocab_size of 0 stands for the tokenizer's.
      vocab_size: the tokenizer's number of tokens.
      mask_id: the tokenizer's mask token.
      **heads: has_mlm, has_nsp, labels, classifier_dropout.

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
        name=name,
    )


def activation(spec: ModelSpec) -> Any:
    """Returns the feed-forward activation, an elementwise function."""
    return {
        "gelu": lambda x: nn.gelu(x, approximate=False),
        "gelu_tanh": lambda x: nn.gelu(x, approximate=True),
        "relu": nn.relu,
    }[spec.activation]


def to_json(spec: ModelSpec, label_names: tuple[str, ...] = ()) -> str:
    """Returns the spec, with the names of its labels, as indented JSON."""
    values = {**dataclasses.asdict(spec), "dtype": jnp.dtype(spec.dtype).name}
    return json.dumps({"format": FORMAT, "label_names": label_names, **values}, indent=2) + "\n"


def from_json(text: str) -> tuple[ModelSpec, tuple[str, ...]]:
    """Returns the spec and the label names that `to_json` wrote.

    Raises:
      ValueError: it was written in another format version, or is damaged.
    """
    try:
        values = json.loads(text)
        if values.pop("format") != FORMAT:
            raise ValueError(f"another format than {FORMAT}, the one this version reads")
        names = tuple(values.pop("label_names"))
        values["dtype"] = jnp.dtype(values["dtype"]).type
        return ModelSpec(**values), names
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"model.json does not describe a model: {error}") from error
