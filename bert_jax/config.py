"""The configuration: every key with its default and meaning, and the checks on it.

`default()` is the schema: a config file starts from it (or from another config file) and sets
what it needs. `validate` refuses, by the key's name and before anything is loaded, a key that is
not in the schema, a value of another type, and pairs of values that cannot go together.

Configs are Python files: running one runs its code, so run only those you trust.
"""

from __future__ import annotations

import difflib
import json
from typing import Any

from ml_collections import ConfigDict
from ml_collections.config_dict import placeholder

FORMAT = 1  # version of a workdir's layout, written to its config.json


class ConfigError(ValueError):
    """A config that breaks a rule; the message names the key, the value and the mend."""


def default() -> ConfigDict:
    """Returns every key with a neutral default: a float32 post-norm encoder on the embedded text."""
    c = ConfigDict()

    # One seed for initialisation, dropout, data order, pairs and masks.
    c.seed = 0
    # A model directory, workdir or Hugging Face directory whose weights the run starts from.
    c.init_from = ""

    c.task = ConfigDict()
    c.task.name = ""  # "" pretrains; "cola" fine-tunes on CoLA
    c.task.l2 = 0.0  # lambda of the penalty lambda * sum(w^2) / 2 on all decayed weights
    c.task.dropout = 0.1  # dropout before the classifier

    c.model = ConfigDict()
    c.model.kind = "encoder"  # "encoder" (BERT) or "tta" (no token sees itself; Shin et al. 2020)
    c.model.tta_query = "position"  # first query: "position" (paper) or "mask_token" (released code)
    c.model.vocab_size = 0  # V; 0 takes the tokenizer's size; tables are padded to 128 rows
    c.model.hidden_size = 768  # D
    c.model.layers = 12  # L
    c.model.heads = 12  # H; the head size K is D / H
    c.model.feed_forward_size = 3072  # F
    c.model.max_positions = 512  # rows of the position table (learned), or the longest input
    c.model.segments = 2  # rows of the segment table; 0 for none
    c.model.position = "learned"  # "learned", "sinusoidal" or "rotary"
    c.model.rope_theta = 10_000.0  # base of the rotary frequencies
    c.model.rope_layout = "adjacent"  # pairs (0,1),(2,3).. "adjacent", or (0,K/2).. "half"
    c.model.norm = "post"  # LayerNorm after ("post", BERT) or before ("pre") each sublayer
    c.model.norm_eps = 1e-12  # added to the variance in LayerNorm
    c.model.activation = "gelu"  # "gelu" (erf), "gelu_tanh" or "relu"
    c.model.dropout = 0.1  # on embeddings and sublayer outputs
    c.model.attention_dropout = 0.1  # on attention weights
    c.model.init_std = 0.02  # standard deviation of the truncated-normal initialisation
    c.model.mlm_head = "tied"  # "tied" (dense, norm, word table) or "plain" (one (D, V) matrix)
    c.model.nsp_head = "pooled"  # "pooled" (tanh pooler, 2 logits) or "single" ((D, 1) on [CLS])
    c.model.scan = False  # layers as one scanned loop (short compilation) or unrolled (faster)
    c.model.remat = "none"  # recompute in the backward pass: "none", "full" or "dots"
    c.model.dtype = "float32"  # compute: "float32" or "bfloat16"; parameters stay float32

    c.objective = ConfigDict()
    c.objective.mlm = ConfigDict()
    c.objective.mlm.weight = 1.0  # share of the masked-token loss in the total; 0 turns it off
    c.objective.mlm.rate = 0.15  # share of the non-special tokens that is to be predicted
    c.objective.mlm.choice = "bernoulli"  # each token with p = rate, or "count": round(rate * n) of them
    c.objective.mlm.max_predictions = 0  # M, predicted positions a row; 0 fits rate and length
    c.objective.mlm.mask_share = 0.8  # of the chosen tokens: become [MASK]
    c.objective.mlm.random_share = 0.1  # of the chosen tokens: become a random token; rest is kept
    c.objective.mlm.whole_word = False  # choose whole words instead of single pieces
    c.objective.nsp = ConfigDict()
    c.objective.nsp.weight = 0.0  # share of the next-sentence loss; 0 turns it off
    c.objective.nsp.short_share = 0.1  # share of pairs cut to a random shorter length
    c.objective.tta = ConfigDict()
    c.objective.tta.weight = 0.0  # share of the T-TA loss; needs model.kind = "tta"
    c.objective.tta.rate = 1.0  # share of the tokens that are predicted in a step

    c.data = ConfigDict()
    c.data.source = "embedded"  # "embedded", "text", "jsonl", "tfds" or "shards"
    c.data.path = ""  # file, directory or glob of the text; shard directory; TFDS name; task folder
    c.data.eval_path = ""  # text to evaluate on; where empty, a part of `path` is held out
    c.data.eval_fraction = 0.05  # share of the text that is held out for evaluation
    c.data.holdout = "documents"  # hold out whole "documents", or the "tail" of each document
    c.data.text_key = "text"  # JSONL field or TFDS feature that holds the text
    c.data.tfds_split = "train"  # TFDS split that is read
    c.data.tfds_dir = ""  # TFDS data_dir; "" is the TFDS default
    c.data.document_marker = ""  # regular expression: a line that matches starts a new document
    c.data.tokenizer = ""  # vocab.txt, .model or directory; "" trains one on the text
    c.data.tokenizer_kind = "wordpiece"  # kind to train: "wordpiece" or "sentencepiece"
    c.data.vocab_size = 30_522  # size of a trained vocabulary
    c.data.lowercase = placeholder(bool)  # None: as the tokenizer's files say
    c.data.strip_accents = placeholder(bool)  # None: accents go where case goes
    c.data.seq_len = 128  # S, tokens a row, [CLS] and [SEP] included
    c.data.unit = "document"  # a row holds a run of one "document", or one "sentence"
    c.data.packing = False  # several short units in one row, isolated from each other
    c.data.max_packed = 16  # most units in one packed row
    c.data.buckets = ()  # fine-tuning: row lengths below seq_len that a batch may be cut to
    c.data.cache_dir = ""  # prepared text; "" is ~/.cache/bert_jax (or $BERT_JAX_CACHE)
    c.data.workers = 0  # processes that prepare, threads that batch; 0 is one a core
    c.data.prefetch = 4  # batches made ahead of the step

    c.train = ConfigDict()
    c.train.steps = 0  # updates; 0 takes `epochs`
    c.train.epochs = 0.0  # passes over the training data, used where `steps` is 0
    c.train.batch_size = 32  # B, rows an update over all devices
    c.train.accumulation = 1  # parts that a batch is computed in, one after the other
    c.train.eval_batch_size = 0  # rows an evaluation batch; 0 is batch_size
    c.train.eval_rows = 0  # most rows that one evaluation reads; 0 is all
    c.train.eval_every = 0  # steps between evaluations; 0 evaluates at the end only
    c.train.log_every = 100  # steps between lines of metrics.jsonl
    c.train.prng = "threefry2x32"  # kind of random keys: "threefry2x32", "rbg" or "unsafe_rbg"
    c.train.compilation_cache = "default"  # directory of compiled programs; "" for none

    c.optimizer = ConfigDict()
    c.optimizer.name = "adamw"  # "adamw" or "lamb"
    c.optimizer.learning_rate = 1e-4  # peak
    c.optimizer.schedule = "linear"  # after warm-up: "linear", "cosine", "wsd" or "constant"
    c.optimizer.warmup_steps = 0  # steps of linear rise from 0
    c.optimizer.warmup_fraction = 0.0  # the same as a share of all steps; only one of the two
    c.optimizer.decay_fraction = 0.2  # "wsd": share of all steps in which the rate falls to its end
    c.optimizer.end_factor = 0.0  # learning rate at the end, as a share of the peak
    c.optimizer.b1 = 0.9  # decay of the first moment
    c.optimizer.b2 = 0.999  # decay of the second moment
    c.optimizer.eps = 1e-6  # added to the root of the second moment
    c.optimizer.weight_decay = 0.01  # decoupled; never on biases and LayerNorm
    c.optimizer.clip = 1.0  # largest global gradient norm; 0 for none

    c.mesh = ConfigDict()
    c.mesh.data = -1  # devices that hold copies of the model; -1 takes all that are left
    c.mesh.fsdp = 1  # devices that share parameters and the batch
    c.mesh.tensor = 1  # devices that share each product (heads, F, V)

    c.checkpoint = ConfigDict()
    c.checkpoint.every = 1000  # steps between checkpoints; one is always saved at the end
    c.checkpoint.keep = 2  # newest checkpoints that are kept, beside the best one

    c.sweep = ConfigDict()
    c.sweep.seeds = 1  # runs with seeds seed, seed + 1, ...; members live in members/N
    return c


_CHOICES = {
    "task.name": ("", "cola"),
    "model.kind": ("encoder", "tta"),
    "model.tta_query": ("position", "mask_token"),
    "model.position": ("learned", "sinusoidal", "rotary"),
    "model.rope_layout": ("adjacent", "half"),
    "model.norm": ("post", "pre"),
    "model.activation": ("gelu", "gelu_tanh", "relu"),
    "model.mlm_head": ("tied", "plain"),
    "model.nsp_head": ("pooled", "single"),
    "model.remat": ("none", "full", "dots"),
    "model.dtype": ("float32", "bfloat16"),
    "objective.mlm.choice": ("bernoulli", "count"),
    "data.source": ("embedded", "text", "jsonl", "tfds", "shards"),
    "data.holdout": ("documents", "tail"),
    "data.tokenizer_kind": ("wordpiece", "sentencepiece"),
    "data.unit": ("document", "sentence"),
    "train.prng": ("threefry2x32", "rbg", "unsafe_rbg"),
    "optimizer.name": ("adamw", "lamb"),
    "optimizer.schedule": ("linear", "cosine", "wsd", "constant"),
}

# key -> (lowest, highest) value, both allowed; None is no bound.
_RANGES: dict[str, tuple[float | None, float | None]] = {
    "seed": (0, 2**31 - 1),
    "task.l2": (0, None),
    "task.dropout": (0, 0.999),
    "model.vocab_size": (0, None),
    "model.hidden_size": (1, None),
    "model.layers": (1, None),
    "model.heads": (1, None),
    "model.feed_forward_size": (1, None),
    "model.max_positions": (1, None),
    "model.segments": (0, None),
    "model.rope_theta": (1, None),
    "model.norm_eps": (0, 1),
    "model.dropout": (0, 0.999),
    "model.attention_dropout": (0, 0.999),
    "model.init_std": (0, None),
    "objective.mlm.weight": (0, None),
    "objective.mlm.rate": (1e-6, 1),
    "objective.mlm.max_predictions": (0, None),
    "objective.mlm.mask_share": (0, 1),
    "objective.mlm.random_share": (0, 1),
    "objective.nsp.weight": (0, None),
    "objective.nsp.short_share": (0, 1),
    "objective.tta.weight": (0, None),
    "objective.tta.rate": (1e-6, 1),
    "data.eval_fraction": (0, 0.5),
    "data.vocab_size": (8, None),
    "data.seq_len": (4, None),
    "data.max_packed": (1, None),
    "data.workers": (0, None),
    "data.prefetch": (1, None),
    "train.steps": (0, None),
    "train.epochs": (0, None),
    "train.batch_size": (1, None),
    "train.accumulation": (1, None),
    "train.eval_batch_size": (0, None),
    "train.eval_rows": (0, None),
    "train.eval_every": (0, None),
    "train.log_every": (1, None),
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
    "mesh.data": (-1, None),
    "mesh.fsdp": (1, None),
    "mesh.tensor": (1, None),
    "checkpoint.every": (1, None),
    "checkpoint.keep": (1, None),
    "sweep.seeds": (1, None),
}

# Keys that may differ when a run is continued: they change speed, place or reporting, not the run.
FREE_KEYS = (
    "data.cache_dir",
    "data.workers",
    "data.prefetch",
    "train.eval_batch_size",
    "train.eval_every",
    "train.log_every",
    "train.compilation_cache",
    "mesh.data",
    "mesh.fsdp",
    "mesh.tensor",
    "checkpoint.every",
    "checkpoint.keep",
    "model.scan",
    "model.remat",
)


def flatten(config: ConfigDict, prefix: str = "") -> dict[str, Any]:
    """Returns {"group.key": value} of a config; tuples stay values."""
    flat: dict[str, Any] = {}
    for key in config:
        value = config[key]
        name = f"{prefix}{key}"
        if isinstance(value, ConfigDict):
            flat.update(flatten(value, f"{name}."))
        else:
            flat[name] = value
    return flat


def validate(config: ConfigDict) -> None:
    """Raises ConfigError, naming the key, if the config breaks a rule. Loads nothing."""
    schema, flat = flatten(default()), flatten(config)
    for key, value in flat.items():
        if key not in schema:
            near = difflib.get_close_matches(key, schema, n=1, cutoff=0.7)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise ConfigError(f"unknown config key {key}{hint}")
        _check_type(key, value, schema[key])
    missing = [key for key in schema if key not in flat]
    if missing:
        raise ConfigError(f"config lacks {missing[0]}: start it from bert_jax.config.default()")
    for key, choices in _CHOICES.items():
        if flat[key] not in choices:
            allowed = ", ".join(repr(c) for c in choices)
            raise ConfigError(f"{key} = {flat[key]!r}: it must be one of {allowed}")
    for key, (low, high) in _RANGES.items():
        value = flat[key]
        if value != value or (low is not None and value < low) or (high is not None and value > high):
            bounds = f"at least {low}" if high is None else f"between {low} and {high}"
            raise ConfigError(f"{key} = {value}: it must be {bounds}")
    _check_pairs(config)


def _check_type(key: str, value: Any, like: Any) -> None:
    if like is None:  # a placeholder: in this schema they are all optional booleans
        fits = value is None or isinstance(value, bool)
        kind = "true, false or None"
    elif isinstance(like, bool):
        fits, kind = isinstance(value, bool), "true or false"
    elif isinstance(like, float):
        fits, kind = isinstance(value, int | float) and not isinstance(value, bool), "a number"
    elif isinstance(like, int):
        fits, kind = isinstance(value, int) and not isinstance(value, bool), "a whole number"
    elif isinstance(like, tuple):
        fits = isinstance(value, tuple) and all(isinstance(v, int) for v in value)
        kind = "a tuple of whole numbers"
    else:
        fits, kind = isinstance(value, type(like)), "a text"
    if not fits:
        raise ConfigError(f"{key} = {value!r}: it must be {kind}")


def _check_pairs(c: ConfigDict) -> None:
    m, o, d, t, p = c.model, c.objective, c.data, c.train, c.optimizer
    pretraining = not c.task.name
    rules = [
        (
            m.hidden_size % m.heads,
            f"model.hidden_size = {m.hidden_size} is not a multiple of model.heads = {m.heads}",
        ),
        (
            m.position == "rotary" and (m.hidden_size // m.heads) % 2,
            f'model.position = "rotary" needs an even head size, and model.hidden_size / model.heads '
            f"= {m.hidden_size // m.heads}",
        ),
        (
            m.position == "sinusoidal" and m.hidden_size % 2,
            f'model.position = "sinusoidal" needs an even model.hidden_size, and it is {m.hidden_size}',
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
            t.batch_size % t.accumulation,
            f"train.batch_size = {t.batch_size} is not a multiple of train.accumulation = {t.accumulation}",
        ),
        (
            not t.steps and not t.epochs,
            "train.steps and train.epochs are both 0: set one of them",
        ),
        (
            any(b < 4 or b > d.seq_len for b in d.buckets),
            f"data.buckets = {tuple(d.buckets)}: each must lie between 4 and data.seq_len = {d.seq_len}",
        ),
        (
            d.source in ("text", "jsonl", "tfds", "shards") and not d.path,
            f'data.source = "{d.source}" needs data.path',
        ),
        (
            c.mesh.data == 0,
            "mesh.data = 0: it must be -1 (all devices that are left) or at least 1",
        ),
    ]
    if pretraining:
        rules += [
            (
                not (o.mlm.weight or o.nsp.weight or o.tta.weight),
                "every objective has weight 0: set objective.mlm.weight or objective.tta.weight",
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
                m.kind == "tta" and (o.mlm.weight or o.nsp.weight),
                'model.kind = "tta" predicts every token in place and sees no [MASK] and no pairs: '
                "set objective.mlm.weight = 0 and objective.nsp.weight = 0",
            ),
            (
                o.nsp.weight and d.packing,
                "data.packing cannot go with objective.nsp: a packed row has no pair; turn one of them off",
            ),
            (
                o.nsp.weight and d.unit == "sentence",
                'objective.nsp makes its own pairs of sentence runs: set data.unit = "document"',
            ),
            (
                o.nsp.weight and m.segments < 2,
                f"objective.nsp needs model.segments = 2, and it is {m.segments}",
            ),
            (
                d.buckets,
                "data.buckets is for fine-tuning: pretraining has one row length",
            ),
        ]
    else:
        rules += [
            (
                not d.path,
                f'task.name = "{c.task.name}" needs data.path: the folder of its TSV files, or a TFDS name',
            ),
            (d.packing, "data.packing is for pretraining: set it to False for a task"),
            (
                m.kind == "tta",
                'model.kind = "tta" has no [CLS] that sees the sentence: fine-tune with '
                'model.kind = "encoder"',
            ),
        ]
    for broken, message in rules:
        if broken:
            raise ConfigError(message)


def to_json(config: ConfigDict) -> str:
    """Returns the config with the workdir format's version, as indented JSON."""
    return json.dumps({"format": FORMAT, **config.to_dict()}, indent=2) + "\n"


def from_json(text: str) -> ConfigDict:
    """Returns the config that `to_json` wrote.

    Raises:
      ConfigError: the text is no JSON object, or was written in another format version.
    """
    try:
        values = json.loads(text)
    except json.JSONDecodeError as error:
        raise ConfigError(f"config.json is not JSON: {error}") from error
    if not isinstance(values, dict) or values.pop("format", None) != FORMAT:
        raise ConfigError(f"config.json was not written in format {FORMAT}, the one this version reads")
    config = default()
    for key, value in flatten(ConfigDict(values)).items():
        group, _, leaf = key.rpartition(".")
        target = config
        for name in group.split(".") if group else ():
            if name not in target:
                raise ConfigError(f"config.json has the unknown key {key}")
            target = target[name]
        if leaf not in target:
            raise ConfigError(f"config.json has the unknown key {key}")
        target[leaf] = tuple(value) if isinstance(value, list) else value
    return config


def differing_keys(asked: ConfigDict, found: ConfigDict) -> list[str]:
    """Returns "key: found -> asked" for each key that must agree to continue a run, and does not."""
    a, b = flatten(asked), flatten(found)
    return [
        f"{k}: {b.get(k)!r} -> {a.get(k)!r}" for k in sorted(a) if k not in FREE_KEYS and a[k] != b.get(k)
    ]
