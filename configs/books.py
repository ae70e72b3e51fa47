"""Small models on a few books: learned positions, rotary positions and T-TA, on a laptop.

    python -m bert_jax.main --config=configs/books.py:rope --workdir=runs/books/rope \
        --config.data.path=DIRECTORY --config.data.tokenizer=VOCAB

The variant after the colon is learned, rope or tta. The last 5% of each book are for evaluation.

Hardware and time: 1.1 s a step (rope; 1.5 s for tta) on 2 CPU cores at 195 GFLOP/s, 11 to 15 minutes in all
when nothing else runs there.
Seen: on three novels with the bert-base-uncased vocabulary, other work running beside (times with
evaluations), learned, eval loss 5.923 and accuracy .141 in 20.5 min; rope, 4.516 and .318 in 25.9 min; the
unigram cross-entropy of their targets is 6.581, the most frequent token's share .056. T-TA, which is
asked for other tokens: 4.135 and .325 in 26.7 min, where the unigram cross-entropy is 6.501.
On a slower machine rope with train.steps = 230 and train.batch_size = 16: 5.850 and .191 after 258 s.
"""

from ml_collections import ConfigDict

from configs import base

VARIANTS = ("learned", "rope", "tta")


def get_config(variant: str = "rope") -> ConfigDict:
    if variant not in VARIANTS:
        raise ValueError(f"variant {variant!r}: it must be one of {', '.join(VARIANTS)}")
    c = base.get_config()
    c.model.hidden_size = 256
    c.model.layers = 4
    c.model.heads = 4
    c.model.feed_forward_size = 1024
    c.model.max_positions = 128
    c.model.segments = 0
    c.model.norm = "pre"  # post-norm stays on the unigram plateau for runs as short as these
    # Near 1/sqrt(D), so that the sublayers speak as loud as the embeddings from the start: with 0.02
    # so narrow a model took twice the steps to the same loss.
    c.model.init_std = 0.05
    c.model.dropout = 0.0
    c.model.attention_dropout = 0.0
    c.model.position = "learned" if variant == "learned" else "rotary"

    c.objective.nsp.weight = 0.0
    if variant == "tta":
        c.model.kind = "tta"
        c.objective.mlm.weight = 0.0
        c.objective.tta.weight = 1.0
        c.objective.tta.rate = 0.5  # half of the tokens: half the cost of the vocabulary's logits

    c.data.source = "text"
    c.data.path = "books"
    c.data.holdout = "tail"
    c.data.eval_fraction = 0.05
    c.data.packing = True

    c.train.phases = ()
    c.train.steps = 600
    c.train.batch_size = 32
    c.train.eval_every = 150
    c.train.eval_rows = 0
    c.train.log_every = 50

    c.optimizer.learning_rate = 1e-3
    c.optimizer.b2 = 0.98
    c.optimizer.warmup_steps = 0
    c.optimizer.warmup_fraction = 0.06

    c.checkpoint.every = 300
    return c
