"""Answers with one label for two words or phrases that are marked in a text, or in two."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.interop import load
from bert_jax.models.model import Model
from bert_jax.prediction import Item, Row, cut_note
from bert_jax.prediction.sequence import labelled
from bert_jax.tasks import TaskDataError, spanned


@dataclasses.dataclass(frozen=True)
class _Spanned(Item):
    """Texts without their marks, and their spans, where these are found."""

    spans: tuple[spanned.Span, spanned.Span] | None = None


class Spanner:
    """{"text", "span1", "span2", "label", "probabilities"}, and "text_pair" where there is one.

    The texts are without their marks, the spans are [start, end] in their text.
    """

    def __init__(self, source: load.Source) -> None:
        facts = source.facts
        self._model = Model(dataclasses.replace(source.spec, has_mlm=False, has_nsp=False))
        self._tokenizer, self._names = source.tokenizer, source.labels
        self._seq_len = min(source.spec.max_positions, facts["seq_len"])
        self.columns: tuple[str, ...] = ("text", "text_pair") if facts["pairs"] else ("text",)
        self.fewest = len(self.columns)

    def items(self, texts: Sequence[tuple[str, ...]]) -> list[Item]:
        """Returns a row for each text or pair; its spots are the ends of its spans, in tokens."""
        return [self._item(given) for given in texts]

    def _item(self, given: tuple[str, ...]) -> _Spanned:
        if not all(text.strip() for text in given):
            return _Spanned(given, [], "empty line")
        try:
            plain, spans = spanned.of_inline(given, "no spans")
            pairs = plain[1:] or None
            made = spanned.rows(self._tokenizer, plain[:1], pairs, [spans], self._seq_len)
            ids, type_ids, whole, where = next(made)
        except TaskDataError as error:
            return _Spanned(given, [], str(error))
        row = Row(ids, type_ids, [place for span in where for place in span])
        return _Spanned(plain, [row], cut_note(whole, len(ids)), spans)

    def outputs(self, params: Any, batch: Mapping[str, jax.Array]) -> dict[str, jax.Array]:
        """Returns `logits` (B, labels)."""
        read = {name: x for name, x in batch.items() if name != "spots"}
        first, second = batch["spots"][:, 0:2], batch["spots"][:, 2:4]
        cls = jnp.zeros_like(first) + jnp.arange(2)[None]  # from 0 to before 1
        marked = jnp.stack([cls, first, second], axis=1)
        read |= {"marked_positions": marked[..., 0], "marked_ends": marked[..., 1]}
        return {"logits": self._model.apply({"params": params}, read)["logits"]}

    def answer(self, item: Item, found: Sequence[Mapping[str, np.ndarray]]) -> dict[str, Any]:
        """Returns the most probable label, and the probability of each."""
        texts = dict(zip(self.columns, item.texts, strict=True))
        if not found:
            return {**texts, "label": None, "probabilities": None}
        first, second = item.spans
        return {
            **texts,
            "span1": list(first),
            "span2": list(second),
            **labelled(self._names, found[0]["logits"]),
        }
