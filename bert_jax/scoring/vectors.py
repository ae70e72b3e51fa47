"""Sentence vectors: the last layer's states, pooled.

- "mean": of the sentence's own tokens, without the two ends (as the T-TA paper's).
- "mean_with_ends": of all.
- "first": the start token's.
- "max": of each feature the largest of the sentence's own tokens.
- "pooler": what the model's own pooler makes of it, where there is one.

T-TA's states are those that predict: each knows of all tokens but its own.
"""

from __future__ import annotations

import collections
import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.interop.load import Source
from bert_jax.models.model import Model
from bert_jax.models.spec import ModelSpec
from bert_jax.scoring import batches, program

POOLINGS = ("mean", "mean_with_ends", "first", "max", "pooler")

_WINDOW_TEXTS = 4096  # texts before those of like length are put together


def poolings_of(spec: ModelSpec) -> tuple[str, ...]:
    """Returns the poolings that a model has."""
    return POOLINGS if spec.pools else POOLINGS[:-1]


class Embedder:
    """Makes sentence vectors with one model, on all local devices.

    Args:
      source: the model, of `bert_jax.interop.load.read`.
      poolings: which; none are all that the model has.
      batch_tokens: tokens of a batch on each device; 0: what suits the device.

    Attributes:
      poolings: those of the vectors.
      cut: texts so far that were longer than the model reads, and were cut.

    Raises:
      ValueError: the model has no such pooling.
    """

    def __init__(self, source: Source, poolings: Sequence[str] = (), batch_tokens: int = 0) -> None:
        there = poolings_of(source.spec)
        wrong = [name for name in poolings if name not in there]
        if wrong:
            raise ValueError(f"pooling {wrong[0]}: the model has {', '.join(there)}")
        self.poolings, self.cut = tuple(poolings) or there, 0
        # In float32, whatever it was trained in: a text's vector is then the same in any batch.
        self._spec = dataclasses.replace(source.spec, dtype=jnp.float32, remat="none")
        self._tokenizer, self._budget = source.tokenizer, batches.budget(batch_tokens)
        self._mesh = program.mesh()
        params = {name: x for name, x in source.params.items() if name in ("encoder", "pooler")}
        self._params = program.on_all(params, self._mesh)

    def vectors(self, texts: Iterable[str]) -> Iterator[np.ndarray]:
        """Yields the (P, D) float32 vectors of each text, one for each pooling, in their order.

        A text that is longer than the model reads is cut. One without tokens has zeros as its mean and
        largest features.

        Raises:
          ValueError: the model gives NaN.
        """
        texts = iter(texts)
        while window := list(itertools.islice(texts, _WINDOW_TEXTS)):
            yield from self._of_window(window)

    def _of_window(self, texts: Sequence[str]) -> np.ndarray:
        """Returns (texts, P, D)."""
        longest, devices = self._spec.max_positions, self._mesh.size
        rows = []
        for number, text in enumerate(texts):
            ids = self._tokenizer.encode(text).ids
            if len(ids) > longest:
                ids = [*ids[: longest - 1], self._tokenizer.sep_id]
                self.cut += 1
            rows.append((number, ids))
        found = np.empty((len(texts), len(self.poolings), self._spec.hidden_size), np.float32)
        compute = program.shared(_pooled, self._mesh, self._spec, self.poolings)
        under_way: collections.deque[tuple[list[int], jax.Array]] = collections.deque()

        def read() -> None:
            numbers, result = under_way.popleft()
            found[numbers] = np.asarray(result)[: len(numbers)]

        planned = batches.plan(rows, lambda row: len(row[1]), longest, self._budget, devices)
        for width, height, some in planned:
            batch = batches.arrays([ids for _, ids in some], height * devices, width, self._tokenizer.pad_id)
            under_way.append(([number for number, _ in some], compute(self._params, *batch)))
            if len(under_way) > batches.AHEAD:
                read()
        while under_way:
            read()
        if not np.isfinite(found).all():
            raise ValueError(
                "the model's states are not numbers: its weights are damaged, or training diverged"
            )
        return found


def _pooled(
    spec: ModelSpec, poolings: Sequence[str], params: Any, tokens: jax.Array, segment_ids: jax.Array
) -> jax.Array:
    """Returns the (B, P, D) vectors of (B, S) texts."""
    hidden = program.states(spec, params, tokens, segment_ids, (0, None))
    real = segment_ids > 0
    count = jnp.sum(real, axis=1, keepdims=True)
    place = jnp.arange(tokens.shape[1])[None]
    own = (place > 0) & (place < count - 1)

    def mean(these: jax.Array) -> jax.Array:
        weights = these.astype(jnp.float32)
        total = jnp.einsum("BSD,BS->BD", hidden, weights)
        return total / jnp.maximum(jnp.sum(weights, axis=1, keepdims=True), 1.0)

    def largest() -> jax.Array:
        highest = jnp.max(jnp.where(own[..., None], hidden, -jnp.inf), axis=1)
        return jnp.where(jnp.any(own, axis=1, keepdims=True), highest, 0.0)

    made = {
        "mean": lambda: mean(own),
        "mean_with_ends": lambda: mean(real),
        "first": lambda: hidden[:, 0],
        "max": largest,
        "pooler": lambda: Model(spec).apply({"params": params}, hidden, segment_ids, method="pooled"),
    }
    return jnp.stack([made[name]() for name in poolings], axis=1)


def cosines(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Returns the (..) cosines of (.., D) vectors; 0 where one of them is all zeros."""
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    lengths = np.linalg.norm(a, axis=-1) * np.linalg.norm(b, axis=-1)
    products = np.einsum("...D,...D->...", a, b)
    return np.divide(products, lengths, out=np.zeros_like(products), where=lengths > 0)
