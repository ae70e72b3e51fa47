"""Fine-tuning on GLUE: one task, or all of them and their average (Wang et al. 2018; Devlin et al. 2018).

    python -m bert_jax.main --config=configs/glue.py:mrpc --workdir=runs/mrpc \
        --config.init_from=MODEL --config.data.path=glue/MRPC

The variant after the colon is one of VARIANTS; `all` runs each task whose folder is in data.path, into
WORKDIR/TASK, and ends with a table. MODEL is a Hugging Face directory, or a workdir or model directory of
ours; data.path the task's folder as GLUE distributes it, or its TFDS name. Where there is a test.tsv, the
submission is written to WORKDIR/predictions. The small tasks vary much by seed: --config.sweep.seeds=5.

Hardware and time: 2 to 6 minutes each of the runs below, on half of a CPU core.
Seen: from a 6-layer sentence encoder (D384), parts of the training data (task.train_rows), learning rate
1e-4, seeds 0 to 2, mean and deviation, beside the same recipe in PyTorch with the same rows in the same order
(`bench --what=finetune --peer=transformers`):

    CoLA, 1,920 rows, 180 steps     MCC       .145 +- .015    PyTorch .111 +- .066
    SST-2, 1,920 rows, 60 steps     accuracy  .790 +- .005            .788 +- .009
    MRPC, 480 rows, 30 steps        F1, acc.  .752 +- .003            .750 +- .003
    RTE, 320 rows, 20 steps         accuracy  .532 +- .006            .534 +- .007
    STS-B, 960 rows, 240 steps      r, rho    .797 +- .038            .821 +- .022
    STS-B, 960 rows, 120 steps      r, rho    .569 +- .251            .755 +- .028

STS-B begins to be learnt after 40 to 80 steps, then within few, and the first values of the regressor decide
when, which the two sides draw anew: without any dropout ours was at .754 after 60 steps, theirs at .226. On
one batch from the same values loss and all gradients agree to five digits.

From a T-TA (configs/objectives.py:tta, 400 steps), 2,880 rows, 270 steps of 32, rate 2e-4, seeds 0 to 2:

    CoLA    MCC       diagonal kept .023 .026 .003    lifted (task.see_self=True) .000 .038 .000
    STS-B   r, rho                  .128 .129 .118                                .092 .120 .111
"""

from ml_collections import ConfigDict

from bert_jax import config as config_lib

VARIANTS = (
    "all",
    "cola",
    "sst2",
    "mrpc",
    "qqp",
    "stsb",
    "mnli",
    "qnli",
    "rte",
    "wnli",
    "ax",
    "cola_original",
)


def get_config(variant: str = "all") -> ConfigDict:
    if variant not in VARIANTS:
        raise ValueError(f"variant {variant!r}: it must be one of {', '.join(VARIANTS)}")
    c = config_lib.default()
    c.task.name = "glue" if variant == "all" else variant

    c.data.path = "glue" if variant == "all" else f"glue/{variant}"
    c.data.seq_len = 128
    c.data.buckets = (32, 64)  # rows as short as a batch allows: three compilations in all

    c.train.epochs = 3.0
    c.train.batch_size = 32
    c.train.eval_batch_size = 64
    c.train.eval_every = 500
    c.train.log_every = 50

    c.optimizer.learning_rate = 3e-5  # the paper takes the best of 2e-5, 3e-5, 4e-5 and 5e-5
    c.optimizer.warmup_fraction = 0.1
    c.optimizer.schedule = "linear"
    c.optimizer.b1, c.optimizer.b2, c.optimizer.eps = 0.9, 0.999, 1e-8
    c.optimizer.weight_decay = 0.01
    c.optimizer.clip = 1.0

    c.checkpoint.every = 500
    c.checkpoint.keep = 1
    return c
