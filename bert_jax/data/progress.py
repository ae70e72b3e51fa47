"""How far the preparation is: a bar on a terminal, a line of the log now and then elsewhere."""

from __future__ import annotations

import sys
import time

import tqdm
from absl import logging

SAY_EVERY = 15.0  # seconds between lines where there is no terminal


class Progress:
    """A context in which blocks of text are counted and shown.

    Args:
      size: about the characters of all text, 0 where unknown.
      shown: False shows nothing.
    """

    def __init__(self, size: int, shown: bool) -> None:
        self._shown, self._size, self._said = shown, size, time.monotonic()
        self._characters = self._tokens = 0
        self._started = self._said
        self._bar: tqdm.tqdm | None = None

    def __enter__(self) -> Progress:
        if self._shown and sys.stderr.isatty():
            self._bar = tqdm.tqdm(total=self._size or None, unit="char", unit_scale=True, desc="prepare")
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.close()

    def add(self, characters: int, tokens: int) -> None:
        """Adds a block."""
        self._characters += characters
        self._tokens += tokens
        if self._bar is not None:
            self._bar.update(characters)
        elif self._shown and time.monotonic() - self._said > SAY_EVERY:
            self._said = time.monotonic()
            rate = self._tokens / (self._said - self._started)
            share = f" of about {self._size / 1e6:.1f}" if self._size else ""
            logging.info("prepared %.1f%s MB, %.0f tokens/s", self._characters / 1e6, share, rate)
