"""The encoder: embeddings, layers and their stack, for BERT, its family and T-TA.

BERT (Devlin et al. 2018) and T-TA (Shin et al. 2020) are one stack. In BERT a layer's keys and
values come from the layer's own input; in T-TA they come from the embedded tokens in every layer,
and the stream that passes through the layers starts from the positions alone, so with the diagonal
of the mask removed no output has seen its own token.
"""

import functools

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name

from bert_jax.models import masks, sequence
from bert_jax.models import positions as position_lib
from bert_jax.models import spec as spec_lib
from bert_jax.models.activations import ACTIVATIONS
from bert_jax.models.attention import KEPT, Attention
from bert_jax.models.blocks import Rows
from bert_jax.models.dropout import Dropout
from bert_jax.models.masks import Mask
from bert_jax.models.spec import ModelSpec, dense_init, layer_norm
from bert_jax.models.splash import Tiles

# What the backward pass of a layer finds, beside the layer's input; the rest it computes again.
_REMAT_POLICIES = {
    "full": None,
    "dots": jax.checkpoint_policies.dots_with_no_batch_dims_saveable,
    "feed_forward": jax.checkpoint_policies.save_only_these_names(*KEPT, "sum"),
}

# What the layers share: the visible pairs and the rotary tables (of keys, and of queries where these are
# only a part of the row) of global layers, and of local ones.
Rotary = tuple[jax.Array, jax.Array] | None
View = tuple[jax.Array | Rows | Tiles, Rotary, Rotary]
Views = tuple[View, View | None]


class Layer(nn.Module):
    """Attention and feed-forward, each with residual and LayerNorm after ("post") or before ("pre")."""

    spec: ModelSpec
    train: bool

    @nn.compact
    def __call__(
        self, x: jax.Array, number: jax.Array, memory: jax.Array | None, views: Views
    ) -> tuple[jax.Array, None]:
        """Returns the layer's (B, S, D) output, and None, for use in a scan.

        Args:
          x: (B, S, D), the stream.
          number: () int32, the layer's, from 0.
          memory: (B, S, D) keys' and values' input where it is not the stream itself (T-TA).
          views: what global layers see and rotate by, and local ones where there are any.
        """
        spec, pre = self.spec, self.spec.norm == "pre"
        norm1, norm2 = layer_norm(spec, "attention_norm"), layer_norm(spec, "feed_forward_norm")
        dropout = functools.partial(Dropout, spec.dropout)

        visible, rotary, query_rotary = views[0]
        if views[1] is not None:
            is_global = number % spec.global_every == 0
            visible, rotary, query_rotary = jax.tree.map(functools.partial(jnp.where, is_global), *views)

        query = norm1(x) if pre else x
        if pre and not spec.first_norm:
            query = jnp.where(number == 0, x, query)
        keys = query if memory is None else memory
        attend = Attention(spec, name="attention")
        mixed = attend(query, keys, visible, rotary, self.train, query_rotary)
        x = checkpoint_name(x + dropout(name="attention_dropout")(mixed, self.train), "sum")
        x = x if pre else norm1(x)

        hidden = self._feed_forward(norm2(x) if pre else x)
        x = x + dropout(name="feed_forward_dropout")(hidden, self.train)
        # Before the norm, whose gradient asks for it; without one it is the next layer's input, kept anyway.
        x = x if pre else norm2(checkpoint_name(x, "sum"))
        return sequence.own(x), None

    def _feed_forward(self, x: jax.Array) -> jax.Array:
        """Returns (B, S, D) from (B, S, D); gated as GeGLU (Shazeer 2020, equation 6) if the spec says so."""
        spec = self.spec
        wide = functools.partial(
            spec_lib.dense, spec, spec.feed_forward_size, ("embed", "mlp"), bias=spec.bias
        )
        rows = sequence.merged(x)
        hidden = ACTIVATIONS[spec.activation](wide(name="feed_forward_in")(rows))
        if spec.gated:
            hidden = hidden * wide(name="feed_forward_gate")(rows)
        out = nn.Dense(
            spec.hidden_size,
            use_bias=spec.bias,
            dtype=spec.dtype,
            kernel_init=dense_init(spec, "mlp", "embed"),
            bias_init=nn.with_logical_partitioning(nn.initializers.zeros, ("norm",)),
            name="feed_forward_out",
        )
        return out(hidden).reshape(x.shape)


class Encoder(nn.Module):
    """Embeddings and the stack of layers.

    Attributes:
      tables: without them there is nothing to embed tokens with: the vectors are another encoder's, as
        those of ELECTRA's generator are.
    """

    spec: ModelSpec
    tables: bool = True

    def setup(self) -> None:
        spec = self.spec
        size = spec.embedded_size
        if self.tables:
            self.word = self.param("word", dense_init(spec, "vocab", "embed"), (spec.padded_vocab_size, size))
            if spec.position == "learned":
                self.position = self.param(
                    "position",
                    dense_init(spec, "positions", "embed"),
                    (spec.max_positions + spec.position_offset, size),
                )
            if spec.segments:
                self.segment = self.param(
                    "segment", dense_init(spec, "segments", "embed"), (spec.segments, size)
                )
            self.embedding_norm = layer_norm(spec, "embedding_norm")
        if size != spec.hidden_size:
            self.embedding_projection = nn.Dense(
                spec.hidden_size,
                use_bias=spec.bias,
                dtype=spec.dtype,
                kernel_init=dense_init(spec, "embedding", "embed"),
                bias_init=nn.with_logical_partitioning(nn.initializers.zeros, ("norm",)),
            )
        self.embedding_dropout = Dropout(spec.dropout)
        self.final_norm = layer_norm(spec, "final_norm") if spec.norm == "pre" else None

    def embed(self, tokens: jax.Array | None, positions: jax.Array, type_ids: jax.Array) -> jax.Array:
        """Returns the normed sum of the embeddings, (B, S, E), before dropout.

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
            parts.append(jnp.broadcast_to(self.word[spec.mask_id], (*positions.shape, spec.embedded_size)))
        if spec.position == "learned":
            parts.append(self.position[positions + spec.position_offset])
        elif spec.position == "sinusoidal":
            parts.append(position_lib.sinusoidal(positions, spec.embedded_size))
        if spec.segments:
            parts.append(self.segment[type_ids])
        return self.embedding_norm(sum(parts).astype(spec.dtype))

    def contextualize(
        self,
        embedded: jax.Array,
        query: jax.Array | None,
        mask: Mask,
        positions: jax.Array,
        train: bool,
        asked: slice | None = None,
    ) -> jax.Array:
        """Returns the last layer's (B, S, D) output, or (B, M, D) at the positions that are asked for.

        Args:
          embedded: (B, S, E) embedded tokens; T-TA's keys and values in every layer.
          query: (B, S, E), T-TA's first query; None in an encoder.
          mask: who sees whom, in global layers.
          positions: (B, S) int32, for the rotary table.
          train: with dropout.
          asked: T-TA's positions whose states are wanted; None: all. T-TA alone can leave the others
            out: what a position's stream reads is the embedded tokens, and no other stream.

        Raises:
          ValueError: `asked` of a model whose streams read one another, or with attention over places.
        """
        embedded = self._entered(embedded, train)
        stream, memory = (embedded, None) if query is None else (self._entered(query, train), embedded)
        kernel = spec_lib.kernel(self.spec, positions.shape[1])
        if asked is not None:
            kernel = "dense"
        elif kernel == "splash" and self.is_initializing():  # a single row, which devices cannot share
            kernel = "blocks"
        views = self._views(mask, positions, kernel)
        if asked is not None:
            if query is None or self.spec.attention != "dot":
                raise ValueError(
                    "a part of a row can be asked of T-TA with dot-product attention only: ask for all of it"
                )
            stream = stream[:, asked]
            views = tuple(view and _asked_of(view, asked) for view in views)
        x = self._stack(stream, memory, views, train)
        return x if self.final_norm is None else self.final_norm(x)

    def next_states(
        self,
        tokens: jax.Array,
        positions: jax.Array,
        type_ids: jax.Array,
        visible: jax.Array,
        nearby: jax.Array | None,
    ) -> jax.Array:
        """Returns the (B, M, D) states of tokens that follow those whose keys the collection "cache" keeps.

        Args:
          tokens, positions, type_ids: (B, M) int32.
          visible: (B, 1, M, T) bool, what they see of all that has room there, in global layers.
          nearby: the same in local layers, where there are any.
        """

        def view(visible: jax.Array, theta: float) -> View:
            return visible, self._rotary(positions, theta), None

        views = (
            view(visible, self.spec.rope_theta),
            None if nearby is None else view(nearby, self.spec.local_rope_theta),
        )
        x = self._stack(self._entered(self.embed(tokens, positions, type_ids), False), None, views, False)
        return x if self.final_norm is None else self.final_norm(x)

    def _entered(self, embedded: jax.Array, train: bool) -> jax.Array:
        """Returns (B, S, E) embeddings as the layers take them: with dropout, and of their width D."""
        return sequence.own(self.widened(self.embedding_dropout(embedded, train)))

    def widened(self, embedded: jax.Array) -> jax.Array:
        """Returns (B, S, D) from (B, S, E) embeddings; the same where D is E."""
        if self.spec.embedded_size == self.spec.hidden_size:
            return embedded
        return self.embedding_projection(embedded)

    def _views(self, mask: Mask, positions: jax.Array, kernel: str) -> Views:
        spec = self.spec

        def view(reach: int, theta: float) -> View:
            if kernel == "splash":
                seen = Tiles(mask)
            elif kernel == "blocks":
                # With both kinds of layers the reach is a number, which can be chosen between.
                seen = Rows(mask, jnp.asarray(reach, jnp.int32) if spec.local_window else None)
            else:
                # An export's length may be a symbol, which is compared with itself only.
                whole = reach is length or (isinstance(length, int) and reach >= length)
                seen = masks.dense(mask.replace(window=0 if whole else 2 * reach))
            return seen, self._rotary(positions, theta), None

        length = positions.shape[1]
        everywhere = view(length, spec.rope_theta)
        if not spec.local_window:
            return everywhere, None
        return everywhere, view(spec.local_window // 2, spec.local_rope_theta)

    def _rotary(self, positions: jax.Array, theta: float) -> Rotary:
        if self.spec.position != "rotary":
            return None
        return position_lib.rotary_table(positions, self.spec.head_size, theta)

    @nn.compact
    def _stack(self, stream: jax.Array, memory: jax.Array | None, views: Views, train: bool) -> jax.Array:
        """Returns the output of all layers, shaped as the stream: (B, S, D), or (B, M, D) of a part."""
        spec = self.spec
        layer = Layer
        if spec.remat != "none":
            layer = nn.remat(Layer, policy=_REMAT_POLICIES[spec.remat], prevent_cse=not spec.scan)
        # Unrolling the scan keeps one parameter layout, (L, ...), and one set of random keys, so
        # that a checkpoint and its numbers are the same either way.
        stack = nn.scan(
            layer,
            variable_axes={"attention": 0, "cache": 0, **({} if spec.share_layers else {"params": 0})},
            variable_broadcast="params" if spec.share_layers else False,
            split_rngs={"params": not spec.share_layers, "dropout": True},
            in_axes=(0, nn.broadcast, nn.broadcast),
            length=spec.layers,
            unroll=1 if spec.scan else spec.layers,
            metadata_params={nn.PARTITION_NAME: "layers"},
        )
        name = "shared_layer" if spec.share_layers else "layers"
        x, _ = stack(spec, train, name=name)(stream, jnp.arange(spec.layers), memory, views)
        return x

    def __call__(
        self,
        tokens: jax.Array,
        segment_ids: jax.Array,
        positions: jax.Array,
        type_ids: jax.Array,
        train: bool,
        see_self: bool = False,
        prefix: jax.Array | None = None,
        asked: slice | None = None,
    ) -> jax.Array:
        """Returns the hidden states, (B, S, D), or (B, M, D) of the positions asked for.

        Args:
          tokens, segment_ids, positions, type_ids: (B, S) int32, as the pipeline makes them.
          train: with dropout.
          see_self: lifts T-TA's diagonal, as the spec may do; nothing to an encoder.
          prefix: (B, S) int32, 1 where a token belongs to the source; for model.mask = "prefix".
          asked: as in `contextualize`.
        """
        spec = self.spec
        tta = spec.kind == "tta"
        embedded = self.embed(tokens, positions, type_ids)
        query = self.embed(None, positions, type_ids) if tta else None
        mask = mask_of(spec, segment_ids, prefix, see_self)
        return self.contextualize(embedded, query, mask, positions, train, asked)


def _asked_of(view: View, asked: slice) -> View:
    """Returns what the queries at some of a row's positions see and rotate by."""
    visible, rotary, _ = view
    of_queries = None if rotary is None else (rotary[0][:, asked], rotary[1][:, asked])
    return visible[:, :, asked], rotary, of_queries


def mask_of(
    spec: ModelSpec, segment_ids: jax.Array, prefix: jax.Array | None = None, see_self: bool = False
) -> Mask:
    """Returns the mask of a spec's global layers over rows with the given (B, S) int32 arrays.

    With mask "prefix" and no such array, the whole text is the source.
    """
    return Mask(
        segment_ids,
        prefix=prefix if spec.mask == "prefix" else None,
        diagonal=spec.kind == "tta" and not (see_self or spec.see_self),
        causal=spec.mask == "causal",
    )
