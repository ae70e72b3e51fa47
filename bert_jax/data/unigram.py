"""SentencePiece (Kudo and Richardson 2018) as ALBERT uses it (Lan et al. 2020)."""

import re
import unicodedata
from bisect import bisect_right
from collections.abc import Sequence

import sentencepiece

from bert_jax.data.encoding import Tokenizer, VocabularyError, find_specials, without_surrogates

SPACE = "\u2581"  # the character that stands for a space inside pieces

_UNITS = re.compile(r"``|''|\s+|.", re.DOTALL)


def preprocess(text: str, lowercase: bool, strip_accents: bool) -> str:
    """ALBERT's cleaning: runs of white space to one space, `` and '' to ", accents (NFKD) and case off."""
    text = " ".join(text.split()).replace("``", '"').replace("''", '"')
    if strip_accents and not text.isascii():
        text = _strip_accents(text)
    return text.lower() if lowercase else text


def preprocess_aligned(text: str, lowercase: bool, strip_accents: bool) -> tuple[str, list[int], list[int]]:
    """`preprocess(text)`, and for each of its characters start and end of what it was made from in `text`."""
    units: list[str] = []
    starts: list[int] = []
    ends: list[int] = []
    stop = len(text.rstrip())
    for match in _UNITS.finditer(text, len(text) - len(text.lstrip()), stop):
        unit = match.group()
        if unit.isspace():
            unit = " "
        elif len(unit) == 2:
            unit = '"'
        elif strip_accents and not unit.isascii():
            # Marks are all that NFKD moves across characters, and none is kept: one at a time is the same.
            unit = _strip_accents(unit)
        for character in unit:
            units.append(character)
            starts.append(match.start())
            ends.append(match.end())
    clean = "".join(units)
    if not lowercase:
        return clean, starts, ends
    # Lower-casing may lengthen a character, and looks at its neighbours (a final sigma) without changing
    # lengths: lengths are taken one at a time, the text as a whole.
    lengths = [len(character.lower()) for character in units]
    if len(clean) != sum(lengths):
        starts = [start for start, n in zip(starts, lengths, strict=True) for _ in range(n)]
        ends = [end for end, n in zip(ends, lengths, strict=True) for _ in range(n)]
    return clean.lower(), starts, ends


def _strip_accents(text: str) -> str:
    return "".join(c for c in unicodedata.normalize("NFKD", text) if not unicodedata.combining(c))


class SentencePiece(Tokenizer):
    """A SentencePiece model with ALBERT's treatment of text, numbers before commas and special tokens."""

    kind = "sentencepiece"

    def __init__(
        self, model: bytes, lowercase: bool, strip_accents: bool, named: dict[str, str] | None = None,
        origin: str = "SentencePiece model",
    ) -> None:  # fmt: skip
        """Builds the tokenizer.

        Args:
          model: the content of a `.model` file.
          lowercase, strip_accents: what is done to a text first.
          named: special tokens by role (pad, unk, cls, sep, mask) where they are not to be found by name.
          origin: where the model is from, for messages.

        Raises:
          VocabularyError: not a SentencePiece model, or special tokens are missing.
        """
        self._model = model
        self._processor = open_model(model, origin)
        size = self._processor.get_piece_size()
        tokens = [self._processor.id_to_piece(i) for i in range(size)]
        specials = find_specials(set(tokens), named or {}, origin)
        control = [i for i in range(size) if self._processor.is_control(i) or self._processor.is_unknown(i)]
        super().__init__(tokens, specials, lowercase, strip_accents, control)
        names = sorted((self._tokens[i] for i in self.special_ids), key=len, reverse=True)
        self._specials_in_text = re.compile("|".join(map(re.escape, names)))
        self._bytes = {i for i in range(size) if self._processor.is_byte(i)}
        self._numbers = {
            i: self._split_number(token)
            for i, token in enumerate(self._tokens)
            if len(token) > 1 and token[-1] == "," and token[-2].isdigit()
        }

    def __reduce__(self) -> tuple:
        named = vars(self.specials)
        return type(self), (self._model, self.lowercase, self.strip_accents, dict(named))

    @staticmethod
    def _continues(token: str) -> bool:
        return not token.startswith(SPACE)

    def _split_number(self, token: str) -> list[tuple[int, str]]:
        """ALBERT takes the comma off a piece such as "2000," and encodes the digits anew."""
        pieces = self._processor.encode(token[:-1].replace(SPACE, ""), out_type=str)
        if not token.startswith(SPACE) and pieces and pieces[0].startswith(SPACE):
            pieces[0] = pieces[0][1:]
        return [(self._processor.piece_to_id(piece), piece) for piece in (*pieces, ",") if piece]

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Ids of many texts, as `encode(text, special=False).ids` gives, without the cost of offsets."""
        parts: list[str] = []
        layout: list[list[int]] = []  # for each text its special ids, and -1 for the next of `parts`
        for text in texts:
            plan: list[int] = []
            for part, special in self._parts(text):
                if special is not None:
                    plan.append(special)
                else:
                    plan.append(-1)
                    parts.append(preprocess(without_surrogates(part), self.lowercase, self.strip_accents))
            layout.append(plan)
        encoded = iter(self._processor.encode(parts, out_type=int, num_threads=1) if parts else [])
        return [
            [i for special in plan for i in ([special] if special >= 0 else self._split(next(encoded)))]
            for plan in layout
        ]

    def _parts(self, text: str) -> list[tuple[str, int | None]]:
        """The text cut at the special tokens in it: (text, None) or (special token, its id)."""
        parts: list[tuple[str, int | None]] = []
        start = 0
        for match in self._specials_in_text.finditer(text):
            parts.append((text[start : match.start()], None))
            parts.append((match.group(), self._ids[match.group()]))
            start = match.end()
        parts.append((text[start:], None))
        return [part for part in parts if part[0]]

    def _split(self, ids: list[int]) -> list[int]:
        if self._numbers.keys().isdisjoint(ids):
            return ids
        return [new for i in ids for new in ([n for n, _ in self._numbers[i]] if i in self._numbers else [i])]

    def _encode(self, text: str) -> tuple[list[int], list[str], list[tuple[int, int]]]:
        ids: list[int] = []
        tokens: list[str] = []
        offsets: list[tuple[int, int]] = []
        start = 0
        for part, special in self._parts(text):
            if special is not None:
                ids.append(special)
                tokens.append(part)
                offsets.append((start, start + len(part)))
            else:
                for i, token, (left, right) in self._encode_part(without_surrogates(part)):
                    ids.append(i)
                    tokens.append(token)
                    offsets.append((start + left, start + right))
            start += len(part)
        return ids, tokens, offsets

    def _encode_part(self, text: str) -> list[tuple[int, str, tuple[int, int]]]:
        clean, starts, ends = preprocess_aligned(text, self.lowercase, self.strip_accents)
        # The model's own normalisation: of each character of `normal` where it came from in `clean`. The
        # pieces are `normal`, cut.
        normal, origins = self._processor.normalize(clean, with_offsets=True)
        ids = self._processor.encode(clean, out_type=int)
        tokens = self._processor.encode(clean, out_type=str)
        pieces: list[tuple[int, str]] = []
        for i, piece in zip(ids, tokens, strict=True):
            pieces.extend(self._numbers.get(i, [(i, piece)]))
        position = 0
        if self._bytes:  # pieces may be single bytes: count in bytes, with the origin of each
            origins = [o for c, o in zip(normal, origins, strict=False) for _ in c.encode()] + [origins[-1]]
        result = []
        for i, piece in pieces:
            length = 1 if i in self._bytes else len(piece.encode()) if self._bytes else len(piece)
            left, last = origins[position], origins[position + length - 1]
            # To the next character of another origin: "..." made of one character, or a run of spaces.
            after = bisect_right(origins, last)
            right = origins[after] if after < len(origins) else len(clean)
            result.append((i, piece, (starts[left], ends[right - 1])))
            position += length
        return result

    def _join(self, ids: list[int]) -> str:
        text = ""
        run: list[int] = []
        for i in [*ids, None]:
            if i is not None and i not in self.special_ids:
                run.append(i)
                continue
            if run:
                space = " " if self._tokens[run[0]].startswith(SPACE) else ""
                text += space + self._processor.decode(run)
                run = []
            if i is not None:  # unknown characters may stand inside a word, other special tokens do not
                text += self._tokens[i] if i == self.unk_id else f" {self._tokens[i]} "
        return " ".join(text.split())

    def _vocabulary(self) -> tuple[str, bytes]:
        return "spiece.model", self._model

    def _facts(self) -> dict[str, object]:
        return super()._facts() | {
            "tokenizer_class": "AlbertTokenizer",
            "keep_accents": not self.strip_accents,
        }


def open_model(model: bytes, origin: str) -> sentencepiece.SentencePieceProcessor:
    """Reads a SentencePiece model from its bytes; VocabularyError where it is none."""
    processor = sentencepiece.SentencePieceProcessor()
    try:
        processor.LoadFromSerializedProto(model)
    except RuntimeError:
        processor = None
    if processor is None or not processor.get_piece_size():
        raise VocabularyError(
            f"{origin}: not a SentencePiece model: name a .model file that its trainer wrote"
        )
    return processor
