"""Distillation from a teacher (Sanh et al. 2019): its probabilities, and the direction of its states.

The step puts the teacher's outputs beside the student's, as `teacher_mlm_logits` and `teacher_hidden`.
"""

from __future__ import annotations

from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np
from ml_collections import ConfigDict

from bert_jax.objectives.objective import Objective, real_tokens
from bert_jax.objectives.tokens import Unigram, token_sums


class SoftTargets(Objective):
    """T^2 KL(teacher || student) at the masked positions, both softmaxes at temperature T.

    The factor T^2 keeps the gradient's size whatever T (Hinton et al. 2015, section 2). The released
    code of DistilBERT also compares the tokens that are not masked.
    """

    name = "distill"

    def __init__(self, config: ConfigDict, unigram: np.ndarray):
        self.weight = config.weight
        self.temperature = config.temperature
        self.unigram = Unigram(unigram)

    def count(self, batch: Mapping[str, jax.Array]) -> jax.Array:
        """Returns how many tokens are compared."""
        return jnp.sum(batch["mlm_weights"])

    def sums(self, batch: Mapping[str, jax.Array], outputs: Mapping[str, jax.Array]) -> dict[str, jax.Array]:
        """Returns sums: the loss (nats), agreements of the two best guesses, and for comparison.

        That is `unigram_loss`, the loss of the guess without context, and `teacher_loss`, the teacher's
        own cross-entropy of the labels.
        """
        weights, labels, t = batch["mlm_weights"], batch["mlm_labels"], self.temperature
        teacher, student = outputs["teacher_mlm_logits"], outputs["mlm_logits"]
        target = jax.nn.log_softmax(teacher / t, axis=-1)
        share = jnp.exp(target)

        def divergence(logits: jax.Array) -> jax.Array:
            apart = target - jax.nn.log_softmax(logits / t, axis=-1)
            # Where the teacher gives nothing, as to padded rows of the table, nothing is lost.
            return t**2 * jnp.sum(jnp.where(share > 0, share * apart, 0.0), axis=-1)

        blind = (
            jnp.full(teacher.shape[-1], -1e9)
            .at[: len(self.unigram.log_probs)]
            .set(jnp.asarray(self.unigram.log_probs))
        )
        same = jnp.argmax(teacher, axis=-1) == jnp.argmax(student, axis=-1)
        return {
            "loss": jnp.sum(divergence(student) * weights),
            "accuracy": jnp.sum(same * weights),
            "unigram_loss": jnp.sum(jax.lax.stop_gradient(divergence(blind[None, None])) * weights),
            "teacher_loss": token_sums(teacher, labels, weights)["loss"],
        }


class HiddenCosine(Objective):
    """1 - cosine of student's and teacher's last hidden states, over all real tokens."""

    name = "cosine"

    def __init__(self, config: ConfigDict):
        self.weight = config.cosine

    def count(self, batch: Mapping[str, jax.Array]) -> jax.Array:
        """Returns how many real tokens a batch holds."""
        return jnp.sum(real_tokens(batch))

    def sums(self, batch: Mapping[str, jax.Array], outputs: Mapping[str, jax.Array]) -> dict[str, jax.Array]:
        """Returns the summed loss, which is 1 a token for states that have nothing in common."""
        real = real_tokens(batch)
        student, teacher = (outputs[name].astype(jnp.float32) for name in ("hidden", "teacher_hidden"))
        # The small number keeps the gradient finite at a state of zeros.
        lengths = [jnp.sqrt(jnp.sum(x**2, axis=-1) + 1e-12) for x in (student, teacher)]
        cosine = jnp.sum(student * teacher, axis=-1) / (lengths[0] * lengths[1])
        return {"loss": jnp.sum((1.0 - cosine) * real)}
