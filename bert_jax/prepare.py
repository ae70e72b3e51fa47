"""Turns text into token shards and a vocabulary, in parallel, resumable, in constant memory.

The config's `data` group says what is read, which tokenizer is used or trained, and what is held
out for evaluation. Run the same command again after an interruption: it goes on where it was. To
train on the result: --config.data.source=shards --config.data.path=OUTPUT. For a run that starts from a
model, or is distilled from one, name it here too (init_from, objective.distill.teacher): its vocabulary is
taken.

--runner=beam gives the work to Apache Beam (requirements-beam.txt), a file at a time, and makes the same
shards. Without --beam_flags its local runner does it; with them Dataflow, Flink or Spark, whose workers need
this package, and must see the text and the place of the output (gs://, or a shared file system):

    python -m bert_jax.prepare --config=CONFIG --config.data.path=gs://BUCKET/text --output=gs://BUCKET/out \
        --runner=beam --beam_flags="--runner=DataflowRunner --project=P --temp_location=gs://BUCKET/tmp"
"""

from __future__ import annotations

import json
import shlex

from absl import flags as absl_flags

from bert_jax import config as config_lib
from bert_jax import flags, workdir
from bert_jax.data import prepare

_CONFIG = flags.define_config()
_OUTPUT = absl_flags.DEFINE_string(
    "output", None, "Directory to make, local or gs://; it appears when it is whole.", required=True
)

_RUNNER = absl_flags.DEFINE_enum(
    "runner", "local", ["local", "beam"], "Who does it: data.workers processes here, or Apache Beam."
)
_BEAM_FLAGS = absl_flags.DEFINE_string(
    "beam_flags", "", "With --runner=beam: Beam's own flags, in one text; empty is its local runner."
)


def main() -> None:
    """Prepares the text and prints the counts as JSON."""
    config = _CONFIG.value
    config_lib.validate(config)
    if config.task.name:
        raise config_lib.ConfigError(
            f'task.name = "{config.task.name}" reads its own data as it is, and there is nothing to prepare: '
            "name the config of a pretraining run"
        )
    if config.data.source == "shards":
        raise config_lib.ConfigError(
            'data.source = "shards" is prepared text already: set "text", "jsonl", "tfds" or "embedded"'
        )
    for model in (config.objective.distill.teacher, config.init_from):
        if model and not config.data.tokenizer:  # as the run that reads the shards will take it
            config.data.tokenizer = workdir.tokenizer_of(model)
    if _BEAM_FLAGS.value and _RUNNER.value != "beam":
        raise flags.UsageError("--beam_flags are for --runner=beam: set that, or leave them out")
    beam_flags = shlex.split(_BEAM_FLAGS.value) if _RUNNER.value == "beam" else None
    print(json.dumps(prepare.prepare(config, _OUTPUT.value, beam_flags=beam_flags), indent=2))


if __name__ == "__main__":
    flags.run(main)
