"""Fine-tuning on CoLA, judged by Matthews correlation (Warstadt et al. 2019; Devlin et al. 2018).

    python -m bert_jax.main --config=configs/cola.py --workdir=runs/cola \
        --config.init_from=MODEL --config.data.path=glue/CoLA --config.sweep.seeds=5

A search over learning rates too, all members of a seed in one program on an accelerator:
--config.sweep.learning_rate="(2e-5, 5e-5)".

MODEL is a Hugging Face BERT directory, or a workdir or model directory of ours; data.path is the
folder with train.tsv and dev.tsv, or the TFDS name glue/cola.

Hardware and time: 802 steps a seed, 1.1 s a step on one core of two for a 6-layer D384 model (both cores on
one seed: 0.9 s, so on a small machine run the seeds beside each other); 14 to 21 minutes a seed with other
work beside.
Seen: from a 6-layer sentence encoder (D384), seeds 0 to 4: MCC .278, .265, .252, .306, .267; mean .273,
deviation .020. The same recipe in PyTorch: .259, .254, .260. A search of 5 seeds and the rates 5e-5 and
2e-4 on 768 rows (72 steps each, S32), all ten in one program: MCC 0 with the first, as so few steps find one
class only; with the second 0, .048, 0, .102, .162.
"""

from ml_collections import ConfigDict

from configs import glue


def get_config() -> ConfigDict:
    c = glue.get_config("cola")
    c.task.l2 = 0.0  # loss = task + l2 * sum(w^2) / 2

    c.data.seq_len = 64
    c.data.buckets = (16, 24, 32)  # rows as short as a batch allows: four compilations in all

    c.train.eval_every = 268  # an epoch
    c.train.log_every = 67

    c.optimizer.learning_rate = 5e-5  # the paper tries 2e-5, 3e-5 and 5e-5

    c.checkpoint.every = 268
    return c
