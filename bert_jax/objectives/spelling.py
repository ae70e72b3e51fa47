"""Spelling: which tokens are wrong, and what each token should be (Zhang et al. 2020, equations 6 to 8)."""

from __future__ import annotations

from collections.abc import Mapping

import jax
import jax.numpy as jnp

from bert_jax.objectives.objective import Objective
from bert_jax.objectives.tokens import token_sums


class Spelling(Objective):
    """lambda * correction + (1 - lambda) * detection, sums over the tokens of texts a token.

    Correction is the cross-entropy of `right` (B, S) under `correction_logits` (B, S, V), of tokens that are
    right too; detection the binary cross-entropy of whether the token that was read is another, under
    `detection_logits` (B, S). Tokens with `token_weights` (B, S) of 0, the ends and padding, are in neither.

    Attributes:
      capacity: S, the tokens of a row that are predicted.
    """

    name = "task"
    weight = 1.0

    def __init__(self, capacity: int, detection_weight: float) -> None:
        self.capacity, self._detection = capacity, detection_weight

    def count(self, batch: Mapping[str, jax.Array]) -> jax.Array:
        """Returns how many tokens a batch predicts."""
        return jnp.sum(batch["token_weights"])

    def sums(self, batch: Mapping[str, jax.Array], outputs: Mapping[str, jax.Array]) -> dict[str, jax.Array]:
        """Returns the summed losses (nats), and right corrections."""
        weights, logits = batch["token_weights"], outputs["detection_logits"]
        correction = token_sums(outputs["correction_logits"], batch["right"], weights)
        is_wrong = (batch["tokens"] != batch["right"]).astype(jnp.float32)
        detection = jnp.sum((jax.nn.softplus(logits) - logits * is_wrong) * weights)
        return {
            "loss": (1 - self._detection) * correction["loss"] + self._detection * detection,
            "accuracy": correction["accuracy"],
            "correction_loss": correction["loss"],
            "detection_loss": detection,
        }
