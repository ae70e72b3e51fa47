"""What a model does with one text: attention weights, fillers and surprisal of each token.

Letters: S tokens of the text, ends included; k fillers.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.interop import load
from bert_jax.models.model import Model
from bert_jax.tasks import features

_AT_ONCE = 32  # masked copies of the text, or states whose logits exist at once


@dataclasses.dataclass(frozen=True)
class Reading:
    """A text as a model reads it.

    Attributes:
      tokens: (S) strings of the vocabulary.
      segments: (S) 0, or 1 in the second text of a pair.
      special: (S) whether the token is one of the tokenizer's own, [MASK] not among them.
      masked: (S) whether it is [MASK].
      weights: (L, H, S, S) float32: of each query (row) its shares of the keys; 0 where it sees none.
      fillers: of each token the likeliest ones in its place, with their probabilities, best first; empty
        where the model says nothing of it.
      surprisal: of each token -log2 of its probability given what the model may see; None where the model
        says nothing of it, and at [MASK], whose token is not known.
      predicts: how the fillers came about, in a sentence.
      note: what is unusual; "" where nothing is.
    """

    tokens: list[str]
    segments: list[int]
    special: list[bool]
    masked: list[bool]
    weights: np.ndarray
    fillers: list[list[tuple[str, float]]]
    surprisal: list[float | None]
    predicts: str
    note: str


def read(source: load.Source, text: str, pair: str | None = None, top_k: int = 5) -> Reading:
    """Returns what the model does with a text, or a pair of texts.

    Args:
      source: the model.
      text, pair: the texts; what is longer than the model reads is cut from the end of the longer one.
      top_k: k.

    Raises:
      ValueError: there is no text, or the model gives NaN.
    """
    tokenizer, spec = source.tokenizer, source.spec
    if not text.strip():
        raise ValueError("there is no text to look at: give one with more than white space")
    encoding = tokenizer.encode(text, pair)
    ids, types = list(encoding.ids), list(encoding.type_ids)
    note = ""
    if len(ids) > spec.max_positions:
        whole = len(ids)
        ids, types, _ = next(
            features.rows(tokenizer, [text], None if pair is None else [pair], spec.max_positions)
        )
        note = f"cut from {whole} to {len(ids)} tokens, the most that the model reads"
    segments = list(types)
    if pair is not None and not tokenizer.pair_type:  # RoBERTa's texts have one type; two separators between
        ends = [i for i, id in enumerate(ids) if id == tokenizer.sep_id]
        segments = [int(i >= ends[1]) for i in range(len(ids))]
    if spec.segments < 2:
        types = [0] * len(ids)
    # A generator and a discriminator are two models: what is looked at is the one that is used, the latter.
    spec = dataclasses.replace(
        spec, has_generator=False, has_nsp=False, has_pooler=False, labels=0, attention_kernel="dense"
    )
    model, params = Model(spec), jax.tree.map(jnp.asarray, source.params)
    predicts = source.spec.has_mlm and not source.spec.has_generator
    row = {"tokens": jnp.asarray([ids], jnp.int32), "type_ids": jnp.asarray([types], jnp.int32)}
    if spec.mask == "prefix":
        row["prefix"] = jnp.zeros_like(row["tokens"]).at[:, 0].set(1)
    hidden, seen = jax.jit(
        lambda params, row: model.apply({"params": params}, row, method="hidden", mutable=["attention"])
    )(params, row)
    (found,) = jax.tree.leaves(seen)
    weights = np.asarray(found[:, 0], np.float32)  # (L, H, S, S)
    if not np.isfinite(weights).all():
        raise ValueError("the model's attention is not a number: its weights are damaged")

    special_ids = {*tokenizer.special_ids.tolist()} - {tokenizer.mask_id, tokenizer.unk_id}
    special = [id in special_ids for id in ids]
    asked = [i for i in range(len(ids)) if not special[i]]
    how, fillers, surprisal = "", [[] for _ in ids], [None] * len(ids)
    if predicts and asked:
        best = _Best(model, params, tokenizer, top_k)
        if spec.kind == "tta":
            how = "Each token is predicted from all the others, in one pass in which none sees itself."
            guesses = best.of_states(hidden[0], asked, [ids[i] for i in asked])
        elif spec.mask == "full":
            how = "Each token is predicted from all the others, with [MASK] in its place."
            guesses = best.masked(row, asked, [ids[i] for i in asked], tokenizer.mask_id)
        else:
            how = "Each token is predicted from those before it."
            asked = [i for i in asked if i]
            guesses = best.of_states(hidden[0], [i - 1 for i in asked], [ids[i] for i in asked])
        for i, (candidates, log_prob) in zip(asked, guesses, strict=True):
            fillers[i] = candidates
            surprisal[i] = None if ids[i] == tokenizer.mask_id else max(0.0, -log_prob / math.log(2))
    return Reading(
        tokens=[tokenizer.token(id) for id in ids],
        segments=segments,
        special=special,
        masked=[id == tokenizer.mask_id for id in ids],
        weights=weights,
        fillers=fillers,
        surprisal=surprisal,
        predicts=how or "The model has no head that predicts tokens.",
        note=note,
    )


class _Best:
    """The likeliest tokens at some places, special tokens left out, and the log-probability of one."""

    def __init__(self, model: Model, params: Any, tokenizer: Any, top_k: int) -> None:
        allowed = tokenizer.ordinary(model.spec.padded_vocab_size)
        self._params, self._tokenizer = params, tokenizer
        count = min(top_k, int(allowed.sum()))

        def of(params: Any, states: jax.Array, targets: jax.Array) -> tuple[jax.Array, ...]:
            logits = model.apply({"params": params}, states[None], method="token_logits")[0]
            logs = jax.nn.log_softmax(logits, axis=-1)
            shares, tokens = jax.lax.top_k(jnp.where(allowed[None], jnp.exp(logs), -1.0), count)
            return shares, tokens, jnp.take_along_axis(logs, targets[:, None], axis=1)[:, 0]

        def hidden(params: Any, row: Any, places: jax.Array, mask_id: int) -> jax.Array:
            number = jnp.arange(len(places))
            batch = {name: jnp.repeat(x, len(places), axis=0) for name, x in row.items()}
            batch["tokens"] = batch["tokens"].at[number, places].set(mask_id)
            return model.apply({"params": params}, batch, method="hidden")[number, places]

        self._of, self._hidden = jax.jit(of), jax.jit(hidden, static_argnums=3)

    def of_states(
        self, states: jax.Array, places: Sequence[int], targets: Sequence[int]
    ) -> list[tuple[list[tuple[str, float]], float]]:
        """Returns (candidates, log-probability of the target) of some of (S, D) states."""
        found = []
        for start in range(0, len(places), _AT_ONCE):
            where, labels = _filled(places[start:][:_AT_ONCE]), _filled(targets[start:][:_AT_ONCE])
            found += self._read(states[where], labels)
        return found[: len(places)]

    def masked(
        self, row: Any, places: Sequence[int], targets: Sequence[int], mask_id: int
    ) -> list[tuple[list[tuple[str, float]], float]]:
        """Returns the same of copies of the row, in each of which one of the places holds [MASK]."""
        found = []
        for start in range(0, len(places), _AT_ONCE):
            where, labels = _filled(places[start:][:_AT_ONCE]), _filled(targets[start:][:_AT_ONCE])
            found += self._read(self._hidden(self._params, row, where, mask_id), labels)
        return found[: len(places)]

    def _read(self, states: jax.Array, targets: jax.Array) -> list[tuple[list[tuple[str, float]], float]]:
        shares, tokens, logs = map(np.asarray, self._of(self._params, states, targets))
        name = self._tokenizer.token
        return [
            (
                [(name(t), p) for t, p in zip(tokens[n].tolist(), shares[n].tolist(), strict=True)],
                float(logs[n]),
            )
            for n in range(len(tokens))
        ]


def _filled(values: Sequence[int]) -> jax.Array:
    """Returns the values, the last one repeated up to `_AT_ONCE`, so that one program does for all."""
    return jnp.asarray([*values, *[values[-1]] * (_AT_ONCE - len(values))], jnp.int32)
