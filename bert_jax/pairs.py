"""Which sentence of a minimal pair does a model find likelier? Accuracy by paradigm (BLiMP).

The input is a .jsonl file (or .tsv, .csv, or one of these with .gz), or a folder or glob of .jsonl files,
with a column for the good sentence, one for the bad and one for the paradigm; BLiMP's names are the default.
A pair is right where the good sentence's log_prob (see bert_jax.score) is the higher one. A tie is wrong:
a difference of no more than 0.0001, which rounding can make. The interval is Wilson's, at 95%.
--output writes a JSON line a pair: {"paradigm", "good", "bad", "good_log_prob", "bad_log_prob", "correct"}.
"""

from __future__ import annotations

from absl import flags as absl_flags
from absl import logging

from bert_jax import flags, jsonl, paths
from bert_jax.interop import load
from bert_jax.scoring import minimal_pairs, options

_MODEL = options.define_model()
_INPUT = absl_flags.DEFINE_string(
    "input", None, "A table of pairs, or a folder or glob of .jsonl.", required=True
)
_OUTPUT = absl_flags.DEFINE_string(
    "output", None, "JSON lines; a name in .gz is compressed; - writes stdout."
)
_GOOD = absl_flags.DEFINE_string("good", "sentence_good", "Column of the acceptable sentence.")
_BAD = absl_flags.DEFINE_string("bad", "sentence_bad", "Column of the other sentence.")
_PARADIGM = absl_flags.DEFINE_string("paradigm", "UID", "Column of the paradigm; empty: there is one only.")
_SCORING = options.Scoring()


def main() -> None:
    """Reads --input, says the table, and writes --output."""
    if _OUTPUT.value:
        paths.check_to_write(_OUTPUT.value, input=_INPUT.value)
    pairs = minimal_pairs.read(_INPUT.value, _GOOD.value, _BAD.value, _PARADIGM.value)
    scorer = _SCORING.scorer(load.read(_MODEL.value))
    logging.info("%d pairs, scored by %s", len(pairs), scorer.method)
    judged = list(minimal_pairs.judge(scorer, pairs))
    if _OUTPUT.value:
        jsonl.write(map(minimal_pairs.value, judged), _OUTPUT.value)
    paths.say(minimal_pairs.table(judged), _OUTPUT.value)


if __name__ == "__main__":
    flags.run(main)
