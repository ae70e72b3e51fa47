"""Measures how fast a config trains on this machine, beside PyTorch where that is asked for.

--peer=transformers runs PyTorch at the same shapes, in turns with ours, in a process and an environment of
its own (bash launch/test.sh --parity makes it). The ratios are ours over theirs in tokens or examples a
second: the median, and the lowest and highest. The result is a JSON object on standard output, and in
--output.

--what=train takes the train step of a pretraining alone. The peers are transformers as it is ("stock":
logits at every place), and the strong one, whose logits are made at the masked places only ("gathered").

    python -m bert_jax.bench --config=configs/bench.py:small --peer=transformers

--what=input makes a config's batches and uses none: tokens a second of the input pipeline alone, and the
processor's time that each costs.

    python -m bert_jax.bench --what=input --config=configs/base.py --steps=50

--what=prepare makes shards of a config's text in --sizes, in MB, and writes what that took into --workdir, as
prepare.csv and prepare.png.

    python -m bert_jax.bench --what=prepare --config=configs/base.py --workdir=runs/bench/prepare

--what=curves measures the train step over B, S and L, one after the other, and its memory over S with each
of --kernels, and writes --workdir's curves.csv and curves.png.

    python -m bert_jax.bench --what=curves --config=configs/bench.py:small --workdir=runs/bench/curves \
        --kernels=dense,blocks

--what=finetune trains a task to its end with each of --seeds seeds, into --workdir, where a run that was
cut short goes on: what is reached, and how fast.

    python -m bert_jax.bench --what=finetune --config=configs/cola.py --workdir=runs/bench/cola \
        --config.init_from=MODEL --config.data.path=glue/CoLA --peer=transformers

--what=scoring scores the sentences of --input by a T-TA and by a masked model of the config's size, in turns,
and says how near their ratio comes to that of their floating-point operations. The weights are random.

    python -m bert_jax.bench --what=scoring --config=configs/bench.py:tta --input=sentences.txt \
        --config.data.tokenizer=vocab.txt --peer=transformers
"""

from __future__ import annotations

import itertools
import json
import os

from absl import flags as absl_flags

from bert_jax import config as config_lib
from bert_jax import flags, paths

_CONFIG = flags.define_config()
_WHAT = absl_flags.DEFINE_enum(
    "what", "train", ["train", "input", "prepare", "curves", "finetune", "scoring"], "What is measured."
)
_PEER = absl_flags.DEFINE_enum("peer", "none", ["none", "transformers"], "What to compare with.")
_COMPILED = absl_flags.DEFINE_bool("compiled", False, "With --peer: both peers by torch.compile, too.")
_PEER_PYTHON = absl_flags.DEFINE_string(
    "peer_python", "", "Python that has torch and transformers; empty: that of .venv-parity."
)
_WORKDIR = absl_flags.DEFINE_string(
    "workdir", "", "With --what=finetune: directory of the runs; with prepare and curves: of the table."
)
_SIZES = absl_flags.DEFINE_list("sizes", ["1", "3", "10", "30"], "With --what=prepare: MB of text, rising.")
_BATCH_SIZES = absl_flags.DEFINE_list("batch_sizes", ["4", "8", "16"], "With --what=curves: values of B.")
_LENGTHS = absl_flags.DEFINE_list("lengths", ["64", "128", "256", "512"], "With --what=curves: values of S.")
_LAYERS = absl_flags.DEFINE_list("layers", ["1", "2", "4"], "With --what=curves: values of L.")
_KERNELS = absl_flags.DEFINE_list(
    "kernels", ["dense", "blocks"], "With --what=curves: values of model.attention_kernel."
)
_SEEDS = absl_flags.DEFINE_integer("seeds", 3, "With --what=finetune: how many runs.", lower_bound=1)
_INPUT = absl_flags.DEFINE_string("input", "", "With --what=scoring: sentences, one a line.")
_SENTENCES = absl_flags.DEFINE_integer(
    "sentences", 500, "With --what=scoring: most lines that are scored.", lower_bound=1
)
_ROUNDS = absl_flags.DEFINE_integer("rounds", 5, "How often each is asked.", lower_bound=1)
_STEPS = absl_flags.DEFINE_integer("steps", 5, "Updates, or batches, each time.", lower_bound=1)
_OUTPUT = absl_flags.DEFINE_string("output", "", "File for the result, too.")


def main() -> None:
    """Measures, and prints the result."""
    config = _CONFIG.value
    config_lib.validate(config)
    if _COMPILED.value and (_PEER.value == "none" or _WHAT.value != "train"):
        raise flags.UsageError("--compiled is of the peers of --what=train: set --peer too, or leave it out")
    folder = os.path.expanduser(_WORKDIR.value)
    output = paths.to_write(_OUTPUT.value) if _OUTPUT.value else None

    from bert_jax import workdir
    from bert_jax.benchmarks import curves, finetuning, inputs, preparation, scoring, training
    from bert_jax.data import files

    peers = () if _PEER.value == "none" else (_PEER.value,)
    if _WHAT.value == "finetune":
        if not folder:
            raise flags.UsageError("--what=finetune needs --workdir, the directory of its runs")
        result = finetuning.measure(
            config, folder, seeds=_SEEDS.value, peers=peers, python=_PEER_PYTHON.value
        )
    elif _WHAT.value == "input":
        if peers:
            raise flags.UsageError(f"--peer={_PEER.value} has no input pipeline: leave it out")
        result = inputs.measure(config, rounds=_ROUNDS.value, steps=_STEPS.value)
    elif _WHAT.value == "prepare":
        if peers or not folder:
            raise flags.UsageError(
                "--what=prepare needs --workdir, a directory for its table, and has no peer"
            )
        result = preparation.measure(config, preparation.read_sizes(_SIZES.value), folder)
    elif _WHAT.value == "curves":
        if peers or not folder:
            raise flags.UsageError(
                "--what=curves needs --workdir, a directory for its table, and has no peer"
            )
        values = {
            axis: curves.read_values(flag.name, flag.value)
            for axis, flag in (("B", _BATCH_SIZES), ("S", _LENGTHS), ("L", _LAYERS))
        }
        result = curves.measure(
            config, values, _KERNELS.value, folder, rounds=_ROUNDS.value, steps=_STEPS.value
        )
    elif _WHAT.value == "scoring":
        if not _INPUT.value:
            raise flags.UsageError("--what=scoring needs --input, a file of sentences")
        lines = files.lines(paths.to_read(_INPUT.value, "input"))
        texts = [line.removesuffix("\r") for _, line in itertools.islice(lines, _SENTENCES.value)]
        result = scoring.measure(config, texts, rounds=_ROUNDS.value, peers=peers, python=_PEER_PYTHON.value)
    else:
        kinds = ("stock", "gathered") if peers else ()
        if _COMPILED.value:
            kinds = (*kinds, *(f"{name}_compiled" for name in kinds))
        result = training.measure(
            config, rounds=_ROUNDS.value, steps=_STEPS.value, peers=kinds, python=_PEER_PYTHON.value
        )
    text = json.dumps(result, indent=2) + "\n"
    print(text, end="")
    if output is not None:
        workdir.write(output, text)


if __name__ == "__main__":
    flags.run(main)
