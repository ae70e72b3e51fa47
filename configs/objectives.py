"""Every objective at one small size, to see that each learns: minutes on a laptop.

    python -m bert_jax.main --config=configs/objectives.py:span --workdir=runs/objectives/span \
        --config.data.path=DIRECTORY

The variant after the colon is one of VARIANTS. All see the same number of rows of the same text, under a
vocabulary of 4,096 that is trained on it; the last 5% of each book are for evaluation. `distill` needs
--config.objective.distill.teacher=DIR, the workdir of the variant `token`, and has one layer of its three.
Hardware and time: 4 to 6 minutes for 400 steps (electra: 14 for 1,000) on one CPU core of two.
Seen: on three novels, 400 steps of 32 rows; loss and accuracy on what each objective asks for, the loss of
guessing by frequency, and the share of the most frequent token:

    token        5.374  .202   6.373  .053
    word         5.330  .194   6.347  .053
    ngram        5.637  .163   6.291  .056
    span         5.940  .115   6.331  .056
    nsp          5.538  .182   6.357  .054   pairs .665 .627 .668 (always "next": .497 .453 .462)
    sop          5.175  .225   6.276  .055   pairs .486 .501 .464 (always "in order": .515 .467 .464)
    albert       5.817  .127   6.229  .059   pairs .486 (.515)
    distill      5.175  .218   6.373  .053   one layer of the three of its teacher, `token`
    modern       4.957  .182   6.372  .054   30% masked, all of them [MASK]
    tta          4.989  .206   6.384  .050
    causal       5.181  .158   6.381  .053
    prefix       5.226  .163   6.346  .052
    synthesizer  5.992  .116   6.375  .054
    electra      replaced tokens, 1,000 steps: loss .363 (knowing their share alone: .371), accuracy .8779,
                 as always saying "original" has; with data.vocab_size=512, model.heads=4 and
                 model.generator_fraction=0.25, 700 steps: .378 (.381), .8733 of .8730

The order of sentences is learnt by no run as short as these, and replaced tokens hardly; on texts made for
it both are (tests: the order above 90%; replaced words .9994, where always "original" has .9872).
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
