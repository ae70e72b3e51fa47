"""The form that JSON of this program's own has: what was changed by hand, or mixed up, is told by its place.

A form is a `Kind` of value; `[FORM]`, a list of such; or `{"key": FORM, "other?": FORM}`, an object that has
the key, may have the other one (or null there), and may have more.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, NamedTuple


class FormError(ValueError):
    """A value of another form than was written; the message names its file and place."""


class Kind(NamedTuple):
    """A kind of value: what it must be, in words, and whether one is."""

    name: str
    fits: Callable[[Any], bool]


def _is_number(value: Any) -> bool:
    is_one = isinstance(value, int | float) and not isinstance(value, bool)
    return is_one and abs(value) <= sys.float_info.max  # NaN is not


def _is_whole(value: Any, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value < 2**63


TEXT = Kind("a text", lambda value: isinstance(value, str))
FLAG = Kind("true or false", lambda value: isinstance(value, bool))
NUMBER = Kind("a number", _is_number)
NUMBER_OR_NULL = Kind("a number or null", lambda value: value is None or _is_number(value))
COUNT = Kind("a whole number, at least 0", lambda value: _is_whole(value, 0))
SIZE = Kind("a whole number, at least 1", lambda value: _is_whole(value, 1))


def check(value: Any, form: Any, file: Any, place: str = "") -> None:
    """Makes sure that a value has a form.

    Args:
      value: of JSON.
      form: as above.
      file: where it is from, for the message.
      place: where it is in there.

    Raises:
      FormError: it has another one.
    """
    if isinstance(form, dict):
        if not isinstance(value, dict):
            raise _error(value, "an object", file, place)
        for key, inner in form.items():
            name = key.removesuffix("?")
            inside = f"{place}.{name}" if place else name
            if value.get(name) is None and name != key:
                continue
            if name not in value:
                raise FormError(f"{file}: {inside} is missing: restore the file from a copy")
            check(value[name], inner, file, inside)
    elif isinstance(form, list):
        if not isinstance(value, list):
            raise _error(value, "a list", file, place)
        for i, each in enumerate(value):
            check(each, form[0], file, f"{place}[{i}]")
    elif not form.fits(value):
        raise _error(value, form.name, file, place)


def _error(value: Any, kind: str, file: Any, place: str) -> FormError:
    shown = repr(value) if not isinstance(value, int) or abs(value) < 2**63 else "a number of many digits"
    shown = shown if len(shown) < 80 else f"{shown[:80]}.."
    return FormError(f"{file}: {place or 'it'} = {shown}: it must be {kind}: restore the file from a copy")
