"""An encoder with its heads: the one module that is trained, saved and served."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from bert_jax.models import crf, sequence, vocabulary
from bert_jax.models.dropout import Dropout
from bert_jax.models.encoder import Encoder, mask_of
from bert_jax.models.heads import (
    AttentionPooling,
    BiLstm,
    NextSentenceHead,
    Pooler,
    ReplacedTokenHead,
    TokenHead,
    pooled_state,
)
from bert_jax.models.spec import ModelSpec, dense
from bert_jax.models.spelling import Detector, softly_masked


class Generator(nn.Module):
    """ELECTRA's small masked LM on the discriminator's embeddings (Clark et al. 2020, section 3.2)."""

    spec: ModelSpec

    def setup(self) -> None:
        self.encoder = Encoder(self.spec, tables=False)
        self.token_head = TokenHead(self.spec)

    def __call__(
        self, batch: Mapping[str, jax.Array], embedded: jax.Array, word: jax.Array, train: bool
    ) -> jax.Array:
        """Returns (B, M, V) float32 logits at `mlm_positions`.

        Args:
          batch: the masked text.
          embedded: (B, S, E), its embedded tokens.
          word: (V, E), the word table.
          train: with dropout.
        """
        mask = mask_of(self.spec, batch["segment_ids"])
        hidden = self.encoder.contextualize(embedded, None, mask, batch["positions"], train)
        return self.token_head(_at(hidden, batch["mlm_positions"]), word)


class Model(nn.Module):
    """The encoder and whichever heads its spec names."""

    spec: ModelSpec

    def setup(self) -> None:
        spec = self.spec
        self.encoder = Encoder(spec)
        if spec.has_mlm:
            self.token_head = TokenHead(spec)
        if spec.has_spelling:
            self.detector = Detector(spec)
        if spec.has_generator:
            self.generator = Generator(spec.generator)
        if spec.has_rtd:
            self.rtd_head = ReplacedTokenHead(spec)
        if spec.pools or (spec.pooler == "norm" and (spec.token_labels or spec.has_span)):
            self.pooler = Pooler(spec)
        if spec.pools and spec.pooling == "attention":
            self.pooling = AttentionPooling(spec)
        if spec.has_nsp:
            self.nsp_head = NextSentenceHead(spec)
        if spec.token_labels and "bilstm" in spec.token_head:
            self.lstm = BiLstm(spec)
        if spec.token_labels and "crf" in spec.token_head:
            self.crf = crf.Crf(spec.token_labels)
        self.classifier_dropout = Dropout(spec.classifier_dropout)
        for name, size in (
            ("classifier", spec.labels),
            ("token_classifier", spec.token_labels),
            ("span_head", 2 if spec.has_span else 0),
        ):
            if size:
                setattr(self, name, dense(spec, size, ("embed", "labels"), name))

    def hidden(
        self, batch: Mapping[str, jax.Array], train: bool = False, see_self: bool = False
    ) -> jax.Array:
        """Returns the last hidden states, (B, S, D).

        Args:
          batch: `tokens` (B, S) int32; `segment_ids` (0 is padding), `positions` and `type_ids`
            alike, where they differ from one unpadded text in each row; and `prefix`, 1 in a
            source, where the mask is "prefix" and not all of a text is its source.
          train: with dropout.
          see_self: lifts T-TA's diagonal, where the spec does not.
        """
        batch = _filled(batch)
        return self.encoder(
            batch["tokens"],
            batch["segment_ids"],
            batch["positions"],
            batch["type_ids"],
            train,
            see_self,
            batch.get("prefix"),
        )

    def next_states(
        self, batch: Mapping[str, jax.Array], visible: jax.Array, nearby: jax.Array | None
    ) -> jax.Array:
        """Returns the (B, M, D) states of tokens that follow those in the collection "cache".

        Args:
          batch: `tokens`, `positions` and `type_ids`, (B, M) int32.
          visible, nearby: as in `Encoder.next_states`.
        """
        return self.encoder.next_states(
            batch["tokens"], batch["positions"], batch["type_ids"], visible, nearby
        )

    def token_logits(self, hidden: jax.Array, parts: int = 1) -> jax.Array | vocabulary.Unmade:
        """Returns (B, M, V) float32 logits of (B, M, D) hidden states; above 1 `parts` leaves them unmade."""
        return self.token_head(hidden, self.encoder.word, parts)

    def pooled(self, hidden: jax.Array, segment_ids: jax.Array | None = None) -> jax.Array:
        """Returns the (B, D) pooled vector of (B, S, D) hidden states.

        Args:
          hidden: of `hidden`.
          segment_ids: (B, S) int32, 0 is padding, where a mean is to leave padding out.
        """
        if segment_ids is None:
            segment_ids = jnp.ones(hidden.shape[:2], jnp.int32)
        if self.spec.pooling == "attention":
            return self.pooler(self.pooling(hidden, segment_ids))
        return self.pooler(pooled_state(self.spec, hidden, segment_ids))

    def __call__(
        self, batch: Mapping[str, jax.Array], train: bool = False, vocabulary_parts: int = 1
    ) -> dict[str, Any]:
        """Returns what each head says of a batch.

        Token logits are made only where `mlm_positions`, or alike for T-TA, left-to-right and prefix
        models, (B, M), ask for them, and at every position for a batch that has none. With a generator
        the batch is masked text with `mlm_positions`, `_labels` and `_weights`, and needs the random
        stream "sample".

        Args:
          batch: as in `hidden`.
          train: with dropout.
          vocabulary_parts: above 1 token logits are `vocabulary.Unmade`, for whoever needs only what can be
            said of them part by part; a generator, which draws from them, makes them all the same.

        Returns:
          `hidden` (B, S, D); `mlm_logits`, `tta_logits`, `causal_logits` or `prefix_logits` (B, M, V)
          float32; `nsp_logits` (B, 2) or (B, 1) float32; `rtd_logits` (B, S) float32, and with a
          generator `rtd_labels` (B, S) bool, true where it put another token; `logits` (B, labels),
          `token_labels_logits` (B, S, token_labels) and `span_logits` (B, S, 2), float32; and what
          `_tagged` says beside the former: those whose heads there are. With a detector of wrong tokens,
          what `_spelled` says.
        """
        spec = self.spec
        batch, outputs = _filled(batch), {}
        if spec.has_spelling:
            return self._spelled(batch, train, vocabulary_parts)
        if spec.has_generator:
            batch, outputs = self._replaced(batch, train)
        hidden = self.hidden(batch, train)
        outputs["hidden"] = hidden
        if spec.has_mlm:
            name = "tta" if spec.kind == "tta" else {"full": "mlm"}.get(spec.mask, spec.mask)
            where = batch.get(f"{name}_positions")
            chosen = hidden if where is None else sequence.own(_at(hidden, where))
            outputs[f"{name}_logits"] = self.token_logits(chosen, vocabulary_parts)
        if spec.has_rtd:
            outputs["rtd_logits"] = self.rtd_head(hidden)
        pooled = self.pooled(hidden, batch["segment_ids"]) if spec.pools else None
        if spec.has_nsp:
            outputs["nsp_logits"] = self.nsp_head(hidden, pooled)
        if spec.labels:
            state = self._marked(hidden, batch) if spec.marked else pooled
            logits = self.classifier(self.classifier_dropout(state, train))
            outputs["logits"] = logits.astype(jnp.float32)
        if spec.token_labels or spec.has_span:
            states = self.pooler(hidden) if spec.pooler == "norm" else hidden
            states = self.classifier_dropout(states, train)
            if spec.token_labels:
                outputs |= self._tagged(states, batch, train)
            if spec.has_span:
                outputs["span_logits"] = self.span_head(states).astype(jnp.float32)
        return outputs

    def _spelled(self, batch: Mapping[str, jax.Array], train: bool, parts: int) -> dict[str, Any]:
        """Returns what Soft-Masked BERT says of each token (Zhang et al. 2020, section 3).

        The token head reads the last states and the embeddings of the tokens, which so come through unmasked.

        Args:
          batch: as in `hidden`.
          train: with dropout.
          parts: of the vocabulary.

        Returns:
          `detection_logits` (B, S) float32, positive where a token is wrong; `correction_logits` (B, S, V)
          float32, and `corrected` (B, S) int32, the most probable tokens.
        """
        tokens, segments, positions = batch["tokens"], batch["segment_ids"], batch["positions"]
        embedded = self.encoder.embed(tokens, positions, batch["type_ids"])
        masks = self.encoder.embed(jnp.full_like(tokens, self.spec.mask_id), positions, batch["type_ids"])
        detection = self.detector(embedded, segments)
        masked = softly_masked(embedded, masks, nn.sigmoid(detection))
        mask = mask_of(self.spec, segments)
        hidden = self.encoder.contextualize(masked, None, mask, positions, train)
        logits = self.token_logits(hidden + self.encoder.widened(embedded), parts)
        corrected, _ = vocabulary.best(logits)
        return {"detection_logits": detection, "correction_logits": logits, "corrected": corrected}

    def _marked(self, hidden: jax.Array, batch: Mapping[str, jax.Array]) -> jax.Array:
        """Returns the (B, marked * D) states at `marked_positions` (B, marked) after one another.

        Where there are `marked_ends`, alike, each is the mean from the position to before the end.
        """
        rows = hidden.shape[0]
        where = batch.get("marked_positions", jnp.zeros((rows, self.spec.marked), jnp.int32))
        if "marked_ends" not in batch:
            return _at(hidden, where).reshape(rows, -1)
        column = jnp.arange(hidden.shape[1])[None, None]
        inside = (column >= where[..., None]) & (column < batch["marked_ends"][..., None])
        shares = inside / jnp.maximum(jnp.sum(inside, axis=-1, keepdims=True), 1)
        return jnp.einsum("bms,bsd->bmd", shares.astype(hidden.dtype), hidden).reshape(rows, -1)

    def _tagged(
        self, states: jax.Array, batch: Mapping[str, jax.Array], train: bool
    ) -> dict[str, jax.Array | crf.Chain]:
        """Returns what the token head says, of words where the batch tells them, else of all tokens.

        Args:
          states: (B, S, D).
          batch: `word_positions` (B, W) int32, if it has them: where each word's first piece stands, words
            at the front of the row and 0 behind them.
          train: with dropout.

        Returns:
          `token_labels_logits` (B, W, C) float32; `tags` (B, W) int32, the best, 0 behind the words; with
          a CRF `crf`, the chain that it is trained by.
        """
        spec, outputs = self.spec, {}
        where = batch.get("word_positions")
        is_word = batch["segment_ids"] > 0 if where is None else where > 0
        if where is not None:
            states = _at(states, where)
        if "bilstm" in spec.token_head:
            states = self.lstm(states, jnp.sum(is_word, axis=1))
            states = self.classifier_dropout(states, train)
        logits = self.token_classifier(states).astype(jnp.float32)
        best = jnp.argmax(logits, axis=-1)
        if "crf" in spec.token_head:
            chain = self.crf()
            decoded = chain if spec.crf_constraints == "none" else crf.constrained(chain)
            outputs["crf"] = decoded if spec.crf_constraints == "train" else chain
            best = crf.decode(jax.lax.stop_gradient(decoded), jax.lax.stop_gradient(logits), is_word)
        return {"token_labels_logits": logits, "tags": jnp.where(is_word, best, 0), **outputs}

    def _replaced(
        self, batch: Mapping[str, jax.Array], train: bool
    ) -> tuple[dict[str, jax.Array], dict[str, jax.Array]]:
        """Returns the batch with tokens that the generator drew at the masked positions, and its logits.

        A draw that is the original token counts as original. No gradient flows through the draw.
        """
        embedded = self.encoder.embed(batch["tokens"], batch["positions"], batch["type_ids"])
        logits = self.generator(batch, embedded, self.encoder.word, train)
        drawn = jax.random.categorical(self.make_rng("sample"), jax.lax.stop_gradient(logits), axis=-1)
        rows = jnp.arange(logits.shape[0])[:, None]
        # Slots without a target point behind the row, where nothing is written.
        tokens = jnp.asarray(batch["tokens"])
        where = jnp.where(batch["mlm_weights"] > 0, batch["mlm_positions"], tokens.shape[1])
        original = tokens.at[rows, where].set(batch["mlm_labels"], mode="drop")
        replaced = original.at[rows, where].set(drawn.astype(jnp.int32), mode="drop")
        return {**batch, "tokens": replaced}, {"mlm_logits": logits, "rtd_labels": replaced != original}


def _filled(batch: Mapping[str, jax.Array]) -> dict[str, jax.Array]:
    """Returns the batch with what one unpadded text in each row has, where it says nothing else."""
    tokens = batch["tokens"]
    counted = jnp.broadcast_to(jnp.arange(tokens.shape[1], dtype=jnp.int32)[None], tokens.shape)
    zeros = jnp.zeros_like(tokens)
    return {"segment_ids": zeros + 1, "positions": counted, "type_ids": zeros, **batch}


def _at(hidden: jax.Array, positions: jax.Array) -> jax.Array:
    """Returns the (B, M, D) states at (B, M) positions."""
    return jnp.take_along_axis(hidden, positions[..., None], axis=1)
