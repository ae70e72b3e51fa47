"""WordPiece (Schuster and Nakajima 2012) as in BERT (Devlin et al. 2019), on the `tokenizers` package."""

import re
from collections.abc import Sequence

import tokenizers
from tokenizers import models, normalizers, pre_tokenizers

from bert_jax.data.encoding import Tokenizer, VocabularyError, find_specials, without_surrogates

# Longer words become [UNK], as in the tokenizers that the released models are used with.
LONGEST_WORD = 100


def read_vocabulary(content: bytes, origin: str) -> list[str]:
    """The tokens of a `vocab.txt`: one a line, the line number from 0 is the id.

    Raises:
      VocabularyError: empty, not UTF-8, an empty line between tokens, or a token that occurs twice.
    """
    try:
        # Not splitlines(): vocabularies hold tokens such as U+2028 that it would take for line ends.
        lines = content.decode("utf-8").replace("\r\n", "\n").split("\n")
    except UnicodeDecodeError as e:
        line = content.count(b"\n", 0, e.start) + 1
        raise VocabularyError(f"{origin}: line {line} is not UTF-8: save the vocabulary as UTF-8") from None
    while lines and not lines[-1]:
        lines.pop()
    if not lines:
        raise VocabularyError(f"{origin}: the vocabulary is empty: it must hold one token a line")
    lines[0] = lines[0].removeprefix("\ufeff")
    seen: dict[str, int] = {}
    for number, token in enumerate(lines, 1):
        if not token:
            raise VocabularyError(f"{origin}: line {number} is empty: it must hold one token a line")
        if token in seen:
            raise VocabularyError(
                f"{origin}: the token {token!r} stands on lines {seen[token]} and {number}: "
                "each token must occur once"
            )
        seen[token] = number
    return lines


class WordPiece(Tokenizer):
    """BERT's tokenizer: cleaning, case and accents, words and punctuation, then longest match of pieces."""

    kind = "wordpiece"

    def __init__(
        self,
        tokens: Sequence[str],
        lowercase: bool,
        strip_accents: bool,
        named: dict[str, str] | None = None,
        chinese: bool = True,
        origin: str = "vocabulary",
    ) -> None:
        """Builds the tokenizer.

        Args:
          tokens: the vocabulary, in the order of ids.
          lowercase, strip_accents: what is done to a text first.
          named: special tokens by role (pad, unk, cls, sep, mask) where they are not to be found by name.
          chinese: whether each Chinese character is a word.
          origin: where the vocabulary is from, for messages.

        Raises:
          VocabularyError: special tokens are missing.
        """
        specials = find_specials(set(tokens), named or {}, origin)
        super().__init__(tokens, specials, lowercase, strip_accents)
        self.chinese = chinese
        model = models.WordPiece(self._ids, unk_token=specials.unk, max_input_chars_per_word=LONGEST_WORD)
        self._tokenizer = tokenizers.Tokenizer(model)
        self._tokenizer.normalizer = normalizer(lowercase, strip_accents, chinese)
        self._tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        self._tokenizer.add_special_tokens(
            [tokenizers.AddedToken(self._tokens[i], special=True, normalized=False) for i in self.special_ids]
        )

    def __reduce__(self) -> tuple:
        named = vars(self.specials)
        return type(self), (self._tokens, self.lowercase, self.strip_accents, dict(named), self.chinese)

    def with_tokens(self, tokens: Sequence[str]) -> "WordPiece":
        """This tokenizer with more tokens, which come after all others; none may be there already."""
        named = dict(vars(self.specials))
        return WordPiece([*self._tokens, *tokens], self.lowercase, self.strip_accents, named, self.chinese)

    @staticmethod
    def _continues(token: str) -> bool:
        return token.startswith("##") and len(token) > 2

    def _encode(self, text: str) -> tuple[list[int], list[str], list[tuple[int, int]]]:
        encoding = self._tokenizer.encode(without_surrogates(text), add_special_tokens=False)
        return encoding.ids, encoding.tokens, encoding.offsets

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Ids of many texts, as `encode(text, special=False).ids` gives, without the cost of offsets."""
        return batch_ids(self._tokenizer, texts)

    def _join(self, ids: list[int]) -> str:
        text = "".join(
            self._tokens[i][2:] if self.continues[i] else f" {self._tokens[i]}" for i in ids
        ).removeprefix(" ")
        # Punctuation is a word of its own whatever stands round it: the ids of the text stay the same.
        return re.sub(r" ([.,?!])", r"\1", text).replace(" ' ", "'")

    def _vocabulary(self) -> tuple[str, bytes]:
        return "vocab.txt", "".join(f"{token}\n" for token in self._tokens).encode()

    def _facts(self) -> dict[str, object]:
        return super()._facts() | {
            "tokenizer_class": "BertTokenizer",
            "tokenize_chinese_chars": self.chinese,
        }


def batch_ids(tokenizer: tokenizers.Tokenizer, texts: Sequence[str]) -> list[list[int]]:
    """Ids of many texts without ends, by the package's own tokenizer; lone surrogates count as U+FFFD."""
    try:
        encodings = tokenizer.encode_batch_fast(texts, add_special_tokens=False)
    except TypeError:  # how the package refuses lone surrogates; too rare to look for in every text
        texts = [without_surrogates(text) for text in texts]
        encodings = tokenizer.encode_batch_fast(texts, add_special_tokens=False)
    return [encoding.ids for encoding in encodings]


def normalizer(lowercase: bool, strip_accents: bool, chinese: bool = True) -> normalizers.Normalizer:
    """BERT's cleaning of text: no control characters, white space to spaces, case, accents, Chinese apart."""
    return normalizers.BertNormalizer(
        clean_text=True, handle_chinese_chars=chinese, strip_accents=strip_accents, lowercase=lowercase
    )
