"""The configuration: every key with its default and meaning, and the checks on it.

`default()` is the schema: a config file starts from it (or from another config file) and sets
what it needs. `validate` refuses, by the key's name and before anything is loaded, a key that is
not in the schema, a value of another type, and pairs of values that cannot go together.

Configs are Python files: running one runs its code, so run only those you trust.
"""

from __future__ import annotations

import difflib
import json
import math
import sys
from typing import Any

from ml_collections import ConfigDict
from ml_collections.config_dict import placeholder

from bert_jax import config_rules, jsonl

FORMAT = 1  # version of a workdir's layout, written to its config.json
CONFIG_FILE = "config.json"


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
    # "" pretrains; a name fine-tunes: one of GLUE, "glue" for all of it, one of SuperGLUE (whose RTE is
    # "superglue_rte", since its files are not GLUE's), "superglue" for all of it, own data (below), "ner" or
    # "tagging" (a tag for each word), "relation" (of two marked entities), "squad" and with own tables
    # "spans" (a question's answer is a part of a text), "seq2seq" (a text for a text), or "spelling" (a
    # right token for each).
    c.task.name = ""
    # Own data ("classification", "pairs", "regression", "choice"): names of columns in the files.
    c.task.text = ""  # the text; of a choice, what stands before each of the choices ("": nothing does)
    c.task.text_pair = ""  # the second text of a pair
    c.task.label = ""  # the class, the number, or which choice is right
    c.task.choices = ()  # columns of the texts to choose among
    # Names of the classes in the order of their numbers; (): those in the training data, sorted. Of a
    # choice, what the label column calls each; (): the columns' names, or numbers from 0.
    c.task.labels = ()
    c.task.target = ""  # "seq2seq": the text that is to be written; "spelling": the right one
    # "spelling": errors made in texts that are right, in "tokens" (others in each epoch) or "letters"; "" has
    # them in the data.
    c.task.errors = ""
    c.task.error_rate = 0.1  # share of the tokens, or words, in which they are made
    c.task.gru_size = 256  # of each direction of the detector's GRU
    c.task.detection_weight = 0.2  # share of the detector's loss; the correction has the rest
    c.task.max_target = 64  # most tokens of it, [SEP] included; the source has the rest of data.seq_len
    c.task.beam_size = 1  # answers are searched for with so many beams; 1 is greedy
    c.task.length_penalty = 0.0  # alpha: answers compare by log p / ((5 + length) / 6)^alpha
    c.task.metric = "bleu"  # the result of a run of "seq2seq": "bleu", "chrf" or "exact_match"
    c.task.bleu_tokenize = "13a"  # sacrebleu's tokenizer: "13a", "intl", "zh", "char" or "none"
    c.task.train_file = ""  # file in data.path, where it is not the usual one
    c.task.eval_file = ""  # the same of the evaluation
    c.task.train_rows = 0  # most training examples that are used, evenly spread; 0 is all
    c.task.l2 = 0.0  # lambda of the penalty lambda * sum(w^2) / 2 on all decayed weights
    # lambda of the penalty lambda * sum((w - w0)^2) / 2 on the encoder's weights, w0 being those of init_from
    # (L2-SP; Li et al. 2018). optimizer.weight_decay, which pulls to 0, goes on beside it.
    c.task.l2_start = 0.0
    # Probability that, in a step, an element of the encoder's kernels is that of init_from (Lee et al. 2020).
    c.task.mixout = 0.0
    c.task.reinit_layers = 0  # top layers drawn anew, the pooler with them (Zhang et al. 2021)
    c.task.dropout = 0.1  # dropout before the classifier
    # What a classifier reads: the "first" token's state, their "mean", or what it learns to ("attention"); ""
    # is as model.pooling says, and the mean of T-TA, whose first state was trained to say nothing but [CLS].
    c.task.pooling = ""
    # T-TA: the diagonal of its mask is lifted, so that a token sees itself too; None: where states of single
    # words are read (tags, relations, answers), not where a text's are pooled.
    c.task.see_self = placeholder(bool)
    c.task.head_rate = 1.0  # multiplies the learning rate of the layers that only the task has
    # Of "ner" and "tagging" over each word's first piece: "linear" (the default), "crf", "bilstm" or
    # "bilstm_crf". Of "relation": from the states where the two "entities" start (the default), or "pooled".
    c.task.head = ""
    c.task.lstm_size = 256  # of each direction of a BiLSTM
    # What IOB2 does not allow (an I- that goes on from nothing) is ruled out of a CRF's answers ("decode", as
    # is usual), of the paths that it is trained against too ("train"; Wei et al. 2021), or not ("none").
    c.task.constraints = "decode"
    c.task.scheme = "auto"  # of the files: "iob1", "iob2", "iobes" (BIOES), or found in the training file
    c.task.token_column = 0  # column of a word in files of columns; negative ones count from the end
    c.task.tag_column = -1  # the same of its tag
    c.task.markers = ("@", "@", "#", "#")  # put round a relation's first and second entity
    c.task.no_relation = "no_relation"  # the class that says there is none; F1 is of all others

    # "spans": task.text, text_pair and label name the columns of question, context and answer ("": they are
    # called so), and this one that of the character of the context at which the answer starts.
    c.task.answer_start = "answer_start"
    # "squad", "spans": whether some questions have no answer (SQuAD 2.0); None: as the data says. False
    # leaves such questions out.
    c.task.unanswerable = placeholder(bool)
    c.task.stride = 128  # tokens from the beginning of a window of a long context to that of the next
    c.task.max_question = 64  # tokens of a question that are read
    c.task.max_answer = 30  # most tokens of an answer that is given
    c.task.n_best = 20  # answers to each question that are written

    c.model = ConfigDict()
    c.model.kind = "encoder"  # "encoder" (BERT) or "tta" (no token sees itself; Shin et al. 2020)
    c.model.tta_query = "position"  # first query: "position" (paper) or "mask_token" (released code)
    c.model.vocab_size = 0  # V; 0 takes the tokenizer's size; tables are padded to 128 rows
    c.model.hidden_size = 768  # D
    c.model.embedding_size = 0  # E, of the tables and the tied MLM head, projected to D; 0 is D
    c.model.layers = 12  # L
    c.model.heads = 12  # H; the head size K is D / H
    c.model.feed_forward_size = 3072  # F
    c.model.gated = False  # feed-forward activation(x A) * (x B), GeGLU with "gelu", or activation(x A)
    c.model.share_layers = False  # one layer's weights in all L layers (ALBERT)
    c.model.bias = True  # biases in the layers and their norms (ModernBERT has none)
    c.model.max_positions = 512  # the longest input; rows of the position table, if there is one
    c.model.position_offset = 0  # unused rows before the first position's (RoBERTa: 2)
    c.model.segments = 2  # rows of the segment table; 0 for none
    c.model.position = "learned"  # "learned", "sinusoidal" or "rotary"
    c.model.rope_theta = 10_000.0  # base of the rotary frequencies
    c.model.rope_layout = "adjacent"  # pairs (0,1),(2,3).. "adjacent", or (0,K/2).. "half"
    c.model.local_window = 0  # W: in local layers a token sees W/2 others to each side; 0: none is local
    c.model.global_every = 3  # with local_window: layers 0, n, 2n.. see the whole text
    c.model.local_rope_theta = 10_000.0  # base of the rotary frequencies in local layers
    c.model.mask = "full"  # who sees whom: "full", "causal" (left only) or "prefix" (UniLM)
    # Attention from queries and keys ("dot"), or logits that depend on the two places alone, trained
    # ("random") or as they were drawn ("fixed_random"): the Synthesizer (Tay et al. 2020).
    c.model.attention = "dot"
    # How attention is computed: all pairs at once ("dense"), or some queries at a time in memory that is
    # linear in S ("blocks"), its weights computed again in the backward pass; by TPU's own kernel ("splash":
    # no attention dropout, prefix or local layers) or NVIDIA's ("cudnn": no attention dropout, bfloat16);
    # "auto" takes splash on TPU for rows of 512 and more where it can be had, else blocks, and says which.
    # The numbers are the same to rounding, but for dropout's draws.
    c.model.attention_kernel = "auto"
    c.model.attention_block = 128  # queries at a time, of "blocks"
    c.model.norm = "post"  # LayerNorm after ("post", BERT) or before ("pre") each sublayer
    c.model.first_norm = True  # "pre": a norm before the first attention too (ModernBERT: none)
    c.model.norm_eps = 1e-12  # added to the variance in LayerNorm
    c.model.activation = "gelu"  # "gelu" (erf), "gelu_tanh" or "relu"
    c.model.dropout = 0.1  # on embeddings and sublayer outputs
    c.model.attention_dropout = 0.1  # on attention weights
    c.model.init_std = 0.02  # standard deviation of the truncated-normal initialisation
    c.model.mlm_head = "tied"  # "tied" (dense, norm, word table) or "plain" (one (D, V) matrix)
    c.model.nsp_head = "pooled"  # "pooled" (pooler, 2 logits) or "single" ((D, 1) on [CLS])
    c.model.pooler = "tanh"  # dense, then "tanh", "gelu", "relu", or activation and norm ("norm")
    # What the pooler gets: the "first" token's state, their "mean", or their sum by learnt "attention", which
    # a fine-tuning task may ask for on top of any model.
    c.model.pooling = "first"
    c.model.generator_fraction = 0.25  # ELECTRA: D, H and F of the generator, as a share
    c.model.scan = False  # layers as one scanned loop (short compilation) or unrolled (faster)
    # What the backward pass computes again: nothing ("none"), all but products with weights ("dots"), the
    # feed-forward's wide part ("feed_forward": a tenth more FLOPs, 0.7 of the memory of "dots"), or whole
    # layers ("full": a third more FLOPs).
    c.model.remat = "none"
    c.model.dtype = "float32"  # compute: "float32" or "bfloat16"; parameters stay float32

    c.objective = ConfigDict()
    c.objective.mlm = ConfigDict()
    c.objective.mlm.weight = 1.0  # share of the masked-token loss in the total; 0 turns it off
    c.objective.mlm.rate = 0.15  # share of the non-special tokens that is to be predicted
    c.objective.mlm.choice = "bernoulli"  # each token with p = rate, or "count": round(rate * n) of them
    c.objective.mlm.max_predictions = 0  # M, predicted positions a row; 0 fits rate and length
    c.objective.mlm.mask_share = 0.8  # of the chosen tokens: become [MASK]
    c.objective.mlm.random_share = 0.1  # of the chosen tokens: become a random token; rest is kept
    # What is chosen as a whole: a "token", a "word", an "ngram" of 1 to `ngram` words with p(n) ~ 1/n
    # (ALBERT), or a "span" of words of a clipped geometric length (SpanBERT).
    c.objective.mlm.unit = "token"
    c.objective.mlm.ngram = 3  # most words of an n-gram
    c.objective.mlm.span_p = 0.2  # of the geometric law of spans
    c.objective.mlm.span_max = 10  # most words of a span
    c.objective.nsp = ConfigDict()
    c.objective.nsp.weight = 0.0  # share of the next-sentence loss; 0 turns it off
    c.objective.nsp.short_share = 0.1  # share of pairs cut to a random shorter length
    c.objective.sop = ConfigDict()
    c.objective.sop.weight = 0.0  # share of the sentence-order loss (ALBERT); 0 turns it off
    c.objective.sop.short_share = 0.1  # share of pairs cut to a random shorter length
    c.objective.rtd = ConfigDict()
    c.objective.rtd.weight = 0.0  # share of the replaced-token loss (ELECTRA: 50); needs objective.mlm
    c.objective.tta = ConfigDict()
    c.objective.tta.weight = 0.0  # share of the T-TA loss; needs model.kind = "tta"
    c.objective.tta.rate = 1.0  # share of the tokens that are predicted in a step
    c.objective.causal = ConfigDict()
    c.objective.causal.weight = 0.0  # share of the left-to-right loss; needs model.mask = "causal"
    c.objective.causal.rate = 1.0  # share of the tokens that are predicted in a step
    c.objective.prefix = ConfigDict()
    c.objective.prefix.weight = 0.0  # share of the loss on what follows a prefix; model.mask = "prefix"
    c.objective.prefix.rate = 1.0  # share of the following tokens that are predicted in a step
    c.objective.distill = ConfigDict()
    c.objective.distill.weight = 0.0  # share of the soft-target loss (DistilBERT: 5); needs objective.mlm
    c.objective.distill.teacher = ""  # model directory, workdir or Hugging Face directory
    c.objective.distill.temperature = 2.0  # of both softmaxes
    c.objective.distill.cosine = 0.0  # share of 1 - cosine of the last hidden states (DistilBERT: 1)
    c.objective.distill.init = True  # start from the teacher's embeddings, head and every n-th layer

    c.data = ConfigDict()
    c.data.source = "embedded"  # "embedded", "text", "jsonl", "tfds" or "shards"
    c.data.path = ""  # file, directory or glob of the text; shard directory; TFDS name; task folder
    # Several texts instead of `path`: (path, weight) pairs, the weights as shares of the examples.
    c.data.mixture = ()
    c.data.eval_path = ""  # text to evaluate on; where empty, a part of `path` is held out
    c.data.general_path = ""  # another text, whose loss is told before and after (domain adaptation)
    c.data.eval_fraction = 0.05  # share of the text that is held out for evaluation
    c.data.holdout = "documents"  # hold out whole "documents", or the "tail" of each document
    c.data.text_key = "text"  # JSONL field or TFDS feature that holds the text
    c.data.tfds_split = "train"  # TFDS split that is read
    c.data.tfds_dir = ""  # TFDS data_dir; "" is the TFDS default
    c.data.document_marker = ""  # regular expression: a line that matches starts a new document
    c.data.tokenizer = ""  # vocab.txt, .model or directory; "" trains one on the text
    c.data.tokenizer_kind = "wordpiece"  # kind to train: "wordpiece", "sentencepiece" or "bpe" (of bytes)
    c.data.extend_vocab = 0  # most words of the text that are added to a WordPiece vocabulary (init_from)
    c.data.vocab_size = 30_522  # size of a trained vocabulary
    c.data.lowercase = placeholder(bool)  # None: as the tokenizer's files say
    c.data.strip_accents = placeholder(bool)  # None: accents go where case goes
    c.data.seq_len = 128  # S, tokens a row, [CLS] and [SEP] included; with train.phases, the first one's
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
    # Row lengths in turn: (seq_len, steps) or (seq_len, steps, batch_size), one schedule over all.
    # train.steps, where it is less than their sum, cuts them short.
    c.train.phases = ()
    c.train.batch_size = 32  # B, rows an update over all devices
    c.train.accumulation = 1  # parts that a batch is computed in, one after the other
    # A divisor of 128: the logits of predicted tokens are made for so many parts of the vocabulary, one after
    # the other, and again in the backward pass, so that (B, M, V) numbers are never held; 1 is all at once.
    c.train.vocabulary_parts = 1
    c.train.eval_batch_size = 0  # rows an evaluation batch; 0 is batch_size
    c.train.eval_rows = 0  # most rows that one evaluation reads; 0 is all
    c.train.eval_every = 0  # steps between evaluations; 0 evaluates at the end only
    # The run ends after so many evaluations (of the last phase) without a better metric; 0 takes all steps.
    # The learning rate falls as if all were taken.
    c.train.patience = 0
    c.train.log_every = 100  # steps between lines of metrics.jsonl
    # Where metrics go beside metrics.jsonl: "tensorboard" and, if installed, "wandb" and "mlflow", which keep
    # them in the workdir unless WANDB_MODE and MLFLOW_TRACKING_URI say otherwise.
    c.train.trackers = ("tensorboard",)
    # (from, to): the steps from + 1 .. to run under JAX's profiler, into WORKDIR/profile, which TensorBoard
    # opens with the plug-in xprof, and Perfetto too; () is none.
    c.train.profile = ()
    # A spike is a loss above factor times the median of the last `window` losses. "none" looks for none: only
    # a loss or gradient that is no number ends the run. By "stop" either does. By "skip" the run goes back to
    # the last step before it that is a multiple of checkpoint.every (or to 0), and on with other batches than
    # it has seen since. A step's loss is looked at while the next step runs, and before anything is saved.
    c.train.spike = ConfigDict()
    c.train.spike.policy = "none"  # "none", "stop" or "skip"
    c.train.spike.factor = 2.0
    c.train.spike.window = 100  # steps; the first of a run are only collected
    c.train.spike.most = 10  # times that a run goes back; the next spike then ends it
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
    # Of the first moment: "bfloat16" takes a quarter off the optimizer's memory. The second stays float32: a
    # step of 1 - b2 is less than bfloat16 tells apart.
    c.optimizer.moment_dtype = "float32"
    c.optimizer.eps = 1e-6  # added to the root of the second moment
    c.optimizer.weight_decay = 0.01  # decoupled; never on biases and LayerNorm
    c.optimizer.clip = 1.0  # largest global gradient norm; 0 for none
    # The n-th layer from the top learns at the rate times layer_decay^n, the embeddings below L layers times
    # layer_decay^(L + 1), what is above them at the rate itself (ELECTRA, BEiT). 1 is one rate for all.
    c.optimizer.layer_decay = 1.0
    # With init_from: 0 keeps the embeddings as they are, n the lowest n layers too, L all but the heads.
    c.optimizer.freeze_layers = -1

    c.mesh = ConfigDict()
    c.mesh.data = -1  # devices that hold copies of the model; -1 takes all that are left
    c.mesh.fsdp = 1  # devices that share parameters and the batch
    c.mesh.tensor = 1  # devices that share each product (heads, F, V)
    c.mesh.sequence = 1  # devices that share the positions of a row, for long ones; parameters they copy
    # TPU slices (or other groups of devices with a fast network inside) over which mesh.data is laid out.
    c.mesh.slices = 1

    c.checkpoint = ConfigDict()
    c.checkpoint.every = 1000  # steps between checkpoints; one is always saved at the end
    c.checkpoint.keep = 2  # newest checkpoints that are kept, beside the best one

    c.sweep = ConfigDict()
    c.sweep.seeds = 1  # runs with seeds seed, seed + 1, ...; members live in members/N
    # Values to try, each with each of the others and with all seeds; () is what the config says.
    c.sweep.learning_rate = ()  # of optimizer.learning_rate
    c.sweep.batch_size = ()  # of train.batch_size
    c.sweep.epochs = ()  # of train.epochs
    # Most members of equal shapes that train in one program, for whose states and activations there must be
    # memory; 0 is all on an accelerator and 1, one after the other, on a CPU.
    c.sweep.together = 0
    c.sweep.keep = "all"  # whose checkpoints stay when all is done: "all", or the "best" member's
    return c


# Keys that may differ when a run is continued: they change speed, place or reporting, not the run. Those of
# train.spike, and with "skip" checkpoint.every, decide about spikes to come; of old ones the workdir tells.
FREE_KEYS = (
    "data.cache_dir",
    "data.workers",
    "data.prefetch",
    "train.eval_batch_size",
    "train.eval_every",
    "train.log_every",
    "train.trackers",
    "train.profile",
    "train.spike.policy",
    "train.spike.factor",
    "train.spike.window",
    "train.spike.most",
    "train.compilation_cache",
    "mesh.data",
    "mesh.fsdp",
    "mesh.tensor",
    "mesh.sequence",
    "mesh.slices",
    "checkpoint.every",
    "checkpoint.keep",
    "model.scan",
    "model.remat",
    "train.vocabulary_parts",
    "sweep.together",
    "sweep.keep",
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
    for key, choices in config_rules.CHOICES.items():
        if flat[key] not in choices:
            allowed = ", ".join(repr(c) for c in choices)
            raise ConfigError(f"{key} = {flat[key]!r}: it must be one of {allowed}")
    for key, (low, high) in config_rules.RANGES.items():
        value = flat[key]
        bounds = f"at least {low}" if high is None else f"between {low} and {high}"
        if isinstance(value, float) and not math.isfinite(value):
            raise ConfigError(f"{key} = {value}: it must be a finite number, {bounds}")
        if (low is not None and value < low) or (high is not None and value > high):
            raise ConfigError(f"{key} = {value}: it must be {bounds}")
        if isinstance(value, int) and value >= 2**31:
            raise ConfigError(f"{key} = {value}: it must be below 2**31, as devices count in 32 bits")
    message = config_rules.broken(config)
    if message:
        raise ConfigError(message)
    for key in flat if not config.task.name else ():
        if key.startswith("task.") and flat[key] != schema[key]:
            raise ConfigError(
                f"{key} = {flat[key]!r} is of a fine-tuning task, and task.name is empty: name one, or leave "
                "it out"
            )


def _check_type(key: str, value: Any, like: Any, origin: str = "") -> None:
    if like is None:  # a placeholder: in this schema they are all optional booleans
        fits = value is None or isinstance(value, bool)
        kind = "true, false or None"
    elif isinstance(like, bool):
        fits, kind = isinstance(value, bool), "true or false"
    elif isinstance(like, float):
        fits, kind = isinstance(value, int | float) and not isinstance(value, bool), "a number"
        if fits and isinstance(value, int) and abs(value) > sys.float_info.max:
            fits, kind = False, "a number below 1e308"
    elif isinstance(like, int):
        fits, kind = isinstance(value, int) and not isinstance(value, bool), "a whole number"
    elif isinstance(like, tuple):
        each, is_one = config_rules.TUPLES[key]
        fits = isinstance(value, tuple) and all(is_one(v) for v in value)
        kind = f"a tuple of {each}"
    else:
        fits, kind = isinstance(value, type(like)), "a text"
    if not fits:
        raise ConfigError(f"{origin}{key} = {value!r}: it must be {kind}")


def to_json(config: ConfigDict) -> str:
    """Returns the config with the workdir format's version, as indented JSON."""
    return json.dumps({"format": FORMAT, **config.to_dict()}, indent=2) + "\n"


def from_json(text: str | bytes, origin: str = CONFIG_FILE) -> ConfigDict:
    """Returns the config that `to_json` wrote.

    Args:
      text: UTF-8.
      origin: where it is from, for messages.

    Raises:
      ConfigError: the text is no JSON object, or was written in another format version, or a key is unknown
        or has a value of another type.
    """
    try:
        values = jsonl.parse(text)
    except ValueError as error:
        raise ConfigError(f"{origin} is not JSON: {error}") from error
    if not isinstance(values, dict) or values.pop("format", None) != FORMAT:
        raise ConfigError(f"{origin} was not written in format {FORMAT}, the one this version reads")
    config = default()
    schema = flatten(config)
    for key, value in _flat(values).items():
        if key not in schema:
            raise ConfigError(f"{origin} has the unknown key {key}")
        value = _as_tuple(value)
        _check_type(key, value, schema[key], f"{origin}: ")
        group, _, leaf = key.rpartition(".")
        target = config
        for name in group.split(".") if group else ():
            target = target[name]
        target[leaf] = value
    return config


def _flat(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Returns {"group.key": value} of a JSON object."""
    flat: dict[str, Any] = {}
    for key, value in values.items():
        flat |= _flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return flat


def _as_tuple(value: Any) -> Any:
    """Returns the tuples that JSON made lists of."""
    return tuple(_as_tuple(v) for v in value) if isinstance(value, list | tuple) else value


def differing_keys(asked: ConfigDict, found: ConfigDict) -> list[str]:
    """Returns "key: found -> asked" for each key that must agree to continue a run, and does not."""
    a, b = flatten(asked), flatten(found)
    return [
        f"{k}: {b.get(k)!r} -> {a.get(k)!r}" for k in sorted(a) if k not in FREE_KEYS and a[k] != b.get(k)
    ]
