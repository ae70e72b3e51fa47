"""Vocabularies for a new domain: an old one with more words, or a new one that starts from the old rows."""

import collections
import logging
from collections.abc import Iterable

from bert_jax.data import vocabulary, wordpiece
from bert_jax.data.bytebpe_files import STAND_INS
from bert_jax.data.encoding import Tokenizer, VocabularyError
from bert_jax.data.unigram import SPACE

MIN_COUNT = 5  # a rarer word is too rare to learn a row for
_BATCH = 10_000  # words tokenized at a time


def extend(
    tokenizer: Tokenizer, texts: Iterable[str], count: int, min_count: int = MIN_COUNT
) -> tuple[wordpiece.WordPiece, list[list[int]]]:
    """Adds the words of a domain that a WordPiece vocabulary splits, to save the most tokens.

    Words are whole ones, as the tokenizer finds them, with a letter in them, none of them unknown. They are
    taken by the tokens that each saves, its frequency * (its pieces - 1), ties in the order of the
    alphabet, and stand after all old tokens, whose ids stay; no [unused] row is taken.

    What else changes: WordPiece takes the longest token that a word begins with, so with "gene" a new token
    "genetics" becomes "gene ##tics", where it was "gen ##etic ##s" before; with "genetic" in the
    vocabulary it stays "genetic ##s". So words that begin with a new word, where that is longer than
    their old first piece, are split another way, into fewer pieces or more. All others are split as
    before. A new word by which a word of the text would become unknown is not taken.

    Args:
      tokenizer: a `WordPiece`.
      texts: of the domain; read once, never held.
      count: most new words.
      min_count: how often a word must occur.

    Returns:
      The new tokenizer, and for each new token, in the order of ids, the old ids that it was split into:
      the mean of their rows is a start for its own.

    Raises:
      VocabularyError: the tokenizer is of another kind, or the text has no such words.
    """
    if not isinstance(tokenizer, wordpiece.WordPiece):
        raise VocabularyError(
            f"data.extend_vocab: the vocabulary is of kind {tokenizer.kind}, and only WordPiece vocabularies "
            "can be extended: set it to 0, or name a new vocabulary by data.tokenizer"
        )
    if count < 1:
        raise VocabularyError(f"data.extend_vocab is {count}: must be 1 or more")
    words = vocabulary.words_of(texts, tokenizer)
    pieces = _pieces(tokenizer, [word for word, n in words.items() if n >= min_count])
    saved = {
        word: words[word] * (len(ids) - 1)
        for word, ids in pieces.items()
        if len(ids) > 1 and tokenizer.unk_id not in ids and any(map(str.isalpha, word))
    }
    chosen = sorted(saved, key=lambda word: (-saved[word], word))[:count]
    chosen, extended, after = _safe(tokenizer, chosen, words)
    if not chosen:
        raise VocabularyError(
            f"data.extend_vocab = {count}: no word that occurs {min_count} times in the text is split: "
            "set it to 0, or give more text by data.path"
        )
    before = sum(len(ids) * words[word] for word, ids in _pieces(tokenizer, list(after)).items())
    now = sum(len(ids) * words[word] for word, ids in after.items())
    logging.getLogger(__name__).info(
        "%d words are new in the vocabulary (%s, ...): %d tokens fewer, in a text of %d words",
        len(chosen), ", ".join(chosen[:5]), before - now, sum(words.values()),
    )  # fmt: skip
    return extended, [pieces[word] for word in chosen]


def _safe(
    tokenizer: wordpiece.WordPiece, chosen: list[str], words: collections.Counter[str]
) -> tuple[list[str], wordpiece.WordPiece, dict[str, list[int]]]:
    """Leaves out new words that would make a word unknown.

    Returns the others, the tokenizer with them, and its pieces of all words that begin with one of them.
    """
    while True:
        extended = tokenizer.with_tokens(chosen)
        new = set(chosen)
        begun = [word for word in words if any(word[:n] in new for n in range(1, len(word) + 1))]
        after = _pieces(extended, begun)
        unknown = [word for word, ids in after.items() if extended.unk_id in ids]
        known = {word for word, ids in _pieces(tokenizer, unknown).items() if tokenizer.unk_id not in ids}
        guilty = {word[:n] for word in known for n in range(1, len(word) + 1)} & new
        if not guilty:
            return chosen, extended, after
        chosen = [word for word in chosen if word not in guilty]


def _pieces(tokenizer: Tokenizer, words: list[str]) -> dict[str, list[int]]:
    """The token ids of each word."""
    found: dict[str, list[int]] = {}
    for start in range(0, len(words), _BATCH):
        batch = words[start : start + _BATCH]
        found.update(zip(batch, tokenizer.encode_batch(batch), strict=True))
    return found


def transfer(new: Tokenizer, old: Tokenizer) -> list[list[int]]:
    """What each token of a new vocabulary was in an old one, to give it a row to start from.

    It is the one old id where both vocabularies have the token: the same special token (by its role, or by
    its name), or the same text, at the start of a word or inside one. The kinds may differ: "##ing" of
    WordPiece, "ing" of the two others. Else it is the ids of its text as the old vocabulary splits it, those
    that are not unknown; the row may start from their mean. Nothing, where no part of it is known there.

    Args:
      new, old: of any kind.

    Returns:
      For each new id, 0 to V - 1, a list of old ids: one, several or none.
    """
    roles = ("pad_id", "unk_id", "cls_id", "sep_id", "mask_id")
    by_role = {getattr(new, role): [getattr(old, role)] for role in roles}
    special = set(new.special_ids.tolist())
    result: list[list[int]] = []
    missing: dict[int, tuple[str, bool]] = {}
    for i in range(new.vocab_size):
        same = old.id(new.token(i)) if i in special or new.kind == old.kind else None
        if i in by_role or i in special:
            result.append(by_role.get(i, [] if same is None else [same]))
            continue
        if same is None:
            text, inside = _surface(new, i)
            same = old.id(_spelling(old, text, inside)) if text else None
            missing[i] = (text, inside)
        result.append([] if same is None else [same])
    split = [i for i, (text, _) in missing.items() if text and not result[i]]
    for i, ids in zip(split, old.encode_running([missing[i][0] for i in split]), strict=True):
        text, inside = missing[i]
        result[i] = [piece for piece in (_inside(old, text, ids) if inside else ids) if piece != old.unk_id]
    return result


def _surface(tokenizer: Tokenizer, id: int) -> tuple[str, bool]:
    """The text of a token, and whether it stands inside words; "" where it has none of its own."""
    token = tokenizer.token(id)
    if token.startswith("[unused") and token.endswith("]"):
        return "", False
    if tokenizer.kind == "wordpiece":
        inside = bool(tokenizer.continues[id])
        return (token[2:] if inside else token), inside
    if tokenizer.kind == "sentencepiece":
        return token.removeprefix(SPACE), not token.startswith(SPACE)
    try:
        text = bytes(map(STAND_INS.index, token)).decode()
    except UnicodeDecodeError:  # a part of a character
        return "", True
    except ValueError:  # an added token
        text = token
    return text.removeprefix(" "), not text.startswith(" ")


def _spelling(tokenizer: Tokenizer, text: str, inside: bool) -> str:
    """How a vocabulary writes a text at the start of a word, or inside one."""
    if tokenizer.kind == "wordpiece":
        return f"##{text}" if inside else text
    if tokenizer.kind == "sentencepiece":
        return text if inside else f"{SPACE}{text}"
    return "".join(STAND_INS[byte] for byte in (text if inside else f" {text}").encode())


def _inside(old: Tokenizer, text: str, ids: list[int]) -> list[int]:
    """The ids of a text that stands inside a word, from those that it has as a word."""
    if isinstance(old, wordpiece.WordPiece):  # "##" and the longest match, from left to right
        rest = wordpiece.normalizer(old.lowercase, old.strip_accents, old.chinese).normalize_str(text)
        found: list[int] = []
        while rest:
            ends = (end for end in range(len(rest), 0, -1) if old.id(f"##{rest[:end]}") is not None)
            end = next(ends, 0)
            if not end:
                return ids
            found.append(old.id(f"##{rest[:end]}"))
            rest = rest[end:]
        return found
    if ids:
        first, inside = _surface(old, ids[0])
        same = None if inside else old.id(_spelling(old, first, True))
        if same is not None:
            return [same, *ids[1:]]
    return ids
