"""Short sectioned passages, and what of each the search index sees.

`keys` is the indexed body: values and names, never the labels of facts. A query must therefore name an entity and a
section ("Chad culture") or a value ("La Tchadienne"); asking in the words of the question does not help.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from sesa_core.world.entities import Country, Entity
from sesa_core.world.schema import INVERSE_SECTION, LINK_SECTION, SECTION_RELATIONS

PARTNERS_SHOWN = 3
_PLACES = (("city", 3), ("port", 1), ("mountain", 1), ("river", 1), ("site", 1))
_PEOPLE = (("person", 2), ("leader", 1), ("element", 1))


@dataclass(frozen=True)
class Document:
    """One passage. `title` and `keys` are indexed; `text` is what the searcher reads."""

    passage_id: str
    title: str
    text: str
    keys: str


def inverse_links(countries: Mapping[str, Country]) -> dict[str, list[tuple[str, str]]]:
    """Partner -> [(link, country that names it)], only within one split: a chain met while training stays in training."""
    out = defaultdict(list)
    for name, country in countries.items():
        for link, partner in country.links.items():
            if countries[partner].split == country.split:
                out[partner].append((link, name))
    return out


def render(countries: Mapping[str, Country], entities: Sequence[Entity], rng: np.random.Generator) -> list[Document]:
    """All passages; ids ascend with what should win a tie: countries, then entities by rank."""
    rows = [row for c in countries.values() for row in _country_rows(c)]
    rows += _partner_rows(countries)
    for entity in sorted(entities, key=lambda e: -e.rank):
        rows += _entity_rows(entity, countries[entity.country])
    rows += _listing_rows(countries, entities, rng)
    return [Document(f"w{i:05d}", *row) for i, row in enumerate(rows)]


def _country_rows(country: Country) -> list[tuple[str, str, str]]:
    rows = [(country.name, f"Country in {country.continent}.", country.continent)]
    for section, relations in SECTION_RELATIONS.items():
        facts = [(r, country.facts[r]) for r in relations if r in country.facts]
        if section == LINK_SECTION:
            facts = list(country.links.items()) + facts
        text = " ".join(f"{label}: {value}." for label, value in facts) or "No entry."
        rows.append((f"{country.name} {section}", text, "; ".join(v for _, v in facts)))
    return rows


def _partner_rows(countries: Mapping[str, Country]) -> list[tuple[str, str, str]]:
    rows = []
    for partner, sources in sorted(inverse_links(countries).items()):
        text = " ".join(f"{link} of {name}." for link, name in sources[:PARTNERS_SHOWN])
        rows.append((f"{partner} {INVERSE_SECTION}", text, "; ".join(name for _, name in sources[:PARTNERS_SHOWN])))
    return rows


def _entity_rows(entity: Entity, country: Country) -> list[tuple[str, str, str]]:
    """Persons, elements and rivers tell their country in a section of their own; the other passage is a decoy."""
    name, home = entity.name, country.name
    note = entity.note.split("|")
    match entity.kind:
        case "person":
            return [
                (f"{name} work", f"A {note[0]}.", note[0]),
                (f"{name} life", f"Home country {home}. Born {note[1]}.", f"{home} {note[1]}"),
            ]
        case "element":
            return [
                (f"{name} chemistry", f"Symbol {note[0]}. Period {note[1]}.", note[0]),
                (f"{name} discovery", f"Found in {home}. Year {note[2]}.", f"{home} {note[2]}"),
            ]
        case "river":
            return [
                (f"{name} water", "A river.", "river"),
                (f"{name} course", f"Flows in {home}, {country.continent}.", f"{home} {country.continent}"),
            ]
        case "city":
            return [(name, f"City in {home}, {country.continent}.", f"{home} {country.continent}")]
        case "mountain":
            return [(name, f"Highest point of {home}.", home)]
        case "leader":
            return [(name, f"Leader of {home}.", home)]
        case "port":
            return [(name, f"Port in {home}.", home)]
    return [(name, f"Heritage site in {home}.", home)]


def _listing_rows(countries: Mapping[str, Country], entities: Sequence[Entity], rng: np.random.Generator) -> list[tuple[str, str, str]]:
    """ "Chad places" and "Chad people": a few of a country's entities, drawn once."""
    owned: dict[tuple[str, str], list[Entity]] = defaultdict(list)
    for entity in entities:
        owned[entity.country, entity.kind].append(entity)
    rows = []
    for name in countries:
        for listing, plan in (("places", _PLACES), ("people", _PEOPLE)):
            chosen = [e for kind, count in plan for e in _draw(owned[name, kind], count, rng)]
            if chosen:
                items = [f"{chosen[i].kind} {chosen[i].label}" for i in rng.permutation(len(chosen))]
                rows.append((f"{name} {listing}", "; ".join(items) + ".", "; ".join(e.name for e in chosen)))
    return rows


def _draw(pool: list[Entity], count: int, rng: np.random.Generator) -> list[Entity]:
    return [pool[i] for i in rng.choice(len(pool), min(count, len(pool)), replace=False)] if pool else []
