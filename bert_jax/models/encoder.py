"""The encoder: embeddings, layers and their stack, for BERT and for T-TA.

BERT (Devlin et al. 2018) and T-TA (Shin et al. 2020) are one stack. In BERT a layer's keys and
values come from the layer's own input; in T-TA they come from the embedded tokens in every layer,
and the stream that passes through the layers starts from the positions alone, so with the diagonal
of the mask removed no output has seen its own token.
"""

import functools

import flax.linen as nn
import jax
import jax.numpy as jnp

from bert_jax.models import positions as position_lib
from bert_jax.models.attention import Attention, Mask, dense
from bert_jax.models.dropout import Dropout
from bert_jax.models.spec import ModelSpec, activation, dense_init, layer_norm

_REMAT_POLICIES = {
    "full": None,
    "dots": jax.checkpoint_policies.dots_with_no_batch_dims_saveable,
}


class Layer(nn.Module):
    """Attention and feed-forward, each with residual and LayerNorm after ("post") or before ("pre")."""

    spec: ModelSpec
    train: bool

    @nn.compact
    def __call__(
        self,
        x: jax.Array,
        memory: jax.Array | None,
        visible: jax.Array,
        rotary: tuple[jax.Array, jax.Array] | None,
    ) -> tuple[jax.Array, None]:
        """Returns the layer's (B, S, D) output, and None, for use in a scan.

        Args:
          x: (B, S, D), the stream.
          memory: (B, S, D) keys' and values' input where it is not the stream itself (T-TA).
          visible: (B, 1, S, S) bool.
          rotary: the rotary table, or None.
        """
        spec, pre = self.spec, self.spec.norm == "pre"
        norm1, norm2 = layer_norm(spec, "attention_norm"), layer_norm(spec, "feed_forward_norm")
        dropout = functools.partial(Dropout, spec.dropout)

        query = norm1(x) if pre else x
        keys = query if memory is None else memory
        mixed = Attention(spec, name="attention")(query, keys, visible, rotary, self.train)
        x = x + dropout(name="attention_dropout")(mixed, self.train)
        x = x if pre else norm1(x)

        hidden = norm2(x) if pre else x
        hidden = nn.Dense(
            spec.feed_forward_size,
            dtype=spec.dtype,
            kernel_init=dense_init(spec, "embed", "mlp"),
            bias_init=nn.with_logical_partitioning(nn.initializers.zeros, ("mlp",)),
            name="feed_forward_in",
        )(hidden)
        hidden = nn.Dense(
            spec.hidden_size,
            dtype=spec.dtype,
            kernel_init=dense_init(spec, "mlp", "embed"),
            bias_init=nn.with_logical_partitioning(nn.initializers.zeros, ("norm",)),
            name="feed_forward_out",
        )(activation(spec)(hidden))
        x = x + dropout(name="feed_forward_dropout")(hidden, self.train)
        x = x if pre else norm2(x)
        return nn.with_logical_constraint(x, ("batch", "sequence", "activation")), None


class Encoder(nn.Module):
    """Embeddings and the stack of layers."""

    spec: ModelSpec

    def setup(self) -> None:
        spec = self.spec
        self.word = self.param(
            "word", dense_init(spec, "vocab", "embed"), (spec.padded_vocab_size, spec.hidden_size)
        )
        if spec.position == "learned":
            self.position = self.param(
                "position", dense_init(spec, "positions", "embed"), (spec.max_positions, spec.hidden_size)
            )
        if spec.segments:
            self.segment = self.param(
                "segment", dense_init(spec, "segments", "embed"), (spec.segments, spec.hidden_size)
            )
        self.embedding_norm = layer_norm(spec, "embedding_norm")
        self.embedding_dropout = Dropout(spec.dropout)
        self.final_norm = layer_norm(spec, "final_norm") if spec.norm == "pre" else None

    def embed(self, tokens: jax.Array | None, positions: jax.Array, type_ids: jax.Array) -> jax.Array:
        """Returns the normed sum of the embeddings, (B, S, D), before dropout.

        Args:
          tokens: (B, S) int32, or None for what T-TA's first query holds: no token, or [MASK].
          positions: (B, S) int32.
          type_ids: (B, S) int32.
        """
        spec = self.spec
        parts = []
        if tokens is not None:
            parts.append(self.word[tokens])
        elif spec.tta_query == "mask_token" or spec.position == "rotary":
            # A rotary model has no position vector to start from: a constant row stands in its
            # place, and the rotation carries the position.
            parts.append(jnp.broadcast_to(self.word[spec.mask_id], (*positions.shape, spec.hidden_size)))
        if spec.position == "learned":
            parts.append(self.position[positions])
        elif spec.position == "sinusoidal":
            parts.append(position_lib.sinusoidal(positions, spec.hidden_size))
        if spec.segments:
            parts.append(self.segment[type_ids])
        return self.embedding_norm(sum(parts).astype(spec.dtype))

    @nn.compact
    def contextualize(
        self,
        embedded: jax.Array,
        query: jax.Array | None,
        mask: Mask,
        positions: jax.Array,
        train: bool,
    ) -> jax.Array:
        """Returns the last layer's (B, S, D) output.

        Args:
          embedded: (B, S, D) embedded tokens; T-TA's keys and values in every layer.
          query: (B, S, D), T-TA's first query; None in an encoder.
          mask: who sees whom.
          positions: (B, S) int32, for the rotary table.
          train: with dropout.
        """
        spec = self.spec
        rotary = None
        if spec.position == "rotary":
            rotary = position_lib.rotary_table(positions, spec.hidden_size // spec.heads, spec.rope_theta)
        layer = Layer
        if spec.remat != "none":
            layer = nn.remat(Layer, policy=_REMAT_POLICIES[spec.remat], prevent_cse=not spec.scan)
        # Unrolling the scan keeps one parameter layout, (L, ...), and one set of random keys, so
        # that a checkpoint and its numbers are the same either way.
        stack = nn.scan(
            layer,
            variable_axes={"params": 0, "attention": 0},
            split_rngs={"params": True, "dropout": True},
            in_axes=(nn.broadcast, nn.broadcast, nn.broadcast),
            length=spec.layers,
            unroll=1 if spec.scan else spec.layers,
            metadata_params={nn.PARTITION_NAME: "layers"},
        )
        embedded = self.embedding_dropout(embedded, train)
        stream, memory = (embedded, None) if query is None else (query, embedded)
        if query is not None:
            stream = self.embedding_dropout(query, train)
        x, _ = stack(spec, train, name="layers")(stream, memory, dense(mask), rotary)
        return x if self.final_norm is None else self.final_norm(x)

    def __call__(
        self,
        tokens: jax.Array,
        segment_ids: jax.Array,
        positions: jax.Array,
        type_ids: jax.Array,
        train: bool,
        see_self: bool = False,
    ) -> jax.Array:
        """Returns the hidden states, (B, S, D).

        Args:
          tokens, segment_ids, positions, type_ids: (B, S) int32, as the pipeline makes them.
          train: with dropout.
          see_self: lifts T-TA's diagonal, as a downstream task may want; nothing to an encoder.
        """
        tta = self.spec.kind == "tta"
        embedded = self.embed(tokens, positions, type_ids)
        query = self.embed(None, positions, type_ids) if tta else None
        mask = Mask(segment_ids, diagonal=tta and not see_self)
        return self.contextualize(embedded, query, mask, positions, train)
