"""Answers that the proposer can start from: those that a search for the bare value leads to.

Search is handed in (a service knows no other): `findable` is run once at build time and its rows ship with the world.
"""

from collections.abc import Callable, Sequence

from sesa_core.types import Passage, Target
from sesa_core.world.load import Findable, World
from sesa_core.world.schema import LISTINGS, RELATIONS, SPLITS

_BATCH = 256  # answers in one search call


def findable(world: World, search: Callable[[Sequence[str]], list[list[Passage]]]) -> list[Findable]:
    """Every (relation, answer) whose first hit names one of its own countries; per split at most one row each."""
    owners: dict[tuple[str, str, str], list[str]] = {}
    for split in SPLITS:
        for name in world.countries_by_split[split]:
            for relation in RELATIONS:
                if answer := world.countries[name].facts.get(relation):
                    owners.setdefault((split, relation, answer), []).append(name)
    answers = sorted({answer for _, _, answer in owners})
    batches = (answers[i : i + _BATCH] for i in range(0, len(answers), _BATCH))
    first = {a: hits[0] for batch in batches for a, hits in zip(batch, search(batch), strict=True) if hits}
    rows = []
    for (_, relation, answer), names in owners.items():
        hit = first.get(answer)
        shown = hit and (answer == hit.title or f": {answer}." in hit.text)
        country = shown and next((n for n in names if _names(hit, n)), None)
        if country:
            rows.append(Findable(relation, answer, country, hit.passage_id))
    return rows


def _names(passage: Passage, country: str) -> bool:
    """The passage is one of the country's sections, or says that its subject belongs to the country."""
    return passage.title.startswith(f"{country} ") or f" {country}." in passage.text or f" {country}, " in passage.text


def targets(world: World, split: str) -> list[Target]:
    """Each findable answer of the split with every hop count that listed passages lead to, in a fixed order."""
    found = []
    for row in world.findable:
        country = world.countries[row.country]
        if country.split == split:
            alias = country.aliases.get(row.relation)
            aliases = (alias,) if alias else ()
            for hops in reachable_hops(world, row.country):
                found.append(Target(f"{split}:{row.relation}:{row.answer}:{hops}", row.answer, hops, aliases, row.relation, split))
    return found


def reachable_hops(world: World, country: str) -> list[int]:
    """1, and 2 or 3 where passages list an entity of the country, a country that names it as a partner, or both in a row."""
    sources = [name for _, name in world.inverse_links.get(country, ())]
    hops = [1]
    if sources or _lists(world, country):
        hops.append(2)
    if any(_lists(world, s) or any(n != country for _, n in world.inverse_links.get(s, ())) for s in sources):
        hops.append(3)
    return hops


def _lists(world: World, country: str) -> bool:
    return any(f"{country} {listing}" in world.documents_by_title for listing in LISTINGS)
