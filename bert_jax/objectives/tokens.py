"""What objectives that predict tokens share: cross-entropy, accuracy, and their unigram baselines."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.models.vocabulary import Unmade


def token_sums(logits: jax.Array | Unmade, labels: jax.Array, weights: jax.Array) -> dict[str, jax.Array]:
    """Returns the sums of -log p(label) and of right guesses over the weighted positions.

    A guess is right where the label's logit is above all others: a tie is no right guess.

    Args:
      logits: (B, M, V) float32, or what they are to be made of part by part.
      labels: (B, M) int32.
      weights: (B, M) float32; 0 where there is no target.
    """
    if isinstance(logits, Unmade):
        losses, hits = logits.losses(labels)
        return {"loss": jnp.sum(losses * weights), "accuracy": jnp.sum(hits * weights)}
    # Comparing with an index fuses into the reductions, forward and backward; a gather would
    # become a scatter into a (B, M, V) array in the backward pass.
    is_label = jnp.arange(logits.shape[-1])[None, None, :] == labels[..., None]
    label_logit = jnp.sum(jnp.where(is_label, logits, 0.0), axis=-1)
    losses = jax.nn.logsumexp(logits, axis=-1) - label_logit
    above = jnp.sum(jax.lax.stop_gradient(logits >= label_logit[..., None]), axis=-1)
    return {
        "loss": jnp.sum(losses * weights),
        "accuracy": jnp.sum((above == 1) * weights),
    }


def with_ends(unigram: np.ndarray, ends: Sequence[int], seq_len: int) -> np.ndarray:
    """Returns token counts, (V,) int64, that know of the tokens which begin and end a text.

    They come as often as texts begin and end, which for full rows is once in S - 2 tokens.

    Args:
      unigram: (V,) counts of the training tokens, which have no ends.
      ends: ids of the end tokens that are predicted.
      seq_len: S.
    """
    counts = unigram.astype(np.int64).copy()
    counts[list(ends)] += max(1, int(counts.sum()) // max(1, seq_len - 2))
    return counts


class Unigram:
    """The best guess without context: each token with its share of the training text.

    Counts get one added, so that a token that training never saw has a finite loss.
    """

    def __init__(self, counts: np.ndarray):
        smoothed = counts.astype(np.float64) + 1
        self.log_probs = np.log(smoothed / smoothed.sum()).astype(np.float32)  # (V,)
        self.most_frequent = int(np.argmax(counts))

    def sums(self, labels: jax.Array, weights: jax.Array) -> dict[str, jax.Array]:
        """Returns the sums of -log p(label) and of labels that are the most frequent token."""
        return {
            "unigram_cross_entropy": -jnp.sum(jnp.asarray(self.log_probs)[labels] * weights),
            "most_frequent_accuracy": jnp.sum((labels == self.most_frequent) * weights),
        }
