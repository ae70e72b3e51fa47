"""An encoder with its heads: the one module that is trained, saved and served."""

from __future__ import annotations

from collections.abc import Mapping

import flax.linen as nn
import jax
import jax.numpy as jnp

from bert_jax.models.dropout import Dropout
from bert_jax.models.encoder import Encoder
from bert_jax.models.heads import NextSentenceHead, Pooler, TokenHead
from bert_jax.models.spec import ModelSpec, dense_init


class Model(nn.Module):
    """The encoder and whichever heads its spec names."""

    spec: ModelSpec

    def setup(self) -> None:
        spec = self.spec
        self.encoder = Encoder(spec)
        if spec.has_mlm:
            self.token_head = TokenHead(spec)
        if spec.pools:
            self.pooler = Pooler(spec)
        if spec.has_nsp:
            self.nsp_head = NextSentenceHead(spec)
        if spec.labels:
            self.classifier_dropout = Dropout(spec.classifier_dropout)
            self.classifier = nn.Dense(
                spec.labels,
                dtype=spec.dtype,
                kernel_init=dense_init(spec, "embed", "labels"),
                bias_init=nn.with_logical_partitioning(nn.initializers.zeros, ("labels",)),
            )

    def hidden(
        self, batch: Mapping[str, jax.Array], train: bool = False, see_self: bool = False
    ) -> jax.Array:
        """Returns the last hidden states, (B, S, D).

        Args:
          batch: `tokens` (B, S) int32; `segment_ids` (0 is padding), `positions` and `type_ids`
            alike, where they differ from one unpadded text in each row.
          train: with dropout.
          see_self: lifts T-TA's diagonal.
        """
        tokens = batch["tokens"]
        counted = jnp.broadcast_to(jnp.arange(tokens.shape[1], dtype=jnp.int32)[None], tokens.shape)
        return self.encoder(
            tokens,
            batch.get("segment_ids", jnp.ones_like(tokens)),
            batch.get("positions", counted),
            batch.get("type_ids", jnp.zeros_like(tokens)),
            train,
            see_self,
        )

    def token_logits(self, hidden: jax.Array) -> jax.Array:
        """Returns (B, M, V) float32 logits of (B, M, D) hidden states."""
        return self.token_head(hidden, self.encoder.word)

    def pooled(self, hidden: jax.Array) -> jax.Array:
        """Returns the (B, D) pooled vector of (B, S, D) hidden states."""
        return self.pooler(hidden)

    def __call__(self, batch: Mapping[str, jax.Array], train: bool = False) -> dict[str, jax.Array]:
        """Returns what each head says of a batch.

        Token logits are made only where `mlm_positions` or `tta_positions` (B, M) ask for them, and
        at every position for a batch that has neither.

        Returns:
          `hidden` (B, S, D); `mlm_logits` or `tta_logits` (B, M, V) float32; `nsp_logits`
          (B, 2) or (B, 1) float32; `logits` (B, labels) float32: those whose heads there are.
        """
        spec = self.spec
        hidden = self.hidden(batch, train)
        outputs = {"hidden": hidden}
        if spec.has_mlm:
            name = "tta" if spec.kind == "tta" else "mlm"
            where = batch.get(f"{name}_positions")
            chosen = hidden
            if where is not None:
                chosen = jnp.take_along_axis(hidden, where[..., None], axis=1)
            outputs[f"{name}_logits"] = self.token_logits(chosen)
        pooled = self.pooler(hidden) if spec.pools else None
        if spec.has_nsp:
            outputs["nsp_logits"] = self.nsp_head(hidden, pooled)
        if spec.labels:
            logits = self.classifier(self.classifier_dropout(pooled, train))
            outputs["logits"] = logits.astype(jnp.float32)
        return outputs
