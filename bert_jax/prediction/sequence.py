"""Answers with one label, score or choice for a text, a pair, or several texts."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from bert_jax.interop import load
from bert_jax.models.model import Model
from bert_jax.prediction import Item, Row, cut_note, number
from bert_jax.tasks import features


class _OfTexts:
    """What the heads here share: a text or pair is one row, cut as in training."""

    fewest = 1

    def __init__(self, source: load.Source) -> None:
        facts = source.facts
        spec = dataclasses.replace(source.spec, has_mlm=False, has_nsp=False)  # nothing that is not asked for
        self._model, self._tokenizer = Model(spec), source.tokenizer
        self._seq_len = min(spec.max_positions, facts.get("seq_len") or spec.max_positions)
        pairs = facts.get("pairs")  # None: nobody says
        self.columns: tuple[str, ...] = ("text",) if pairs is False else ("text", "text_pair")
        if pairs:
            self.fewest = 2

    def outputs(self, params: Any, batch: Mapping[str, jax.Array]) -> dict[str, jax.Array]:
        """Returns `logits` (B, labels)."""
        read = {name: x for name, x in batch.items() if name != "spots"}
        return {"logits": self._model.apply({"params": params}, read)["logits"]}

    def items(self, texts: Sequence[tuple[str, ...]]) -> list[Item]:
        """Returns a row for each text or pair; none where all is empty."""
        return [
            Item(given, [row] if row.ids else [], note)
            for given, (row, note) in zip(texts, self._rows(texts), strict=True)
        ]

    def _rows(self, texts: Sequence[tuple[str, ...]]) -> list[tuple[Row, str | None]]:
        """Returns row and note of each text or pair; an empty row where all is empty."""
        made: list[tuple[Row, str | None]] = [(Row([], []), "empty line")] * len(texts)
        for size in (1, 2):
            numbers = [n for n, x in enumerate(texts) if len(x) == size and any(text.strip() for text in x)]
            first = [texts[n][0] for n in numbers]
            second = [texts[n][1] for n in numbers] if size == 2 else None
            found = features.rows(self._tokenizer, first, second, self._seq_len)
            for n, (ids, type_ids, whole) in zip(numbers, found, strict=True):
                made[n] = Row(ids, type_ids), cut_note(whole, len(ids))
        return made

    def _named(self, item: Item) -> dict[str, Any]:
        return dict(zip(self.columns, item.texts, strict=False))


class Classifier(_OfTexts):
    """{"text", "label", "probabilities"}, and "text_pair" where there is one."""

    def __init__(self, source: load.Source) -> None:
        super().__init__(source)
        self._names = source.labels or tuple(f"LABEL_{i}" for i in range(source.spec.labels))

    def answer(self, item: Item, found: Sequence[Mapping[str, np.ndarray]]) -> dict[str, Any]:
        """Returns the most probable label, and the probability of each."""
        if not found:
            return {**self._named(item), "label": None, "probabilities": None}
        return {**self._named(item), **labelled(self._names, found[0]["logits"])}


class Scorer(_OfTexts):
    """{"text", "score"}, and "text_pair" where there is one."""

    def answer(self, item: Item, found: Sequence[Mapping[str, np.ndarray]]) -> dict[str, Any]:
        """Returns the score."""
        return {**self._named(item), "score": number(found[0]["logits"][0]) if found else None}


class Chooser(_OfTexts):
    """{"text", "choices", "label", "probabilities"}: which of the choices goes with the text, if any."""

    def __init__(self, source: load.Source) -> None:
        super().__init__(source)
        self._names = tuple(source.facts["choices"])
        self._first = 1 if source.facts.get("pairs") else 0  # texts before the choices
        self.columns = (*("text",)[: self._first], *self._names)
        self.fewest = len(self.columns)

    def items(self, texts: Sequence[tuple[str, ...]]) -> list[Item]:
        """Returns a row for each choice; none where a choice is empty."""
        size = len(self._names)
        flat = [(*x[: self._first], choice) for x in texts for choice in x[self._first :]]
        made = self._rows(flat)
        items = []
        for n, given in enumerate(texts):
            own = made[n * size : (n + 1) * size]
            empty = any(not choice.strip() for choice in given[self._first :])
            note = "empty choice" if empty else next((note for _, note in own if note is not None), None)
            items.append(Item(given, [] if empty else [row for row, _ in own], note))
        return items

    def answer(self, item: Item, found: Sequence[Mapping[str, np.ndarray]]) -> dict[str, Any]:
        """Returns the name of the most probable choice, and the probability of each."""
        said: dict[str, Any] = {"text": item.texts[0]} if self._first else {}
        said["choices"] = list(item.texts[self._first :])
        if not found:
            return {**said, "label": None, "probabilities": None}
        return {**said, **labelled(self._names, np.array([x["logits"][0] for x in found]))}


def labelled(names: Sequence[str], logits: np.ndarray) -> dict[str, Any]:
    """Returns the label of the highest of (C,) logits, and each one's share of a softmax."""
    logits = logits.astype(np.float64)
    shares = np.exp(logits - logits.max())
    shares /= shares.sum()
    return {
        "label": names[int(np.argmax(logits))],
        "probabilities": {name: number(p) for name, p in zip(names, shares, strict=True)},
    }
