"""The grammar of questions: `phrase` writes one from a chain, `resolve` reads it back against the facts.

A chain goes from an optional entity to its country, along zero to two links to further countries, and ends in one
relation. Hops = (1 if an entity) + links + 1, at most 3. The grammar is invertible, so a question that a policy wrote can
be checked: its answer, the facts it needs, and whether another answer would be as valid (a namesake without its
qualifier: `ambiguous`).
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from sesa_core.world.entities import Entity
from sesa_core.world.load import World
from sesa_core.world.schema import KINDS, LINKS, RELATIONS
from sesa_core.world.text import mentions

TEMPLATES = ("What is the {relation} of {subject}?", "Name the {relation} of {subject}.", "Give the {relation} of {subject}.")
MAX_HOPS = 3
_QUESTION = re.compile(
    r"(?:What is|Name|Give) the (?P<relation>.+?) of "
    rf"(?P<links>(?:the (?:{'|'.join(LINKS)}) of ){{0,2}})"
    rf"(?:the country of the (?P<kind>{'|'.join(KINDS)}) (?P<label>.+?)|(?P<country>.+?))[.?]"
)
_LINK = re.compile(rf"the ({'|'.join(LINKS)}) of ")


@dataclass(frozen=True)
class Chain:
    """One way to an answer. `links` in the order in which they are followed; `start` is the entity's country if there is one."""

    relation: str
    start: str
    links: tuple[str, ...] = ()
    entity: Entity | None = None

    @property
    def hops(self) -> int:
        return (self.entity is not None) + len(self.links) + 1

    @property
    def shape(self) -> str:
        """country, link, link-link, entity or entity-link."""
        return "-".join((["entity"] if self.entity else []) + ["link"] * len(self.links)) or "country"


@dataclass(frozen=True)
class Resolution:
    """What a question asks. `needed` are (key, value) pairs: a passage that holds both shows that fact."""

    answer: str
    aliases: tuple[str, ...]
    hops: int
    relation: str
    needed: tuple[tuple[str, str], ...]
    entities: tuple[str, ...]  # every name on the chain, the answer not included
    splits: frozenset[str]  # splits that the chain touches
    ambiguous: bool
    chain: Chain

    @property
    def split(self) -> str:
        """The chain's split, or "mixed"."""
        return next(iter(self.splits)) if len(self.splits) == 1 else "mixed"


def walk(world: World, chain: Chain) -> tuple[str, ...] | None:
    """Countries on the chain, first to last; None if a link is unknown or leads back."""
    path = [chain.start]
    for link in chain.links:
        partner = world.countries[path[-1]].links.get(link)
        if partner is None or partner in path:
            return None
        path.append(partner)
    return tuple(path)


def phrase(chain: Chain, template: int = 0) -> str:
    """The question's text; `template` is 0 to 2."""
    subject = f"the country of the {chain.entity.kind} {chain.entity.label}" if chain.entity else chain.start
    for link in chain.links:
        subject = f"the {link} of {subject}"
    return TEMPLATES[template].format(relation=chain.relation, subject=subject)


def answer_of(world: World, chain: Chain) -> str | None:
    """The chain's answer; None if a fact or a link is missing."""
    path = walk(world, chain)
    return world.countries[path[-1]].facts.get(chain.relation) if path else None


def askable(world: World, chain: Chain) -> bool:
    """The chain has an answer, and the question does not contain it."""
    answer = answer_of(world, chain)
    return answer is not None and not mentions(phrase(chain), answer)


def parse(world: World, question: str) -> list[Chain]:
    """Chains that the text can mean: one per namesake if the qualifier is missing, none if it is not a question of this world."""
    match = _QUESTION.fullmatch(question.strip())
    if not match or match["relation"] not in RELATIONS:
        return []
    links = tuple(reversed(_LINK.findall(match["links"])))
    if match["kind"] is None:
        starts: list[tuple[str, Entity | None]] = [(match["country"], None)] if match["country"] in world.countries else []
    else:
        starts = [(e.country, e) for e in _named(world, match["kind"], match["label"])]
    chains = [Chain(match["relation"], country, links, entity) for country, entity in starts]
    return [c for c in chains if c.hops <= MAX_HOPS]


def _named(world: World, kind: str, label: str) -> list[Entity]:
    name, _, qualifier = label.partition(" in ")
    found: Iterable[Entity] = world.entities_by_name.get(name, ()) if qualifier else ()
    exact = [e for e in found if e.kind == kind and e.qualifier == qualifier]
    return exact or [e for e in world.entities_by_name.get(label, ()) if e.kind == kind]


def resolve(world: World, question: str) -> Resolution | None:
    """What the question asks for, or None if it is not one of this world or has no answer.

    Without its qualifier a namesake means the highest-ranked one; `ambiguous` says that another one has another answer.
    """
    chains = parse(world, question)
    answers = [answer_of(world, c) for c in chains]
    if not chains or answers[0] is None:
        return None
    return _resolution(world, chains[0], ambiguous=len(set(answers) - {None}) > 1)


def resolve_chain(world: World, chain: Chain) -> Resolution:
    """The resolution of a chain that is known to have an answer."""
    return _resolution(world, chain, ambiguous=False)


def _resolution(world: World, chain: Chain, ambiguous: bool) -> Resolution:
    path = walk(world, chain) or (chain.start,)
    last = world.countries[path[-1]]
    answer = last.facts[chain.relation]
    needed = [(chain.entity.name, chain.start)] if chain.entity else []
    needed += list(zip(path, path[1:], strict=False)) + [(last.name, answer)]
    names = ((chain.entity.name,) if chain.entity else ()) + path
    alias = last.aliases.get(chain.relation)
    return Resolution(
        answer, (alias,) if alias else (), chain.hops, chain.relation, tuple(needed), names,
        frozenset(world.split_of(c) for c in path), ambiguous, chain,
    )  # fmt: skip
