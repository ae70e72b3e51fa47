"""What every tokenizer here offers, whatever its algorithm: special tokens, encodings, saving, digests."""

import abc
import dataclasses
import hashlib
import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from etils import epath

# Texts are spread over processes, not over threads inside one; and threads would make every later fork warn.
# The `tokenizers` package reads it when a batch is first encoded, so it must be set before; a user's own
# setting stands.
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

# Names under which published vocabularies keep their special tokens, by role; the first one present is taken.
PADDING = ("[PAD]", "<pad>")
UNKNOWN = ("[UNK]", "<unk>")
MASK = ("[MASK]", "<mask>")
# Start and end are chosen as a pair, so that no sequence opens as BERT's and closes as another system's.
BOUNDARIES = (("[CLS]", "[SEP]"), ("[SOS]", "[EOS]"), ("<s>", "</s>"))
KNOWN_SPECIALS = frozenset((*PADDING, *UNKNOWN, *MASK, *(name for pair in BOUNDARIES for name in pair)))

MUCH_UNKNOWN = 0.02  # share of unknown tokens in a text that is said aloud

_SURROGATES = re.compile("[\ud800-\udfff]")


class VocabularyError(ValueError):
    """A vocabulary that cannot be read, trained or used; the message names the broken rule and the mend."""


@dataclasses.dataclass(frozen=True)
class Specials:
    """Names of the special tokens of a vocabulary."""

    pad: str
    unk: str
    cls: str
    sep: str
    mask: str


@dataclasses.dataclass(frozen=True)
class Encoding:
    """A text, or a pair of texts, as tokens. All four lists have the same length.

    Attributes:
      ids: token ids.
      type_ids: 0 for the first text with its [CLS] and [SEP], the tokenizer's `pair_type` (1, but 0 for
        RoBERTa's) for the second with its [SEP].
      tokens: the vocabulary's strings (SentencePiece: the text's own characters for an unknown token).
      offsets: (start, end) in characters of the original text of the token's own part (so of `pair` where
        it is the second's, counted from its own start); None for special tokens that the tokenizer added.
    """

    ids: list[int]
    type_ids: list[int]
    tokens: list[str]
    offsets: list[tuple[int, int] | None]


def without_surrogates(text: str) -> str:
    """Puts U+FFFD for each lone surrogate (they have no UTF-8 form); the number of characters stays."""
    return _SURROGATES.sub("\ufffd", text)


def tokens_by_id(ids: Mapping[str, int], origin: str) -> list[str]:
    """The tokens in the order of their ids; VocabularyError unless these are 0 to V - 1, each once."""
    tokens = sorted(ids, key=ids.__getitem__)
    if not tokens or [ids[token] for token in tokens] != list(range(len(tokens))):
        raise VocabularyError(
            f"{origin}: its token ids must be 0 to V - 1, each once: take an undamaged file"
        )
    return tokens


def find_specials(present: set[str], named: dict[str, str], origin: str) -> Specials:
    """Chooses the special tokens of a vocabulary.

    Args:
      present: all tokens of the vocabulary.
      named: names given by the caller or the tokenizer's files, by role (pad, unk, cls, sep, mask).
      origin: where the vocabulary is from, for the messages.

    Raises:
      VocabularyError: a role has no token in the vocabulary.
    """
    wrong = [f"{role} {name}" for role, name in named.items() if name not in present]
    if wrong:
        raise VocabularyError(
            f"{origin}: the vocabulary lacks the special tokens named for it ({', '.join(wrong)}): "
            "add them or name tokens that it has"
        )
    pairs = [pair for pair in BOUNDARIES if pair[0] in present and pair[1] in present]
    cls, sep = pairs[0] if pairs else (None, None)
    if not pairs:  # name exactly what is missing of the usual pair
        cls, sep = (name if name in present else None for name in BOUNDARIES[0])

    def first(names: Sequence[str]) -> str | None:
        return next((name for name in names if name in present), None)

    found = {"pad": first(PADDING), "unk": first(UNKNOWN), "cls": cls, "sep": sep, "mask": first(MASK)}
    found |= named
    usual = {"pad": PADDING, "unk": UNKNOWN, "cls": BOUNDARIES[0][:1], "sep": BOUNDARIES[0][1:], "mask": MASK}
    missing = [" or ".join(usual[role]) for role, name in found.items() if name is None]
    if missing:
        raise VocabularyError(
            f"{origin}: the vocabulary lacks special tokens: {', '.join(missing)}; "
            "a model cannot be trained or run without them"
        )
    return Specials(**found)


class Tokenizer(abc.ABC):
    """Text to token ids and back; `bert_jax.data.tokenizer.load` makes one.

    A tokenizer is immutable and holds all that it needs in memory: it can be sent to worker processes under
    any start method (it is rebuilt there from its vocabulary).

    Attributes:
      kind: "wordpiece", "sentencepiece" or "bpe".
      vocab_size: V.
      pad_id, unk_id, cls_id, sep_id, mask_id: ids of the special tokens.
      special_ids: int32, sorted: all special tokens of the vocabulary, those not in use included.
      lowercase, strip_accents: what is done to a text first.
      continues: bool (V,): True where a token continues the word of the token before it.
      pair_separators: [SEP] between the texts of a pair: 1, or RoBERTa's 2.
      pair_type: type of the second text: 1, or RoBERTa's 0.
    """

    kind: str
    pair_separators: int = 1
    pair_type: int = 1

    def __init__(
        self, tokens: Sequence[str], specials: Specials, lowercase: bool, strip_accents: bool,
        more_special: Iterable[int] = (),
    ) -> None:  # fmt: skip
        self._tokens = list(tokens)
        self._ids = {token: i for i, token in enumerate(self._tokens)}
        self.specials = specials
        self.lowercase = bool(lowercase)
        self.strip_accents = bool(strip_accents)
        self.vocab_size = len(self._tokens)
        self.pad_id, self.unk_id, self.cls_id, self.sep_id, self.mask_id = (
            self._ids[name] for name in dataclasses.astuple(specials)
        )
        named = (KNOWN_SPECIALS & self._ids.keys()) | set(dataclasses.astuple(specials))
        self.special_ids = np.array(sorted({self._ids[name] for name in named} | set(more_special)), np.int32)
        self.continues = np.array([self._continues(token) for token in self._tokens], bool)
        self.continues[self.special_ids] = False

    def ordinary(self, size: int) -> np.ndarray:
        """Returns which ids below `size` texts are made of, (size,) bool: the vocabulary's, not special."""
        found = np.arange(size) < self.vocab_size
        found[self.special_ids] = False
        return found

    @staticmethod
    @abc.abstractmethod
    def _continues(token: str) -> bool:
        """Whether a token continues the word of the token before it."""

    @abc.abstractmethod
    def _encode(self, text: str) -> tuple[list[int], list[str], list[tuple[int, int]]]:
        """Ids, tokens and character offsets of one text, nothing added."""

    @abc.abstractmethod
    def _join(self, ids: list[int]) -> str:
        """The text of ids that hold neither padding nor boundaries."""

    @abc.abstractmethod
    def _vocabulary(self) -> tuple[str, bytes]:
        """Name and content of the vocabulary's file."""

    @abc.abstractmethod
    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Ids of many texts, as `encode(text, special=False).ids` gives, without the cost of offsets."""

    def encode_running(self, sentences: Sequence[str]) -> list[list[int]]:
        """Ids of sentences of running text, which stand after one another: joined, they are its tokens."""
        return self.encode_batch(sentences)

    def join(self, first: Sequence[int], second: Sequence[int] | None = None) -> tuple[list[int], list[int]]:
        """Ids and type ids of [CLS] first [SEP], or of a pair, from the ids of texts without ends.

        They are those of `encode(text, pair)`: between a pair stand `pair_separators` [SEP], of type 0, and
        the second text has `pair_type`.
        """
        ids = [self.cls_id, *first, self.sep_id]
        type_ids = [0] * len(ids)
        if second is not None:
            between = [self.sep_id] * (self.pair_separators - 1)
            ids += [*between, *second, self.sep_id]
            type_ids += [0] * len(between) + [self.pair_type] * (len(second) + 1)
        return ids, type_ids

    def encode(self, text: str, pair: str | None = None, special: bool = True) -> Encoding:
        """Tokenizes a text, or a pair as [CLS] text [SEP] pair [SEP] (RoBERTa: <s> text </s></s> pair </s>).

        Names of special tokens that stand in a text become those tokens. Lone surrogates count as U+FFFD.

        Args:
          text: the text.
          pair: the second text, if any; its tokens have type `pair_type`.
          special: whether the start and end tokens are added.
        """
        ids: list[int] = []
        type_ids: list[int] = []
        tokens: list[str] = []
        offsets: list[tuple[int, int] | None] = []

        def add(part: tuple[list[int], list[str], Sequence[tuple[int, int] | None]], type_id: int) -> None:
            ids.extend(part[0])
            tokens.extend(part[1])
            offsets.extend(part[2])
            type_ids.extend([type_id] * len(part[0]))

        end = ([self.sep_id], [self.specials.sep], [None])
        if special:
            add(([self.cls_id], [self.specials.cls], [None]), 0)
        add(self._encode(text), 0)
        if special:
            add(end, 0)
        if pair is not None:
            for _ in range(self.pair_separators - 1 if special else 0):
                add(end, 0)
            add(self._encode(pair), self.pair_type)
            if special:
                add(end, self.pair_type)
        return Encoding(ids, type_ids, tokens, offsets)

    def decode(self, ids: Iterable[int]) -> str:
        """The text of token ids; padding, start and end tokens are left out, masks and unknowns are shown.

        Raises:
          ValueError: an id is not in [0, V).
        """
        ids = [int(i) for i in ids]
        for i in ids:
            self._check(i)
        left_out = {self.pad_id, self.cls_id, self.sep_id}
        return self._join([i for i in ids if i not in left_out])

    @property
    def tokens(self) -> tuple[str, ...]:
        """All tokens, in the order of their ids."""
        return tuple(self._tokens)

    def token(self, id: int) -> str:
        """The token of an id. Raises ValueError where it is not in [0, V)."""
        self._check(id)
        return self._tokens[id]

    def id(self, token: str) -> int | None:
        """The id of a token; None where the vocabulary has no such token."""
        return self._ids.get(token)

    def _check(self, id: int) -> None:
        if not 0 <= id < self.vocab_size:
            raise ValueError(f"token id {id} is not in [0, {self.vocab_size}): it is from another vocabulary")

    def _facts(self) -> dict[str, object]:
        """What `tokenizer_config.json` says: `kind`, and keys that Hugging Face's tokenizers read too."""
        names = {f"{role}_token": name for role, name in dataclasses.asdict(self.specials).items()}
        return {
            "kind": self.kind,
            "do_lower_case": self.lowercase,
            "strip_accents": self.strip_accents,
            **names,
        }

    def files(self) -> dict[str, bytes]:
        """Name and content of the files that `load` makes this tokenizer of."""
        name, content = self._vocabulary()
        config = (json.dumps(self._facts(), indent=2, sort_keys=True) + "\n").encode()
        return {name: content, "tokenizer_config.json": config}

    def save(self, directory: str | epath.PathLike) -> None:
        """Writes `vocab.txt`, `spiece.model` or (bpe) `tokenizer.json`, and `tokenizer_config.json`.

        `load` gives the same back.

        Args:
          directory: local or gs:// path; made where it does not exist. Each file is replaced as a whole.
        """
        _write(epath.Path(directory), self.files())

    def save_for_transformers(self, directory: str | epath.PathLike, max_length: int, family: str) -> None:
        """Writes what `save` does and what Hugging Face's `AutoTokenizer` needs to give the same ids.

        Args:
          directory: as in `save`.
          max_length: tokens that the model reads, ends included.
          family: the model's: "bert", "roberta", "albert", ... (see `transformers_files.files`).
        """
        from bert_jax.data import transformers_files  # which knows the kinds of tokenizers

        _write(epath.Path(directory), transformers_files.files(self, max_length, family))

    def digest(self) -> str:
        """SHA-256 (hex) of the vocabulary and of all that changes an encoding: the key of what it made."""
        name, content = self._vocabulary()
        facts = json.dumps([name, self._facts()], sort_keys=True).encode()
        return hashlib.sha256(len(facts).to_bytes(8, "big") + facts + content).hexdigest()


def _write(folder: epath.Path, files: Mapping[str, bytes]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        unfinished = folder / f".{name}.tmp"
        unfinished.write_bytes(content)
        unfinished.replace(folder / name)
