"""Writing on from a source: beam search over a model with a token head, of which one beam is greedy.

The source is read once, each step reads one token a beam: keys and values of all before it are kept.

Letters: B sources, S tokens of a source, N beams each, M tokens of an answer at most, T = S + M, V words.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.models.model import Model

_NEVER = -1e9  # a log-probability that none has


@dataclasses.dataclass(frozen=True)
class Writing:
    """How answers are searched for.

    Attributes:
      max_length: M, the end token included.
      end_id: the token that ends an answer.
      allowed: (V,) bool, V padded: tokens that an answer may have; others keep their share of the
        probability, which is then nobody's.
      type_id: type of the answer's tokens.
      beam_size: N.
      length_penalty: alpha; finished answers compare by log p / ((5 + length) / 6)^alpha (Wu et al. 2016,
        equation 14).
    """

    max_length: int
    end_id: int
    allowed: np.ndarray
    type_id: int = 1
    beam_size: int = 1
    length_penalty: float = 0.0


@flax.struct.dataclass
class _Search:
    """What is known after `step` tokens.

    Attributes:
      step: () int32.
      tokens: (B, N, M) int32 of the beams that have not ended.
      log_probs: (B, N) float32, of these tokens.
      following: (B, N, V) float32: log-probabilities of the token that comes next.
      kept: the collection "cache", (L, B * N, T, H, K).
      ended_tokens, ended_log_probs, ended_scores: the best N that have ended, best first.
      count: (B,) int32, how many have ended; from N on nothing of the source changes any more.
    """

    step: jax.Array
    tokens: jax.Array
    log_probs: jax.Array
    following: jax.Array
    kept: Any
    ended_tokens: jax.Array
    ended_log_probs: jax.Array
    ended_scores: jax.Array
    count: jax.Array


def generate(
    model: Model, params: Any, batch: Mapping[str, jax.Array], writing: Writing
) -> dict[str, jax.Array]:
    """Returns the best answer to each source.

    In each step the N best continuations are looked at. Those that end are put aside, and the N best that do
    not go on; N that have ended are enough. Where none has within M tokens, the best beam is the answer.
    What a row gives does not depend on the others.

    Args:
      model: with a token head, dot-product attention, and the mask "prefix".
      params: its parameters.
      batch: `tokens`, `segment_ids` (0 is padding) and `type_ids`, (B, S) int32: each row a source with its
        start and end tokens, padded behind. A row of padding gives no answer.
      writing: how.

    Returns:
      `tokens` (B, M) int32, the end token included, 0 behind it; `lengths` (B,) int32; `log_prob` (B,)
      float32, the model's own of these tokens; `ended` (B,) bool, false where M tokens were not enough.
    """
    state = _begun(model, params, batch, writing)
    segment_ids = jnp.asarray(batch["segment_ids"])

    def goes_on(state: _Search) -> jax.Array:
        return (state.step < writing.max_length) & jnp.any(state.count < writing.beam_size)

    def step(state: _Search) -> _Search:
        state, parents, chosen = _chosen(state, writing)
        return _read(model, params, segment_ids, state, parents, chosen, writing)

    state = jax.lax.while_loop(goes_on, step, state)
    ended = state.count > 0
    tokens = jnp.where(ended[:, None], state.ended_tokens[:, 0], state.tokens[:, 0])
    log_prob = jnp.where(ended, state.ended_log_probs[:, 0], state.log_probs[:, 0])
    is_end = tokens == writing.end_id
    lengths = jnp.where(jnp.any(is_end, axis=1), jnp.argmax(is_end, axis=1) + 1, writing.max_length)
    there = segment_ids[:, 0] > 0
    inside = (jnp.arange(writing.max_length)[None] < lengths[:, None]) & there[:, None]
    return {
        "tokens": jnp.where(inside, tokens, 0),
        "lengths": jnp.where(there, lengths, 0),
        "log_prob": jnp.where(there, log_prob, 0.0),
        "ended": ended & there,
    }


def _begun(model: Model, params: Any, batch: Mapping[str, jax.Array], writing: Writing) -> _Search:
    """Reads the sources, and returns the search before the first token."""
    beams, room = writing.beam_size, writing.max_length
    source = {name: jnp.asarray(batch[name]) for name in ("tokens", "segment_ids", "type_ids")}
    hidden, kept = model.apply({"params": params}, source, method="hidden", mutable=["cache"])
    lengths = jnp.sum(source["segment_ids"] > 0, axis=1)
    last = jnp.take_along_axis(hidden, jnp.maximum(lengths - 1, 0)[:, None, None], axis=1)
    following = _log_probs(model, params, last, writing)
    rows = hidden.shape[0]

    def with_room(x: jax.Array) -> jax.Array:
        if x.ndim < 5:
            return x
        return jnp.repeat(jnp.pad(x, [(0, 0), (0, 0), (0, room), (0, 0), (0, 0)]), beams, axis=1)

    none = jnp.full((rows, beams), _NEVER)
    blank = jnp.zeros((rows, beams, room), jnp.int32)
    return _Search(
        step=jnp.array(0, jnp.int32),
        tokens=blank,
        log_probs=none.at[:, 0].set(0.0),  # all beams are one at first
        following=jnp.repeat(following, beams, axis=1),
        kept=jax.tree.map(with_room, kept["cache"]),
        ended_tokens=blank,
        ended_log_probs=none,
        ended_scores=none,
        count=jnp.where(lengths > 0, 0, beams).astype(jnp.int32),
    )


def _log_probs(model: Model, params: Any, states: jax.Array, writing: Writing) -> jax.Array:
    """Returns (B, M, V) float32 of (B, M, D) states; those of tokens that are not allowed are none."""
    logits = model.apply({"params": params}, states, method="token_logits")
    found = jax.nn.log_softmax(logits, axis=-1)
    return jnp.where(jnp.asarray(writing.allowed)[None, None], found, _NEVER)


def _chosen(state: _Search, writing: Writing) -> tuple[_Search, jax.Array, jax.Array]:
    """Takes the best continuations.

    Returns:
      The search with those that end put aside and the others in their order; and of these, (B, N) int32, the
      beam that each goes on from and its new token.
    """
    beams, rows = writing.beam_size, state.count.shape[0]
    size = state.following.shape[-1]
    totals = (state.log_probs[..., None] + state.following).reshape(rows, -1)
    # At most one continuation of a beam ends, so that of 2 N at least N do not.
    log_probs, places = jax.lax.top_k(totals, 2 * beams)
    parents, chosen = places // size, places % size
    tokens = jnp.take_along_axis(state.tokens, parents[..., None], axis=1)
    tokens = tokens.at[:, :, state.step].set(chosen)
    ends = chosen == writing.end_id

    best = slice(0, beams)
    puts = ends[:, best] & (log_probs[:, best] > _NEVER / 2) & (state.count < beams)[:, None]
    scale = ((6.0 + state.step) / 6.0) ** writing.length_penalty  # 5 + length
    scores = jnp.where(puts, log_probs[:, best] / scale, _NEVER)
    pool = jnp.concatenate([state.ended_scores, scores], axis=1)
    ended_scores, order = jax.lax.top_k(pool, beams)

    def ordered(old: jax.Array, new: jax.Array) -> jax.Array:
        both = jnp.concatenate([old, new], axis=1)
        return jnp.take_along_axis(both, order.reshape(*order.shape, *(1,) * (both.ndim - 2)), axis=1)

    going, order_going = jax.lax.top_k(jnp.where(ends, 4 * _NEVER, log_probs), beams)
    state = state.replace(
        tokens=jnp.take_along_axis(tokens, order_going[..., None], axis=1),
        log_probs=jnp.maximum(going, _NEVER),  # or what is none would sink below what ends
        ended_tokens=ordered(state.ended_tokens, tokens[:, best]),
        ended_log_probs=ordered(state.ended_log_probs, log_probs[:, best]),
        ended_scores=ended_scores,
        count=state.count + jnp.sum(puts, axis=1),
    )
    parents = jnp.take_along_axis(parents, order_going, axis=1)
    return state, parents, jnp.take_along_axis(chosen, order_going, axis=1)


def _read(
    model: Model,
    params: Any,
    segment_ids: jax.Array,
    state: _Search,
    parents: jax.Array,
    chosen: jax.Array,
    writing: Writing,
) -> _Search:
    """Reads the (B, N) chosen tokens, each behind its parent's, and returns the search one step on."""
    rows, beams = chosen.shape
    kept = state.kept
    if beams > 1:
        which = (jnp.arange(rows)[:, None] * beams + parents).reshape(-1)
        kept = jax.tree.map(lambda x: x[:, which] if x.ndim == 5 else x, kept)
    lengths = jnp.sum(segment_ids > 0, axis=1)
    place = lengths + state.step
    there = jnp.arange(writing.max_length)
    visible = jnp.concatenate(
        [segment_ids > 0, jnp.broadcast_to((there <= state.step)[None], (rows, len(there)))], axis=1
    )
    nearby, window = None, model.spec.local_window
    if window:
        sources = jnp.broadcast_to(jnp.arange(segment_ids.shape[1])[None], segment_ids.shape)
        keys = jnp.concatenate([sources, lengths[:, None] + there[None]], axis=1)
        nearby = visible & (place[:, None] - keys <= window // 2)

    def of_beams(x: jax.Array | None) -> jax.Array | None:
        return None if x is None else jnp.repeat(x, beams, axis=0)[:, None, None]

    tokens = chosen.reshape(-1, 1).astype(jnp.int32)
    step = {
        "tokens": tokens,
        "positions": jnp.repeat(place, beams)[:, None].astype(jnp.int32),
        "type_ids": jnp.full_like(tokens, writing.type_id),
    }
    states, kept = model.apply(
        {"params": params, "cache": kept}, step, of_beams(visible), of_beams(nearby),
        method="next_states", mutable=["cache"],
    )  # fmt: skip
    following = _log_probs(model, params, states, writing).reshape(rows, beams, -1)
    return state.replace(step=state.step + 1, following=following, kept=kept["cache"])
