"""A small masked language model on the embedded text: the whole way in minutes on a laptop.

bash launch/demo.sh
python -m bert_jax.main --config=configs/tiny.py --workdir=runs/tiny

Hardware and time: 75 s for the training on 2 CPU cores at 195 GFLOP/s, compilation and evaluation included.
Seen: eval loss 4.401, accuracy .322, where the unigram cross-entropy is 5.814 (Python 3.12's text); 4.947 and
.223, where it is 6.060 (Python 3.11's).
"""

from ml_collections import ConfigDict

from configs import base


def get_config() -> ConfigDict:
    c = base.get_config()

    # A small post-norm BERT stays for long on the plateau where it only knows how frequent each
    # token is; norms before the sublayers, rotary positions and a higher rate leave it within
    # a few hundred steps.
    c.model.hidden_size = 192
    c.model.layers = 3
    c.model.heads = 3
    c.model.feed_forward_size = 768
    c.model.max_positions = 128
    c.model.segments = 0
    c.model.position = "rotary"
    c.model.norm = "pre"
    # Near 1/sqrt(D), so that the sublayers speak as loud as the embeddings from the start: with 0.02
    # so narrow a model took twice the steps to the same loss.
    c.model.init_std = 0.05
    c.model.dropout = 0.0  # so short a run does not overfit
    c.model.attention_dropout = 0.0

    c.objective.mlm.max_predictions = 0
    c.objective.nsp.weight = 0.0

    c.data.vocab_size = 4096
    c.data.packing = True

    c.train.phases = ()
    c.train.steps = 300
    c.train.batch_size = 16
    c.train.eval_every = 100
    c.train.eval_rows = 0
    c.train.log_every = 25

    c.optimizer.learning_rate = 2e-3
    c.optimizer.b2 = 0.98
    c.optimizer.warmup_steps = 0
    c.optimizer.warmup_fraction = 0.06

    c.checkpoint.every = 100
    return c
