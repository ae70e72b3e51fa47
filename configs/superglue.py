"""Fine-tuning on SuperGLUE: one task, or all of them and their average (Wang et al. 2019).

    python -m bert_jax.main --config=configs/superglue.py:cb --workdir=runs/cb \
        --config.init_from=MODEL --config.data.path=superglue/CB

The variant after the colon is one of VARIANTS; `all` runs each task whose folder is in data.path, into
WORKDIR/TASK, and ends with a table. MODEL is a Hugging Face directory, or a workdir or model directory of
ours; data.path the task's folder as SuperGLUE distributes it, or its TFDS name, such as super_glue/cb (of
RTE super_glue/rte, of WSC super_glue/wsc.fixed). Where there is a test.jsonl, the submission is written to
WORKDIR/predictions; beside RTE's folder those of AX-b and AX-g too. CB, COPA and WSC vary much by seed:
--config.sweep.seeds=5.

ReCoRD's passages are read once for each entity of each query: an epoch is for accelerators.
Hardware and time: 3 to 4 minutes each of the runs below, on half of a CPU core.
Seen: from a 6-layer sentence encoder (D384), 32 training examples and a learning rate of 2e-4: CB (val.jsonl,
15 epochs) F1 .537, accuracy .661, its majority class's .194 and .411; COPA (val.jsonl, 20 epochs) accuracy
.52, .45; BoolQ (32 examples, 10 epochs) accuracy .50, .594: not learnt from so few. No full run yet.
"""

from ml_collections import ConfigDict

from bert_jax import config_tasks
from configs import glue

VARIANTS = ("all", *(name for name in config_tasks.SUPERGLUE if name != "superglue_rte"), "rte")

# Tasks whose texts are longer than sentences.
_LONG = ("boolq", "cb", "multirc", "record", "rte", "all")
# Passes over the training data, where it is small.
_EPOCHS = {"cb": 10.0, "copa": 10.0, "wsc": 10.0, "rte": 10.0, "boolq": 5.0, "wic": 5.0, "all": 5.0}


def get_config(variant: str = "all") -> ConfigDict:
    if variant not in VARIANTS:
        raise ValueError(f"variant {variant!r}: it must be one of {', '.join(VARIANTS)}")
    c = glue.get_config()  # its recipe, for other data
    c.task.name = {"all": "superglue", "rte": "superglue_rte"}.get(variant, variant)

    c.data.path = "superglue" if variant == "all" else f"super_glue/{variant}"
    if variant in _LONG:
        c.data.seq_len, c.data.buckets = 256, (64, 128)

    c.train.epochs = _EPOCHS.get(variant, 3.0)
    c.train.batch_size = 16

    c.optimizer.learning_rate = 1e-5 if variant in ("boolq", "multirc", "record") else 2e-5
    return c
