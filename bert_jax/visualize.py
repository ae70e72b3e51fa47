"""Draws what a model does with a text, as one HTML page that needs no network.

The page shows the attention of every layer and head: point at a token, or click it, to see what it reads or
what reads it; the fillers that the model would put in its place, and its surprisal in bits, where the model
predicts tokens. Tokens of a second text are underlined in another colour, special ones are pale. It works
with the keyboard and on a phone. --png draws the heads of one layer, or one head, as a picture.

    python -m bert_jax.visualize --model=DIR --text="The cat sat on the [MASK]." --output=cat.html
"""

from __future__ import annotations

from absl import flags as absl_flags
from absl import logging

from bert_jax import flags, paths, workdir
from bert_jax.interop import load
from bert_jax.visual import page, reading

_MODEL = absl_flags.DEFINE_string(
    "model", None, "A run's workdir, a model directory, or a Hugging Face directory.", required=True
)
_TEXT = absl_flags.DEFINE_string("text", None, "The text.", required=True)
_PAIR = absl_flags.DEFINE_string("text_pair", None, "The second text of a pair.")
_OUTPUT = absl_flags.DEFINE_string("output", None, "The HTML file.", required=True)
_TOP_K = absl_flags.DEFINE_integer("top_k", 5, "Fillers for each token.", lower_bound=1)
_PNG = absl_flags.DEFINE_string("png", "", "File for a picture of one layer, too.")
_LAYER = absl_flags.DEFINE_integer("layer", 0, "Of --png: which, from 1; 0 is the last.", lower_bound=0)
_HEAD = absl_flags.DEFINE_integer("head", 0, "Of --png: which, from 1; 0 draws all.", lower_bound=0)


def main() -> None:
    """Reads the model and writes --output, and --png."""
    output = paths.to_write(_OUTPUT.value, ends=".html")
    png = paths.to_write(_PNG.value, "png", ends=".png") if _PNG.value else None
    source = load.read(_MODEL.value)
    spec = source.spec
    for flag, value, most in (("layer", _LAYER.value, spec.layers), ("head", _HEAD.value, spec.heads)):
        if value > most:
            raise flags.UsageError(f"--{flag}={value}: the model has {most}")
    found = reading.read(source, _TEXT.value, _PAIR.value, _TOP_K.value)
    if found.note:
        logging.warning("the text is %s", found.note)
    title = _TEXT.value if _PAIR.value is None else f"{_TEXT.value} / {_PAIR.value}"
    kind = {"tta": "T-TA", "encoder": "encoder"}[spec.kind]
    about = f"{_MODEL.value}: {kind} of {spec.layers} layers with {spec.heads} heads of {spec.head_size}"
    workdir.write(output, page.render(found, title, about))
    logging.info("%d tokens: open %s in a browser", len(found.tokens), _OUTPUT.value)
    if png is not None:
        from bert_jax.visual import picture

        picture.draw(found, png, (_LAYER.value or spec.layers) - 1, _HEAD.value - 1)


if __name__ == "__main__":
    flags.run(main)
