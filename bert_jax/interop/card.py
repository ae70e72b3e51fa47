"""The model card: what is known of a model, in the README.md of an exported directory."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from etils import epath
from ml_collections import ConfigDict

from bert_jax import workdir
from bert_jax.interop.families.table import Family
from bert_jax.models.spec import ModelSpec

_TASKS = {"has_mlm": "fill-mask", "labels": "text-classification", "token_labels": "token-classification",
          "has_span": "question-answering"}  # fmt: skip
_OBJECTIVES = ("mlm", "nsp", "sop", "rtd", "tta", "causal", "prefix", "distill")


def write(
    directory: epath.Path,
    name: str,
    spec: ModelSpec,
    parameters: int,
    tokenizer: Any,
    labels: tuple[str, ...],
    origin: epath.Path,
    form: str,
    written: tuple[Family, str] | None,
) -> None:
    """Writes README.md.

    Args:
      directory: the exported model's.
      name: the model's.
      spec, tokenizer, labels: the model.
      parameters: how many numbers it has.
      origin: what it was exported from: of a run, its config and its result are told.
      form: "native", "hf" or "stablehlo".
      written: with "hf", the family and class that it was written as.
    """
    parts = [_front(spec, form), f"# {name}\n", _summary(spec, parameters, written)]
    parts.append(_table("Architecture", _architecture(spec, labels)))
    parts.append(_table("Vocabulary", _vocabulary(tokenizer)))
    config = workdir.read_config(origin) if (origin / workdir.MODEL).exists() else None
    if config is not None:
        parts.append(_table("Training", _training(config)))
    result = workdir.read_result(origin) if config is not None else None
    if result is not None:
        parts.append(_table("Evaluation", _numbers(result)))
    parts.append(_use(form, written))
    (directory / "README.md").write_text("\n".join(parts))


def _front(spec: ModelSpec, form: str) -> str:
    library = {"native": "bert_jax", "hf": "transformers", "stablehlo": "jax"}[form]
    lines = [f"library_name: {library}"]
    if spec.has_mlm and spec.mask != "full":
        lines.append("pipeline_tag: text-generation")
    else:
        lines += [f"pipeline_tag: {task}" for field, task in _TASKS.items() if getattr(spec, field)][:1]
    return "\n".join(["---", *lines, "---", ""])


def _summary(spec: ModelSpec, parameters: int, written: tuple[Family, str] | None) -> str:
    kind = "T-TA model" if spec.kind == "tta" else "transformer encoder"
    form = "" if written is None else f", written as `{written[1]}` of the family `{written[0].name}`"
    return f"A {kind} of {parameters:,} parameters, exported by bert_jax{form}.\n"


def _table(title: str, rows: Mapping[str, Any]) -> str:
    lines = [f"## {title}\n", "| | |", "|---|---|"]
    return "\n".join([*lines, *(f"| {name} | {_plain(value)} |" for name, value in rows.items()), ""])


def _plain(value: Any) -> str:
    text = f"{value:.5g}" if isinstance(value, float) else str(value)
    return text.replace("|", "\\|").replace("\n", " ")


def _architecture(spec: ModelSpec, labels: tuple[str, ...]) -> dict[str, Any]:
    positions = {"rotary": f"rotary, base {spec.rope_theta:g}, pairs {spec.rope_layout}"}
    rows: dict[str, Any] = {
        "layers": f"{spec.layers}{', of one layer' if spec.share_layers else ''}",
        "hidden size": spec.hidden_size,
        "embedding size": spec.embedded_size,
        "attention heads": spec.heads,
        "feed-forward size": f"{spec.feed_forward_size}{', gated' if spec.gated else ''}",
        "activation": spec.activation,
        "layer norm": f"{spec.norm}, epsilon {spec.norm_eps:g}",
        "positions": f"{positions.get(spec.position, spec.position)}, {spec.max_positions} at most",
        "segments": spec.segments,
    }
    if spec.local_window:
        rows["local attention"] = f"window {spec.local_window}, every {spec.global_every}. layer global"
    if spec.mask != "full":
        rows["mask"] = spec.mask
    if spec.attention != "dot":
        rows["attention"] = spec.attention
    if labels:
        rows["labels"] = ", ".join(labels)
    return rows


def _vocabulary(tokenizer: Any) -> dict[str, Any]:
    case = "lower case" if tokenizer.lowercase else "as it is"
    return {
        "kind": tokenizer.kind,
        "tokens": f"{tokenizer.vocab_size:,}",
        "case": case,
        "accents": "taken off" if tokenizer.strip_accents else "as they are",
    }


def _training(config: ConfigDict) -> dict[str, Any]:
    """Returns what a run's config says; of paths the last part, which tells a text and no machine."""
    optimizer, data = config.optimizer, config.data
    used = {name: config.objective[name].weight for name in _OBJECTIVES}
    goal = ", ".join(f"{name} (weight {weight:g})" for name, weight in used.items() if weight)
    length = f"{config.train.steps} steps" if config.train.steps else f"{config.train.epochs:g} epochs"
    rows = {
        "objective": config.task.name or goal,
        "text": f"{data.source}{f' ({epath.Path(data.path).name})' if data.path else ''}",
        "length of a row": data.seq_len,
        "batch size": config.train.batch_size,
        "duration": length,
        "optimizer": f"{optimizer.name}, peak {optimizer.learning_rate:g}, {optimizer.schedule}",
        "seed": config.seed,
    }
    if config.train.phases:
        rows["phases"] = config.train.phases
    if config.init_from:
        rows["started from"] = epath.Path(config.init_from).name
    return rows


def _numbers(result: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name.replace("_", " "): value
        for name, value in result.items()
        if isinstance(value, str | int) or (isinstance(value, float) and math.isfinite(value))
    }


_SERVED = """\
import pathlib

import jax
import numpy as np
from jax import export

folder = pathlib.Path("PATH")
forward = jax.jit(export.deserialize(folder.joinpath("forward.jax_export").read_bytes()).call)
ids = np.array([[...]], np.int32)  # (B, S), a text in each row; signature.json names all inputs
outputs = forward({"tokens": ids, "segment_ids": np.ones_like(ids), "type_ids": np.zeros_like(ids)})"""


def _use(form: str, written: tuple[Family, str] | None) -> str:
    if form == "stablehlo":
        code = _SERVED
    elif written is None:
        code = 'import bert_jax\n\nmodel, params, tokenizer = bert_jax.load("PATH")'
    else:
        name = written[1]
        code = (
            f"from transformers import AutoTokenizer, {name}\n\n"
            f'model, tokenizer = {name}.from_pretrained("PATH"), AutoTokenizer.from_pretrained("PATH")'
        )
    return f"## Use\n\n```python\n{code}\n```\n"
