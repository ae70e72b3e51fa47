"""A model that writes on from a text that it has read whole: UniLM's prefix mask (Dong et al. 2019).

    python -m bert_jax.main --config=configs/unilm.py --workdir=runs/unilm \
        --config.data.source=text --config.data.path=DIRECTORY

Each text is cut at a random place: the tokens before it, the source, see each other; the ones after it
see the source and what is to their left, and are predicted, each from the one before. Start it from a
masked language model with init_from, as the paper does.
Hardware and time: made for accelerators. It starts anywhere.
Seen: not run to the end; at a small size: configs/objectives.py:prefix.
"""

from ml_collections import ConfigDict

from configs import base


def get_config() -> ConfigDict:
    c = base.get_config()
    c.model.mask = "prefix"
    c.objective.mlm.weight = 0.0
    c.objective.nsp.weight = 0.0
    c.objective.prefix.weight = 1.0
    c.objective.prefix.rate = 1.0
    c.data.packing = True
    c.data.max_packed = 32
    return c
