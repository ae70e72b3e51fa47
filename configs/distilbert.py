"""DistilBERT: half the layers of its teacher, whose guesses it learns (Sanh et al. 2019).

    python -m bert_jax.main --config=configs/distilbert.py --workdir=runs/distilbert \
        --config.objective.distill.teacher=MODEL \
        --config.data.source=text --config.data.path=DIRECTORY

MODEL is a masked language model: a workdir, a model directory or a Hugging Face directory of BERT-base's
size. The student starts from its embeddings and every second layer, and takes its vocabulary.
Hardware and time: the paper took 90 hours on 8 V100s.
Seen: not run to the end; its objective at a small size: configs/objectives.py:distill.
"""

from ml_collections import ConfigDict

from configs import base


def get_config() -> ConfigDict:
    c = base.get_config()
    c.model.layers = 6
    c.model.segments = 0
    c.model.pooler = "relu"  # of a classifier, when it is fine-tuned

    c.objective.nsp.weight = 0.0
    c.objective.mlm.weight = 2.0
    c.objective.distill.weight = 5.0
    c.objective.distill.cosine = 1.0
    c.objective.distill.temperature = 2.0

    c.data.seq_len = 512
    c.data.packing = True
    c.data.max_packed = 32

    c.train.steps = 0
    c.train.epochs = 3.0
    c.train.phases = ()
    c.train.batch_size = 4000

    c.optimizer.learning_rate = 5e-4
    c.optimizer.warmup_steps = 0
    c.optimizer.warmup_fraction = 0.05
    c.optimizer.b1, c.optimizer.b2, c.optimizer.eps = 0.9, 0.98, 1e-6
    return c
