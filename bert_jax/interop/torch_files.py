"""PyTorch's .bin files, by PyTorch's own loader of weights, which runs no code of the file's."""

from __future__ import annotations

import io
import warnings

import numpy as np
from etils import epath


class TorchFileError(ValueError):
    """A .bin file that cannot be read; the message says why and the mend."""


def read(file: epath.Path) -> tuple[dict[str, np.ndarray], list[str]]:
    """Reads a state dict, zipped or in the older form.

    A .bin file is a pickle, which can name any function to be called: it is read by
    `torch.load(weights_only=True)`, which knows tensors and containers only, and never unpickled here.

    Returns:
      The arrays as float32 by their key, and the keys of what is no floating-point array.

    Raises:
      TorchFileError: PyTorch is not installed, or refuses the file, or it holds no state dict.
    """
    try:
        import torch
    except ImportError:
        raise TorchFileError(
            f"{file} is a pickle, which only PyTorch's loader of weights reads: install it (for CPU: pip "
            "install torch), or save the model anew by transformers' save_pretrained, which writes "
            "model.safetensors"
        ) from None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the older form PyTorch says that it is old
            stored = torch.load(io.BytesIO(file.read_bytes()), map_location="cpu", weights_only=True)
    except Exception as error:  # whatever its unpickler and its zip reader raise
        first = (str(error).strip() or type(error).__name__).splitlines()[0][:200]
        raise TorchFileError(
            f"{file} cannot be read as weights: {first}: copy it anew, or save the model by save_pretrained"
        ) from error
    if not isinstance(stored, dict):
        raise TorchFileError(f"{file} holds no state dict but a {type(stored).__name__}")
    tensors, ignored = {}, []
    for key, value in stored.items():
        if isinstance(value, torch.Tensor) and value.is_floating_point():
            tensors[str(key)] = value.detach().to(torch.float32).numpy()
        else:
            ignored.append(str(key))
    return tensors, ignored
