"""BERT-base pretraining with the published recipe (Devlin et al. 2018, appendix A.2).

    python -m bert_jax.main --config=configs/base.py --workdir=runs/base \
        --config.data.source=text --config.data.path=DIRECTORY

Hardware: made for an accelerator; the paper took 4 days on 16 TPU chips. It starts anywhere, a
laptop included, on the embedded text, and then says how long it would take.
Seen: only its first steps (3 steps of 8 rows on 2 CPU cores: see the README); nobody has run it to
the end with this code.

As published, 90% of the steps are at S128 and the last 10% at S512, where the positions beyond 128
are learned. To leave the second phase out: --config.train.phases="()".
"""

from ml_collections import ConfigDict

from bert_jax import config as config_lib


def get_config() -> ConfigDict:
    c = config_lib.default()  # says of every key what it means

    c.model.hidden_size = 768
    c.model.layers = 12
    c.model.heads = 12
    c.model.feed_forward_size = 3072
    c.model.max_positions = 512
    c.model.dtype = "float32"  # "bfloat16" on TPU and GPU

    c.objective.mlm.weight = 1.0
    c.objective.mlm.rate = 0.15
    c.objective.mlm.choice = "count"
    c.objective.mlm.max_predictions = 0  # 19 at S128 and 76 at S512
    c.objective.mlm.mask_share = 0.8
    c.objective.mlm.random_share = 0.1
    c.objective.nsp.weight = 1.0

    c.data.source = "embedded"
    c.data.vocab_size = 30_522
    c.data.lowercase = True
    c.data.seq_len = 128

    c.train.steps = 1_000_000
    c.train.phases = ((128, 900_000), (512, 100_000))
    c.train.batch_size = 256
    c.train.eval_every = 10_000
    c.train.eval_rows = 10_000
    c.train.log_every = 100

    c.optimizer.learning_rate = 1e-4
    c.optimizer.warmup_steps = 10_000
    c.optimizer.schedule = "linear"
    c.optimizer.b1, c.optimizer.b2, c.optimizer.eps = 0.9, 0.999, 1e-6
    c.optimizer.weight_decay = 0.01
    c.optimizer.clip = 1.0

    c.checkpoint.every = 10_000
    return c
