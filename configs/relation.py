"""Relations between two marked entities of a text (Soares et al. 2019).

    python -m bert_jax.main --config=configs/relation.py --workdir=runs/relation \
        --config.init_from=MODEL --config.data.path=relations

MODEL is a Hugging Face directory, or a workdir or model directory of ours. data.path is a folder with
train.jsonl and dev.jsonl, or one file, of which a twentieth is held out. A line is

    {"text": "Ada was born in London.", "head": [0, 3], "tail": [16, 22], "label": "born_in"}

with the first character of each entity and the one behind its last, or "tokens" and numbers of words; or
the text has its marks inside, as for `bert_jax.predict`: "[E1] Ada [/E1] was born in [E2] London [/E2]."

It is judged by F1 over all classes but task.no_relation. The variant `entities`, the default, reads the
states where the two entities' marks start; `pooled` reads one vector of the text, which
--config.model.pooling=attention makes of all its tokens.

Hardware and time: as configs/text.py.
Seen: no full run yet.
"""

from ml_collections import ConfigDict

from configs import glue

VARIANTS = ("entities", "pooled")


def get_config(variant: str = "entities") -> ConfigDict:
    if variant not in VARIANTS:
        raise ValueError(f"variant {variant!r}: it must be one of {', '.join(VARIANTS)}")
    c = glue.get_config()  # its recipe, for other data
    c.task.name = "relation"
    c.task.head = variant
    c.task.no_relation = "no_relation"  # TACRED's; SemEval-2010's is "Other", and "" leaves none out

    c.data.path = "relations"
    c.data.eval_fraction = 0.05
    c.data.seq_len = 128  # a longer text keeps what is nearest to its entities

    c.train.epochs = 5.0
    return c
