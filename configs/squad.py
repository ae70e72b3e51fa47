"""Answers that are parts of a text: SQuAD 1.1 and 2.0, and your own (Devlin et al. 2018, sections 4.2, 4.3).

    python -m bert_jax.main --config=configs/squad.py --workdir=runs/squad \
        --config.init_from=MODEL --config.data.path=squad/

MODEL is a Hugging Face directory, or a workdir or model directory of ours. data.path is a folder with
train-v1.1.json and dev-v1.1.json (or v2.0; with both task.train_file and task.eval_file name two of them),
one such file, of whose questions --config.data.eval_fraction=0.2 holds a fifth out, all of a paragraph
together, or a TFDS name (squad/v1.1, squad/v2.0). Whether some questions have no answer is seen in the data.

The variant `spans` is for your own tables with the columns question, context, answer and answer_start (the
first character of the answer in the context, from 0; without an answer both are empty).

Contexts of any length are read in windows. Of SQuAD 1.1 it is judged by F1, of 2.0 by F1 with the best
threshold of the null odds; WORKDIR/predictions has predictions.json, nbest_predictions.json and
null_odds.json as the official scripts read them. Then

    python -m bert_jax.predict --model=runs/squad --input=FILE --output=FILE

answers questions: lines of question, tab and context, or a table.
Hardware and time: 3.4 s a step of 16 windows of 192 tokens for a 6-layer D384 model on one CPU core.
Seen: of SQuAD 2.0's dev part a fifth was held out (1,076 questions, all of a paragraph together); two epochs
of the rest, 861 steps of 16 windows of 192 (stride 64, questions of 32), learning rate 2e-4, from a sentence
encoder, 49 minutes of a core: exact .526 and F1 .533 with the best threshold, where always "no answer" has
.508; .511 and .521 without one. Over the questions with an answer F1 .143, over those without .910.
"""

from ml_collections import ConfigDict

from configs import glue

VARIANTS = ("squad", "spans")


def get_config(variant: str = "squad") -> ConfigDict:
    if variant not in VARIANTS:
        raise ValueError(f"variant {variant!r}: it must be one of {', '.join(VARIANTS)}")
    c = glue.get_config()  # its recipe, for other data
    c.task.name = variant
    c.task.stride, c.task.max_question = 128, 64
    c.task.max_answer, c.task.n_best = 30, 20

    c.data.path = "squad"
    c.data.eval_fraction = 0.05
    c.data.seq_len = 384
    c.data.buckets = (256,)  # for the evaluation, whose neighbours share a context; mixed ones are longer

    c.train.epochs = 2.0
    c.train.batch_size = 32
    c.train.eval_every = 1000

    c.optimizer.learning_rate = 3e-5  # with 2 epochs as the released code has it; the paper has 5e-5

    c.checkpoint.every = 1000
    return c
