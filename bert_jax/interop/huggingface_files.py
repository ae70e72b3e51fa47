"""The files of a Hugging Face model directory: JSON, and arrays in one file or several."""

from __future__ import annotations

import re
from typing import Any

import ml_dtypes
import numpy as np
import safetensors
from etils import epath

from bert_jax import jsonl
from bert_jax.interop import torch_files

Tensors = dict[str, np.ndarray]

# Looked for in turn: files of arrays, and indices that name several.
WEIGHTS = (
    "model.safetensors",
    "model.safetensors.index.json",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
)
_IS_BESIDE = re.compile(r"\w[^/\\\0]*").fullmatch
_DTYPES = {"F16": np.float16, "BF16": ml_dtypes.bfloat16, "F32": np.float32, "F64": np.float64}


class HuggingFaceError(ValueError):
    """A directory that cannot be read as a model; the message names what is wrong and the mend."""


def read_tensors(folder: epath.Path) -> tuple[Tensors, list[str]]:
    """Reads every array of a directory's files of arrays.

    Args:
      folder: holds one of WEIGHTS, and the files that an index names.

    Returns:
      The arrays as float32 by their key; and the keys of arrays that are no floating-point numbers.

    Raises:
      HuggingFaceError: there is no such file, one is missing or damaged, or PyTorch, which alone reads a
        .bin file, is not installed.
    """
    found = next((folder / name for name in WEIGHTS if (folder / name).exists()), None)
    if found is None:
        raise HuggingFaceError(f"{folder} holds none of {', '.join(WEIGHTS)}")
    files = [found.name]
    if found.suffix == ".json":
        named = read_json(found).get("weight_map")
        files = list(named.values()) if isinstance(named, dict) else []
        if not files or not all(isinstance(name, str) and _IS_BESIDE(name) for name in files):
            raise HuggingFaceError(f"{found}: its weight_map must name files beside it")
        files = sorted(set(files))

    tensors: Tensors = {}
    ignored: list[str] = []
    for name in files:
        if not (folder / name).exists():
            raise HuggingFaceError(f"{folder / name}, which {found.name} names, is not there: copy all files")
        arrays, others = (_torch if name.endswith(".bin") else _safetensors)(folder / name)
        tensors |= arrays
        ignored += others
    return tensors, ignored


def _safetensors(file: epath.Path) -> tuple[Tensors, list[str]]:
    try:
        stored = safetensors.deserialize(file.read_bytes())
    except safetensors.SafetensorError as error:
        raise HuggingFaceError(f"{file} is damaged: {error}: copy it anew") from error
    tensors, ignored = {}, []
    for key, value in stored:
        if value["dtype"] not in _DTYPES:
            ignored.append(key)  # position_ids, for one: nothing that is trained is a whole number
            continue
        array = np.frombuffer(value["data"], _DTYPES[value["dtype"]]).reshape(value["shape"])
        tensors[key] = array.astype(np.float32)
    return tensors, ignored


def _torch(file: epath.Path) -> tuple[Tensors, list[str]]:
    try:
        return torch_files.read(file)
    except torch_files.TorchFileError as error:
        raise HuggingFaceError(str(error)) from error


def read_json(file: epath.Path) -> dict[str, Any]:
    """Returns the JSON object that a file holds; raises HuggingFaceError where it holds none."""
    try:
        content = jsonl.parse(file.read_bytes())
    except ValueError as error:
        raise HuggingFaceError(f"{file} is no JSON file: {error}") from error
    if not isinstance(content, dict):
        raise HuggingFaceError(f"{file} must hold a JSON object")
    return content
