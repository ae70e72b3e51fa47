"""The shapes whose speed is measured, beside PyTorch's where that is installed.

    python -m bert_jax.bench --config=configs/bench.py:small --peer=transformers

The variant after the colon is one of VARIANTS: `small` (L4 D512), `long` (the same at S512), `base`
(BERT-base) and `tta` (L3 D512, the released T-TA's size), all with dropout .1, masked tokens and, but for the
last, next sentences, in float32.

Hardware and time: 5 minutes with the peers on 2 CPU cores.
Seen: small, on 2 cores with nothing beside it (medians of 5 rounds, lowest and highest): 1.84 times the
tokens a second of transformers as it is (1.64 to 1.87), 1.09 times those of the peer with gathered logits
(.92 to 1.24), and 56% of the speed of a matrix product (50 to 60). Of a step's 2.05 s of a core the model's
products take about 1.5, at 85% of that speed alone; page faults of the 680 MB that XLA allocates anew each
step .3, and what is computed element by element .3. long and base, and torch.compile: README. Scoring, at the
sizes of tta and base: there too.
"""

from ml_collections import ConfigDict

from configs import base

VARIANTS = ("small", "long", "base", "tta")


def get_config(variant: str = "small") -> ConfigDict:
    if variant not in VARIANTS:
        raise ValueError(f"variant {variant!r}: it must be one of {', '.join(VARIANTS)}")
    c = base.get_config()
    c.model.vocab_size = 30_522  # whatever the embedded text's vocabulary has
    c.train.phases = ()
    c.train.steps = 1000
    c.objective.mlm.max_predictions = 20
    c.train.batch_size = 16
    if variant == "base":
        c.train.batch_size = 4
        return c
    c.model.hidden_size = 512
    c.model.layers = 4
    c.model.heads = 8
    c.model.feed_forward_size = 2048
    if variant == "tta":
        c.model.layers = 3
        c.model.vocab_size = 29_530
        c.model.max_positions = 128
        c.model.segments = 0
        c.objective.nsp.weight = 0.0
    if variant == "long":
        c.data.seq_len = 512
        c.train.batch_size = 4
        c.objective.mlm.max_predictions = 76
    return c
