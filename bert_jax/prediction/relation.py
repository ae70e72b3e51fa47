"""Answers with the relation of two entities that are marked in a text."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from bert_jax.interop import load
from bert_jax.models.model import Model
from bert_jax.prediction import Item, Row, cut_note
from bert_jax.prediction.sequence import labelled
from bert_jax.tasks import TaskDataError, marks


@dataclasses.dataclass(frozen=True)
class _Pair(Item):
    """A text with its entities, where they are found."""

    marked: marks.Marked | None = None


class Relater:
    """{"text", "head", "tail", "label", "probabilities"}.

    The text is without its marks, "head" and "tail" are [start, end] of the first and second entity in it.
    """

    columns = ("text",)
    fewest = 1

    def __init__(self, source: load.Source) -> None:
        facts = source.facts
        self._model = Model(dataclasses.replace(source.spec, has_mlm=False, has_nsp=False))
        self._names = source.labels
        seq_len = min(source.spec.max_positions, facts["seq_len"])
        self._marker = marks.Marker(source.tokenizer, facts["markers"], seq_len)

    def items(self, texts: Sequence[tuple[str, ...]]) -> list[Item]:
        """Returns a row for each text with two marked entities; its spots are where their marks start."""
        return [self._item(text) for (text,) in texts]

    def _item(self, text: str) -> _Pair:
        if not text.strip():
            return _Pair((text,), [], "empty line")
        try:
            marked = marks.of_inline(text, "no relation")
        except TaskDataError as error:
            return _Pair((text,), [], str(error))
        ids, starts, whole = self._marker.row(marked)
        return _Pair((text,), [Row(ids, [0] * len(ids), starts)], cut_note(whole, len(ids)), marked)

    def outputs(self, params: Any, batch: Mapping[str, jax.Array]) -> dict[str, jax.Array]:
        """Returns `logits` (B, labels)."""
        read = {name: x for name, x in batch.items() if name != "spots"}
        read["marked_positions"] = batch["spots"][:, :2]
        return {"logits": self._model.apply({"params": params}, read)["logits"]}

    def answer(self, item: Item, found: Sequence[Mapping[str, np.ndarray]]) -> dict[str, Any]:
        """Returns the most probable relation, and the probability of each."""
        if not found:
            return {"text": item.texts[0], "label": None, "probabilities": None}
        spans = {name: list(span) for name, span in zip(marks.SPANS, item.marked.spans, strict=True)}
        return {"text": item.marked.text, **spans, **labelled(self._names, found[0]["logits"])}
