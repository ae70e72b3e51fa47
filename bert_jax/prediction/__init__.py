"""A model's answers to texts: rows of like length at once, answers in the order of the texts.

What is asked of the model, and what its outputs mean, is a head's part: one class for each kind. Its kind
is what the model's task says ("kind" of `bert_jax.tasks.Task.facts`), else what the model's heads say.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from absl import logging

from bert_jax.interop import load

# Rows and their numbers of spots double from here, so that few programs are compiled.
_SHORTEST, _FEWEST_SPOTS = 16, 4
_BATCHES_AHEAD = 64  # read before rows of like length are put together
_CUT = "cut"  # a note's first word


@dataclasses.dataclass(frozen=True)
class Row:
    """What the model reads at once.

    Attributes:
      ids, type_ids: its tokens, special ones included.
      spots: indices of tokens that the head asks for.
    """

    ids: Sequence[int]
    type_ids: Sequence[int]
    spots: Sequence[int] = ()


@dataclasses.dataclass(frozen=True)
class Item:
    """What one answer is to.

    Attributes:
      texts: as given: a text, a pair, or a choice's texts.
      rows: what the model reads of it; none where there is nothing to read.
      note: what the answer says beside.
    """

    texts: tuple[str, ...]
    rows: Sequence[Row]
    note: str | None = None


class Head(Protocol):
    """What answers with one kind of head.

    Attributes:
      columns: what the texts of an item are called, in their order.
      fewest: how many of them there must be.
    """

    columns: tuple[str, ...]
    fewest: int

    def items(self, texts: Sequence[tuple[str, ...]]) -> list[Item]:
        """Tokenises some items."""
        ...

    def outputs(self, params: Any, batch: Mapping[str, jax.Array]) -> dict[str, jax.Array]:
        """Returns what is needed of the model's outputs, (B, ...) each; it is compiled.

        Args:
          params: the model's.
          batch: `tokens`, `segment_ids`, `type_ids` (B, S) int32, and `spots` (B, M) int32, filled up
            with 0.
        """
        ...

    def answer(self, item: Item, found: Sequence[Mapping[str, np.ndarray]]) -> dict[str, Any]:
        """Returns an item's answer in JSON values, without its note.

        Args:
          item: of `items`.
          found: of each of its rows what `outputs` gave, without the axis B; S and M are no less than the
            row's own.
        """
        ...


def head_of(
    source: load.Source,
    *,
    top_k: int = 5,
    null_threshold: float | None = None,
    search: Mapping[str, Any] | None = None,
) -> Head:
    """Returns what answers with a model.

    Args:
      source: the model.
      top_k: candidates for each mask, or to each question.
      null_threshold: of a model that finds answers, the odds above which it says that there is none; None:
        those that its training found best.
      search: "beam_size", "length_penalty" and "max_target" of a model that writes; what is not there is as
        in the evaluation of its training.

    Raises:
      ValueError: the model has no head that answers, or `search` is for a model of another kind.
    """
    # They need what is defined here.
    from bert_jax.prediction import answers, fill, relation, seq2seq, sequence, spans, spelling, tokens

    heads: dict[str, Callable[[], Head]] = {
        "classification": lambda: sequence.Classifier(source),
        "regression": lambda: sequence.Scorer(source),
        "choice": lambda: sequence.Chooser(source),
        "tokens": lambda: tokens.Tagger(source),
        "relation": lambda: relation.Relater(source),
        "spans": lambda: spans.Spanner(source),
        "answers": lambda: answers.Answerer(source, top_k, null_threshold),
        "seq2seq": lambda: seq2seq.Writer(source, search or {}),
        "spelling": lambda: spelling.Corrector(source),
        "fill": lambda: fill.Filler(source, top_k),
    }
    kind = source.facts.get("kind") or _kind(source)
    if kind not in heads:
        raise ValueError(
            f"the model is of the kind {kind!r}, and answers are made by {', '.join(heads)}: it was "
            "fine-tuned by another version of this program"
        )
    if search and kind != "seq2seq":
        raise ValueError(f"{', '.join(search)}: the model is of the kind {kind!r}, and does not write texts")
    if null_threshold is not None and kind != "answers":
        raise ValueError(
            f"null_threshold = {null_threshold:g} is of models that find answers, and this one is of the "
            f"kind {kind!r}: leave it out"
        )
    return heads[kind]()


def _kind(source: load.Source) -> str:
    spec = source.spec
    if spec.labels:
        return "regression" if spec.labels == 1 else "classification"
    if spec.token_labels:
        return "tokens"
    if spec.has_span:
        return "answers"
    if spec.has_mlm:
        return "fill"
    raise ValueError(
        "the model has neither a classifier nor a head that predicts tokens: fine-tune it, or take one "
        "with cls.predictions or classifier in its files"
    )


def predict(
    source: load.Source,
    texts: Iterable[str | Sequence[str]],
    *,
    top_k: int = 5,
    batch_size: int = 32,
    null_threshold: float | None = None,
    search: Mapping[str, Any] | None = None,
) -> Iterator[dict[str, Any]]:
    """Yields the answer to each text, in their order.

    The length of a row depends on its own text only, so answers do not depend on what else is in a
    batch, to float rounding.

    Args:
      source: the model.
      texts: any number; memory does not grow with it. Several texts at once for a model of pairs or
        choices, in the order of its head's `columns`.
      top_k, null_threshold, search: as in `head_of`.
      batch_size: rows that are computed at once; of a model that writes, times its beams.

    Raises:
      ValueError: the model has no head that answers, gives NaN, or reads another number of texts.
    """
    head = head_of(source, top_k=top_k, null_threshold=null_threshold, search=search)
    compiled, params = jax.jit(head.outputs), jax.tree.map(jnp.asarray, source.params)
    given = (_checked(number, x, head) for number, x in enumerate(texts, 1))
    cut = 0
    while window := list(itertools.islice(given, batch_size * _BATCHES_AHEAD)):
        items = head.items(window)
        found: list[list[Any]] = [[None] * len(item.rows) for item in items]
        groups = defaultdict(list)
        for number, item in enumerate(items):
            for place, row in enumerate(item.rows):
                groups[_size(row, source.spec.max_positions)].append((number, place))
        for (length, spots), places in sorted(groups.items()):
            for start in range(0, len(places), batch_size):
                some = places[start : start + batch_size]
                rows = [items[number].rows[place] for number, place in some]
                batch = _batch(rows, batch_size, length, spots, source.tokenizer.pad_id)
                outputs = {name: _finite(x) for name, x in compiled(params, batch).items()}
                for n, (number, place) in enumerate(some):
                    found[number][place] = {name: x[n] for name, x in outputs.items()}
        for item, outputs in zip(items, found, strict=True):
            cut += item.note is not None and item.note.startswith(_CUT)
            yield {**head.answer(item, outputs), **({} if item.note is None else {"note": item.note})}
    if cut:
        logging.warning("%d inputs are cut to the length that the model reads", cut)


def _checked(number: int, given: str | Sequence[str], head: Head) -> tuple[str, ...]:
    texts = (given,) if isinstance(given, str) else tuple(given)
    if not head.fewest <= len(texts) <= len(head.columns):
        raise ValueError(
            f"input {number} has {len(texts)} texts: the model reads {len(head.columns)}, "
            f"{', '.join(head.columns)}"
        )
    return texts


def _size(row: Row, longest: int) -> tuple[int, int]:
    """Returns the length that a row is filled up to, and for how many spots there is room in it."""

    def doubled(count: int, start: int) -> int:
        return max(start, 1 << (count - 1).bit_length())

    spots = len(row.spots)
    return min(doubled(len(row.ids), _SHORTEST), longest), doubled(spots, _FEWEST_SPOTS) if spots else 0


def _batch(rows: Sequence[Row], size: int, length: int, spots: int, pad_id: int) -> dict[str, np.ndarray]:
    """Returns the batch of `Head.outputs`, B = size; rows after the given ones are padding."""
    batch = {name: np.zeros((size, length), np.int32) for name in ("tokens", "segment_ids", "type_ids")}
    batch["tokens"][:] = pad_id
    batch["spots"] = np.zeros((size, spots), np.int32)
    for number, row in enumerate(rows):
        batch["tokens"][number, : len(row.ids)] = row.ids
        batch["type_ids"][number, : len(row.ids)] = row.type_ids
        batch["segment_ids"][number, : len(row.ids)] = 1
        batch["spots"][number, : len(row.spots)] = row.spots
    return batch


def _finite(array: jax.Array) -> np.ndarray:
    values = np.asarray(array)
    if not np.isfinite(values).all():
        raise ValueError(
            "the model's answer is not a number: its weights are damaged or its training diverged"
        )
    return values


def number(value: Any) -> float:
    """Returns a number with what float32 can be trusted with."""
    return float(f"{value:.6g}")


def cut_note(whole: int, kept: int) -> str | None:
    """Returns the note of an input that had more tokens than the model reads; None where it had not."""
    return f"{_CUT} from {whole} to {kept} tokens" if whole > kept else None
