"""How alike the sentences of pairs are: cosines of sentence vectors, and their correlation with gold scores.

The input is a .tsv, .csv or .jsonl file (or one of these with .gz) with a column for each sentence and,
where there is one, for the gold score; STS-B's names are the default. A table says of each pooling the
Pearson and Spearman correlation times 100: "mean" of the last layer's states without the two ends (the T-TA
paper's), "mean_with_ends", "first" (the start token's state), "max", and "pooler" where the model has one.
--output writes a JSON line a pair: {"first", "second", "gold", "cosine": {pooling: value}}. The model is
taken as it is: nothing is trained. A sentence that is longer than the model reads is cut, and that is said.
"""

from __future__ import annotations

from absl import flags as absl_flags
from absl import logging

from bert_jax import flags, jsonl, paths
from bert_jax.interop import load
from bert_jax.scoring import options, similarity, vectors

_MODEL = options.define_model()
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
_BATCH_TOKENS = options.define_batch_tokens()


def main() -> None:
    """Reads --input, says the table, and writes --output."""
    if _OUTPUT.value:
        paths.check_to_write(_OUTPUT.value, input=_INPUT.value)
    elif not _GOLD.value:
        raise flags.UsageError("without --gold there is nothing to say but the cosines: name an --output")
    path = paths.to_read(_INPUT.value, "input")
    pairs = similarity.read(path, _FIRST.value, _SECOND.value, _GOLD.value)
    embedder = vectors.Embedder(load.read(_MODEL.value), _POOLING.value, _BATCH_TOKENS.value)
    found = similarity.of_pairs(embedder, pairs)
    if embedder.cut:
        logging.warning("%d of %d sentences are cut to what the model reads", embedder.cut, 2 * len(pairs))
    if _OUTPUT.value:
        jsonl.write(similarity.values(embedder.poolings, pairs, found), _OUTPUT.value)
    if _GOLD.value:
        paths.say(similarity.table(embedder.poolings, pairs, found), _OUTPUT.value)


if __name__ == "__main__":
    flags.run(main)
