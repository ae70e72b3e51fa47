"""RoBERTa-base: byte-level BPE, whole rows of text, masks alone, large batches (Liu et al. 2019).

    python -m bert_jax.main --config=configs/roberta.py --workdir=runs/roberta \
        --config.data.source=text --config.data.path=DIRECTORY

Short documents are packed into a row, each alone with itself; the paper lets a row run on from one
document into the next. Masks are drawn anew whenever a text is seen.
Hardware and time: made for accelerators; the paper took a day on 1,024 V100s. It starts anywhere.
Seen: not run to the end; its objective at a small size: configs/objectives.py:token.
"""

from ml_collections import ConfigDict

from configs import base


def get_config() -> ConfigDict:
    c = base.get_config()
    c.model.segments = 1  # one row, as the released weights have it: a constant
    c.model.position_offset = 2
    c.model.norm_eps = 1e-5

    c.objective.nsp.weight = 0.0
    c.objective.mlm.choice = "bernoulli"

    c.data.tokenizer_kind = "bpe"
    c.data.lowercase = False
    c.data.vocab_size = 50_265
    c.data.seq_len = 512
    c.data.packing = True
    c.data.max_packed = 32

    c.train.steps = 500_000
    c.train.phases = ()
    c.train.batch_size = 8192

    c.optimizer.learning_rate = 6e-4  # 4e-4 for the large model
    c.optimizer.warmup_steps = 24_000  # 30,000 for the large model
    c.optimizer.b1, c.optimizer.b2, c.optimizer.eps = 0.9, 0.98, 1e-6
    c.optimizer.weight_decay = 0.01
    c.optimizer.clip = 0.0
    return c
