"""T-TA at its released size: every token predicted in one pass (Shin et al. 2020).

    python -m bert_jax.main --config=configs/tta.py --workdir=runs/tta \
        --config.data.source=text --config.data.path=DIRECTORY

Three layers, one sentence an example; the released model saw 2M steps of 64 sentences. Here short
sentences are packed, each alone with itself, so a step of 64 rows holds several hundred of them.
Hardware and time: made for an accelerator. For a run that ends on a laptop, see configs/books.py.
Seen: not run to the end.
"""

from ml_collections import ConfigDict

from configs import base


def get_config() -> ConfigDict:
    c = base.get_config()
    c.model.kind = "tta"
    c.model.tta_query = "position"  # "mask_token" is the released code's
    c.model.hidden_size = 512
    c.model.layers = 3
    c.model.heads = 8
    c.model.feed_forward_size = 2048
    c.model.max_positions = 128
    c.model.segments = 0

    c.objective.mlm.weight = 0.0
    c.objective.nsp.weight = 0.0
    c.objective.tta.weight = 1.0
    c.objective.tta.rate = 1.0

    c.data.unit = "sentence"
    c.data.packing = True
    c.data.vocab_size = 29_530

    c.train.phases = ()
    c.train.steps = 2_000_000
    c.train.batch_size = 64
    return c
