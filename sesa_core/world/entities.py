"""From raw sources to the world's countries and entities: one name one meaning, except for real namesakes among cities."""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from sesa_core.world import sources, wordnet
from sesa_core.world.schema import LINKS
from sesa_core.world.sources import RawCountry, country_spelling
from sesa_core.world.text import words

_CITY_NAME = re.compile(r"[A-Za-z][A-Za-z' -]{2,17}")


@dataclass(frozen=True)
class Country:
    """A country: `facts` by relation, `links` by link relation, `aliases` by relation (other spellings of the value)."""

    name: str
    continent: str
    split: str
    facts: Mapping[str, str] = field(default_factory=dict)
    links: Mapping[str, str] = field(default_factory=dict)
    aliases: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Entity:
    """Something that belongs to a country. `qualifier` is the continent where other entities share the name, else ""."""

    name: str
    kind: str
    country: str
    qualifier: str = ""
    rank: int = 0  # population of a city; a bigger namesake is found first
    note: str = ""  # shown in a passage, never asked

    @property
    def label(self) -> str:
        """The name as a question writes it: "Cordoba in Europe"."""
        return f"{self.name} in {self.qualifier}" if self.qualifier else self.name


class EntityCollector:
    """Gathers entities; a name that is taken is not taken twice (namesakes among cities come as one group)."""

    def __init__(self, taken: Iterable[str]) -> None:
        self.entities: list[Entity] = []
        self._taken = {" ".join(words(t)) for t in taken}

    def free(self, name: str) -> bool:
        return bool(name) and " ".join(words(name)) not in self._taken

    def add(self, *group: Entity) -> None:
        """Add entities that share one name (usually a single one), unless the name is taken."""
        if self.free(group[0].name):
            self.entities += group
            self._taken.add(" ".join(words(group[0].name)))


def resolve_links(raw: Mapping[str, RawCountry]) -> dict[str, dict[str, str]]:
    """Country -> link -> partner, only partners that are countries of this world."""
    return {name: {link: p for link in LINKS if (p := c.partners.get(link, "")) in raw and p != name} for name, c in raw.items()}


def add_cities(collector: EntityCollector, raw: Mapping[str, RawCountry], iso: Mapping[str, str], limit: int) -> None:
    """Every name borne by cities of several continents (the largest of each), then the largest other cities."""
    groups: dict[str, dict[str, Entity]] = defaultdict(dict)
    for row in sources.read_cities():
        name, country = row["name"], iso.get(row["iso"])
        if country and _CITY_NAME.fullmatch(name) and len(words(name)) <= 3 and collector.free(name):
            continent = raw[country].continent
            groups[name].setdefault(continent, Entity(name, "city", country, "", row["population"]))
    twins = sorted(n for n, g in groups.items() if len(g) > 1)
    singles = sorted((n for n in groups if len(groups[n]) == 1), key=lambda n: (-max(e.rank for e in groups[n].values()), n))
    for name in twins:
        collector.add(*(Entity(name, "city", e.country, c, e.rank) for c, e in sorted(groups[name].items())))
    for name in singles[:limit]:
        collector.add(*groups[name].values())


def add_places(collector: EntityCollector, raw: Mapping[str, RawCountry]) -> None:
    """Mountains, leaders (only where one country has them), ports and heritage sites."""
    shared = _repeated(c.facts.get("leader", "") for c in raw.values()) | _repeated(c.facts.get("highest point", "") for c in raw.values())
    for name, country in raw.items():
        for kind, relation in (("mountain", "highest point"), ("leader", "leader")):
            value = country.facts.get(relation, "")
            if value not in shared and re.fullmatch(r"[A-Za-z' -]{4,30}", value):
                collector.add(Entity(value, kind, name))
        for kind, values in (("port", country.ports), ("site", country.sites)):
            for value in values:
                if re.fullmatch(r"[A-Za-z' -]{4,28}", value):
                    collector.add(Entity(value, kind, name))


def add_wordnet(collector: EntityCollector, raw: Mapping[str, RawCountry], text: str) -> None:
    """Persons by the demonym of their gloss, rivers by part-of."""
    synsets = wordnet.parse(text)
    demonyms = {d: n for n, c in raw.items() for d in c.demonyms if d[:1].isupper()}
    demonyms |= {"United States": "United States", "American": "United States", "British": "United Kingdom", "English": "United Kingdom",
                 "Scottish": "United Kingdom", "Welsh": "United Kingdom", "Dutch": "The Netherlands"}  # fmt: skip
    demonyms = {d: n for d, n in demonyms.items() if n in raw}
    for person in wordnet.persons(synsets, demonyms):
        collector.add(Entity(person.name, "person", person.country, note=f"{person.work}|{person.born}"))
    spellings = {s: country_spelling(s) for synset in synsets.values() for s in synset.names if country_spelling(s) in raw}
    for name, country in wordnet.rivers(synsets, spellings):
        river = name if name.endswith("River") else f"{name} River"
        collector.add(Entity(river, "river", country))


def add_elements(collector: EntityCollector, raw: Mapping[str, RawCountry]) -> None:
    """Chemical elements, in the country of their discovery."""
    for e in sources.read_elements():
        if e["place"] in raw:
            collector.add(Entity(e["name"], "element", e["place"], note=f"{e['symbol']}|{e['period']}|{e['year']}"))


def _repeated(values: Iterable[str]) -> set[str]:
    seen: set[str] = set()
    return {v for v in values if v in seen or seen.add(v)} | {""}
