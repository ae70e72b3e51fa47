"""The model's own floating-point operations, and what a device could do, for MFU.

Model FLOPs utilisation (Chowdhery et al. 2022, appendix B): the products that the model needs,
recomputation not counted, over the device's peak.
"""

from __future__ import annotations

import dataclasses
import functools
import time

import jax
import jax.numpy as jnp

from bert_jax.models import spec as spec_lib
from bert_jax.models.spec import ModelSpec

# Dense peak of one device in FLOP/s, by a part of its `device_kind`: bfloat16, as published. What is
# looked up first stands first.
_PEAKS = (
    ("v6 lite", 918e12),
    ("v6e", 918e12),
    ("v5 lite", 197e12),
    ("v5e", 197e12),
    ("v5p", 459e12),
    ("v5", 459e12),
    ("v4", 275e12),
    ("v3", 123e12 / 2),  # a device is one core of two
    ("v2", 45e12 / 2),
    ("b200", 2250e12),
    ("h200", 989e12),
    ("h100", 989e12),
    ("a100", 312e12),
    ("l4", 121e12),
    ("v100", 125e12),
    ("t4", 65e12),
)


def train_step(spec: ModelSpec, rows: int, seq_len: float, predictions: int, frozen: int = 0) -> float:
    """Returns the FLOPs of one update: the forward products, and twice as many backward.

    Args:
      spec: the model.
      rows: B, rows of the global batch.
      seq_len: S.
      predictions: M, positions a row whose vocabulary logits are made; 0 without a token head.
      frozen: lowest layers that no gradient goes back through.
    """
    whole = forward(spec, rows, seq_len, predictions)
    if not frozen:
        return 3.0 * whole
    below = dataclasses.replace(spec, layers=frozen, has_mlm=False, has_rtd=False, has_generator=False)
    return 3.0 * whole - 2.0 * forward(below, rows, seq_len, 0)


def forward(spec: ModelSpec, rows: int, seq_len: float, predictions: int) -> float:
    """Returns the FLOPs of one pass, for `train_step`'s arguments."""
    return sum(parts(spec, rows, seq_len, predictions).values())


def parts(spec: ModelSpec, rows: int, seq_len: float, predictions: int) -> dict[str, float]:
    """Returns the FLOPs of one pass by part: `projections` and `attention` (scores and mixture; a local
    layer's window counts only), `feed_forward`, `head` over the vocabulary, and what else there is."""
    d, e, f = spec.hidden_size, spec.embedded_size, spec.feed_forward_size
    tokens = rows * seq_len
    seen = seq_len * spec.layers
    if spec.local_window:
        whole = -(-spec.layers // spec.global_every)
        seen = seq_len * whole + min(seq_len, spec.local_window + 1) * (spec.layers - whole)
    # Query, key, value, output; or the last two. Scores and mixture; or the latter.
    projections, products = (8, 4) if spec.attention == "dot" else (4, 2)
    found = {
        "projections": tokens * spec.layers * projections * d * d,
        "attention": tokens * products * seen * d,
        "feed_forward": tokens * spec.layers * (6 if spec.gated else 4) * d * f,
        "embedding": tokens * (2 * e * d if e != d else 0),
        "head": 0.0,
    }
    if spec.has_rtd:
        found["discriminator"] = tokens * 2 * d * d
    if spec.has_mlm:
        head = 2 * d * e + 2 * e * spec.padded_vocab_size
        if spec.mlm_head == "plain":
            head = 2 * d * spec.padded_vocab_size
        found["head"] = rows * predictions * head
    if spec.has_generator:
        found["generator"] = forward(spec.generator, rows, seq_len, predictions)
    return {name: float(value) for name, value in found.items()}


def recomputed(
    spec: ModelSpec, rows: int, seq_len: int, predictions: int, vocabulary_parts: int = 1
) -> dict[str, float]:
    """Returns the FLOPs that one update does again in its backward pass, by `parts`' names; 0 left out.

    Args:
      spec, rows, seq_len, predictions: as of `parts`.
      vocabulary_parts: above 1 the head's logits are made again.
    """
    once = parts(spec, rows, seq_len, predictions)
    # Of attention the scores are a half; all but the dense form make them again whatever else is.
    blocks = 0.0 if spec_lib.kernel(spec, seq_len) == "dense" else 0.5
    wide = 2 / 3 if spec.gated else 1 / 2
    projections, attention, feed_forward = {
        "none": (0.0, blocks, 0.0),
        "dots": (0.0, 1 + blocks, 0.0),
        "feed_forward": (0.0, 0.5, wide),
        "full": (1.0, 1 + blocks, 1.0),
    }[spec.remat]
    found = {
        "projections": projections * once["projections"],
        "attention": attention * once["attention"],
        "feed_forward": feed_forward * once["feed_forward"],
    }
    if spec.has_mlm and vocabulary_parts > 1:
        size = spec.hidden_size if spec.mlm_head == "plain" else spec.embedded_size
        found["head"] = float(rows * predictions * 2 * size * spec.padded_vocab_size)
    if spec.has_generator:
        found["generator"] = sum(recomputed(spec.generator, rows, seq_len, predictions).values())
    return {name: value for name, value in found.items() if value}


@functools.cache
def peak() -> float:
    """Returns the peak FLOP/s of all devices together: published, or on a CPU measured here.

    On a CPU it is a float32 matrix product's, by all cores; processes on one machine share it. An
    accelerator that is not in the table gives NaN: an unknown share is better than a wrong one.
    """
    device = jax.devices()[0]
    if device.platform == "cpu":
        return _measured_product()
    kind = device.device_kind.lower()
    return next((value for name, value in _PEAKS if name in kind), float("nan")) * jax.device_count()


def _measured_product(size: int = 1024, repeats: int = 5) -> float:
    a = jax.device_put(jnp.ones((size, size), jnp.float32), jax.local_devices()[0])
    product = jax.jit(jnp.matmul)
    product(a, a).block_until_ready()
    fastest = float("inf")
    for _ in range(repeats):
        start = time.perf_counter()
        product(a, a).block_until_ready()
        fastest = min(fastest, time.perf_counter() - start)
    return 2 * size**3 / fastest
