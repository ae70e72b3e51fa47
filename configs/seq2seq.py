"""A text for a text: summaries, headlines, simpler words, translations (UniLM; Dong et al. 2019, 3.1).

    python -m bert_jax.main --config=configs/seq2seq.py --workdir=runs/seq2seq \
        --config.init_from=MODEL --config.data.path=pairs.tsv \
        --config.task.text=text --config.task.target=target

MODEL is any model with a token head: a masked language model, or one of configs/unilm.py; a Hugging Face
directory, or a workdir or model directory of ours. Whatever mask it had, here the source sees the source,
and the answer it and itself to the left. data.path is a .csv, .tsv or .jsonl file, a folder with a train and
a dev file, or a TFDS name; task.text and task.target name its columns. Without evaluation data a twentieth
is held out. Without MODEL, --config.data.tokenizer=VOCABULARY and the keys of `model` make a new one.

A source may have data.seq_len - task.max_target - 2 tokens; a longer one loses its end, and that is said. The
loss and accuracy of the next token are told as training goes; at the end answers to the evaluation are
written, by beam search, to WORKDIR/predictions/eval.jsonl, and judged by BLEU, chrF and exact matches beside
giving the source back. Then

    python -m bert_jax.predict --model=runs/seq2seq --input=FILE --output=FILE [--beam_size=4]

Hardware and time: as configs/glue.py for the steps; a beam is a row more in the search at the end.
Seen: no full run from a pretrained model yet. A new one of 2 layers (D64) on 3,135 made pairs of a date in
words and in digits, 600 steps of 32 rows of 40 tokens: all of 165 other dates right (BLEU 100; .06 for
giving the source back), 4 min 45 s in all on one CPU core that nine programs shared.
"""

from ml_collections import ConfigDict

from configs import glue


def get_config() -> ConfigDict:
    c = glue.get_config()  # its recipe, for other data
    c.task.name = "seq2seq"
    c.task.text, c.task.target = "text", "target"
    c.task.max_target = 64
    c.task.beam_size = 4
    c.task.length_penalty = 0.6
    c.task.metric = "bleu"

    c.model.mask = "prefix"

    c.data.path = "pairs.tsv"
    c.data.eval_fraction = 0.05
    c.data.seq_len = 256
    c.data.buckets = (64, 128)

    c.train.epochs = 10.0
    c.train.eval_batch_size = 32  # beams are rows too: 128 at once

    c.optimizer.learning_rate = 1e-4
    return c
