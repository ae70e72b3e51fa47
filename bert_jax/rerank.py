"""Chooses from n-best lists by a first pass's score and a language model's together.

A hypothesis has the score (1 - w) * first_pass + w * log_prob (see bert_jax.score), where log_prob may be
divided by the number of tokens. The weight w, of 0, .05, .., 1, is that which is best on the lists of
--dev, by WER or BLEU; the lists of --input are then chosen from with it, and, where their references are
known, judged. The summary has the first pass's choice, both forms of log_prob, and the oracle's choice,
which is the best that the lists hold. --output writes a JSON line a list, chosen by the form that is better
on --dev: {"id", "text", "score", "first_pass", "log_prob", "first_pass_rank", "reference"}.

Lists are Moses' (id ||| text ||| features ||| score) or, in a .jsonl file, {"id", "text", "score",
"reference"}; a higher score is better. References of Moses' lists are in a file of their own: line i,
from 0, belongs to the list with id i.
"""

from __future__ import annotations

from absl import flags as absl_flags
from absl import logging

from bert_jax import flags, jsonl, paths
from bert_jax.interop import load
from bert_jax.scoring import nbest, options, tuning

_MODEL = options.define_model()
_DEV = absl_flags.DEFINE_string("dev", None, "Lists to tune the weight on.")
_DEV_REFERENCES = absl_flags.DEFINE_string("dev_references", None, "Their references, one a line.")
_INPUT = absl_flags.DEFINE_string(
    "input", None, "Lists to choose from; without them the weight is tuned only."
)
_REFERENCES = absl_flags.DEFINE_string("references", None, "Their references, one a line.")
_OUTPUT = absl_flags.DEFINE_string(
    "output", None, "JSON lines of what is chosen of --input; - writes stdout."
)
_METRIC = absl_flags.DEFINE_enum("metric", "wer", ["wer", "bleu"], "What the weight is tuned by.")
_TOKENIZE = absl_flags.DEFINE_enum(
    "bleu_tokenize", "13a", ["13a", "none", "intl", "char"], "sacrebleu's tokenizer; none for text in tokens."
)
_WEIGHT = absl_flags.DEFINE_float(
    "weight", None, "The model's share, instead of one tuned on --dev.", lower_bound=0, upper_bound=1
)
_BY_LENGTH = absl_flags.DEFINE_bool(
    "by_length", None, "Divide log_prob by its tokens; by default what is better on --dev, else not."
)
_SCORING = options.Scoring()


def _check() -> None:
    if not _DEV.value and not _INPUT.value:
        raise flags.UsageError("there are no lists: name --dev, --input or both")
    if _WEIGHT.value is None and not _DEV.value:
        raise flags.UsageError("--weight is not known: name it, or lists to tune it on by --dev")
    if _WEIGHT.value is not None and _DEV.value:
        raise flags.UsageError("--weight is given and --dev too, which tunes it: name one of the two")
    if _DEV.value and _DEV.value == _INPUT.value:
        raise flags.UsageError(
            "--dev and --input are one file: a weight is judged on other lists than those it is tuned on"
        )
    if _OUTPUT.value:
        if not _INPUT.value:
            raise flags.UsageError("--output has the lists of --input: name these too")
        paths.check_to_write(
            _OUTPUT.value,
            input=_INPUT.value,
            dev=_DEV.value,
            references=_REFERENCES.value,
            dev_references=_DEV_REFERENCES.value,
        )


def _read(name: str, references: str | None, flag: str) -> list[nbest.NBest]:
    of = None
    if references:
        of = paths.to_read(references, "dev_references" if flag == "dev" else "references")
    return nbest.read(paths.to_read(name, flag), of)


def main() -> None:
    """Tunes the weight on --dev, says the table, and writes what is chosen of --input."""
    _check()
    metric = tuning.WordErrorRate() if _METRIC.value == "wer" else tuning.Bleu(_TOKENIZE.value)
    dev = _read(_DEV.value, _DEV_REFERENCES.value, "dev") if _DEV.value else None
    if dev is not None and any(some.reference is None for some in dev):
        raise flags.UsageError("--dev has lists without a reference: name a file of them by --dev_references")
    test = _read(_INPUT.value, _REFERENCES.value, "input") if _INPUT.value else None
    scorer = _SCORING.scorer(load.read(_MODEL.value))
    forms = [False, True] if _BY_LENGTH.value is None else [_BY_LENGTH.value]
    sets: dict[str, tuning.Lists] = {}
    if dev is not None:
        sets["dev"] = tuning.scored(dev, scorer, metric)
        weights, best = tuning.tune_form(sets["dev"], metric, forms)
    else:
        best = bool(_BY_LENGTH.value)
        weights = dict.fromkeys(forms, _WEIGHT.value)
    if test is not None:
        sets["test"] = tuning.scored(test, scorer, metric)
        if _OUTPUT.value:
            jsonl.write(tuning.values(sets["test"], weights[best], best), _OUTPUT.value)
    judged = {name: lists for name, lists in sets.items() if lists.counts is not None}
    if judged:
        paths.say(tuning.table(judged, weights, metric, scorer.method), _OUTPUT.value)
    else:
        logging.info("no references: nothing is judged")


if __name__ == "__main__":
    flags.run(main)
