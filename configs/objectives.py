"""Every objective at one small size, to see that each learns: minutes on a laptop.

    python -m bert_jax.main --config=configs/objectives.py:span --workdir=runs/objectives/span \
        --config.data.path=DIRECTORY

The variant after the colon is one of VARIANTS. All see the same number of rows of the same text, under a
vocabulary of 4,096 that is trained on it; the last 5% of each book are for evaluation. `distill` needs
--config.objective.distill.teacher=DIR, the workdir of the variant `token`, and has one layer of its three.
Hardware and time: 2.5 minutes for 200 steps on one CPU core that other work shared.
Seen: token, 200 steps: eval loss 5.881, accuracy .151 (unigram 6.373); nsp, 200 steps, two seeds: .665 and
.608 of the pairs (always "next": .497 and .453); electra, 700 steps: replaced-token loss .3735, accuracy
.8738, where "always original" has .8736. The others have not been run to the end.
"""

from ml_collections import ConfigDict

from configs import books

VARIANTS = (
    "token", "word", "ngram", "span", "nsp", "sop", "albert", "electra", "distill", "modern", "tta",
    "causal", "prefix", "synthesizer",
)  # fmt: skip


def get_config(variant: str = "token") -> ConfigDict:
    if variant not in VARIANTS:
        raise ValueError(f"variant {variant!r}: it must be one of {', '.join(VARIANTS)}")
    c = books.get_config("tta" if variant == "tta" else "rope")
    c.model.hidden_size = 128
    c.model.layers = 3
    c.model.heads = 2
    c.model.feed_forward_size = 512
    c.data.vocab_size = 4096
    c.data.seq_len = 128
    c.train.steps = 400
    c.train.eval_every = 200
    c.checkpoint.every = 200

    if variant in ("word", "ngram", "span"):
        c.objective.mlm.unit = variant
    if variant in ("nsp", "sop", "albert"):
        c.objective["nsp" if variant == "nsp" else "sop"].weight = 1.0
        c.model.segments = 2
        c.data.packing = False
    if variant == "albert":
        c.objective.mlm.unit = "ngram"
        c.model.share_layers = True
        c.model.embedding_size = 64
    if variant == "electra":
        c.objective.rtd.weight = 50.0
        c.objective.mlm.mask_share = 0.85
        c.objective.mlm.random_share = 0.0
        c.model.generator_fraction = 0.5
    if variant == "distill":
        c.model.layers = 1
        c.objective.mlm.weight = 2.0
        c.objective.distill.weight = 5.0
        c.objective.distill.cosine = 1.0
    if variant == "modern":
        c.model.gated = True
        c.model.feed_forward_size = 341  # with the gate as many parameters
        c.model.bias = False
        c.model.first_norm = False
        c.model.rope_layout = "half"
        c.model.local_window = 32
        c.model.global_every = 3
        c.objective.mlm.rate = 0.3
        c.objective.mlm.mask_share = 1.0
        c.objective.mlm.random_share = 0.0
        c.optimizer.schedule = "wsd"
    if variant in ("causal", "prefix"):
        c.model.mask = variant
        c.objective.mlm.weight = 0.0
        c.objective[variant].weight = 1.0
        c.objective[variant].rate = 0.5  # half of the tokens: half the cost of the vocabulary's logits
    if variant == "synthesizer":
        c.model.attention = "random"
        c.model.position = "learned"
        c.data.packing = False
    return c
