"""Byte-level BPE (Sennrich et al. 2016; Radford et al. 2019) as RoBERTa and ModernBERT use it."""

import json
import logging
import unicodedata
from collections.abc import Iterable, Sequence

import tokenizers

from bert_jax.data.bytebpe_files import STAND_INS, pipeline
from bert_jax.data.encoding import Tokenizer, VocabularyError, find_specials, without_surrogates
from bert_jax.data.wordpiece import batch_ids

_BYTES = {character: byte for byte, character in enumerate(STAND_INS)}
_SPACE = STAND_INS[ord(" ")]  # begins a token that follows a space


class ByteBPE(Tokenizer):
    """Words with the space before them, as bytes, merged by rank: every text has tokens, none is unknown.

    Of a token's string each character stands for a byte: the visible ones for themselves, the space is
    U+0120. Offsets are in characters all the same: each token of a character that is split covers it
    whole. The space before a word is in its token and not in its offsets; a token of white space alone
    covers that. (So Hugging Face's fast RoBERTa too, but for white space alone, whose offsets are empty
    there.)

    `continues` is False for a token that begins with white space or with punctuation, and True for all
    others: "Well, can't" is the words "Well" "," " can" "'t", as in RoBERTa's own splitting. A word that
    begins a text, or follows a special token, has no space before it: that it starts there only its
    place tells (`masking.word_starts`). One that stands right after punctuation or a line break, as in
    "(see", counts to it.

    Pairs are as the model was trained, by the files: <s> A </s></s> B </s> with types all 0 (RoBERTa, where
    Hugging Face gives no types, or 0), or [CLS] A [SEP] B [SEP] with types 0 and 1 (ModernBERT).

    Attributes (beside those of `Tokenizer`):
      prefix_space: whether a text that does not begin with a space gets one. (In files of other systems it
        may be their pre-tokenizer's own, which puts one after special tokens in a text too.)
    """

    kind = "bpe"

    def __init__(
        self,
        model: bytes,
        lowercase: bool | None = None,
        strip_accents: bool | None = None,
        named: dict[str, str] | None = None,
        origin: str = "byte-level BPE",
    ) -> None:
        """Builds the tokenizer.

        Args:
          model: the content of a `tokenizer.json` with a BPE model and a ByteLevel pre-tokenizer.
            Truncation and padding in it do not count.
          lowercase, strip_accents: what is done to a text first; None: as the model says, or accents go where
            case goes if that is told against the model.
          named: special tokens by role (pad, unk, cls, sep, mask) where they are not those of the model's
            post-processor, or to be found by name.
          origin: where the model is from, for messages.

        Raises:
          VocabularyError: a model of another kind, damaged, or without its special tokens.
        """
        found = pipeline(model, lowercase, strip_accents, origin)
        named = found.ends | (named or {})
        specials = find_specials(set(found.tokens), named, origin)
        content = found.finish(specials)
        added = {token["id"]: token for token in content["added_tokens"]}
        super().__init__(
            found.tokens, specials, found.lowercase, found.strip_accents,
            [i for i, token in added.items() if token["special"]],
        )  # fmt: skip
        self.prefix_space = found.prefix_space
        self.pair_separators, self.pair_type = found.separators, found.pair_type
        self._model = json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode()
        try:
            self._tokenizer = tokenizers.Tokenizer.from_str(self._model.decode())
        except Exception as e:  # the package raises nothing more special
            raise VocabularyError(f"{origin}: its BPE cannot be built ({e}): take undamaged files") from None
        self._tokenizer.post_processor = None  # RobertaProcessing would trim offsets to nothing
        missing = sum(character not in self._ids for character in STAND_INS)
        if missing:
            logging.getLogger(__name__).warning(
                "%s: %d of the 256 bytes have no token: they become %s", origin, missing, specials.unk
            )
        self.continues[list(added)] = False
        self._added = {i: token["content"].encode() for i, token in added.items()}
        self._after_space = {i for i, token in added.items() if token["lstrip"]}
        self._before_space = {i for i, token in added.items() if token["rstrip"]}
        self._spaced = {
            i for i, token in enumerate(self._tokens)
            if i not in added and token[0] == _SPACE and not _bytes(token).isspace()
        } | self._after_space | self._before_space  # fmt: skip

    def __reduce__(self) -> tuple:
        return type(self), (self._model, None, None, dict(vars(self.specials)))

    @staticmethod
    def _continues(token: str) -> bool:
        first = _bytes(token).decode(errors="replace")[:1]
        if first == "\ufffd":  # part of a character
            return True
        return first.isalnum() or unicodedata.category(first)[0] == "M"

    def _encode(self, text: str) -> tuple[list[int], list[str], list[tuple[int, int]]]:
        encoding = self._tokenizer.encode(without_surrogates(text), add_special_tokens=False)
        offsets = encoding.offsets
        if self._tokenizer.normalizer and not text.isascii():
            offsets = _whole(offsets, len(text))
        for n, i in enumerate(encoding.ids):
            if i in self._spaced:
                offsets[n] = self._trimmed(text, i, *offsets[n])
        return encoding.ids, [self._tokens[i] for i in encoding.ids], offsets

    def _trimmed(self, text: str, id: int, start: int, end: int) -> tuple[int, int]:
        """Offsets without the spaces that a token took with it."""
        while start + 1 < end and text[start].isspace() and id not in self._before_space - self._after_space:
            start += 1
        while start + 1 < end and text[end - 1].isspace() and id in self._before_space:
            end -= 1
        return start, end

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Ids of many texts, as `encode(text, special=False).ids` gives, without the cost of offsets."""
        return batch_ids(self._tokenizer, texts)

    def encode_running(self, sentences: Sequence[str]) -> list[list[int]]:
        """Ids of sentences of running text: a space stands before each, be it the first one or not."""
        if self.prefix_space:
            return self.encode_batch(sentences)
        return self.encode_batch([f" {sentence}" for sentence in sentences])

    def decode(self, ids: Iterable[int]) -> str:
        """The text of token ids, byte for byte; padding, start and end tokens are left out.

        It is the encoded text, up to the normal form, case and accents that the model changes, and to
        spaces that special tokens take with them (RoBERTa's <mask> does: it gets one back). With
        `prefix_space` a space at the very start is lost. Of a pair, a space is put between the two.
        Bytes that are no UTF-8 become U+FFFD.

        Raises:
          ValueError: an id is not in [0, V).
        """
        texts: list[list[int]] = [[]]
        for i in map(int, ids):
            self._check(i)
            if i in (self.pad_id, self.cls_id, self.sep_id):
                texts.append([])
            else:
                texts[-1].append(i)
        return " ".join(self._join(text) for text in texts if text)

    def _join(self, ids: list[int]) -> str:
        text = b""
        for i in ids:
            if i in self._after_space and text and not text[-1:].isspace():
                text += b" "
            text += self._added[i] if i in self._added else _bytes(self._tokens[i])
        joined = text.decode(errors="replace")
        return joined.removeprefix(" ") if self.prefix_space else joined

    def _vocabulary(self) -> tuple[str, bytes]:
        return "tokenizer.json", self._model

    def _facts(self) -> dict[str, object]:
        return super()._facts() | {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "add_prefix_space": self.prefix_space,
        }


def _whole(offsets: list[tuple[int, int]], length: int) -> list[tuple[int, int]]:
    """Offsets that leave no gap: of a letter and its accent made one, both belong to the token."""
    result = list(offsets)
    after = length
    for n in reversed(range(len(offsets))):
        start, end = offsets[n]
        if n + 1 < len(offsets) and offsets[n + 1][0] >= end:
            after = offsets[n + 1][0]
        result[n] = (start, max(end, after))
    return result


def _bytes(token: str) -> bytes:
    """What a token's string stands for; a string that is none of stand-ins stands for itself."""
    try:
        return bytes(_BYTES[character] for character in token)
    except KeyError:
        return token.encode()
