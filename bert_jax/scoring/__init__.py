"""Sentences by a language model: their log-probabilities, vectors, and what is made of these.

scorer = Scorer(bert_jax.interop.load.read(DIR))
[scored] = scorer.score(["A sentence."])
scored.log_prob, scored.tokens, scored.token_log_probs
"""

from bert_jax.scoring.scorer import Scored, Scorer

__all__ = ["Scored", "Scorer"]
