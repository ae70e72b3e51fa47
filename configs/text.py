"""Fine-tuning on your own texts: topics, sentiment, pairs, scores, choices.

    python -m bert_jax.main --config=configs/text.py:topic --workdir=runs/topic \
        --config.init_from=MODEL --config.data.path=news.csv \
        --config.task.text=title --config.task.label=section

The variant after the colon is one of VARIANTS. data.path is a .csv, .tsv or .jsonl file, a folder with a
train and a dev file, or a TFDS name; the keys of `task` name its columns, which are called as below where
nothing is said. Without evaluation data a twentieth of the training data is held out for it.

    topic       text, label: one of some classes
    sentiment   text, label: the same, for longer texts, of which the first 256 tokens are read
    pairs       text, text_pair, label: one of some classes for two texts
    regression  text, text_pair, label: a number for two texts (--config.task.text_pair= for one)
    choice      text, choice1, choice2, label: which of some texts goes on from the first

Then `python -m bert_jax.predict --model=runs/topic --input=FILE --output=FILE` answers.
Hardware and time: 3 s a step of 32 rows of 64 tokens for a 6-layer D384 model on 2 busy CPU cores.
Seen: no full run yet.
"""

from ml_collections import ConfigDict

from configs import glue

VARIANTS = ("topic", "sentiment", "pairs", "regression", "choice")


def get_config(variant: str = "topic") -> ConfigDict:
    if variant not in VARIANTS:
        raise ValueError(f"variant {variant!r}: it must be one of {', '.join(VARIANTS)}")
    c = glue.get_config()  # its recipe, for other data
    c.task.name = "classification" if variant in ("topic", "sentiment") else variant
    c.task.text, c.task.label = "text", "label"
    if variant in ("pairs", "regression"):
        c.task.text_pair = "text_pair"
    if variant == "choice":
        c.task.choices = ("choice1", "choice2")

    c.data.path = "data/train.csv"
    c.data.eval_fraction = 0.05
    if variant == "sentiment":
        c.data.seq_len, c.data.buckets = 256, (32, 64, 128)
    return c
