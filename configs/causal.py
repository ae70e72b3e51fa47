"""A left-to-right language model of T-TA's size: the baseline of its paper (Shin et al. 2020).

    python -m bert_jax.main --config=configs/causal.py --workdir=runs/causal \
        --config.data.source=text --config.data.path=DIRECTORY

Each token is predicted from those before it, so its loss is that of a language model: exp(loss) is the
perplexity. Hardware and time: made for an accelerator. It starts anywhere.
Seen: not run to the end; at a small size: configs/objectives.py:causal.
"""

from ml_collections import ConfigDict

from configs import tta


def get_config() -> ConfigDict:
    c = tta.get_config()
    c.model.kind = "encoder"
    c.model.mask = "causal"
    c.objective.tta.weight = 0.0
    c.objective.causal.weight = 1.0
    c.objective.causal.rate = 1.0
    return c
