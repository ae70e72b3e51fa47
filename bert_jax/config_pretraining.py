"""What must go together in a config that pretrains."""

from __future__ import annotations

from typing import Any

from ml_collections import ConfigDict


def rules(c: ConfigDict) -> list[tuple[Any, str]]:
    m, o, d, t = c.model, c.objective, c.data, c.train
    pairs = "nsp" if o.nsp.weight else "sop"
    of_pairs = o.nsp.weight or o.sop.weight
    predicts = o.mlm.weight or o.tta.weight or o.causal.weight or o.prefix.weight
    distills = o.distill.weight or o.distill.cosine
    phases = tuple(t.phases)
    in_all = sum(phase[1] for phase in phases)
    return [
        (
            d.extend_vocab and c.optimizer.freeze_layers >= 0,
            f"data.extend_vocab = {d.extend_vocab} adds words that are to be learnt, and "
            f"optimizer.freeze_layers = {c.optimizer.freeze_layers} keeps the embeddings as they are: set "
            "that to -1, or the other to 0",
        ),
        (
            not (predicts or of_pairs),
            "every objective has weight 0: set objective.mlm.weight, or another's",
        ),
        (
            o.tta.weight and m.kind != "tta",
            'objective.tta.weight is set but model.kind = "encoder": a plain encoder sees the '
            'token that it is to predict; set model.kind = "tta"',
        ),
        (
            m.kind == "tta" and not o.tta.weight,
            'model.kind = "tta" is trained by objective.tta: set its weight and objective.mlm.weight = 0',
        ),
        (
            m.kind == "tta" and (o.mlm.weight or of_pairs or distills or o.rtd.weight),
            'model.kind = "tta" predicts every token in place and sees no [MASK] and no pairs: '
            "set the weights of objective.mlm, nsp, sop, rtd and distill to 0",
        ),
        *(
            (
                o[name].weight and m.mask != name,
                f'objective.{name}.weight is set but model.mask = "{m.mask}", under which a token sees '
                f'those that it is to predict: set model.mask = "{name}"',
            )
            for name in ("causal", "prefix")
        ),
        *(
            (
                m.mask == name and not o[name].weight,
                f'model.mask = "{name}" is trained by objective.{name}: set its weight, and that of '
                "objective.mlm to 0",
            )
            for name in ("causal", "prefix")
        ),
        (
            m.mask != "full" and (o.mlm.weight or of_pairs or distills or o.rtd.weight),
            f'objective.{m.mask} has model.mask = "{m.mask}", and objective.mlm, nsp, sop, rtd and distill '
            "are of tokens that see the whole text: a pass has one mask, set their weights to 0",
        ),
        (
            o.nsp.weight and o.sop.weight,
            "objective.nsp and objective.sop make pairs of their own: set one of the weights to 0",
        ),
        (
            of_pairs and d.packing,
            f"data.packing cannot go with objective.{pairs}: a packed row has no pair; turn one of them off",
        ),
        (
            of_pairs and d.unit == "sentence",
            f'objective.{pairs} makes its own pairs of sentence runs: set data.unit = "document"',
        ),
        (
            of_pairs and m.segments < 2,
            f"objective.{pairs} needs model.segments = 2, and it is {m.segments}",
        ),
        (
            o.rtd.weight and not o.mlm.weight,
            "objective.rtd needs replacements from a generator, which objective.mlm trains: set its weight",
        ),
        (
            o.rtd.weight and distills,
            "objective.rtd and objective.distill both claim the logits of objective.mlm: set one of the "
            "weights to 0",
        ),
        (
            distills and not o.mlm.weight,
            "objective.distill compares the two models at the masked positions: set objective.mlm.weight",
        ),
        (
            distills and not o.distill.teacher,
            "objective.distill needs a teacher: name a model directory by objective.distill.teacher",
        ),
        (
            o.distill.teacher and not distills,
            "objective.distill.teacher is set but both weights are 0: set objective.distill.weight",
        ),
        *(
            (
                t.vocabulary_parts > 1 and broken,
                f"train.vocabulary_parts = {t.vocabulary_parts} has no logits whole, and {why}: set it to 1",
            )
            for broken, why in (
                (o.rtd.weight, "the generator of objective.rtd draws from all of them"),
                (o.distill.weight, "objective.distill compares all of two models'"),
                (not predicts, "no objective that predicts tokens has a weight"),
            )
        ),
        (
            c.task.train_rows,
            f"task.train_rows = {c.task.train_rows} is for fine-tuning: set it to 0, and name less text",
        ),
        (
            d.extend_vocab and not c.init_from,
            "data.extend_vocab adds to the vocabulary of a model, and init_from names none",
        ),
        (
            d.mixture and d.path,
            "data.path and data.mixture are both set: put all texts into data.mixture",
        ),
        (
            d.path and d.source == "embedded",
            f'data.path = {d.path!r} is not read with data.source = "embedded": set data.source to "text", '
            '"jsonl", "tfds" or "shards"',
        ),
        (
            d.mixture and d.source == "embedded",
            'data.mixture needs data.source = "text", "jsonl", "tfds" or "shards"',
        ),
        (
            d.buckets,
            "data.buckets is for fine-tuning: pretraining has one row length, or those of train.phases",
        ),
        (
            phases and phases[0][0] != d.seq_len,
            f"train.phases begins with {phases[0][0] if phases else 0} tokens a row and data.seq_len = "
            f"{d.seq_len}: set both alike, or train.phases to ()",
        ),
        (
            any(phase[0] > m.max_positions or phase[0] < 4 for phase in phases),
            f"train.phases = {phases}: each row length must lie between 4 and model.max_positions = "
            f"{m.max_positions}",
        ),
        (
            any(len(phase) == 3 and phase[2] % t.accumulation for phase in phases),
            f"train.phases = {phases}: each batch size must be a multiple of train.accumulation = "
            f"{t.accumulation}",
        ),
        (
            phases and t.steps > in_all,
            f"train.steps = {t.steps} is more than the {in_all} steps of train.phases",
        ),
        (
            phases and t.epochs,
            f"train.epochs = {t.epochs:g} cannot go with train.phases, which count steps: set one of them",
        ),
        (
            phases and o.mlm.max_predictions,
            f"objective.mlm.max_predictions = {o.mlm.max_predictions} fits one row length, and train.phases "
            "has its own: set it to 0",
        ),
    ]
