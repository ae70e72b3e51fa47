"""The recommended start for a new pretraining: an encoder of ModernBERT's form (Warner et al. 2024).

    python -m bert_jax.main --config=configs/modern.py --workdir=runs/modern \
        --config.data.source=text --config.data.path=DIRECTORY

Pre-norm without biases, rotary positions, GeGLU, two local layers between global ones, packed rows, 30%
of the tokens masked, and a warm-up-stable-decay schedule: a run can be stopped or prolonged before
its rate falls. Base size: 22 layers of D768. For other sizes keep heads of 64 features.
Hardware and time: made for accelerators; `configs/modern.py:small` (4 layers of D192) for a laptop. Both
start anywhere, on the embedded text where no other is named.
Seen: not run to the end; at a small size: configs/objectives.py:modern. `:small`: eval loss 5.508, accuracy
.147, where the unigram cross-entropy is 6.821 (Python 3.12's text), in 13 min of a core that eight other
programs shared; it goes out to transformers.
"""

from ml_collections import ConfigDict

from configs import base

VARIANTS = ("base", "small")


def get_config(variant: str = "base") -> ConfigDict:
    if variant not in VARIANTS:
        raise ValueError(f"variant {variant!r}: it must be one of {', '.join(VARIANTS)}")
    c = base.get_config()
    c.model.layers = 22
    c.model.feed_forward_size = 1152
    c.model.gated = True
    c.model.bias = False
    c.model.segments = 0
    c.model.max_positions = 1024
    c.model.position = "rotary"
    c.model.rope_layout = "half"
    c.model.rope_theta = 160_000.0
    c.model.local_window = 128
    c.model.global_every = 3
    c.model.local_rope_theta = 10_000.0
    c.model.norm = "pre"
    c.model.first_norm = False
    c.model.norm_eps = 1e-5
    c.model.dropout = 0.0
    c.model.attention_dropout = 0.0
    c.model.pooler = "norm"
    c.model.pooling = "mean"
    c.model.dtype = "bfloat16"  # float32 on a CPU, which is slower in bfloat16

    c.objective.nsp.weight = 0.0
    c.objective.mlm.rate = 0.3
    c.objective.mlm.choice = "bernoulli"
    c.objective.mlm.mask_share = 1.0
    c.objective.mlm.random_share = 0.0

    c.data.tokenizer_kind = "bpe"
    c.data.lowercase = False
    c.data.vocab_size = 50_304
    c.data.seq_len = 1024
    c.data.packing = True
    c.data.max_packed = 64

    c.train.steps = 100_000
    c.train.phases = ()
    c.train.batch_size = 1024

    c.optimizer.learning_rate = 8e-4
    c.optimizer.schedule = "wsd"
    c.optimizer.warmup_steps = 3_000
    c.optimizer.decay_fraction = 0.1
    c.optimizer.b1, c.optimizer.b2, c.optimizer.eps = 0.9, 0.98, 1e-6
    c.optimizer.weight_decay = 1e-5
    c.optimizer.clip = 1.0
    if variant == "small":
        _make_small(c)
    return c


def _make_small(c: ConfigDict) -> None:
    """For a few megabytes of text and a laptop."""
    c.model.hidden_size = 192
    c.model.layers = 4
    c.model.heads = 3
    c.model.feed_forward_size = 288
    c.model.max_positions = 512
    c.model.local_window = 64
    c.model.init_std = 0.05  # so narrow a model learns twice as fast from here as from 0.02
    c.model.dtype = "float32"

    c.data.vocab_size = 4096
    c.data.seq_len = 128
    c.data.holdout = "tail"  # of each document: there may be few

    c.train.steps = 400
    c.train.batch_size = 16
    c.train.eval_every = 100
    c.train.log_every = 25

    c.optimizer.learning_rate = 2e-3
    c.optimizer.warmup_steps = 0
    c.optimizer.warmup_fraction = 0.06
    c.optimizer.decay_fraction = 0.3

    c.checkpoint.every = 100
