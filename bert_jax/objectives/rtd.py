"""Replaced-token detection (Clark et al. 2020, section 3.2): which tokens did the generator put there?"""

from __future__ import annotations

from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np
from ml_collections import ConfigDict


class ReplacedTokens:
    """Binary cross-entropy of each real token's `rtd_labels`, special tokens included.

    The labels are an output of the model, whose generator draws the replacements.
    """

    name = "rtd"

    def __init__(self, config: ConfigDict):
        self.weight = config.weight

    def features(
        self, batch: Mapping[str, np.ndarray], generators: list[np.random.Generator]
    ) -> dict[str, np.ndarray]:
        """Adds nothing: the masked text of `MaskedLM` is what the generator fills."""
        return {}

    def count(self, batch: Mapping[str, jax.Array]) -> jax.Array:
        """Returns how many real tokens a batch holds."""
        return jnp.sum((batch["segment_ids"] > 0).astype(jnp.float32))

    def sums(self, batch: Mapping[str, jax.Array], outputs: Mapping[str, jax.Array]) -> dict[str, jax.Array]:
        """Returns the summed loss (nats), right guesses, and those of always answering "original"."""
        real = (batch["segment_ids"] > 0).astype(jnp.float32)
        replaced = outputs["rtd_labels"]
        margin = jnp.where(replaced, 1.0, -1.0) * outputs["rtd_logits"]
        return {
            "loss": jnp.sum(jax.nn.softplus(-margin) * real),
            "accuracy": jnp.sum((margin > 0) * real),
            "always_original_accuracy": jnp.sum(~replaced * real),
        }

    def baselines(self, batch: Mapping[str, jax.Array]) -> dict[str, jax.Array]:
        """Adds nothing: what was replaced is known from the model's outputs only."""
        return {}
