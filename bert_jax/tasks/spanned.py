"""Rows of texts in which two spans are pointed out: one in each text of a pair, or both in one text.

The tokens of the spans stay as they are; where they lie is told beside the row, so that a classifier can read
their states.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import numpy as np
from absl import logging
from ml_collections import ConfigDict

from bert_jax.data.encoding import Tokenizer
from bert_jax.tasks import TaskDataError, marks
from bert_jax.tasks.features import Examples, evenly_spread, shares

Span = tuple[int, int]  # first and last (exclusive), in characters or tokens
_INLINE = [re.compile(rf"\[E{n}\](.*?)\[/E{n}\]", re.DOTALL) for n in (1, 2)]
MARKED = 3  # what the classifier reads: [CLS] and the two spans


class SpannedFeatures(Examples):
    """Texts, or pairs of texts, with two spans and one label each; each batch has where the spans lie.

    That is `marked_positions` and `marked_ends`, (B, 3) int32: the first tokens of [CLS] and the two spans,
    and those behind their last ones.

    Attributes:
      labels, numbers, truncated: as those of `features.Features`.
    """

    def __init__(
        self,
        texts: Sequence[str],
        labels: Sequence[float] | None,
        spans: Sequence[tuple[Span, Span]],
        tokenizer: Tokenizer,
        config: ConfigDict,
        *,
        batch_size: int,
        train: bool,
        pairs: Sequence[str] | None = None,
        everything: bool = False,
    ) -> None:
        """Tokenises the texts (`rows`).

        Args:
          spans: of each text or pair, in characters.
          texts, labels, tokenizer, config, batch_size, train, pairs, everything: as in `features.Features`.

        Raises:
          ValueError: there is no text, or a span has no token.
        """
        count = len(texts)
        everything = everything or train
        self.numbers = evenly_spread(count, 0 if everything else config.train.eval_rows)
        self.labels = (np.zeros(count, np.int32) if labels is None else np.asarray(labels))[self.numbers]
        some = self.numbers.tolist()
        made = list(
            rows(
                tokenizer,
                [texts[i] for i in some],
                None if pairs is None else [pairs[i] for i in some],
                [spans[i] for i in some],
                config.data.seq_len,
            )
        )
        where = np.array([((0, 1), *its) for *_, its in made], np.int32).reshape(len(made), MARKED, 2)
        super().__init__(
            [ids for ids, *_ in made], [types for _, types, *_ in made], tokenizer, config,
            batch_size=batch_size, train=train,
            arrays={
                "labels": self.labels, "marked_positions": where[..., 0], "marked_ends": where[..., 1]
            },
        )  # fmt: skip
        self.truncated = sum(whole > len(ids) for ids, _, whole, _ in made)
        if self.truncated:
            logging.warning(
                "%d of %d %s texts are cut to data.seq_len = %d tokens, those nearest to their spans",
                self.truncated, len(made), "training" if train else "evaluation", config.data.seq_len,
            )  # fmt: skip


def rows(
    tokenizer: Tokenizer,
    texts: Sequence[str],
    pairs: Sequence[str] | None,
    spans: Sequence[tuple[Span, Span]],
    seq_len: int,
) -> Iterator[tuple[list[int], list[int], int, tuple[Span, Span]]]:
    """Yields ids, type ids, how many tokens there were before the cut, and the spans in tokens of the row.

    A text that is too long loses what is farthest from where its spans begin; of a pair each text keeps its
    share (`features.shares`). A span may lose its end, never its first token.

    Args:
      tokenizer: of `bert_jax.data.tokenizer`.
      texts: the texts.
      pairs: as many second texts, which have the second spans; or None: both spans are in one text.
      spans: of each text or pair, in characters.
      seq_len: S, the most tokens of a row.

    Raises:
      TaskDataError: a span has no token, or there is no room for one.
    """
    for number, (text, (one, other)) in enumerate(zip(texts, spans, strict=True)):
        if pairs is None:
            ids, (first, second) = _tokens(tokenizer, text, (one, other))
            kept = marks.nearest(len(ids), (first[0], second[0]), seq_len - 2)
            row, types = tokenizer.join([ids[i] for i in kept])
            yield row, types, len(ids) + 2, (_moved(first, kept, 1), _moved(second, kept, 1))
            continue
        a, (first,) = _tokens(tokenizer, text, (one,))
        b, (second,) = _tokens(tokenizer, pairs[number], (other,))
        special = 2 + tokenizer.pair_separators
        room = shares(len(a), len(b), seq_len - special)
        if not min(room):
            raise TaskDataError(f"data.seq_len = {seq_len} has no room for a word of each text: raise it")
        kept_a = marks.nearest(len(a), first[:1], room[0])
        kept_b = marks.nearest(len(b), second[:1], room[1])
        row, types = tokenizer.join([a[i] for i in kept_a], [b[i] for i in kept_b])
        start = 1 + len(kept_a) + tokenizer.pair_separators
        yield row, types, len(a) + len(b) + special, (_moved(first, kept_a, 1), _moved(second, kept_b, start))


def _tokens(tokenizer: Tokenizer, text: str, spans: Sequence[Span]) -> tuple[list[int], list[Span]]:
    """Returns the ids of a text, and its spans in tokens."""
    encoding = tokenizer.encode(text, special=False)
    found = []
    for start, end in spans:
        inside = [
            i for i, at in enumerate(encoding.offsets) if at is not None and at[0] < end and start < at[1]
        ]
        if not inside:
            raise TaskDataError(f"the span {text[start:end]!r} of {text[:60]!r} has no token")
        found.append((inside[0], inside[-1] + 1))
    return encoding.ids, found


def _moved(span: Span, kept: Sequence[int], start: int) -> Span:
    """Returns what is left of a span where only the `kept` tokens are, the first of them at `start`."""
    inside = [place for place, i in enumerate(kept) if span[0] <= i < span[1]]
    return start + inside[0], start + inside[-1] + 1


def inline(texts: Sequence[str], spans: tuple[Span, Span]) -> tuple[str, ...]:
    """Returns one text, or two with a span each, with the marks that `of_inline` reads round the spans.

    Raises:
      TaskDataError: two spans of one text overlap, which marks cannot say.
    """
    numbered = sorted(zip(spans, (1, 2), range(2) if len(texts) == 2 else (0, 0), strict=True), reverse=True)
    if len(texts) == 1 and numbered[1][0][1] > numbered[0][0][0]:
        raise TaskDataError(f"the two spans of {texts[0][:60]!r} overlap")
    marked = list(texts)
    for (start, end), number, at in numbered:  # the last one first, so that the others stay where they are
        text = marked[at]
        marked[at] = f"{text[:start]}[E{number}]{text[start:end]}[/E{number}]{text[end:]}"
    return tuple(marked)


def of_inline(texts: Sequence[str], where: str) -> tuple[tuple[str, ...], tuple[Span, Span]]:
    """Returns texts without their marks, "[E1] x [/E1]" and "[E2] y [/E2]", and what was marked.

    Args:
      texts: one with both marks (`marks.of_inline`), or two, the first with [E1] and the second with [E2].
      where: what it is, for messages.

    Raises:
      TaskDataError: a mark is missing, or there twice, or has nothing inside.
    """
    if len(texts) == 1:
        marked = marks.of_inline(texts[0], where)
        return (marked.text,), marked.spans
    plain, spans = [], []
    for number, (text, pattern) in enumerate(zip(texts, _INLINE, strict=True), 1):
        found = list(pattern.finditer(text))
        if len(found) != 1 or not found[0].group(1).strip():
            raise TaskDataError(
                f"{where}: there must be one [E{number}] word [/E{number}] in it: {text[:60]!r}"
            )
        before, word, after = text[: found[0].start()], found[0].group(1).strip(" "), text[found[0].end() :]
        plain.append(before + word + after)
        spans.append((len(before), len(before) + len(word)))
    return tuple(plain), (spans[0], spans[1])
