"""Next-sentence prediction (Devlin et al. 2018, section 3.1): does B follow A in the text?"""

from __future__ import annotations

from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np
from ml_collections import ConfigDict


class NextSentence:
    """Tells a true next segment (label 0) from one of another document (label 1).

    The pipeline makes the pairs and `pair_labels`; the loss is a softmax over the pooled head's two
    logits, or a binary cross-entropy on the single head's one.
    """

    name = "nsp"
    baseline = "always_next_accuracy"  # name of the share of label 0

    def __init__(self, config: ConfigDict):
        self.weight = config.weight

    def features(
        self, batch: Mapping[str, np.ndarray], generators: list[np.random.Generator]
    ) -> dict[str, np.ndarray]:
        """Returns `pair_weights` (B,) float32: 1 for a row that holds a pair."""
        return {"pair_weights": (batch["segment_ids"][:, 0] > 0).astype(np.float32)}

    def count(self, batch: Mapping[str, jax.Array]) -> jax.Array:
        """Returns how many pairs a batch holds."""
        return jnp.sum(batch["pair_weights"])

    def sums(self, batch: Mapping[str, jax.Array], outputs: Mapping[str, jax.Array]) -> dict[str, jax.Array]:
        """Returns the summed loss (nats) and right guesses."""
        logits, labels, weights = outputs["nsp_logits"], batch["pair_labels"], batch["pair_weights"]
        # A softmax over two logits is a logistic function of their difference.
        margin = logits[:, 0] if logits.shape[-1] == 1 else logits[:, 1] - logits[:, 0]
        sign = jnp.where(labels == 1, 1.0, -1.0)
        losses = jax.nn.softplus(-sign * margin)
        return {"loss": jnp.sum(losses * weights), "accuracy": jnp.sum((sign * margin > 0) * weights)}

    def baselines(self, batch: Mapping[str, jax.Array]) -> dict[str, jax.Array]:
        """Returns the sum of hits of always answering 0."""
        return {self.baseline: jnp.sum((batch["pair_labels"] == 0) * batch["pair_weights"])}
