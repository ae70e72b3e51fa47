"""Answers with a text in which wrong tokens are right."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from bert_jax.data.encoding import Encoding
from bert_jax.interop import load
from bert_jax.models.model import Model
from bert_jax.prediction import Item, Row, cut_note, number
from bert_jax.tasks import spelling


@dataclasses.dataclass(frozen=True)
class _Read(Item):
    """A text, and its tokens without ends."""

    encoding: Encoding | None = None


class Corrector:
    """{"text", "output", "changes": [{"start", "end", "from", "to", "probability"}]}.

    Where a change starts and ends is counted in characters of the text; the probability is that of the
    token having been wrong, as the detector says. What is behind the length that the model reads stays as it
    is.
    """

    columns = ("text",)
    fewest = 1

    def __init__(self, source: load.Source) -> None:
        self._model = Model(dataclasses.replace(source.spec, has_nsp=False, has_pooler=False, labels=0))
        self._tokenizer = source.tokenizer
        self._room = min(source.spec.max_positions, source.facts["seq_len"]) - 2

    def items(self, texts: Sequence[tuple[str, ...]]) -> list[Item]:
        """Returns a row for each text."""
        return [self._item(text) for (text,) in texts]

    def _item(self, text: str) -> _Read:
        if not text.strip():
            return _Read((text,), [], "empty line")
        tok, encoding = self._tokenizer, self._tokenizer.encode(text, special=False)
        ids = [tok.cls_id, *encoding.ids[: self._room], tok.sep_id]
        note = cut_note(len(encoding.ids) + 2, len(ids))
        return _Read((text,), [Row(ids, [0] * len(ids))], note, encoding)

    def outputs(self, params: Any, batch: Mapping[str, jax.Array]) -> dict[str, jax.Array]:
        """Returns `corrected` (B, S) int32 and `wrong` (B, S), the probability that a token is wrong."""
        read = {name: x for name, x in batch.items() if name != "spots"}
        outputs = self._model.apply({"params": params}, read)
        return {"corrected": outputs["corrected"], "wrong": jax.nn.sigmoid(outputs["detection_logits"])}

    def answer(self, item: Item, found: Sequence[Mapping[str, np.ndarray]]) -> dict[str, Any]:
        """Returns the corrected text and its changes."""
        text = item.texts[0]
        if not found:
            return {"text": text, "output": text, "changes": []}
        ids = np.array(item.encoding.ids[: self._room], np.int32)
        said = spelling.accepted(self._tokenizer, ids, found[0]["corrected"][1 : len(ids) + 1])
        output, changes = spelling.corrected(self._tokenizer, text, item.encoding, said)
        return {"text": text, "output": output, "changes": [
            {**{key: change[key] for key in ("start", "end", "from", "to")},
             "probability": number(found[0]["wrong"][1 + change["token"]])} for change in changes
        ]}  # fmt: skip
