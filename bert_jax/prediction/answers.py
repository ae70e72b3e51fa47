"""Answers with the part of a context that answers a question."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from bert_jax.interop import load
from bert_jax.models.model import Model
from bert_jax.prediction import Item, Row, number
from bert_jax.tasks import best_spans
from bert_jax.tasks.passages import Document, Reader, Window


@dataclasses.dataclass(frozen=True)
class _Asked(Item):
    """A question, its context, and what each row reads of it."""

    document: Document | None = None
    windows: tuple[Window, ...] = ()


class Answerer:
    """{"question", "answer", "start", "end", "score", "probability", "candidates": [{"text", "start", ...}]}.

    Start and end are characters of the context, the end behind the last one. A context of any length is read
    in windows, as in training. Of a model that was trained on unanswerable questions "answer" may be "", from
    None to None; "null_probability" and "null_odds" then say how far it is from that.
    """

    columns = ("question", "context")
    fewest = 2

    def __init__(self, source: load.Source, top_k: int, null_threshold: float | None) -> None:
        facts, spec = source.facts, source.spec
        self._model = Model(
            dataclasses.replace(
                spec, has_mlm=False, has_nsp=False, has_pooler=False, labels=0, token_labels=0
            )
        )
        seq_len = min(spec.max_positions, facts.get("seq_len") or 384)
        max_question = min(facts.get("max_question", 64), max(1, seq_len // 2 - 2))
        self._reader = Reader(source.tokenizer, seq_len, facts.get("stride", 128), max_question)
        self._max_answer = facts.get("max_answer", 30)
        self._count = min(top_k, seq_len * self._max_answer)  # there are no more in a window
        self._nulls = facts.get("unanswerable", False) or null_threshold is not None
        self._threshold = facts.get("null_threshold", 0.0) if null_threshold is None else null_threshold

    def items(self, texts: Sequence[tuple[str, ...]]) -> list[Item]:
        """Returns the windows of each context with its question as rows."""
        known: dict[str, Document] = {}
        return [self._item(question, context, known) for question, context in texts]

    def _item(self, question: str, context: str, known: dict[str, Document]) -> _Asked:
        if not question.strip() or not context.strip():
            empty = "empty question" if context.strip() else "empty context"
            return _Asked((question, context), [], empty if (question + context).strip() else "empty line")
        if context not in known:
            known[context] = self._reader.document(context)
        document, tokens = known[context], self._reader.question(question)
        windows = self._reader.windows(tokens, document)
        rows = [Row(*self._reader.row(tokens, document, window)) for window in windows]
        return _Asked((question, context), rows, None, document, tuple(windows))

    def outputs(self, params: Any, batch: Mapping[str, jax.Array]) -> dict[str, jax.Array]:
        """Returns `span_logits` (B, S, 2)."""
        read = {name: x for name, x in batch.items() if name != "spots"}
        return {"span_logits": self._model.apply({"params": params}, read)["span_logits"]}

    def answer(self, item: Item, found: Sequence[Mapping[str, np.ndarray]]) -> dict[str, Any]:
        """Returns the best answer, and the candidates."""
        said: dict[str, Any] = {"question": item.texts[0]}
        if not found:
            return {**said, "answer": None, "start": None, "end": None}
        windows = [
            best_spans.of_window(row["span_logits"], item.document, window, self._max_answer, self._count)
            for window, row in zip(item.windows, found, strict=True)
        ]
        best = best_spans.merged(item.document, windows, self._count, self._nulls)
        text = best.text(self._threshold if self._nulls else None)
        chosen = best.answers[0] if text else best.null
        said |= {"answer": text, "start": None, "end": None}
        if text:
            said |= {"start": chosen.start, "end": chosen.end}
        said |= _scores(chosen)
        if self._nulls:
            said["null_probability"] = number(math.exp(best.null.log_prob))
            said["null_odds"] = number(best.odds)
        said["candidates"] = [
            {"text": each.text, "start": each.start, "end": each.end, **_scores(each)}
            for each in best.answers
        ]
        return said


def _scores(candidate: best_spans.Candidate) -> dict[str, float]:
    """Returns score, and probability among all that the model may say."""
    return {
        "score": number(candidate.score),
        "probability": number(math.exp(candidate.log_prob)),
        "log_probability": number(candidate.log_prob),
    }
