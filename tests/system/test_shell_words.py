"""Command lines come back from a shell as they were, and bear no quotes that it does not need."""

from __future__ import annotations

import shlex

import pytest

from svtoolkit.system.shell_words import join_words


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["svt", "train", "exp_dir=foo", "data.train=a/b-c:1,2"], "svt train exp_dir=foo data.train=a/b-c:1,2"),
        (["name=my set", "--name", "my set"], "name='my set' --name 'my set'"),
        (["--results", "['a.json','b.json']"], """--results "['a.json','b.json']\""""),
        (["results=[a.json,b.json]"], "results='[a.json,b.json]'"),
        (["exp_dir='a b'", "it's $5"], """exp_dir="'a b'" 'it'"'"'s $5'"""),
        (["data/söme", "名=字"], "data/söme 名=字"),
        (["", "=ls", "~x=1", "a=~/b", "key=", "a;b"], "'' '=ls' '~x=1' a='~/b' key= 'a;b'"),
    ],
)
def test_quotes_stand_where_a_shell_needs_them(words, line):
    assert join_words(words) == line
    assert shlex.split(line) == words


def test_whatever_the_characters_the_words_come_back():
    words = [f"{key}{first}{char}x" for key in ("", "k=") for first in ("", "'") for char in map(chr, range(1, 0x180))]
    assert shlex.split(join_words(words)) == words
