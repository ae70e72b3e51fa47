"""ELECTRA-small: a generator replaces tokens, a discriminator finds them (Clark et al. 2020).

    python -m bert_jax.main --config=configs/electra.py --workdir=runs/electra \
        --config.data.source=text --config.data.path=DIRECTORY

Both are trained together and share their embeddings; loss = MLM + 50 * replaced-token detection.
The result is the discriminator. Hardware and time: the paper took 4 days on one V100.
Seen: not run to the end; its objective at a small size: configs/objectives.py:electra.
"""

from ml_collections import ConfigDict

from configs import base


def get_config() -> ConfigDict:
    c = base.get_config()
    c.model.hidden_size = 256
    c.model.embedding_size = 128
    c.model.heads = 4
    c.model.feed_forward_size = 1024
    c.model.generator_fraction = 0.25

    c.objective.nsp.weight = 0.0
    c.objective.rtd.weight = 50.0
    c.objective.mlm.mask_share = 0.85  # as the released code has it: the others stay as they are
    c.objective.mlm.random_share = 0.0

    c.data.packing = True

    c.train.steps = 1_000_000
    c.train.phases = ()
    c.train.batch_size = 128

    c.optimizer.learning_rate = 5e-4
    c.optimizer.warmup_steps = 10_000
    return c
