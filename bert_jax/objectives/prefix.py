"""Sequence-to-sequence language modelling (UniLM, Dong et al. 2019): what follows from a prefix."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from bert_jax.data import masking
from bert_jax.objectives.next_token import NextToken, has_next


class PrefixLM(NextToken):
    """Cuts each unit into a source and a target, and predicts the target's tokens from left to right.

    Source tokens see the whole source; target tokens see it and the target up to themselves (the model's
    mask "prefix"). The first target token is predicted at the last source token, which sees the source
    alone, and the unit's [SEP] at the token before it. The cut is at any place alike, so that of a unit of
    n tokens 1 to n - 1 are source, [CLS] always and [SEP] never; a unit of one token is all source and
    nothing of it is predicted. (UniLM has two segments of a text as source and target, and [MASK] where it
    predicts; here the loss is of the next token, as in generation from left to right.)
    """

    name = "prefix"

    def features(
        self, batch: Mapping[str, np.ndarray], generators: list[np.random.Generator]
    ) -> dict[str, np.ndarray]:
        """Returns `prefix` (B, S) int32, 1 for source tokens, and `prefix_positions` and so on, (B, M)."""
        segments, follows = batch["segment_ids"], has_next(batch["segment_ids"])
        source = self._source(segments, masking.uniform(generators, segments.shape[1]))
        is_target = np.zeros_like(source)
        is_target[:, :-1] = ~source[:, 1:]
        made = self.targets(batch, follows & is_target, generators)
        return {"prefix": source.astype(np.int32), **made}

    @staticmethod
    def _source(segment_ids: np.ndarray, draws: np.ndarray) -> np.ndarray:
        """Returns (B, S) bool: the source tokens; each unit is cut by the number at its first token."""
        starts = segment_ids > 0
        starts[:, 1:] &= segment_ids[:, 1:] != segment_ids[:, :-1]
        first = np.flatnonzero(starts)
        if not first.size:
            return starts
        # From one start to the next lie the unit's tokens and perhaps padding, which adds 0.
        length = np.add.reduceat((segment_ids > 0).ravel().astype(np.int64), first)
        cut = 1 + (draws.ravel()[first] * (length - 1)).astype(np.int64)
        unit = np.maximum(np.cumsum(starts.ravel()) - 1, 0)
        place = np.arange(starts.size) - first[unit]
        return (segment_ids > 0) & (place < cut[unit]).reshape(starts.shape)
