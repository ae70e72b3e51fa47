"""Writes a model in another form: as a model directory of this project, Hugging Face's, or compiled.

The source is a run's workdir, a model directory, a Hugging Face directory, or one with a TensorFlow 1
checkpoint of BERT or ALBERT. The target is written whole or not at all, with the vocabulary and a
README.md of what is known of the model. "hf" writes config.json and model.safetensors for transformers,
as the family whose class computes the same; a model that no class computes is refused with the reason.
"stablehlo" writes the compiled forward pass with its weights, which jax.export.deserialize reads in a process
that does not have this package; README.md shows how.
"""

from __future__ import annotations

import contextlib
import os
from typing import Any

from absl import flags as absl_flags
from absl import logging
from etils import epath

from bert_jax import flags, workdir
from bert_jax.interop import card, export, load, native, stablehlo
from bert_jax.interop.families import FAMILIES

_SOURCE = absl_flags.DEFINE_string(
    "source", None, "A run's workdir, a model's directory, or one of another system.", required=True
)
_TARGET = absl_flags.DEFINE_string(
    "target", None, "The directory to write; one that is there must be empty.", required=True
)
_FORMAT = absl_flags.DEFINE_enum(
    "format", None, ["native", "hf", "stablehlo"], "What is written.", required=True
)
_FAMILY = absl_flags.DEFINE_enum(
    "family", None, list(FAMILIES), "With --format=hf: the family to write, instead of the first that fits."
)
_OUTPUTS = absl_flags.DEFINE_list(
    "outputs", None, "With --format=stablehlo: what is computed, such as hidden or logits; otherwise all."
)
_SEQ_LEN = absl_flags.DEFINE_integer(
    "seq_len", None, "With --format=stablehlo: the one length of rows; otherwise any.", lower_bound=1
)
_PLATFORMS = absl_flags.DEFINE_multi_enum(
    "platform",
    None,
    stablehlo.PLATFORMS,
    "With --format=stablehlo: what it runs on, repeated; otherwise all.",
)


def convert(
    source: load.Source,
    origin: epath.Path,
    target: epath.PathLike,
    form: str,
    family: str = "",
    **compiled: Any,
) -> list[str]:
    """Writes a model.

    Args:
      source: the model.
      origin: where it is from: a run's config and result go into README.md.
      target: the directory; made, with its name, only when all is written.
      form: "native", "hf" or "stablehlo".
      family: with "hf", the family to write; "" takes the first that fits.
      **compiled: with "stablehlo", the keywords of `stablehlo.write`.

    Returns:
      Lines that say what was written, and what was not.

    Raises:
      ExportError: "hf", and no class of transformers (of the family) computes the model; or what
        `stablehlo.write` refuses.
      FileExistsError: the target is there and not empty.
    """
    target = epath.Path(target)
    _check_free(target)
    chosen = export.choose(source.spec, source.tokenizer.pad_id, family) if form == "hf" else None
    partial = target.with_name(f".{target.name}.{os.getpid()}.partial")
    model = source.spec, source.params, source.tokenizer, source.labels
    try:
        written = None
        if form == "stablehlo":
            lines = [f"{target}: {stablehlo.write(partial, *model, **compiled)}"]
        elif chosen is None:
            native.write(partial, *model, source.facts)
            lines = [f"{target}: a model directory"]
        else:
            name, left_out = export.write(partial, *model, chosen)
            written, lines = (chosen, name), [f"{target}: {name}"]
            lines += [f"left out, since {name} has no such: {path}" for path in left_out]
        count = sum(x.size for x in native.unpadded(source.spec, source.params).values())
        card.write(
            partial, target.name, source.spec, count, source.tokenizer, source.labels, origin, form, written
        )
        if target.exists():
            target.rmdir()
        partial.rename(target)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            partial.rmtree()
        raise
    return lines


def _check_free(target: epath.Path) -> None:
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise FileExistsError(f"{target} is there already: name a new directory, or an empty one")


def main() -> None:
    """Reads --source and writes --target."""
    target = epath.Path(_TARGET.value).expanduser()
    if _FAMILY.value and _FORMAT.value != "hf":
        raise flags.UsageError(f"--family={_FAMILY.value} is for --format=hf")
    given = {"outputs": _OUTPUTS.value, "seq_len": _SEQ_LEN.value, "platforms": _PLATFORMS.value}
    compiled = {name: value for name, value in given.items() if value is not None}
    if compiled and _FORMAT.value != "stablehlo":
        raise flags.UsageError("--outputs, --seq_len and --platform are for --format=stablehlo")
    if "://" not in _TARGET.value and not target.absolute().parent.is_dir():
        raise flags.UsageError(f"--target={_TARGET.value}: its parent directory does not exist")
    _check_free(target)
    source = load.read(_SOURCE.value)
    origin = workdir.of_model(epath.Path(_SOURCE.value).expanduser())
    for line in convert(source, origin, target, _FORMAT.value, _FAMILY.value or "", **compiled):
        logging.info("%s", line)


if __name__ == "__main__":
    flags.run(main)
