"""How alike the sentences of pairs are: cosines of sentence vectors, and their correlation with gold scores.

The input is a .tsv, .csv or .jsonl file (or one of these with .gz) with a column for each sentence and,
where there is one, for the gold score; STS-B's names are the default. A table says of each pooling the
Pearson and Spearman correlation times 100: "mean" of the last layer's states without the two ends (the T-TA
paper's), "mean_with_ends", "first" (the start token's state), "max", and "pooler" where the model has one.
--output writes a JSON line a pair: {"first", "second", "gold", "cosine": {pooling: value}}. The model is
taken as it is: nothing is trained. A sentence that is longer than the model reads is cut, and that is said.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from absl import flags as absl_flags
from absl import logging
from etils import epath

from bert_jax import flags
from bert_jax.interop import load
from bert_jax.scoring import output, paths, vectors
from bert_jax.tasks import scores, tables

_MODEL = absl_flags.DEFINE_string(
    "model", None, "A run's workdir, a model directory or one of Hugging Face's.", required=True
)
_INPUT = absl_flags.DEFINE_string("input", None, "A table of pairs.", required=True)
_OUTPUT = absl_flags.DEFINE_string(
    "output", None, "JSON lines; a name in .gz is compressed; - writes stdout."
)
_FIRST = absl_flags.DEFINE_string("first", "sentence1", "Column of the first sentence.")
_SECOND = absl_flags.DEFINE_string("second", "sentence2", "Column of the second sentence.")
_GOLD = absl_flags.DEFINE_string("gold", "score", "Column of the gold score; empty: there is none.")
_POOLING = absl_flags.DEFINE_list(
    "pooling", [], "Poolings, separated by commas; all of the model's by default."
)
_BATCH_TOKENS = absl_flags.DEFINE_integer(
    "batch_tokens",
    0,
    "Tokens computed at once on a device; 0: 1024 on a CPU, 16384 elsewhere.",
    lower_bound=0,
)

Pair = tuple[str, str, float | None]


def read(path: epath.Path, first: str, second: str, gold: str) -> list[Pair]:
    """Returns (first, second, gold) of each row of a table.

    Raises:
      ValueError: a column, a text or a number is not there, or no row is.
    """
    columns = [first, second, *[gold] * bool(gold)]
    pairs = [
        (
            tables.text(row, first, empty=True),
            tables.text(row, second, empty=True),
            tables.number(row, gold) if gold else None,
        )
        for row in tables.rows(path, columns)
    ]
    if not pairs:
        raise ValueError(f"{path}: no pair in it")
    return pairs


def cosines(embedder: vectors.Embedder, pairs: list[Pair]) -> np.ndarray:
    """Returns the (N, P) cosines of pairs, for each of the embedder's poolings."""
    made = embedder.vectors(text for pair in pairs for text in pair[:2])
    return np.array([vectors.cosines(a, next(made)) for a in made])


def table(poolings: tuple[str, ...], pairs: list[Pair], found: np.ndarray) -> str:
    """Returns the lines of the summary."""
    gold = np.array([pair[2] for pair in pairs], float)
    lines = [f"{'pooling':<16}{'Pearson':>9}{'Spearman':>10}"]
    for name, values in zip(poolings, found.T, strict=True):
        both = scores.correlations(gold, values)
        lines.append(f"{name:<16}{100 * both['pearson']:>9.2f}{100 * both['spearman']:>10.2f}")
    return "\n".join(
        [*lines, f"{len(pairs)} pairs; correlations of the cosine with the gold score, times 100"]
    )


def _values(poolings: tuple[str, ...], pairs: list[Pair], found: np.ndarray) -> Iterator[dict[str, Any]]:
    for (first, second, gold), row in zip(pairs, found, strict=True):
        cosine = {name: round(float(value), 6) for name, value in zip(poolings, row, strict=True)}
        yield {
            "first": first,
            "second": second,
            **({} if gold is None else {"gold": gold}),
            "cosine": cosine,
        }


def main() -> None:
    """Reads --input, says the table, and writes --output."""
    if _OUTPUT.value:
        paths.check_to_write(_OUTPUT.value)
    elif not _GOLD.value:
        raise flags.UsageError("without --gold there is nothing to say but the cosines: name an --output")
    path = paths.to_read(_INPUT.value, "input")
    pairs = read(path, _FIRST.value, _SECOND.value, _GOLD.value)
    embedder = vectors.Embedder(load.read(_MODEL.value), _POOLING.value, _BATCH_TOKENS.value)
    found = cosines(embedder, pairs)
    if embedder.cut:
        logging.warning("%d of %d sentences are cut to what the model reads", embedder.cut, 2 * len(pairs))
    if _OUTPUT.value:
        output.write(_values(embedder.poolings, pairs, found), _OUTPUT.value)
    if _GOLD.value:
        paths.say(table(embedder.poolings, pairs, found), _OUTPUT.value)


if __name__ == "__main__":
    flags.run(main)
