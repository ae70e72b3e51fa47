"""Named entities, or other tags of words (Devlin et al. 2018, section 5.3; Souza et al. 2019 with a CRF).

    python -m bert_jax.main --config=configs/ner.py:crf --workdir=runs/ner \
        --config.init_from=MODEL --config.data.path=ner/wnut17

The variant after the colon is the head over each word's first piece: `linear`, `crf`, `bilstm` or
`bilstm_crf`. MODEL is a Hugging Face directory, or a workdir or model directory of ours. data.path is a file
of columns as CoNLL has them, JSON lines with `tokens` and `tags`, or a folder with a train and a dev file;
task.token_column and task.tag_column say which columns, if not the first and the last. The scheme of the
tags (IOB1, IOB2, IOBES) is found. For tags that spell no entities --config.task.name=tagging.

It is judged by F1 over entities, as conlleval counts; the guesses are in WORKDIR/predictions/eval.conll. Then
`python -m bert_jax.predict --model=runs/ner --input=FILE --output=FILE` tags the words of lines.
Hardware and time: 7 to 12 minutes a run below, on half of a CPU core.
Seen: from a 6-layer sentence encoder (D384), parts of the training sentences (task.train_rows), rows of 64
tokens, optimizer.learning_rate=2e-4, task.head_rate=5; F1 over entities of the development files:

    WNUT-17, 1,700 sentences, 160 steps         linear .475  crf .473  bilstm_crf .385
    NCBI-disease, 1,600 sentences, 100 steps    linear .674  crf .685  bilstm_crf .688
"""

from ml_collections import ConfigDict

from configs import glue

VARIANTS = ("linear", "crf", "bilstm", "bilstm_crf")


def get_config(variant: str = "linear") -> ConfigDict:
    if variant not in VARIANTS:
        raise ValueError(f"variant {variant!r}: it must be one of {', '.join(VARIANTS)}")
    c = glue.get_config()  # its recipe, for other data
    c.task.name = "ner"
    c.task.head = variant
    c.task.lstm_size = 256
    # What was not pretrained learns faster: 1e-3 beside 5e-5 (Souza et al. 2019).
    c.task.head_rate = 1.0 if variant == "linear" else 20.0

    c.data.path = "ner"
    c.data.seq_len = 128  # longer sentences are read in overlapping windows

    c.train.epochs = 4.0
    c.train.eval_every = 200

    c.optimizer.learning_rate = 5e-5

    c.checkpoint.every = 200
    return c
