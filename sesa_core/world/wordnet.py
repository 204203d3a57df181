"""Persons and rivers from WordNet's data.noun (WordNet licence, see NOTICE): the only parts of it that this world uses."""

import re
from dataclasses import dataclass

from sesa_core.world.text import fold

_NAME = re.compile(r"[A-Za-z' -]{3,24}")
_YEARS = re.compile(r"\((?:born in )?(?:\w+ in )?(\d{4})(?:-(\d{4}))?")


@dataclass(frozen=True)
class Synset:
    """One line of data.noun: `pointers` are (symbol, offset) pairs, e.g. ("@i", ...) for "is an instance of"."""

    names: tuple[str, ...]
    pointers: tuple[tuple[str, str], ...]
    gloss: str

    def pointed(self, symbol: str) -> list[str]:
        return [offset for s, offset in self.pointers if s == symbol]


@dataclass(frozen=True)
class Person:
    name: str
    country: str
    work: str
    born: str


def parse(text: str) -> dict[str, Synset]:
    """Offset -> synset (format: wndb(5WN))."""
    out = {}
    for line in text.splitlines():
        if line.startswith(" "):
            continue
        head, _, gloss = line.partition("|")
        fields = head.split()
        count = int(fields[3], 16)
        names = tuple(fold(n.replace("_", " ")) for n in fields[4 : 4 + 2 * count : 2])
        at = 4 + 2 * count
        pointers = tuple((fields[at + 1 + 4 * i], fields[at + 2 + 4 * i]) for i in range(int(fields[at])))
        out[fields[0]] = Synset(names, pointers, gloss.strip())
    return out


def persons(synsets: dict[str, Synset], demonyms: dict[str, str]) -> list[Person]:
    """Named persons whose gloss opens with a demonym and tells a year of birth, in file order."""
    longest_first = sorted(demonyms, key=lambda d: (-len(d), d))
    found = []
    for synset in synsets.values():
        if not synset.pointed("@i"):
            continue
        full = [n for n in synset.names if 2 <= len(n.split()) <= 3 and _NAME.fullmatch(n) and n[0].isupper()]
        who = fold(re.split(r"[(;]", synset.gloss)[0])
        demonym = next((d for d in longest_first if who.startswith(d + " ")), None)
        years = _YEARS.search(synset.gloss)
        if full and demonym and years:
            work = " ".join(re.findall(r"[A-Za-z'-]+", who[len(demonym) :])[:6])
            found.append(Person(full[0], demonyms[demonym], work, years.group(1)))
    return found


def rivers(synsets: dict[str, Synset], countries: dict[str, str]) -> list[tuple[str, str]]:
    """(river, country) for rivers whose part-of chain reaches exactly one country. `countries`: name -> world name."""
    found = []
    for synset in synsets.values():
        classes = [synsets[o].names[0] for o in synset.pointed("@i")]
        if "river" not in classes:
            continue
        reached = {c for o in synset.pointed("#p") for c in _countries_above(o, synsets, countries, depth=4)}
        name = synset.names[0]
        if len(reached) == 1 and _NAME.fullmatch(name):
            found.append((name, reached.pop()))
    return found


def _countries_above(offset: str, synsets: dict[str, Synset], countries: dict[str, str], depth: int) -> set[str]:
    """Countries reached from a synset by "part of" links."""
    synset = synsets[offset]
    named = {countries[n] for n in synset.names if n in countries}
    if named or depth == 0:
        return named
    return {c for o in synset.pointed("#p") for c in _countries_above(o, synsets, countries, depth - 1)}
