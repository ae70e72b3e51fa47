"""Compares T-TA with a masked and a left-to-right model: the comparison of its paper, on your own text.

All models are trained on the same text with the same size, batch and number of updates (configs/compare.py
says what they are): every one of --variants at the first of --depths, every one of --deep_variants at the
others. Then each is judged: perplexity on held-out sentences, minimal pairs (--blimp), alike sentences
(--stsb), re-ranking (--nbest), and the speed of scoring. What is not given is left out.

    python -m bert_jax.compare --text=books --output=runs/compare --blimp=blimp --stsb=STS-B/dev.tsv

--output holds curves.csv and curves.png (losses against tokens and time), table.csv (a row a run) and
table.md (a row a model), and in runs/ the workdir of each run. The same command goes on after a kill: runs
that have ended, and values that were found, are not made again.
"""

from __future__ import annotations

import pathlib
import signal
import sys

from absl import flags as absl_flags
from absl import logging

from bert_jax import flags, paths

_TEXT = absl_flags.DEFINE_multi_string(
    "text", None, "A local file, directory or glob of .txt or .md; may be given several times.", required=True
)
_OUTPUT = absl_flags.DEFINE_string("output", None, "Local directory of the comparison.", required=True)
_RECIPE = absl_flags.DEFINE_string(
    "recipe",
    str(pathlib.Path(__file__).resolve().parents[1] / "configs" / "compare.py"),
    "Config file whose VARIANTS are compared.",
)
_VARIANTS = absl_flags.DEFINE_list(
    "variants", ["tta", "tta_mask", "tta_rope", "mlm", "mlm_rope", "causal"], "Variants at the first depth."
)
_DEEP = absl_flags.DEFINE_list("deep_variants", ["tta_rope", "mlm_rope"], "Variants at the other depths.")
_DEPTHS = absl_flags.DEFINE_list("depths", ["3", "6", "12"], "Layers.")
_SEEDS = absl_flags.DEFINE_integer("seeds", 1, "Runs of each model.", lower_bound=1)
_STEPS = absl_flags.DEFINE_integer("steps", 800, "Updates of each run.", lower_bound=1)
_HIDDEN = absl_flags.DEFINE_integer("hidden", 128, "D; heads are of 64.", lower_bound=2)
_BATCH = absl_flags.DEFINE_integer("batch", 16, "Rows of an update.", lower_bound=1)
_SEQ_LEN = absl_flags.DEFINE_integer("seq_len", 128, "Tokens of a row.", lower_bound=4)
_VOCAB = absl_flags.DEFINE_integer(
    "vocab_size", 4096, "Of the vocabulary trained on the text.", lower_bound=2
)
_JOBS = absl_flags.DEFINE_integer(
    "jobs", 0, "Runs at a time; 0: one a core on a CPU, one on an accelerator.", lower_bound=0
)
_SENTENCES = absl_flags.DEFINE_integer(
    "sentences", 300, "Held-out sentences to score, at most.", lower_bound=1
)
_BLIMP = absl_flags.DEFINE_string("blimp", None, "BLiMP: a .jsonl file, or a folder of them.")
_STSB = absl_flags.DEFINE_string("stsb", None, "A table of sentence pairs, as STS-B's dev.tsv.")
_NBEST = absl_flags.DEFINE_multi_string("nbest", None, "N-best lists; may be given several times.")
_REFERENCE = absl_flags.DEFINE_string("reference", None, "References of the --nbest lists, one a line.")
_TOKENIZE = absl_flags.DEFINE_enum(
    "bleu_tokenize", "13a", ["13a", "none", "intl", "char"], "sacrebleu's tokenizer; none for text in tokens."
)


def main() -> None:
    """Plans, trains, evaluates, and writes the curves and the table."""
    if "://" in _OUTPUT.value:
        raise flags.UsageError(f"--output={_OUTPUT.value}: it must be a local directory")
    if _REFERENCE.value and not _NBEST.value:
        raise flags.UsageError("--reference is of n-best lists: name these by --nbest")

    # What cannot be read costs no training.
    from bert_jax.comparison import curves, evaluation, heldout, plan, table, training
    from bert_jax.data import prepare
    from bert_jax.scoring import minimal_pairs, similarity

    models = plan.models(_VARIANTS.value, _DEEP.value, _DEPTHS.value)
    pairs = None
    if _BLIMP.value:
        pairs = minimal_pairs.read(_BLIMP.value, "sentence_good", "sentence_bad", "UID", "--blimp")
    similar, lists = None, None
    if _STSB.value:
        similar = similarity.read(paths.to_read(_STSB.value, "stsb"), "sentence1", "sentence2", "score")
    if _NBEST.value:
        reference = paths.to_read(_REFERENCE.value, "reference") if _REFERENCE.value else None
        named = [paths.to_read(name, "nbest") for name in _NBEST.value]
        lists = evaluation.read_lists(named, reference, _TOKENIZE.value)

    root, recipe = pathlib.Path(_OUTPUT.value).expanduser(), pathlib.Path(_RECIPE.value).expanduser()
    size = plan.Size(_STEPS.value, _HIDDEN.value, _BATCH.value, _SEQ_LEN.value, _VOCAB.value)
    planned = plan.runs(recipe, root, models, _SEEDS.value, size)
    plan.gather_text(_TEXT.value, root)
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # the runs are told to save
    with training.alone(root) as lock:
        # Once, before several runs would prepare it at a time.
        plan.keep_text(root, prepare.cached(planned[0].config).name)
        sentences = heldout.draw(planned[0].config, _SENTENCES.value)
        training.train(planned, recipe, _JOBS.value or training.default_jobs(), lock)
        points = curves.write(planned, root)
        data = evaluation.Data(sentences, pairs, similar, lists)
        found = {run.name: evaluation.evaluate(run, data) for run in planned}
        print(table.write(table.rows(planned, points, found), root, len(sentences)))
    logging.info("%s: %s, %s, %s", root, curves.CSV, table.CSV, table.MARKDOWN)


if __name__ == "__main__":
    flags.run(main)
