"""The built world in memory: `load_world` reads the shipped files and checks them against the manifest.

A `World` is plain, immutable data plus the indexes that questions need; it knows nothing of search, policies or Prefect.
"""

import gzip
import hashlib
import json
import zlib
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from sesa_core.errors import WorldError
from sesa_core.types import Target
from sesa_core.world.build import FACTS_FILE, MANIFEST_FILE, PASSAGES_FILE, TARGETS_FILE
from sesa_core.world.entities import Country, Entity
from sesa_core.world.passages import PARTNERS_SHOWN, Document, inverse_links
from sesa_core.world.schema import SPLITS

SHIPPED = Path(__file__).parent / "files"


@dataclass(frozen=True)
class Findable:
    """An answer that search leads to: `passage_id` is the first hit for `answer`, and shows that `country` has it."""

    relation: str
    answer: str
    country: str
    passage_id: str


class World:
    """Countries by name, entities, passages. `fingerprint` names the content, e.g. for a search index's folder."""

    def __init__(
        self,
        countries: Iterable[Country],
        entities: Iterable[Entity],
        documents: Iterable[Document],
        fingerprint: str,
        found: Iterable[Findable] = (),
    ) -> None:
        self.findable = tuple(found)
        self.countries = {c.name: c for c in countries}
        self.entities = tuple(entities)
        self.documents = tuple(documents)
        self.fingerprint = fingerprint

    @cached_property
    def entities_by_name(self) -> dict[str, tuple[Entity, ...]]:
        """Name -> entities that bear it, the highest rank first: more than one is a real namesake."""
        found = defaultdict(list)
        for entity in self.entities:
            found[entity.name].append(entity)
        return {n: tuple(sorted(es, key=lambda e: (-e.rank, e.qualifier))) for n, es in found.items()}

    @cached_property
    def entities_by_kind(self) -> dict[tuple[str, str], tuple[Entity, ...]]:
        """(split, kind) -> entities, in file order."""
        found = defaultdict(list)
        for entity in self.entities:
            found[self.countries[entity.country].split, entity.kind].append(entity)
        return {key: tuple(es) for key, es in found.items()}

    @cached_property
    def cities_by_split(self) -> dict[tuple[str, bool], tuple[Entity, ...]]:
        """(split, is a namesake) -> cities, in file order."""
        found = defaultdict(list)
        for entity in self.entities:
            if entity.kind == "city":
                found[self.countries[entity.country].split, bool(entity.qualifier)].append(entity)
        return {key: tuple(es) for key, es in found.items()}

    @cached_property
    def countries_by_split(self) -> dict[str, tuple[str, ...]]:
        return {s: tuple(n for n, c in self.countries.items() if c.split == s) for s in SPLITS}

    @cached_property
    def documents_by_title(self) -> dict[str, tuple[Document, ...]]:
        """Title -> passages; namesakes share a title, the one that search prefers comes first."""
        found = defaultdict(list)
        for document in self.documents:
            found[document.title].append(document)
        return {title: tuple(ds) for title, ds in found.items()}

    @cached_property
    def documents_by_id(self) -> dict[str, Document]:
        return {d.passage_id: d for d in self.documents}

    @cached_property
    def inverse_links(self) -> dict[str, list[tuple[str, str]]]:
        """Country -> [(link, country that names it as that partner)] as its "partners" passage lists them."""
        return {partner: rows[:PARTNERS_SHOWN] for partner, rows in inverse_links(self.countries).items()}

    def targets(self, split: str) -> list[Target]:
        """Proposer targets of the split; see `sesa_core.world.targets`."""
        from sesa_core.world.targets import targets

        return targets(self, split)

    def split_of(self, country: str) -> str:
        return self.countries[country].split


def load_world(path: Path | None = None) -> World:
    """The world under `path` (default: the shipped one). Raises WorldError if a file is missing or damaged."""
    folder = Path(path) if path else SHIPPED
    try:
        manifest = json.loads((folder / MANIFEST_FILE).read_text())
        payloads = {name: gzip.decompress((folder / name).read_bytes()) for name in (FACTS_FILE, PASSAGES_FILE, TARGETS_FILE)}
    except (OSError, EOFError, ValueError, zlib.error) as error:
        raise WorldError(f"the world's files in {folder} cannot be read: {error}") from error
    for name, data in payloads.items():
        if hashlib.sha256(data).hexdigest() != manifest["sha256"][name]:
            raise WorldError(f"{folder / name} does not match its manifest; rebuild the world or restore the file")
    facts = json.loads(payloads[FACTS_FILE])
    documents = [Document(*json.loads(line)) for line in payloads[PASSAGES_FILE].decode().splitlines()]
    found = [Findable(*row) for row in json.loads(payloads[TARGETS_FILE])]
    fingerprint = manifest["sha256"][PASSAGES_FILE][:12]
    return World((Country(**c) for c in facts["countries"]), (Entity(*e) for e in facts["entities"]), documents, fingerprint, found)
