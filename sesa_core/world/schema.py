"""The shape of the embedded world: its sections, relations, links and kinds of entity.

A country's facts stand in sections ("Chad economy"); one relation belongs to one section. Some kinds of entity keep the
fact that matters (their country) in a section of their own ("Marie Curie life"). Knowing which section to open is the
craft of this world: search indexes titles and values, never the labels of facts.

`HELD_OUT_RELATIONS` and `HELD_OUT_KINDS` are never demonstrated with their true section by the warm start, so that only
trial and error or a skill card can tell where they stand.
"""

from dataclasses import dataclass

CONTINENTS = {
    "AF": "Africa",
    "AN": "Antarctica",
    "AS": "Asia",
    "EU": "Europe",
    "NA": "North America",
    "OC": "Oceania",
    "SA": "South America",
}

SPLITS = ("train", "dev", "test")
SPLIT_SHARES = {"dev": 0.12, "test": 0.25}

LINKS = ("export partner", "import partner")

SECTION_RELATIONS: dict[str, tuple[str, ...]] = {
    "government": ("capital", "leader", "parliament", "regime"),
    "economy": ("currency", "industry", "main crop"),
    "culture": ("symbol", "anthem", "heritage site", "colors"),
    "society": ("religion", "language", "holiday", "largest group"),
    "geography": ("highest point", "lowest point", "resource", "climate"),
    "network": ("web code", "calling code", "aircraft mark"),
    "history": ("independence", "former name", "endonym"),
    "trade": ("top export", "top import"),
}
SECTIONS = tuple(SECTION_RELATIONS)
RELATION_SECTION = {r: s for s, relations in SECTION_RELATIONS.items() for r in relations}
RELATIONS = tuple(RELATION_SECTION)
LINK_SECTION = "trade"
INVERSE_SECTION = "partners"  # "Chad partners" lists who names Chad as a partner
LISTINGS = ("places", "people")  # "Chad places" lists cities, ports, ...: the proposer's way from a country to an entity

HELD_OUT_RELATIONS = frozenset({"anthem", "holiday", "resource", "aircraft mark", "industry", "parliament", "climate", "endonym"})
HELD_OUT_KINDS = frozenset({"element", "river"})


@dataclass(frozen=True)
class Kind:
    """A kind of entity. `section` is where its country stands ("" when the bare name finds it), `listing` who lists it."""

    name: str
    section: str
    listing: str


KINDS = {
    k.name: k
    for k in (
        Kind("city", "", "places"),
        Kind("port", "", "places"),
        Kind("mountain", "", "places"),
        Kind("site", "", "places"),
        Kind("river", "course", "places"),
        Kind("person", "life", "people"),
        Kind("leader", "", "people"),
        Kind("element", "discovery", "people"),
    )
}
