"""Which implementation computes attention on which device."""

from __future__ import annotations

from ml_collections import ConfigDict

_LANES = 128  # positions of a block of TPU's kernel
# Rows of this length and longer have their attention computed in blocks, or by the kernel of the device.
BLOCKS_FROM = 512

# Device platforms of the implementations that are one maker's.
PLATFORMS = {"splash": "tpu", "cudnn": "gpu"}


def hindrance(c: ConfigDict, kernel: str) -> str:
    """Returns why a device's own implementation cannot compute a config's attention, naming the key, or "".

    Args:
      c: the whole config.
      kernel: "splash" or "cudnn".
    """
    m = c.model
    lengths = (c.data.seq_len, *c.data.buckets, *(phase[0] for phase in c.train.phases))
    odd = next((length for length in lengths if length % _LANES), 0)
    common = [
        (m.attention != "dot", f'model.attention = "{m.attention}" has no queries and keys'),
        (m.attention_dropout, f"it drops no weights, and model.attention_dropout = {m.attention_dropout:g}"),
        (c.mesh.sequence > 1, f"its rows are whole, and mesh.sequence = {c.mesh.sequence}"),
    ]
    own = {
        "splash": [
            (m.mask == "prefix", 'model.mask = "prefix" has a mask for each row, and it one for all'),
            (m.local_window, f"its mask is that of all layers, and model.local_window = {m.local_window}"),
            (odd, f"its rows are of a multiple of {_LANES} tokens, and one is of {odd}"),
        ],
        "cudnn": [(m.dtype != "bfloat16", f'it computes in bfloat16, and model.dtype = "{m.dtype}"')],
    }[kernel]
    return next((why for stands_against, why in (*common, *own) if stands_against), "")


def choose(c: ConfigDict, platform: str) -> tuple[str, str]:
    """Returns what is to compute attention, for `ModelSpec.attention_kernel`, and a line that says why.

    Args:
      c: the whole config.
      platform: of the devices: "cpu", "gpu" or "tpu".

    Raises:
      ValueError: the config names an implementation of another device.
    """
    kernel = c.model.attention_kernel
    needed = PLATFORMS.get(kernel)
    if needed and needed != platform:
        raise ValueError(
            f'model.attention_kernel = "{kernel}" runs on {needed.upper()} devices, and these are of the '
            f'platform {platform}: take "auto"'
        )
    if kernel != "auto":
        return kernel, f"attention is computed by {kernel}, as asked"
    longest = max(c.data.seq_len, *(phase[0] for phase in c.train.phases), 0)
    why = hindrance(c, "splash") if platform == "tpu" else "splash is for TPU"
    if not why and longest >= BLOCKS_FROM:
        return "splash", "attention is computed by splash, TPU's own kernel"
    if c.model.attention != "dot" or longest < BLOCKS_FROM:
        return "auto", "attention is computed over all pairs at once"
    return "auto", f"attention over rows of {BLOCKS_FROM} and more is computed in blocks ({why})"
