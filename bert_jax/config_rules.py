"""The rules that a config's values must keep: choices, ranges, and what can go together."""

from __future__ import annotations

import math
from typing import Any

from ml_collections import ConfigDict

from bert_jax import config_pretraining, config_tasks, kernels

CHOICES = {
    "task.name": ("", *config_tasks.NAMES),
    "task.head": ("", *config_tasks.TOKEN_HEADS, *config_tasks.RELATION_HEADS),
    "task.pooling": ("", "first", "mean", "attention"),
    "task.constraints": ("decode", "train", "none"),
    "task.scheme": ("auto", "iob1", "iob2", "iobes"),
    "task.errors": ("", "tokens", "letters"),
    "task.metric": ("bleu", "chrf", "exact_match"),
    "task.bleu_tokenize": ("13a", "intl", "zh", "char", "none"),
    "model.kind": ("encoder", "tta"),
    "model.tta_query": ("position", "mask_token"),
    "model.position": ("learned", "sinusoidal", "rotary"),
    "model.rope_layout": ("adjacent", "half"),
    "model.norm": ("post", "pre"),
    "model.mask": ("full", "causal", "prefix"),
    "model.attention": ("dot", "random", "fixed_random"),
    "model.attention_kernel": ("auto", "dense", "blocks", "splash", "cudnn"),
    "model.pooler": ("tanh", "gelu", "relu", "norm"),
    "model.pooling": ("first", "mean", "attention"),
    "model.activation": ("gelu", "gelu_tanh", "relu"),
    "model.mlm_head": ("tied", "plain"),
    "model.nsp_head": ("pooled", "single"),
    "model.remat": ("none", "dots", "feed_forward", "full"),
    "model.dtype": ("float32", "bfloat16"),
    "objective.mlm.choice": ("bernoulli", "count"),
    "objective.mlm.unit": ("token", "word", "ngram", "span"),
    "data.source": ("embedded", "text", "jsonl", "tfds", "shards"),
    "data.holdout": ("documents", "tail"),
    "data.tokenizer_kind": ("wordpiece", "sentencepiece", "bpe"),
    "data.unit": ("document", "sentence"),
    "train.spike.policy": ("none", "stop", "skip"),
    "train.prng": ("threefry2x32", "rbg", "unsafe_rbg"),
    "optimizer.name": ("adamw", "lamb"),
    "optimizer.moment_dtype": ("float32", "bfloat16"),
    "sweep.keep": ("all", "best"),
    "optimizer.schedule": ("linear", "cosine", "wsd", "constant"),
}

# key -> (lowest, highest) value, both allowed; None is no bound.
RANGES: dict[str, tuple[float | None, float | None]] = {
    "seed": (0, 2**31 - 1),
    "task.train_rows": (0, None),
    "task.l2": (0, None),
    "task.l2_start": (0, None),
    "task.mixout": (0, 0.999),
    "task.reinit_layers": (0, None),
    "task.dropout": (0, 0.999),
    "task.head_rate": (0, None),
    "task.lstm_size": (1, None),
    "task.error_rate": (1e-6, 1),
    "task.gru_size": (1, None),
    "task.detection_weight": (0, 1),
    "task.max_target": (2, None),
    "task.beam_size": (1, 64),
    "task.length_penalty": (0, None),
    "task.token_column": (-99, 99),
    "task.tag_column": (-99, 99),
    "task.stride": (1, None),
    "task.max_question": (1, None),
    "task.max_answer": (1, None),
    "task.n_best": (1, None),
    "model.vocab_size": (0, None),
    "model.hidden_size": (1, None),
    "model.embedding_size": (0, None),
    "model.layers": (1, 10_000),
    "model.heads": (1, None),
    "model.feed_forward_size": (1, None),
    "model.max_positions": (1, None),
    "model.position_offset": (0, None),
    "model.local_window": (0, None),
    "model.global_every": (1, None),
    "model.local_rope_theta": (1, None),
    "model.generator_fraction": (1e-6, 1),
    "model.segments": (0, None),
    "model.rope_theta": (1, None),
    "model.norm_eps": (0, 1),
    "model.dropout": (0, 0.999),
    "model.attention_dropout": (0, 0.999),
    "model.attention_block": (1, None),
    "model.init_std": (0, None),
    "objective.mlm.weight": (0, None),
    "objective.mlm.rate": (1e-6, 1),
    "objective.mlm.max_predictions": (0, None),
    "objective.mlm.mask_share": (0, 1),
    "objective.mlm.random_share": (0, 1),
    "objective.mlm.ngram": (1, None),
    "objective.mlm.span_p": (1e-6, 1),
    "objective.mlm.span_max": (1, None),
    "objective.nsp.weight": (0, None),
    "objective.nsp.short_share": (0, 1),
    "objective.sop.weight": (0, None),
    "objective.sop.short_share": (0, 1),
    "objective.rtd.weight": (0, None),
    "objective.tta.weight": (0, None),
    "objective.tta.rate": (1e-6, 1),
    "objective.causal.weight": (0, None),
    "objective.causal.rate": (1e-6, 1),
    "objective.prefix.weight": (0, None),
    "objective.prefix.rate": (1e-6, 1),
    "objective.distill.weight": (0, None),
    "objective.distill.temperature": (1e-3, None),
    "objective.distill.cosine": (0, None),
    "data.eval_fraction": (0, 0.5),
    "data.vocab_size": (8, None),
    "data.extend_vocab": (0, None),
    "data.seq_len": (4, None),
    "data.max_packed": (1, None),
    "data.workers": (0, None),
    "data.prefetch": (1, None),
    "train.steps": (0, None),
    "train.epochs": (0, None),
    "train.batch_size": (1, None),
    "train.accumulation": (1, None),
    "train.vocabulary_parts": (1, 128),
    "train.eval_batch_size": (0, None),
    "train.eval_rows": (0, None),
    "train.eval_every": (0, None),
    "train.patience": (0, None),
    "train.log_every": (1, None),
    "train.spike.factor": (1, None),
    "train.spike.window": (2, None),
    "train.spike.most": (1, None),
    "optimizer.learning_rate": (0, None),
    "optimizer.warmup_steps": (0, None),
    "optimizer.warmup_fraction": (0, 1),
    "optimizer.decay_fraction": (0, 1),
    "optimizer.end_factor": (0, 1),
    "optimizer.b1": (0, 0.999999),
    "optimizer.b2": (0, 0.999999),
    "optimizer.eps": (0, None),
    "optimizer.weight_decay": (0, None),
    "optimizer.clip": (0, None),
    "optimizer.layer_decay": (1e-6, 1),
    "optimizer.freeze_layers": (-1, None),
    "mesh.data": (-1, None),
    "mesh.fsdp": (1, None),
    "mesh.tensor": (1, None),
    "mesh.sequence": (1, None),
    "mesh.slices": (1, None),
    "checkpoint.every": (1, None),
    "checkpoint.keep": (1, None),
    "sweep.seeds": (1, None),
    "sweep.together": (0, None),
}


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_phase(value: Any) -> bool:
    return isinstance(value, tuple) and len(value) in (2, 3) and all(_is_whole(v) and v > 0 for v in value)


def _is_tracker(value: Any) -> bool:
    return value in ("tensorboard", "wandb", "mlflow")


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and bool(value)


def _is_above_0(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < math.inf


def _is_size(value: Any) -> bool:
    return _is_whole(value) and value > 0


def _is_part(value: Any) -> bool:
    """Whether a value is a (path, weight) pair of a mixture."""
    if not (isinstance(value, tuple) and len(value) == 2 and isinstance(value[0], str) and value[0]):
        return False
    return isinstance(value[1], int | float) and not isinstance(value[1], bool) and 0 < value[1] < 1e9


# key of a tuple -> (what each of its values must be, in words, and whether one is)
TUPLES = {
    "data.buckets": ("whole numbers", _is_whole),
    "task.choices": ("names of columns", _is_name),
    "task.labels": ("names", _is_name),
    "task.markers": ("texts", _is_name),
    "data.mixture": ("(path, weight) pairs, each weight above 0", _is_part),
    "sweep.learning_rate": ("numbers above 0", _is_above_0),
    "sweep.batch_size": ("whole numbers above 0", _is_size),
    "sweep.epochs": ("numbers above 0", _is_above_0),
    "train.trackers": ('"tensorboard", "wandb" and "mlflow"', _is_tracker),
    "train.profile": ("two whole numbers, from and to", _is_whole),
    "train.phases": ("(seq_len, steps) or (seq_len, steps, batch_size), all above 0", _is_phase),
}


def broken(c: ConfigDict) -> str | None:
    """Returns what is wrong with values that each are right alone, naming the keys; None if nothing."""
    rules = [
        *_always(c),
        *_of_sweeps(c),
        *(config_tasks.rules(c) if c.task.name else config_pretraining.rules(c)),
    ]
    return next((message for is_broken, message in rules if is_broken), None)


def _always(c: ConfigDict) -> list[tuple[Any, str]]:
    m, o, d, t, p = c.model, c.objective, c.data, c.train, c.optimizer
    head_size = m.hidden_size // m.heads
    return [
        (
            t.profile and (len(t.profile) != 2 or not 0 <= t.profile[0] < t.profile[1]),
            f"train.profile = {tuple(t.profile)}: it must be (from, to), with 0 or more, and from below to",
        ),
        (
            m.hidden_size % m.heads,
            f"model.hidden_size = {m.hidden_size} is not a multiple of model.heads = {m.heads}",
        ),
        (
            m.position == "rotary" and head_size % 2,
            f'model.position = "rotary" needs an even head size, and model.hidden_size / model.heads '
            f"= {head_size}",
        ),
        (
            m.position == "sinusoidal" and (m.embedding_size or m.hidden_size) % 2,
            'model.position = "sinusoidal" needs an even model.embedding_size (or hidden_size, where it is '
            f"0), and it is {m.embedding_size or m.hidden_size}",
        ),
        (
            m.position_offset and m.position != "learned",
            f"model.position_offset = {m.position_offset} shifts the position table, and "
            f'model.position = "{m.position}" has none: set it to 0',
        ),
        (
            m.local_window % 2,
            f"model.local_window = {m.local_window}: it must be even, half of it to each side",
        ),
        (
            m.attention != "dot" and m.position == "rotary",
            f'model.attention = "{m.attention}" has no queries and keys that model.position = "rotary" '
            "could rotate: take learned or sinusoidal positions",
        ),
        (
            m.attention != "dot" and m.attention_kernel == "blocks",
            f'model.attention = "{m.attention}" is computed with model.attention_kernel = "dense" only',
        ),
        *(
            (
                m.attention_kernel == kernel and why,
                f'model.attention_kernel = "{kernel}" cannot be had: {why}; take "auto"',
            )
            for kernel, why in ((name, kernels.hindrance(c, name)) for name in kernels.PLATFORMS)
        ),
        (
            m.attention != "dot" and d.packing,
            f'model.attention = "{m.attention}" is of places in the row, and data.packing puts texts '
            "anywhere in it: turn one of them off",
        ),
        (
            not m.first_norm and m.norm != "pre",
            'model.first_norm = False is for model.norm = "pre"',
        ),
        (
            m.kind == "tta" and m.mask != "full",
            f'model.kind = "tta" has a mask of its own, all but the diagonal: model.mask = "{m.mask}" '
            'cannot go with it, set "full"',
        ),
        (
            d.seq_len > m.max_positions,
            f"data.seq_len = {d.seq_len} is longer than model.max_positions = {m.max_positions}",
        ),
        (
            o.mlm.mask_share + o.mlm.random_share > 1 + 1e-9,
            f"objective.mlm.mask_share + random_share = {o.mlm.mask_share + o.mlm.random_share:g} "
            "is more than 1",
        ),
        (
            o.mlm.max_predictions > d.seq_len,
            f"objective.mlm.max_predictions = {o.mlm.max_predictions} is more than "
            f"data.seq_len = {d.seq_len}",
        ),
        (
            p.warmup_steps and p.warmup_fraction,
            "optimizer.warmup_steps and optimizer.warmup_fraction are both set: set one of them",
        ),
        (
            p.layer_decay != 1 and m.share_layers,
            f"optimizer.layer_decay = {p.layer_decay:g} has a rate for each layer, and with "
            "model.share_layers all layers have one layer's weights: set it to 1",
        ),
        (
            p.freeze_layers >= 0 and not c.init_from,
            f"optimizer.freeze_layers = {p.freeze_layers} keeps weights as they were given, and init_from "
            "gives none: name a model there, or set -1",
        ),
        *(
            (
                c.task[key] and not (c.task.name and c.init_from),
                f"task.{key} = {c.task[key]:g} is of a task that starts from a model: set task.name and "
                "init_from, or set it to 0",
            )
            for key in ("l2_start", "mixout", "reinit_layers")
        ),
        (
            t.batch_size % t.accumulation,
            f"train.batch_size = {t.batch_size} is not a multiple of train.accumulation = {t.accumulation}",
        ),
        (
            128 % t.vocabulary_parts,
            f"train.vocabulary_parts = {t.vocabulary_parts}: it must be a power of 2, by which every table's "
            "length, a multiple of 128, can be divided",
        ),
        (
            t.patience and not t.eval_every,
            f"train.patience = {t.patience} counts evaluations, and train.eval_every = 0 makes one at the "
            "end only: set both, or patience to 0",
        ),
        (
            not t.steps and not t.epochs and not t.phases and not c.sweep.epochs,
            "train.steps and train.epochs are both 0: set one of them",
        ),
        (
            any(b < 4 or b > d.seq_len for b in d.buckets),
            f"data.buckets = {tuple(d.buckets)}: each must lie between 4 and data.seq_len = {d.seq_len}",
        ),
        (
            d.source in ("text", "jsonl", "tfds", "shards") and not d.path and not d.mixture,
            f'data.source = "{d.source}" needs data.path',
        ),
        (
            c.mesh.data == 0,
            "mesh.data = 0: it must be -1 (all devices that are left) or at least 1",
        ),
    ]


def _of_sweeps(c: ConfigDict) -> list[tuple[Any, str]]:
    s, t = c.sweep, c.train
    last = c.seed + s.seeds - 1
    return [
        *(
            (
                len({*s[key]}) < len(s[key]),
                f"sweep.{key} = {tuple(s[key])}: each value must be named once",
            )
            for key in ("learning_rate", "batch_size", "epochs")
        ),
        (
            last >= 2**31,
            f"seed = {c.seed} and sweep.seeds = {s.seeds}: the last seed, {last}, must be below {2**31}",
        ),
        (
            s.epochs and (t.steps or t.phases),
            f"sweep.epochs = {tuple(s.epochs)} cannot go with train.{'steps' if t.steps else 'phases'}, "
            "which decides how long each run is: set one of them",
        ),
        (
            s.batch_size and any(len(phase) == 3 for phase in t.phases),
            f"sweep.batch_size = {tuple(s.batch_size)} cannot go with train.phases = {tuple(t.phases)}, "
            "which has batch sizes of its own: leave them out there",
        ),
        (
            any(size % t.accumulation for size in s.batch_size),
            f"sweep.batch_size = {tuple(s.batch_size)}: each must be a multiple of train.accumulation = "
            f"{t.accumulation}",
        ),
    ]
