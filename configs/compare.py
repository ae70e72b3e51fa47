"""The comparison of the T-TA paper at a small size: T-TA, masked and left-to-right (Shin et al. 2020).

    python -m bert_jax.compare --text=DIRECTORY --output=runs/compare

trains the variants, each with the same text, size, batch and number of updates, and judges them; one alone:

    python -m bert_jax.main --config=configs/compare.py:mlm --workdir=runs/mlm --config.data.path=DIRECTORY

Variants: `tta` (its first query is the position, as in the paper), `tta_mask` (it is [MASK] and the position,
as in the released code), `mlm` and `causal`, all with learned positions; with `_rope` behind the name, rotary
ones. (A rotary T-TA has no position vector, so both queries are one.) A row holds sentences, packed, each
alone with itself. T-TA and left-to-right models predict every token, as published; masked ones 15%.
Hardware and time: all ten runs of the command's defaults took 65 minutes of a core to train and 17 to judge:
about 50 minutes on two CPU cores.
Seen: on novels, speeches and wikitext, held-out losses of 3 layers: tta 4.636, tta_mask 4.751, tta_rope
4.153 (unigram 6.436); mlm 5.752, mlm_rope 4.780 (6.490); causal 4.859 (6.476). Of 6 and 12 layers tta_rope
3.982 and 3.872, mlm_rope 4.773 and 4.796. The whole table and what it shows are in the README.
"""

from ml_collections import ConfigDict

from configs import objectives

VARIANTS = ("tta", "tta_mask", "tta_rope", "mlm", "mlm_rope", "causal", "causal_rope")


def get_config(variant: str = "tta") -> ConfigDict:
    if variant not in VARIANTS:
        raise ValueError(f"variant {variant!r}: it must be one of {', '.join(VARIANTS)}")
    kind, *how = variant.split("_")
    c = objectives.get_config("token" if kind == "mlm" else kind)
    c.model.position = "rotary" if "rope" in how else "learned"
    c.model.tta_query = "mask_token" if "mask" in how else "position"
    c.objective.tta.rate = 1.0
    c.objective.causal.rate = 1.0
    c.data.unit = "sentence"
    c.train.eval_rows = 500  # so that the eight evaluations cost a tenth of the training
    c.checkpoint.keep = 1
    return c
