"""Draws chains and evaluation questions. Everything is a function of the split and the given stream.

The test split is for the final report only; every choice (hyper-parameters, checkpoints, prompts) is made on dev.
"""

from bisect import bisect
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, islice

import numpy as np

from sesa_core.errors import ConfigError, WorldError
from sesa_core.rng import stream
from sesa_core.world.entities import Entity
from sesa_core.world.load import World
from sesa_core.world.questions import TEMPLATES, Chain, Resolution, askable, phrase, resolve_chain, walk
from sesa_core.world.schema import HELD_OUT_KINDS, HELD_OUT_RELATIONS, LINKS, RELATIONS

# Which shapes make a question of so many hops, and which kinds of entity start it (repeats are weights).
SHAPES = {1: ("country",), 2: ("entity", "entity", "entity", "link"), 3: ("entity-link", "entity-link", "entity-link", "link-link")}
KIND_WEIGHTS = {"city": 5, "person": 4, "element": 1.2, "river": 0.8, "mountain": 1, "leader": 1, "port": 1, "site": 1}
NAMESAKE_SHARE = 0.4  # of the city questions
MOST_PER_FACT = 2  # questions of an evaluation that may end in one fact: else few hubs ("China") would decide most of it
_MAX_DRAWS = 20_000
_MAX_STALE = 4_000  # draws in a row without a new question: the split is used up
EVALUATION_SEED = 20_261_129


@dataclass(frozen=True)
class Question:
    """One question of the world with everything that is known about it."""

    text: str
    resolution: Resolution

    @property
    def answer(self) -> str:
        return self.resolution.answer

    @property
    def held_out(self) -> bool:
        """It needs a section that the warm start was never shown."""
        chain = self.resolution.chain
        return chain.relation in HELD_OUT_RELATIONS or (chain.entity is not None and chain.entity.kind in HELD_OUT_KINDS)


def draw_entity(world: World, split: str, rng: np.random.Generator, kinds: Sequence[str] | None = None) -> Entity | None:
    """An entity of the split: first its kind by weight, then, for cities, namesake or not."""
    names = [k for k in (kinds or KIND_WEIGHTS) if world.entities_by_kind.get((split, k))]
    if not names:
        return None
    bounds = list(accumulate(KIND_WEIGHTS[k] for k in names))
    kind = names[bisect(bounds, rng.random() * bounds[-1])]
    pool = world.entities_by_kind[split, kind]
    if kind == "city":
        pool = world.cities_by_split.get((split, bool(rng.random() < NAMESAKE_SHARE)), pool)
    return pool[rng.integers(len(pool))]


def draw_chain(
    world: World,
    split: str,
    rng: np.random.Generator,
    hops: int,
    relations: Sequence[str] = RELATIONS,
    kinds: Sequence[str] | None = None,
    shape: str | None = None,
) -> Chain:
    """One askable chain that stays inside `split`. Raises WorldError if none turns up: the wish cannot be met."""
    countries = world.countries_by_split[split]
    for _ in range(_MAX_DRAWS):
        form = shape or SHAPES[hops][rng.integers(len(SHAPES[hops]))]
        entity = draw_entity(world, split, rng, kinds) if form.startswith("entity") else None
        start = entity.country if entity else countries[rng.integers(len(countries))]
        links = tuple(LINKS[i] for i in rng.integers(len(LINKS), size=form.count("link")))
        chain = Chain(relations[rng.integers(len(relations))], start, links, entity)
        if inside(world, chain, split) and askable(world, chain):
            return chain
    raise WorldError(f"no question of {hops} hops in {split} with relations {relations}, kinds {kinds}, shape {shape}")


def inside(world: World, chain: Chain, split: str) -> bool:
    """Every country of the chain belongs to the split."""
    path = walk(world, chain)
    return path is not None and all(world.split_of(c) == split for c in path)


def draw_question(world: World, split: str, rng: np.random.Generator, hops: int, **chosen: object) -> Question:
    """A question with a random template. `chosen` as in `draw_chain`."""
    chain = draw_chain(world, split, rng, hops, **chosen)
    return Question(phrase(chain, int(rng.integers(len(TEMPLATES)))), resolve_chain(world, chain))


def evaluation_questions(world: World, split: str, count: int) -> list[Question]:
    """The first `count` distinct questions of the split, hops 1, 2, 3 in turn: always the same ones, and a longer list
    starts with the shorter one. Raises ConfigError if the split has not so many: one of the three hop counts is used up."""
    found = evaluation_questions_up_to(world, split, count)
    if len(found) < count:
        raise ConfigError("evaluation.questions", count, f"the {split} split of this world has at most {len(found)}")
    return found


def evaluation_questions_up_to(world: World, split: str, count: int) -> list[Question]:
    """As `evaluation_questions`, or as many as the split has."""
    return list(islice(_distinct_questions(world, split), count))


def _distinct_questions(world: World, split: str) -> Iterator[Question]:
    """All of them that turn up, at most `MOST_PER_FACT` that end in the same fact."""
    rng = stream(EVALUATION_SEED, "evaluation", split)
    asked: set[Chain] = set()
    facts: Counter[tuple[str, str]] = Counter()
    stale = 0
    while stale < _MAX_STALE:
        question = draw_question(world, split, rng, 1 + len(asked) % 3)
        chain = question.resolution.chain
        fact = (walk(world, chain)[-1], chain.relation)
        stale += 1
        if chain not in asked and facts[fact] < MOST_PER_FACT:
            asked.add(chain)
            facts[fact] += 1
            stale = 0
            yield question
