"""ALBERT-base: one layer's weights twelve times, sentence order, n-gram masks, LAMB (Lan et al. 2020).

    python -m bert_jax.main --config=configs/albert.py --workdir=runs/albert \
        --config.data.source=text --config.data.path=DIRECTORY

Version 2 of the released models: no dropout. 12M parameters, at the cost of BERT-base.
Hardware and time: made for accelerators (the paper: 64 to 512 TPU v3). It starts anywhere.
Seen: not run to the end; its objective at a small size: configs/objectives.py:albert.
"""

from ml_collections import ConfigDict

from configs import base


def get_config() -> ConfigDict:
    c = base.get_config()
    c.model.embedding_size = 128
    c.model.share_layers = True
    c.model.activation = "gelu_tanh"
    c.model.dropout = 0.0
    c.model.attention_dropout = 0.0

    c.objective.nsp.weight = 0.0
    c.objective.sop.weight = 1.0
    c.objective.mlm.unit = "ngram"
    c.objective.mlm.ngram = 3

    c.data.tokenizer_kind = "sentencepiece"
    c.data.vocab_size = 30_000
    c.data.seq_len = 512

    c.train.steps = 125_000
    c.train.phases = ()
    c.train.batch_size = 4096

    c.optimizer.name = "lamb"
    c.optimizer.learning_rate = 1.76e-3
    c.optimizer.warmup_steps = 3_125
    return c
