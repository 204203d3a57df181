"""Builds the world's files from the four sources: `build_world`.

Invariant: the same sources give the same bytes (fixed seed, kept order, gzip without a time stamp).
"""

import gzip
import hashlib
import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

from sesa_core.rng import stream
from sesa_core.types import Passage
from sesa_core.world import entities as gather
from sesa_core.world import sources
from sesa_core.world.entities import Country, Entity, EntityCollector
from sesa_core.world.passages import Document, render
from sesa_core.world.splits import assign_splits

WORDNET = Path("/usr/share/wordnet/data.noun")
FACTS_FILE, PASSAGES_FILE, TARGETS_FILE, MANIFEST_FILE = "facts.json.gz", "passages.jsonl.gz", "targets.json.gz", "manifest.json"
SEED = 0

Search = Callable[[Sequence[str]], list[list[Passage]]]
Indexer = Callable[[Sequence[Document]], Search]


def build_world(out_dir: Path, indexer: Indexer, wordnet: Path = WORDNET, cities: int = 4000, log: Callable[[str], None] = print) -> dict:
    """Write facts, passages, findable targets and a manifest into `out_dir`; return the manifest.

    `indexer` makes a search function over the passages (the caller chooses the backend): a target is an answer that search
    finds. Raises WorldError if a source is missing. `cities` bounds the cities without a namesake.
    """
    wordnet_text = sources.read_text(wordnet)
    countries, entities = gather_world(wordnet_text, cities)
    log(f"{len(countries)} countries, {sum(len(c.facts) for c in countries.values())} facts")
    log(f"{len(entities)} entities: {dict(Counter(e.kind for e in entities))}")
    documents = render(countries, entities, stream(SEED, "world", "listings"))
    log(f"{len(documents)} passages")
    found = _find(countries, entities, documents, indexer(documents))
    log(f"{len(found)} answers that search leads to")
    return write_files(out_dir, countries, entities, documents, found, sources.source_versions(wordnet_text))


def gather_world(wordnet_text: str, cities: int) -> tuple[dict[str, Country], list[Entity]]:
    """Countries with their split, and all entities, from the sources."""
    by_iso = sources.read_countries(sources.read_factbook())
    raw = {country.name: country for _, country in by_iso.values()}
    collector = EntityCollector(raw)
    gather.add_wordnet(collector, raw, wordnet_text)
    gather.add_elements(collector, raw)
    gather.add_cities(collector, raw, {code: country.name for code, (_, country) in by_iso.items()}, cities)
    gather.add_places(collector, raw)
    links = gather.resolve_links(raw)
    owned = Counter(e.country for e in collector.entities)
    split = assign_splits({n: tuple(links[n].values()) for n in raw}, owned, stream(SEED, "world", "splits"))
    countries = {
        n: Country(n, c.continent, split[n], dict(sorted(c.facts.items())), links[n], dict(sorted(c.spellings.items())))
        for n, c in raw.items()
    }
    return countries, collector.entities


def _find(countries: dict[str, Country], entities: list[Entity], documents: list[Document], search: Search) -> list[list[str]]:
    from sesa_core.world.load import World
    from sesa_core.world.targets import findable

    world = World(countries.values(), entities, documents, "building")
    return [list(asdict(row).values()) for row in findable(world, search)]


def write_files(
    out_dir: Path,
    countries: dict[str, Country],
    entities: list[Entity],
    documents: list[Document],
    found: list[list[str]],
    versions: dict[str, str],
) -> dict:
    """Rows keep their order; the manifest holds counts, the SHA-256 of each file's content and the sources' `versions`."""
    facts = {"countries": [asdict(c) for c in countries.values()], "entities": [list(asdict(e).values()) for e in entities]}
    payloads = {
        FACTS_FILE: _json(facts).encode(),
        PASSAGES_FILE: "".join(_json(list(asdict(d).values())) + "\n" for d in documents).encode(),
        TARGETS_FILE: _json(found).encode(),
    }
    manifest = {
        "countries": len(countries),
        "entities": len(entities),
        "passages": len(documents),
        "findable": len(found),
        "sources": versions,
        "sha256": {name: hashlib.sha256(data).hexdigest() for name, data in payloads.items()},
    }
    out_dir.mkdir(parents=True, exist_ok=True)
    for name, data in payloads.items():
        (out_dir / name).write_bytes(gzip.compress(data, compresslevel=9, mtime=0))
    (out_dir / MANIFEST_FILE).write_text(json.dumps(manifest, indent=2, sort_keys=True) + "\n")
    return manifest


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
