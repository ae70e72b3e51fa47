"""The training objectives.

Each is a class with the same four parts: `features` says what the pipeline must add to a batch
(NumPy), `count` how many things a batch predicts, `sums` turns batch and outputs into sums over
them (JAX), and `baselines` the same sums for the answer that needs no model. Dividing sums by the
count over the whole global batch gives the mean, whatever the devices, hosts and microbatches.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bert_jax.objectives.causal import CausalLM
from bert_jax.objectives.distill import HiddenCosine, SoftTargets
from bert_jax.objectives.mlm import MaskedLM
from bert_jax.objectives.nsp import NextSentence
from bert_jax.objectives.prefix import PrefixLM
from bert_jax.objectives.rtd import ReplacedTokens
from bert_jax.objectives.sop import SentenceOrder
from bert_jax.objectives.tta import TransformerTextAutoencoder

if TYPE_CHECKING:
    from ml_collections import ConfigDict


def from_config(config: ConfigDict, tokenizer: Any, unigram: Any, seq_len: int) -> list[Any]:
    """Returns the pretraining objectives whose weight is not 0.

    Args:
      config: the run's config.
      tokenizer: of `bert_jax.data.tokenizer`.
      unigram: (V,) counts of the training tokens, for the baselines.
      seq_len: S.
    """
    made = []
    if config.objective.mlm.weight:
        made.append(MaskedLM(config.objective.mlm, tokenizer, seq_len, unigram))
    if config.objective.nsp.weight:
        made.append(NextSentence(config.objective.nsp))
    if config.objective.sop.weight:
        made.append(SentenceOrder(config.objective.sop))
    if config.objective.tta.weight:
        made.append(TransformerTextAutoencoder(config.objective.tta, tokenizer, seq_len, unigram))
    if config.objective.causal.weight:
        made.append(CausalLM(config.objective.causal, tokenizer, seq_len, unigram))
    if config.objective.prefix.weight:
        made.append(PrefixLM(config.objective.prefix, tokenizer, seq_len, unigram))
    if config.objective.rtd.weight:
        made.append(ReplacedTokens(config.objective.rtd))
    if config.objective.distill.weight:
        made.append(SoftTargets(config.objective.distill, unigram))
    if config.objective.distill.cosine:
        made.append(HiddenCosine(config.objective.distill))
    return made
