"""Trees of arrays as flat tables, and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax


def named(tree: Any) -> list[tuple[str, Any]]:
    """Returns ("params/encoder/...", leaf) pairs; a field, a key and an index are written alike."""
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return [(jax.tree_util.keystr(path, simple=True, separator="/"), leaf) for path, leaf in leaves]


def nested(flat: Mapping[str, Any]) -> dict[str, Any]:
    """Returns {"a": {"b": x}} of {"a/b": x}."""
    tree: dict[str, Any] = {}
    for path, value in flat.items():
        *groups, leaf = path.split("/")
        branch = tree
        for group in groups:
            branch = branch.setdefault(group, {})
        branch[leaf] = value
    return tree
