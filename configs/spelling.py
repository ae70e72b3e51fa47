"""Spelling correction: a detector of wrong tokens that masks them softly (Zhang et al., ACL 2020).

    python -m bert_jax.main --config=configs/spelling.py --workdir=runs/spelling \
        --config.init_from=MODEL --config.data.path=pairs.tsv \
        --config.task.text=wrong --config.task.target=right
    python -m bert_jax.main --config=configs/spelling.py:tokens --workdir=runs/spelling \
        --config.init_from=MODEL --config.data.path=clean.csv --config.task.text=text

MODEL is a masked language model: a Hugging Face directory, or a workdir or model directory of ours. data.path
is a .csv, .tsv or .jsonl file, a folder with a train and a dev file, or a TFDS name; task.text and
task.target name its columns. One token is put for one token, as in Chinese, where they are characters:
texts of which the wrong and the right one have another number of tokens are left out, and counted. With a
variant the errors are made in texts that are right:

    tokens   other tokens, others in each epoch (the evaluation has the same ones always)
    letters  in words: a letter changed, left out, put in, or two exchanged; those errors alone that
             leave the number of tokens

It is judged by precision, recall and F1 of detection and correction, by sentences and by tokens, beside
leaving everything as it is. `python -m bert_jax.predict --model=runs/spelling --input=FILE --output=FILE`
gives corrected texts with the changes.

Hardware and time: as configs/text.py, and the logits of all tokens.
Seen: no full run from a pretrained model yet. A new one of 2 layers (D64, GRU 64, words in letters), `tokens`
at a rate of .05 in 1,872 sentences of a novel, 300 steps of 32 rows of 96 letters: of 98 other sentences the
wrong letters are found with precision .93 and recall .40 (F1 .56), corrected with F1 .12; by sentences F1
is .15 and .04; .959 of the letters are right, where leaving all as they are has .956. 10 min 30 s in all
on one CPU core that nine programs shared; it has only begun to learn.
"""

from ml_collections import ConfigDict

from configs import glue

VARIANTS = ("pairs", "tokens", "letters")


def get_config(variant: str = "pairs") -> ConfigDict:
    if variant not in VARIANTS:
        raise ValueError(f"variant {variant!r}: it must be one of {', '.join(VARIANTS)}")
    c = glue.get_config()  # its recipe, for other data
    c.task.name = "spelling"
    c.task.text = "text"
    if variant == "pairs":
        c.task.target = "target"
    else:
        c.task.errors = variant
        c.task.error_rate = 0.15
    c.task.gru_size = 256
    c.task.detection_weight = 0.2
    c.task.head_rate = 10.0  # of the detector, which was not pretrained

    c.data.path = "pairs.tsv"
    c.data.eval_fraction = 0.05

    c.train.epochs = 10.0

    c.optimizer.learning_rate = 2e-5  # of Zhang et al.
    return c
