"""English sentences of 2 to 5 seconds from a small grammar, for speech synthesis."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator

TEMPLATES = (
    "The {adjective} {person} {did} the {quality} {thing} {where}.",
    "{when_past}, our {person} {did} {number} {quality} {things}.",
    "Could you {do} the {quality} {thing} {where}, please?",
    "{name} and the {adjective} {person} {did} the {thing} {where}.",
    "There were {number} {quality} {things} {where} {when_past}.",
    "My {relative} never {did} the {thing} without {quality} {things}.",
    "If it rains {when_next}, we will {do} the {things} {where}.",
    "Please {do} these {quality} {things} before {name} arrives.",
    "Why has nobody {done} the {thing} {where} {when_past}?",
    "{name} says that {number} {things} are better than one {quality} {thing}.",
    "Everyone laughed when the {person} {did} a {quality} {thing}.",
    "I would rather {do} a {thing} than wait for the {adjective} {person}.",
)


def _forms(text: str) -> list[tuple[str, ...]]:
    return [tuple(word.split("/")) for word in text.split()]


# Base form, past, participle: the verbs agree with whatever template they stand in.
VERBS = _forms(
    "carry/carried/carried paint/painted/painted break/broke/broken hide/hid/hidden borrow/borrowed/borrowed "
    "measure/measured/measured throw/threw/thrown choose/chose/chosen draw/drew/drawn sell/sold/sold "
    "forget/forgot/forgotten polish/polished/polished repair/repaired/repaired examine/examined/examined "
    "bring/brought/brought follow/followed/followed buy/bought/bought wash/washed/washed "
    "describe/described/described leave/left/left shake/shook/shaken gather/gathered/gathered "
    "notice/noticed/noticed push/pushed/pushed"
)

# Singular, plural.
THINGS = _forms(
    "ladder/ladders kettle/kettles violin/violins map/maps bicycle/bicycles umbrella/umbrellas fish/fishes "
    "mirror/mirrors blanket/blankets letter/letters clock/clocks bridge/bridges orange/oranges shovel/shovels "
    "camera/cameras pillow/pillows statue/statues jacket/jackets boat/boats thermometer/thermometers goose/geese "
    "window/windows pebble/pebbles cheese/cheeses magazine/magazines wheelbarrow/wheelbarrows"
)

WORDS = {
    "adjective": "patient clever sleepy cheerful nervous famous young gentle stubborn curious thoughtful quiet lonely "
    "generous jealous tired proud careless hungry Scottish".split(),
    "quality": "wooden yellow heavy broken shiny cheap purple rusty enormous tiny smooth foreign dusty square green "
    "fragile ordinary frozen beautiful thick".split(),
    "person": "gardener captain teacher baker neighbour doctor farmer tailor musician painter judge fisherman waiter "
    "student engineer dentist shepherd librarian postman nurse".split(),
    "name": "Barbara Michael Sophie Oliver Hannah George Vivian Thomas Zoe Jonathan Ruth Philip".split(),
    "relative": "mother uncle cousin brother grandfather sister nephew father aunt daughter".split(),
    "number": "two three four five six seven nine eleven twelve fifteen twenty forty".split(),
    "where": "behind the harbour, near the old church, in the kitchen, across the valley, under the stairs, at the "
    "railway station, beside the river, on the top shelf, outside the theatre, in the village, between "
    "two houses, along the beach, inside the garage, by the front door, over the mountain".split(", "),
    "when_past": "yesterday, last summer, this morning, a year ago, on Thursday, before breakfast, during the storm, "
    "last night, after the concert, in January".split(", "),
    "when_next": ["tomorrow", "at noon", "on Sunday", "this evening", "next week", "in the afternoon"],
}


def compose_sentences(rng: random.Random) -> Iterator[str]:
    """Endless different sentences; the same state of ``rng`` gives the same ones."""
    told = set()
    while True:
        sentence = compose_sentence(rng)
        if sentence not in told:
            told.add(sentence)
            yield sentence


def compose_sentence(rng: random.Random) -> str:
    """One of several millions of sentences of 7 to 15 words."""
    sentence = re.sub(r"{(\w+)}", lambda slot: _fill(slot.group(1), rng), rng.choice(TEMPLATES))
    sentence = re.sub(r"\ba (?=[aeiou])", "an ", sentence)
    return sentence[0].upper() + sentence[1:]


def _fill(slot: str, rng: random.Random) -> str:
    if slot in ("do", "did", "done"):
        return rng.choice(VERBS)[("do", "did", "done").index(slot)]
    if slot in ("thing", "things"):
        return rng.choice(THINGS)[("thing", "things").index(slot)]
    return rng.choice(WORDS[slot])
