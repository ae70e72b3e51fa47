"""Left-to-right language modelling: every token from those before it."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from bert_jax.objectives.next_token import NextToken, has_next


class CausalLM(NextToken):
    """Predicts each token of a unit but the first, [CLS], from the tokens before it.

    A model with the mask "causal" is needed: under another one a position sees what it predicts.
    """

    name = "causal"

    def features(
        self, batch: Mapping[str, np.ndarray], generators: list[np.random.Generator]
    ) -> dict[str, np.ndarray]:
        """Returns `causal_positions`, `causal_labels` and `causal_weights`, (B, M)."""
        return self.targets(batch, has_next(batch["segment_ids"]), generators)
