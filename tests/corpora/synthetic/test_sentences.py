from __future__ import annotations

import itertools
import random
import re

from svtoolkit.corpora.synthetic.sentences import compose_sentences


def test_sentences_are_many_and_whole() -> None:
    sentences = list(itertools.islice(compose_sentences(random.Random(0)), 2000))
    assert len(set(sentences)) == 2000
    assert sentences == list(itertools.islice(compose_sentences(random.Random(0)), 2000))
    others = set(itertools.islice(compose_sentences(random.Random(1)), 2000))
    assert len(others & set(sentences)) < 100
    for sentence in sentences:
        assert re.fullmatch(r"[A-Z][A-Za-z ,]+[.?]", sentence)
        assert 7 <= len(sentence.split()) <= 15
        assert not re.search(r"\ba [aeiou]|\ban [^aeiou]", sentence)
