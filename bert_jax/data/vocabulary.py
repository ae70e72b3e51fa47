"""Training of vocabularies: the same texts give the same vocabulary, bit for bit, in every process."""

import collections
import io
import json
import logging
import re
from collections.abc import Callable, Iterable, Iterator

import sentencepiece
import tokenizers
from tokenizers import models, normalizers, pre_tokenizers, trainers

from bert_jax.data import bytebpe, bytebpe_files, unigram, wordpiece
from bert_jax.data.encoding import VocabularyError, without_surrogates

# Distinct words held in memory; past it the rarest are dropped, so that memory does not grow with the text.
MOST_WORDS = 2_000_000
# Words given to the WordPiece trainer, which takes no counts: those of larger texts are scaled down to it.
MOST_TRAINED_WORDS = 20_000_000
# Characters with a token of their own; rarer ones become [UNK]. As in the usual trainers.
MOST_CHARACTERS = 1000

SPECIALS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
_SPECIALS_IN_TEXT = re.compile("|".join(map(re.escape, SPECIALS)))
BYTE_SPECIALS = ("<s>", "<pad>", "</s>", "<unk>")  # then the bytes and the merges, and <mask> is last
_BYTE_SPECIALS_IN_TEXT = re.compile("|".join((*BYTE_SPECIALS, "<mask>")))

# White space with the word after it, or at the end: what no token goes beyond. (To `re` the separators 1C to
# 1F are white space, to the package's patterns they are not.)
_CHUNKS = re.compile(r"[^\S\x1c-\x1f]*[\S\x1c-\x1f]+|[^\S\x1c-\x1f]+")


def train_wordpiece(
    texts: Iterable[str], vocab_size: int, lowercase: bool = True, strip_accents: bool | None = None
) -> wordpiece.WordPiece:
    """Trains a WordPiece vocabulary: special tokens (ids 0 to 4), characters, then merges by frequency.

    Args:
      texts: read once, never held.
      vocab_size: most tokens; a text that does not give as many makes a smaller vocabulary.
      lowercase: whether case goes.
      strip_accents: whether accents go; None: as case.

    Raises:
      VocabularyError: no words in the texts, or a vocab_size with no room for a character.
    """
    strip_accents = lowercase if strip_accents is None else strip_accents
    words = _wordpiece_words(_count_words(texts), wordpiece.normalizer(lowercase, strip_accents))
    _check_room(words, vocab_size, len(SPECIALS) + 2)

    characters: collections.Counter[str] = collections.Counter()
    for word, count in words.items():
        for character in word:
            characters[character] += count
    # At most half of the room: each character has two tokens, one inside words.
    most = min(MOST_CHARACTERS, (vocab_size - len(SPECIALS)) // 2)
    alphabet = sorted(sorted(characters, key=lambda c: (-characters[c], c))[:most])
    inside = [f"##{character}" for character in alphabet]

    # The package's trainer numbers the characters inside words in the order of a randomly seeded hash map,
    # and breaks ties between merges by these numbers. Named as special tokens they are numbered in our order.
    trainer = trainers.WordPieceTrainer(
        vocab_size=vocab_size,
        min_frequency=2,
        special_tokens=[*SPECIALS, *inside],
        initial_alphabet=alphabet,
        limit_alphabet=len(alphabet),
        continuing_subword_prefix="##",
        show_progress=False,
    )
    tokenizer = tokenizers.Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.train_from_iterator(_repeated(words), trainer)
    vocabulary = tokenizer.get_vocab()
    first = [*SPECIALS, *alphabet, *inside]
    merged = sorted(vocabulary.keys() - set(first), key=vocabulary.__getitem__)
    _say_if_smaller(len(first) + len(merged), vocab_size)
    return wordpiece.WordPiece([*first, *merged], lowercase, strip_accents, origin="trained vocabulary")


def words_of(texts: Iterable[str], tokenizer: wordpiece.WordPiece) -> collections.Counter[str]:
    """Counts of the words of texts as a WordPiece tokenizer finds them, special tokens left out.

    The texts are read once; of more than `MOST_WORDS` words the rarest are dropped.
    """
    names = sorted(map(tokenizer.token, tokenizer.special_ids.tolist()), key=len, reverse=True)
    chunks = _count_words(texts, specials=re.compile("|".join(map(re.escape, names))), opening="")
    normalizer = wordpiece.normalizer(tokenizer.lowercase, tokenizer.strip_accents, tokenizer.chinese)
    return _wordpiece_words(chunks, normalizer)


def _wordpiece_words(
    chunks: collections.Counter[str], normalizer: normalizers.Normalizer
) -> collections.Counter[str]:
    splitter = pre_tokenizers.BertPreTokenizer()
    words: collections.Counter[str] = collections.Counter()
    for chunk, count in chunks.items():
        for word, _ in splitter.pre_tokenize_str(normalizer.normalize_str(chunk)):
            if len(word) <= wordpiece.LONGEST_WORD:
                words[word] += count
    return words


def train_sentencepiece(
    texts: Iterable[str],
    vocab_size: int,
    lowercase: bool = True,
    strip_accents: bool | None = None,
    character_coverage: float = 0.9995,
) -> unigram.SentencePiece:
    """Trains a SentencePiece unigram model with ALBERT's special tokens (ids 0 to 4).

    Args:
      texts: read once, never held.
      vocab_size: most pieces; a text that does not give as many makes a smaller vocabulary.
      lowercase: whether case goes.
      strip_accents: whether accents go; None: as case.
      character_coverage: share of the characters of the text that get pieces of their own.

    Raises:
      VocabularyError: no words in the texts, or a vocab_size too small for the characters of the text.
    """
    strip_accents = lowercase if strip_accents is None else strip_accents
    words: collections.Counter[str] = collections.Counter()
    for chunk, count in _count_words(texts).items():
        # The trainer reads word TAB count; and a NUL is no text to it.
        for word in unigram.preprocess(chunk, lowercase, strip_accents).replace("\0", " ").split():
            words[word] += count
    _check_room(words, vocab_size, len(SPECIALS) + 1)
    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=(f"{word}\t{count}" for word, count in sorted(words.items())),
            input_format="tsv",
            model_writer=model,
            model_type="unigram",
            vocab_size=vocab_size,
            hard_vocab_limit=False,
            character_coverage=character_coverage,
            pad_id=0,
            unk_id=1,
            bos_id=-1,
            eos_id=-1,
            pad_piece="<pad>",
            unk_piece="<unk>",
            control_symbols="[CLS],[SEP],[MASK]",
            num_threads=16,  # fixed: sums are rounded by thread, whatever the number of cores
            minloglevel=2,
        )
    except RuntimeError as e:
        reason = " ".join(str(e).split())
        raise VocabularyError(
            f"data.vocab_size is {vocab_size}: no such model of this text: {reason}"
        ) from None
    tokenizer = unigram.SentencePiece(model.getvalue(), lowercase, strip_accents, origin="trained model")
    _say_if_smaller(tokenizer.vocab_size, vocab_size)
    return tokenizer


def train_bytebpe(
    texts: Iterable[str],
    vocab_size: int,
    lowercase: bool = False,
    strip_accents: bool | None = None,
    prefix_space: bool = True,
) -> bytebpe.ByteBPE:
    """Trains byte-level BPE with RoBERTa's special tokens and pairs.

    The ids are <s>, <pad>, </s>, <unk> (0 to 3), the 256 bytes in GPT-2's order, the merges by rank, and
    <mask> last. Words are cut as GPT-2 cuts them, each with the space before it.

    Args:
      texts: read once, never held.
      vocab_size: most tokens; a text that does not give as many makes a smaller vocabulary.
      lowercase: whether case goes.
      strip_accents: whether accents go; None: as case.
      prefix_space: whether a text that does not begin with a space gets one, so that a word is the same token
        at the start of a text as within it (GPT-2 and RoBERTa: no).

    Raises:
      VocabularyError: no words in the texts, or a vocab_size with no room for the bytes.
    """
    strip_accents = lowercase if strip_accents is None else strip_accents
    accents = [normalizers.NFD(), normalizers.StripAccents()] if strip_accents else []
    normalizer = normalizers.Sequence([*accents, *([normalizers.Lowercase()] if lowercase else [])])
    splitter = pre_tokenizers.ByteLevel(add_prefix_space=False)

    def cut(text: str) -> list[str]:
        prefix = " " if prefix_space and text[:1] not in ("", " ") else ""
        return _CHUNKS.findall(prefix + text)

    words: collections.Counter[str] = collections.Counter()
    chunks = _count_words(texts, cut, _BYTE_SPECIALS_IN_TEXT, "<")
    if all(map(str.isspace, chunks)):
        chunks.clear()
    for chunk, count in chunks.items():
        for word, _ in splitter.pre_tokenize_str(normalizer.normalize_str(chunk)):
            words[word] += count
    first = [*BYTE_SPECIALS, *bytebpe_files.ALPHABET]
    _check_room(words, vocab_size, len(first) + 2)
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size - 1,
        min_frequency=2,
        special_tokens=list(BYTE_SPECIALS),
        initial_alphabet=bytebpe_files.ALPHABET,
        show_progress=False,
    )
    trained = tokenizers.Tokenizer(models.BPE())
    trained.pre_tokenizer = pre_tokenizers.WhitespaceSplit()  # the characters that stand for bytes are none
    trained.train_from_iterator(_repeated(words), trainer)
    model = json.loads(trained.to_str())["model"]
    merged = sorted(model["vocab"].keys() - set(first), key=model["vocab"].__getitem__)
    vocabulary = {token: i for i, token in enumerate([*first, *merged, "<mask>"])}
    content = bytebpe_files.from_vocabulary(vocabulary, model["merges"], {})
    if prefix_space:
        content["pre_tokenizer"] = bytebpe_files.SPACE_FIRST
    tokenizer = bytebpe.ByteBPE(
        json.dumps(content).encode(), lowercase, strip_accents, origin="trained vocabulary"
    )
    _say_if_smaller(tokenizer.vocab_size, vocab_size)
    return tokenizer


def _count_words(
    texts: Iterable[str],
    cut: Callable[[str], Iterable[str]] = str.split,
    specials: re.Pattern[str] = _SPECIALS_IN_TEXT,
    opening: str = "[",
) -> collections.Counter[str]:
    """Counts of what a text is cut into; special tokens in it (beginning with `opening`) are not text."""
    words: collections.Counter[str] = collections.Counter()
    least = 1
    for text in texts:
        if opening in text:
            text = specials.sub(" ", text)
        words.update(cut(without_surrogates(text)))
        while len(words) > MOST_WORDS:
            words = collections.Counter({word: n for word, n in words.items() if n > least})
            least += 1
    return words


def _check_room(words: collections.Counter[str], vocab_size: int, least: int) -> None:
    if not words:
        raise VocabularyError("no words in the text to train a vocabulary on: check data.path")
    if vocab_size < least:
        raise VocabularyError(f"data.vocab_size is {vocab_size}: must be {least} or more, specials included")


def _repeated(words: collections.Counter[str]) -> Iterator[str]:
    """Every word as often as it was counted, in a fixed order."""
    total = sum(words.values())
    for word, count in sorted(words.items()):
        if total > MOST_TRAINED_WORDS:
            count = max(1, count * MOST_TRAINED_WORDS // total)
        for start in range(0, count, 10_000):
            yield " ".join([word] * min(10_000, count - start))


def _say_if_smaller(size: int, asked: int) -> None:
    if size < asked:
        logging.getLogger(__name__).warning("the text gives a vocabulary of %d tokens, not %d", size, asked)
