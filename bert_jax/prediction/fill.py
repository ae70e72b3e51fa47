"""Answers with the fillers of each mask in a text."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.interop import load
from bert_jax.models.model import Model
from bert_jax.prediction import Item, Row, cut_note, number


@dataclasses.dataclass(frozen=True)
class _Masked(Item):
    """A text, and the characters at which its masks stand."""

    places: tuple[int, ...] = ()


class Filler:
    """{"text", "fills": [{"position", "candidates": [{"token", "probability"}]}], "filled"}.

    A position is counted in characters from 0; probabilities are the model's own over all tokens, and
    special tokens are no candidates.
    """

    columns = ("text",)
    fewest = 1

    def __init__(self, source: load.Source, top_k: int) -> None:
        spec = dataclasses.replace(source.spec, has_nsp=False, has_pooler=False, labels=0)
        self._model, self._tokenizer, self._longest = Model(spec), source.tokenizer, spec.max_positions
        self._allowed = self._tokenizer.ordinary(spec.padded_vocab_size)
        self._count = min(top_k, int(self._allowed.sum()))

    def items(self, texts: Sequence[tuple[str, ...]]) -> list[Item]:
        """Returns a row for each text that has a mask within what the model reads."""
        return [self._item(text) for (text,) in texts]

    def _item(self, text: str) -> _Masked:
        tokenizer, longest = self._tokenizer, self._longest
        if not text.strip():
            return _Masked((text,), [], "empty line")
        encoding = tokenizer.encode(text)
        ids = encoding.ids
        note = cut_note(len(ids), min(len(ids), longest))
        if note:
            ids = [*ids[: longest - 1], tokenizer.sep_id]
        places = zip(ids, encoding.offsets, strict=False)
        masks = [
            (i, at[0]) for i, (id, at) in enumerate(places) if id == tokenizer.mask_id and at is not None
        ]
        row = Row(ids, [0] * len(ids), [i for i, _ in masks])
        if not masks and not note:
            note = f"no {tokenizer.token(tokenizer.mask_id)} in it, which is this vocabulary's mask"
        return _Masked((text,), [row] if masks else [], note, tuple(at for _, at in masks))

    def outputs(self, params: Any, batch: Mapping[str, jax.Array]) -> dict[str, jax.Array]:
        """Returns `shares` and `tokens` (B, M, k) of the likeliest tokens at the spots."""
        read = {name: x for name, x in batch.items() if name != "spots"}
        hidden = self._model.apply({"params": params}, read, method="hidden")
        chosen = jnp.take_along_axis(hidden, batch["spots"][..., None], axis=1)
        logits = self._model.apply({"params": params}, chosen, method="token_logits")
        shares = jax.nn.softmax(logits, axis=-1)
        best, tokens = jax.lax.top_k(jnp.where(self._allowed[None, None], shares, -1.0), self._count)
        return {"shares": best, "tokens": tokens}

    def answer(self, item: Item, found: Sequence[Mapping[str, np.ndarray]]) -> dict[str, Any]:
        """Returns the candidates for each mask, and the text with the first of each."""
        text = item.texts[0]
        if not found:
            return {"text": text, "fills": [], "filled": text if item.note != "empty line" else ""}
        return {"text": text, **self.filled(text, item.places, found[0]["shares"], found[0]["tokens"])}

    def filled(
        self, text: str, places: Sequence[int], shares: np.ndarray, tokens: np.ndarray
    ) -> dict[str, Any]:
        """Returns the fills of one text from (M, k) probabilities and tokens, M no less than its masks."""
        tokenizer = self._tokenizer
        fills = [
            {
                "position": at,
                "candidates": [
                    {"token": tokenizer.token(id), "probability": number(p)}
                    for id, p in zip(tokens[m].tolist(), shares[m].tolist(), strict=True)
                ],
            }
            for m, at in enumerate(places)
        ]
        for m, at in reversed(list(enumerate(places))):
            best, before = int(tokens[m, 0]), text[:at]
            filler = tokenizer.decode([best])
            if tokenizer.continues[best] or filler.startswith(" "):
                before = before.rstrip(" ")  # the piece belongs to the word before it, or brings its space
            text = before + filler + text[at + len(tokenizer.specials.mask) :]
        return {"fills": fills, "filled": text}
