"""The families of models that transformers knows: a table module for each."""

from __future__ import annotations

from bert_jax.interop.families import albert, bert, distilbert, electra, modernbert, roberta, roformer
from bert_jax.interop.families.table import Family

# In the order in which they are tried for a spec: of two that compute the same, the plainer comes first.
FAMILIES: dict[str, Family] = {
    module.FAMILY.name: module.FAMILY
    for module in (bert, roberta, albert, electra, distilbert, roformer, modernbert)
}
