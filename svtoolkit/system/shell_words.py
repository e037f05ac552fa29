"""A command line as a shell takes it, quoted where it has to be and nowhere else."""

from __future__ import annotations

import re
from collections.abc import Iterable

# What no shell takes for more than itself: letters of any language, digits, and signs without a meaning.
_PLAIN = re.compile(r"[\w@%+=:,./-]+")
_KEY = re.compile(r"[\w.+-]+=")
_ALIVE_IN_DOUBLE_QUOTES = set('"$`\\!')


def join_words(words: Iterable[str]) -> str:
    """The words on one line; copied to a shell (bash, zsh, sh) they are the same words again.

    Of ``key=value`` the value alone is quoted; one with single quotes in it goes into double quotes where that is safe.
    """
    return " ".join(map(quote_word, words))


def quote_word(word: str) -> str:
    """One word; ``name=my set`` becomes ``name='my set'``."""
    if _PLAIN.fullmatch(word) and not word.startswith("="):  # of =word zsh looks for a program
        return word
    key = _KEY.match(word)
    if key:
        return key.group() + _quote(word[key.end() :])
    return _quote(word)


def _quote(text: str) -> str:
    if "'" in text and not _ALIVE_IN_DOUBLE_QUOTES & set(text):
        return f'"{text}"'
    return "'" + text.replace("'", "'\"'\"'") + "'"
