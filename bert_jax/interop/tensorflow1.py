"""Reads TensorFlow 1 checkpoints of google-research/bert and google-research/albert.

Their names are translated to those of the family's table, by which the arrays are then read.
"""

from __future__ import annotations

import re

import numpy as np
from etils import epath

from bert_jax.interop import huggingface
from bert_jax.interop.families import FAMILIES
from bert_jax.interop.huggingface_files import read_json

CONFIGS = {"bert_config.json": "bert", "albert_config.json": "albert"}

# Applied in turn to a name without "bert/".
_NAMES = {
    "bert": (
        (r"^encoder/layer_(\d+)/", r"encoder/layer/\1/"),
        (r"^output_", "classifier/output_"),
        (r"^cls/squad/", "qa_outputs/"),
    ),
    "albert": (
        (r"/transformer/group_(\d+)/inner_group_(\d+)/", r"/albert_layer_groups/\1/albert_layers/\2/"),
        (r"/attention_1/self/", "/attention/"),
        (r"/attention_1/output/", "/attention/"),
        (r"(albert_layers/\d+)/LayerNorm/", r"\1/attention/LayerNorm/"),
        (r"/LayerNorm_1/", "/full_layer_layer_norm/"),
        (r"/ffn_1/intermediate/output/dense/", "/ffn_output/"),
        (r"/ffn_1/intermediate/dense/", "/ffn/"),
        (r"^pooler/dense/", "pooler/"),
        (r"^cls/predictions/(transform/)?", "predictions/"),
        (r"^cls/seq_relationship/", "sop_classifier/classifier/"),
        (r"^output_", "classifier/output_"),
        (r"^cls/squad/", "qa_outputs/"),
    ),
}
_LEAVES = {
    "kernel": "weight", "gamma": "weight", "beta": "bias", "output_weights": "weight", "output_bias": "bias",
}  # fmt: skip


class TensorFlowError(ValueError):
    """A directory that cannot be read as a TensorFlow 1 checkpoint; the message says why and the mend."""


def is_one(folder: epath.Path) -> bool:
    """Whether a directory holds a checkpoint's index and one of the two configs."""
    return any((folder / name).exists() for name in CONFIGS) and any(folder.glob("*.index"))


def read(folder: epath.Path, mask_id: int) -> huggingface.Read:
    """Reads the model of a checkpoint: the encoder and those heads that it holds.

    Optimizer slots and the step are passed over.

    Args:
      folder: holds bert_config.json or albert_config.json, and one checkpoint: a name in .index and its
        files of data.
      mask_id: the tokenizer's mask token.

    Returns:
      As `huggingface.assemble`.

    Raises:
      TensorFlowError: there are several checkpoints, or it is damaged or none of TensorFlow 1.
      HuggingFaceError: the config is none of a model that is read here, or an array is missing or misshapen.
    """
    name = next(name for name in CONFIGS if (folder / name).exists())
    family = FAMILIES[CONFIGS[name]]
    config = read_json(folder / name)
    if family.name == "albert" and config.get("hidden_act", "gelu") == "gelu":
        config["hidden_act"] = "gelu_new"  # which is how that code computes it
    variables, slots = _variables(folder)
    stored = {}
    for variable, value in variables.items():
        if value.dtype.kind != "f":
            slots += 1
            continue
        key, transposed = _translated(variable, family.name)
        stored[key] = np.asarray(value.T if transposed else value, np.float32)
    spec, params, labels, report = huggingface.assemble(family, config, stored, [], mask_id, str(folder))
    if slots:
        report.append(f"left out: {slots} arrays of the optimizer")
    return spec, params, labels, report


def _variables(folder: epath.Path) -> tuple[dict[str, np.ndarray], int]:
    """Returns the checkpoint's variables, and how many optimizer slots it has beside them."""
    import tensorflow as tf  # takes seconds

    prefixes = sorted(file.name.removesuffix(".index") for file in folder.glob("*.index"))
    if len(prefixes) > 1:
        raise TensorFlowError(
            f"{folder} holds several checkpoints ({', '.join(prefixes)}): leave one of them there"
        )
    try:
        reader = tf.train.load_checkpoint(str(folder / prefixes[0]))
        names = set(reader.get_variable_to_shape_map())
        if "_CHECKPOINTABLE_OBJECT_GRAPH" in names:
            raise TensorFlowError(
                f"{folder / prefixes[0]} is a checkpoint of TensorFlow 2 objects: only those of the "
                "TensorFlow 1 code of BERT and ALBERT can be read"
            )
        # A slot is named below its variable: "bert/pooler/dense/kernel/adam_m".
        own = [name for name in sorted(names) if name.rpartition("/")[0] not in names]
        return {name: np.asarray(reader.get_tensor(name)) for name in own}, len(names) - len(own)
    except TensorFlowError:
        raise
    except (tf.errors.OpError, RuntimeError, IndexError, TypeError, ValueError, MemoryError) as error:
        # TensorFlow's reader raises what its status codes are translated to, and asks for as much memory as a
        # broken index says.
        first = (str(error).strip() or type(error).__name__).splitlines()[0][:200]
        raise TensorFlowError(
            f"{folder / prefixes[0]} cannot be read: {first}: copy all its files anew"
        ) from error


def _translated(name: str, family: str) -> tuple[str, bool]:
    """Returns the table's key of a variable, and whether the array must be transposed for it."""
    name = name.removeprefix("module/").removeprefix("bert/")
    for pattern, replacement in _NAMES[family]:
        name = re.sub(pattern, replacement, name)
    groups, _, leaf = name.rpartition("/")
    key = f"{groups}/{_LEAVES.get(leaf, leaf)}" if groups else leaf
    if leaf.endswith("_embeddings"):
        key += "/weight"
    return key.replace("/", "."), leaf == "kernel"
