"""A reading as one HTML page that needs nothing else: no network, no other file."""

from __future__ import annotations

import base64
import html
import importlib.resources
import json
import zlib
from typing import Any

import numpy as np

from bert_jax.visual.reading import Reading

_TEMPLATE = "page.html"


def render(reading: Reading, title: str, about: str) -> str:
    """Returns the page.

    Weights are kept as round(255 * sqrt(w)), a byte each and deflated, which is within .004 of the weight
    at 1 and finer below: at w = 1/512 within .0002.

    Args:
      reading: of `reading.read`.
      title: shown at the top and as the page's name; any text.
      about: a line on the model; any text.
    """
    bytes_ = np.round(255 * np.sqrt(np.clip(reading.weights, 0.0, 1.0))).astype(np.uint8)
    data = {
        "shape": list(bytes_.shape),
        "weights": base64.b64encode(zlib.compress(bytes_.tobytes(), 6)).decode(),
        "tokens": reading.tokens,
        "segments": reading.segments,
        "special": reading.special,
        "masked": reading.masked,
        "fillers": [[[token, _short(p)] for token, p in each] for each in reading.fillers],
        "surprisal": [None if bits is None else _short(bits) for bits in reading.surprisal],
        "predicts": reading.predicts,
        "note": reading.note,
    }
    template = (importlib.resources.files(__package__) / _TEMPLATE).read_text(encoding="utf-8")
    parts = {"TITLE": html.escape(title), "ABOUT": html.escape(about), "DATA": embedded(data)}
    head, *rest = template.split("<!--")
    page = [head]
    for piece in rest:  # each slot is filled once, so that what fills one is never searched for another
        name, _, after = piece.partition("-->")
        page += [parts[name], after]
    return "".join(page)


def embedded(data: Any) -> str:
    """Returns JSON that is safe between <script> tags, whatever texts it holds."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    for letter in "<>&\u2028\u2029":
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    return text


def _short(value: float) -> float:
    return float(f"{value:.4g}")
