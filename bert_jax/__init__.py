"""Pretrain BERT-family encoders and fine-tune them, with JAX and Flax, on TPU, GPU and CPU."""

from typing import Any


def __getattr__(name: str) -> Any:
    # On demand: the commands check a config, and start their processes, before JAX is imported.
    if name == "load":
        from bert_jax.interop.load import load

        return load
    raise AttributeError(f"module bert_jax has no attribute {name}")
