"""Answers with a tag for each word, and the entities that the tags spell."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from bert_jax.interop import load
from bert_jax.models.model import Model
from bert_jax.prediction import Item, Row
from bert_jax.tasks import schemes
from bert_jax.tasks.words import Splitter, Window


@dataclasses.dataclass(frozen=True)
class _Sentence(Item):
    """A text, its words with their first and last characters, and what each row reads of them."""

    words: tuple[tuple[int, int], ...] = ()
    windows: tuple[Window, ...] = ()


class Tagger:
    """{"text", "words", "tags", "entities": [{"type", "text", "start", "end"}]}.

    Words are what white space separates, as in the training data. Where an entity starts and ends is counted
    in characters from 0, the end behind its last one. There is no "entities" where tags are no entities'.
    """

    columns = ("text",)
    fewest = 1

    def __init__(self, source: load.Source) -> None:
        spec, facts = source.spec, source.facts
        self._model = Model(
            dataclasses.replace(spec, has_mlm=False, has_nsp=False, has_pooler=False, labels=0)
        )
        self._labels = source.labels or tuple(f"LABEL_{i}" for i in range(spec.token_labels))
        of_entities = all(schemes.is_tag(label) for label in self._labels)  # where nobody says
        self._of_entities = facts.get("entities", of_entities)
        seq_len = min(spec.max_positions, facts.get("seq_len") or spec.max_positions)
        self._splitter = Splitter(source.tokenizer, seq_len)

    def items(self, texts: Sequence[tuple[str, ...]]) -> list[Item]:
        """Returns the windows of each text as rows, the words' first pieces as their spots."""
        return [self._item(text) for (text,) in texts]

    def _item(self, text: str) -> _Sentence:
        words = tuple(match.span() for match in re.finditer(r"\S+", text))
        if not words:
            return _Sentence((text,), [], "empty line")
        windows = self._splitter.windows([text[start:end] for start, end in words])
        rows = [Row(window.ids, [0] * len(window.ids), window.positions) for window in windows]
        return _Sentence((text,), rows, None, words, tuple(windows))

    def outputs(self, params: Any, batch: Mapping[str, jax.Array]) -> dict[str, jax.Array]:
        """Returns `tags` (B, M) of the words at the spots."""
        read = {"word_positions" if name == "spots" else name: x for name, x in batch.items()}
        return {"tags": self._model.apply({"params": params}, read)["tags"]}

    def answer(self, item: Item, found: Sequence[Mapping[str, np.ndarray]]) -> dict[str, Any]:
        """Returns words, tags and entities."""
        text, tags = item.texts[0], []
        for window, row in zip(item.windows, found, strict=True):
            tags += [self._labels[i] for i in window.own_of(row["tags"]).tolist()]
        answer = {"text": text, "words": [text[start:end] for start, end in item.words], "tags": tags}
        if self._of_entities:
            answer["entities"] = [self._entity(text, item.words, each) for each in schemes.entities(tags)]
        return answer

    @staticmethod
    def _entity(text: str, words: Sequence[tuple[int, int]], found: schemes.Entity) -> dict[str, Any]:
        start, end = words[found.start][0], words[found.stop - 1][1]
        return {"type": found.type, "text": text[start:end], "start": start, "end": end}
