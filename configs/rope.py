"""BERT-base with rotary positions in place of the position table (RoFormer; Su et al. 2021).

    python -m bert_jax.main --config=configs/rope.py --workdir=runs/rope \
        --config.data.source=text --config.data.path=DIRECTORY

Post-norm and segment embeddings as in RoFormer; masked language modelling alone, so short documents
are packed. Hardware and time: as configs/base.py. For a run that ends on a laptop, see
configs/books.py.
Seen: not run to the end.
"""

from ml_collections import ConfigDict

from configs import base


def get_config() -> ConfigDict:
    c = base.get_config()
    c.model.position = "rotary"
    c.model.rope_layout = "adjacent"
    c.model.rope_theta = 10_000.0
    c.objective.nsp.weight = 0.0
    c.data.packing = True
    c.data.max_packed = 32  # of rows of 512, in the second phase
    return c
