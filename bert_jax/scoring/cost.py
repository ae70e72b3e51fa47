"""What scoring costs in floating-point operations, and how much faster T-TA can be for that reason alone."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from bert_jax import flops
from bert_jax.models.spec import ModelSpec


def one_pass(spec: ModelSpec, lengths: Sequence[int]) -> float:
    """Returns the FLOPs of scoring sentences by T-TA.

    Keys and values are made of all tokens, and queries, with what follows from them, of those that are
    scored.

    Args:
      spec: the T-TA.
      lengths: tokens of each sentence, without its two ends; these are not scored.
    """
    headless = dataclasses.replace(spec, has_mlm=False)
    total = 0.0
    for count in lengths:
        # A query's part of a token, beside its keys and values, which the tokens of both ends have alone.
        keys = 4.0 * spec.layers * spec.hidden_size**2
        whole = flops.forward(headless, 1, count + 2, 0)
        of_ends = 2 * (whole / (count + 2) - keys)
        total += whole - of_ends + count * head(spec)
    return total


def masked(spec: ModelSpec, lengths: Sequence[int]) -> float:
    """Returns the FLOPs of scoring sentences by a masked model: a pass over all of it for each token.

    Args:
      spec: the masked model.
      lengths: tokens of each sentence, without its two ends.
    """
    return float(sum(count * flops.forward(spec, 1, count + 2, 1) for count in lengths))


def head(spec: ModelSpec) -> float:
    """Returns the FLOPs of one token's logits over the vocabulary."""
    with_one = flops.forward(spec, 1, 1, 1)
    return with_one - flops.forward(spec, 1, 1, 0)


def ceiling(tta: ModelSpec, mlm: ModelSpec, lengths: Sequence[int]) -> float:
    """Returns how many times the FLOPs of `one_pass` those of `masked` are, for the same sentences.

    No padding is counted on either side, and no masked model's state that is made but not read.
    """
    return masked(mlm, lengths) / one_pass(tta, lengths)
