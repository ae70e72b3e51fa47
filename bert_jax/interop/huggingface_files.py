"""The files of a Hugging Face model directory: JSON, and safetensors in one file or several."""

from __future__ import annotations

import json
from typing import Any

import ml_dtypes
import numpy as np
import safetensors
from etils import epath

Tensors = dict[str, np.ndarray]

WEIGHTS = ("model.safetensors", "model.safetensors.index.json", "pytorch_model.bin")  # looked for in turn

_DTYPES = {"F16": np.float16, "BF16": ml_dtypes.bfloat16, "F32": np.float32, "F64": np.float64}


class HuggingFaceError(ValueError):
    """A directory that cannot be read as a BERT model; the message names what is wrong and the mend."""


def read_tensors(folder: epath.Path) -> tuple[Tensors, list[str]]:
    """Reads every array of the safetensors files of a directory.

    Args:
      folder: holds model.safetensors, or model.safetensors.index.json and the files that it names.

    Returns:
      The arrays as float32 by their key, without the prefix "bert." and with LayerNorms' gamma and beta
      called weight and bias; and the keys of arrays that are no floating-point numbers.

    Raises:
      HuggingFaceError: there is no such file, one is missing or damaged, or there is only a pickle.
    """
    whole, index, pickled = (folder / name for name in WEIGHTS)
    if whole.exists():
        files = [whole.name]
    elif index.exists():
        files = sorted(set(read_json(index).get("weight_map", {}).values()))
        if not files or any("/" in str(name) or "\\" in str(name) for name in files):
            raise HuggingFaceError(f"{index}: its weight_map must name files beside it")
    elif pickled.exists():
        raise HuggingFaceError(
            f"{pickled} is a pickle, which can run code and is not read by this version: open the model with "
            "transformers and save it by save_pretrained, which writes model.safetensors"
        )
    else:
        raise HuggingFaceError(f"{folder} holds neither {whole.name} nor {index.name}")

    tensors: Tensors = {}
    ignored = []
    for name in files:
        if not (folder / name).exists():
            raise HuggingFaceError(f"{folder / name}, which {index.name} names, is not there: copy all files")
        try:
            stored = safetensors.deserialize((folder / name).read_bytes())
        except safetensors.SafetensorError as error:
            raise HuggingFaceError(f"{folder / name} is damaged: {error}: copy it anew") from error
        for full, value in stored:
            key = full.removeprefix("bert.")
            for old, new in ((".gamma", ".weight"), (".beta", ".bias")):
                if key.endswith(f"LayerNorm{old}"):
                    key = key.removesuffix(old) + new
            if value["dtype"] not in _DTYPES:
                ignored.append(full)  # position_ids, for one: nothing that is trained is a whole number
                continue
            array = np.frombuffer(value["data"], _DTYPES[value["dtype"]]).reshape(value["shape"])
            tensors[key] = array.astype(np.float32)
    return tensors, ignored


def read_json(file: epath.Path) -> dict[str, Any]:
    """Returns the JSON object that a file holds; raises HuggingFaceError where it holds none."""
    try:
        content = json.loads(file.read_bytes())
    except ValueError as error:
        raise HuggingFaceError(f"{file} is no JSON file: {error}") from error
    if not isinstance(content, dict):
        raise HuggingFaceError(f"{file} must hold a JSON object")
    return content
