"""Answers with a text that the model writes."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from bert_jax.interop import load
from bert_jax.models import generation
from bert_jax.models.model import Model
from bert_jax.prediction import Item, Row, cut_note, number
from bert_jax.tasks import seq2seq


class Writer:
    """{"text", "output", "log_prob", "ended"}: an answer that was cut has not ended."""

    columns = ("text",)
    fewest = 1

    def __init__(self, source: load.Source, search: Mapping[str, Any]) -> None:
        """Reads how answers are searched for.

        Args:
          source: the model.
          search: what is to be another than in the evaluation of its training.

        Raises:
          ValueError: the answers leave the model no room for a source.
        """
        self._model = Model(dataclasses.replace(source.spec, has_nsp=False, has_pooler=False))
        self._tokenizer = source.tokenizer
        how = {**source.facts, **search}
        # A source is cut as it was in training; only longer answers take from it.
        most = how["max_target"]
        own_room = source.facts["seq_len"] - source.facts["max_target"]
        seq_len = min(source.spec.max_positions, most + own_room)
        if seq_len - most < 8:
            raise ValueError(
                f"max_target = {most} of the {source.spec.max_positions} tokens that the model reads leaves "
                f"{seq_len - most} for a text, which needs 8"
            )
        self._sources = seq2seq.Sources(source.tokenizer, seq_len, most)
        self._writing = seq2seq.writing(
            source.tokenizer, source.spec.padded_vocab_size, most, how["beam_size"], how["length_penalty"]
        )

    def items(self, texts: Sequence[tuple[str, ...]]) -> list[Item]:
        """Returns a row for each text."""
        rows = self._sources.rows([text for (text,) in texts])
        return [
            Item((text,), [Row(ids, [0] * len(ids))], cut_note(whole, len(ids)))
            if text.strip()
            else Item((text,), [], "empty line")
            for (text,), (ids, whole) in zip(texts, rows, strict=True)
        ]

    def outputs(self, params: Any, batch: Mapping[str, jax.Array]) -> dict[str, jax.Array]:
        """Returns what `models.generation.generate` does."""
        return generation.generate(self._model, params, batch, self._writing)

    def answer(self, item: Item, found: Sequence[Mapping[str, np.ndarray]]) -> dict[str, Any]:
        """Returns the answer with its log-probability."""
        if not found:
            return {"text": item.texts[0], "output": None, "log_prob": None, "ended": None}
        row = found[0]
        return {
            "text": item.texts[0],
            "output": self._tokenizer.decode(row["tokens"][: row["lengths"]]),
            "log_prob": number(row["log_prob"]),
            "ended": bool(row["ended"]),
        }
