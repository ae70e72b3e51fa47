"""A Synthesizer: attention that depends on places alone, not on the words there (Tay et al. 2020).

    python -m bert_jax.main --config=configs/synthesizer.py:random --workdir=runs/synthesizer \
        --config.data.source=text --config.data.path=DIRECTORY

The variant after the colon is random ("R" in the paper: one trained matrix of logits a head) or
fixed_random (it stays as it was drawn). Hardware and time: as configs/base.py.
Seen: not run to the end; at a small size: configs/objectives.py:synthesizer.
"""

from ml_collections import ConfigDict

from configs import base

VARIANTS = ("random", "fixed_random")


def get_config(variant: str = "random") -> ConfigDict:
    if variant not in VARIANTS:
        raise ValueError(f"variant {variant!r}: it must be one of {', '.join(VARIANTS)}")
    c = base.get_config()
    c.model.attention = variant
    c.objective.nsp.weight = 0.0
    return c
