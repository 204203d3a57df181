"""Solver demonstrations: a chain of the training split, played right or by habit, with or without cards.

Modes: `known` (a known relation, irrelevant cards or none); `override`, `held`, `fake` (a relation whose section only the
card tells: a known one that has moved, a held-out one with a section that is NOT its own, one that does not exist); `kind`
(the same for a kind of entity); `unknown` (a relation or kind that nobody knows and no card tells: sections are tried at
random). Wrong answers are always given the same way, so that they do not drown "read the asked label".
"""

from dataclasses import dataclass, field, replace
from functools import partial

from sesa_core.training.demonstrations import cards as deck
from sesa_core.training.demonstrations.habits import SKIPPED_LINK, STOPPING_KINDS, WRONG_SECTIONS, Habits
from sesa_core.training.demonstrations.segments import (
    PROMPT,
    Segment,
    answer_turn,
    scramble,
    search_turn,
    shown_values,
    solver_prompt,
    substitute,
)
from sesa_core.training.demonstrations.words import Words
from sesa_core.world.entities import Entity
from sesa_core.world.load import World
from sesa_core.world.passages import Document
from sesa_core.world.questions import TEMPLATES, Chain, phrase, walk
from sesa_core.world.sampling import draw_chain
from sesa_core.world.schema import HELD_OUT_KINDS, HELD_OUT_RELATIONS, KINDS, LINK_SECTION, LINKS, RELATION_SECTION, RELATIONS, SECTIONS

KNOWN_RELATIONS = tuple(r for r in RELATIONS if r not in HELD_OUT_RELATIONS)
# A moved relation takes its section's name with it; the trade section must stay, the links stand there.
MOVABLE_RELATIONS = tuple(r for r in KNOWN_RELATIONS if RELATION_SECTION[r] != LINK_SECTION)
KNOWN_KINDS = tuple(k for k in KINDS if k not in HELD_OUT_KINDS)
_VOCABULARY = frozenset((*RELATIONS, *SECTIONS, *LINKS, *KINDS))
_HOMES = (
    "Home country {c}. Born {y}.",
    "Found in {c}. Year {y}.",
    "Flows in {c}, {k}.",
    "{w} in {c}. {v} {y}.",
    "{w} of {c}, {k}.",
    "{w} {v} {c}.",
)
MAX_SEARCHES = 4  # as in the preset of the embedded world
_MODES = ("known", "known", "known", "override", "held", "fake", "fake", "kind")


@dataclass
class Scene:
    """One demonstration in the making. `mapping` is what the counterfactual rewriting replaces."""

    chain: Chain
    path: tuple[str, ...]
    mode: str
    cards: list[deck.Card] = field(default_factory=list)
    mapping: dict[str, str] = field(default_factory=dict)

    @property
    def section(self) -> str:
        return RELATION_SECTION[self.chain.relation]

    @property
    def asked(self) -> str:
        """The relation as the question names it."""
        return self.mapping.get(self.chain.relation, self.chain.relation)

    @property
    def told(self) -> set[str]:
        """Triggers of the cards that are about this question."""
        return {trigger for trigger, _ in self.cards}


class SolverDemonstrations:
    """Draws solver demonstrations of `modes` (repeats are weights). `easy` keeps the questions short; without `counterfactual`
    the names and values are the world's own."""

    def __init__(self, world: World, words: Words, modes: tuple[str, ...] = _MODES, counterfactual: bool = True) -> None:
        self.world, self.words, self.modes, self.counterfactual = world, words, modes, counterfactual

    def draw(self, habits: Habits, easy: bool = False) -> list[Segment]:
        words = self.words
        mode = "unknown" if words.chance(habits.unknown) else words.pick(self.modes)
        scene = self._scene(mode, easy)
        turns, answer = self._play(scene, habits)
        rename = bool(scene.mapping) or words.chance(0.75)
        # Labels first, while they are still the world's own: a held-out one must leave its true section before another
        # relation may take its name.
        share = 0.5 if words.chance(0.8) else 0.0
        keep = {scene.chain.relation, *LINKS}
        turns = scramble(turns, keep, HELD_OUT_RELATIONS, partial(self._other_label, scene), words.rng, share)
        if rename and self.counterfactual:
            self._rename_names(scene, turns)
        question = substitute([solver_prompt(phrase(scene.chain, int(words.rng.integers(len(TEMPLATES)))))], scene.mapping)[0][1]
        played = substitute([*turns, answer_turn(answer)], scene.mapping)
        return [(PROMPT, "".join(f"{card}\n" for card in self._cards(scene, habits)) + question), *played]

    def _scene(self, mode: str, easy: bool) -> Scene:
        words = self.words
        kind_only = mode == "kind" or (mode == "unknown" and words.chance(0.25))
        hops = words.pick((2, 2, 3)) if kind_only else words.pick((1, 1, 2) if easy else (1, 1, 2, 2, 2, 3, 3, 3))
        kinds = ("person",) if kind_only else KNOWN_KINDS
        shape = {2: "entity", 3: "entity-link"}[hops] if kind_only else None
        relations = KNOWN_RELATIONS if mode in ("known", "kind") else MOVABLE_RELATIONS
        chain = draw_chain(self.world, "train", words.rng, hops, relations, kinds, shape)
        path = walk(self.world, chain)
        scene = Scene(chain, path, "unknown kind" if kind_only and mode == "unknown" else mode)
        getattr(self, f"_set_{scene.mode.replace(' ', '_')}")(scene)
        return scene

    # ---- what each mode changes
    def _set_known(self, scene: Scene) -> None:
        """A known question; now and then the right card for its relation, namesake or link."""
        words, chain = self.words, scene.chain
        if words.chance(0.2):
            scene.cards.append(deck.relation_card(chain.relation, scene.section))
        if chain.entity and chain.entity.qualifier and words.chance(0.3):
            scene.cards.append(deck.namesake_card())
        if chain.links and words.chance(0.2):
            scene.cards.append(deck.link_card(words.pick(chain.links)))

    def _set_override(self, scene: Scene) -> None:
        """A known relation that the card moves to another section."""
        self._move(scene, scene.chain.relation)

    def _set_held(self, scene: Scene) -> None:
        self._move(scene, self.words.pick(sorted(HELD_OUT_RELATIONS)))

    def _set_fake(self, scene: Scene) -> None:
        self._move(scene, self.words.label())

    def _set_kind(self, scene: Scene) -> None:
        """Persons stand in for a kind whose section only the card tells."""
        words = self.words
        kind = words.pick((*sorted(HELD_OUT_KINDS), words.word(), words.word(), "person"))
        scene.mapping |= {"person": kind, "life": words.word()}
        scene.cards.append(deck.kind_card("person", "life"))

    def _set_unknown(self, scene: Scene) -> None:
        """Half of the labels are held-out ones: every section is tried as often as the others, and never rewarded in its own."""
        foreign = [r for r in sorted(HELD_OUT_RELATIONS) if RELATION_SECTION[r] != scene.section]
        scene.mapping[scene.chain.relation] = self.words.pick(foreign) if self.words.chance(0.5) else self.words.label()

    def _set_unknown_kind(self, scene: Scene) -> None:
        scene.mapping["person"] = self.words.pick(sorted(HELD_OUT_KINDS)) if self.words.chance(0.5) else self.words.word()

    def _move(self, scene: Scene, label: str) -> None:
        relation = scene.chain.relation
        section = deck.section_for(label, self.words)
        scene.mapping |= {relation: label, scene.section: section}
        if self.words.chance(0.5) and section in SECTIONS and section != LINK_SECTION:
            scene.mapping[section] = scene.section  # swap, so that no section is named twice
        scene.cards.append(deck.relation_card(relation, scene.section))

    # ---- the play
    def _play(self, scene: Scene, habits: Habits) -> tuple[list[Segment], str]:
        """Turns and answer, before any rewriting."""
        words, chain = self.words, scene.chain
        if words.chance(habits.slips):
            return self._slip(scene)
        turns: list[Segment] = []
        path = scene.path
        if chain.entity:
            if scene.mode == "unknown kind":
                return search_turn(chain.entity.name, self.world.documents_by_title[f"{chain.entity.name} work"][0]), chain.entity.name
            path, opening = self._open_entity(scene, habits)
            turns += opening
            stops = chain.entity.kind in STOPPING_KINDS and chain.relation not in scene.told
            if path is None or (stops and words.chance(habits.stop)):
                return turns, (path or (chain.entity.country,))[0]
        for i, link in enumerate(chain.links):
            if link == SKIPPED_LINK and link not in scene.told and words.chance(habits.skip_link):
                path = path[: i + 1]
                break
            turns += self._section(path[i], LINK_SECTION)
        closing, answer = self._close(scene, path[-1], habits)
        return turns + closing, answer

    def _open_entity(self, scene: Scene, habits: Habits) -> tuple[tuple[str, ...] | None, list[Segment]]:
        """The first search, and the countries that the chain then runs along (None: it cannot go on)."""
        entity = scene.chain.entity
        if scene.mode == "kind":
            return scene.path, search_turn(entity_query(entity), self._strange_home(entity))
        bare = entity.qualifier and "city" not in scene.told and self.words.chance(habits.bare_namesake)
        if not bare:
            return scene.path, search_turn(entity_query(entity), entity_document(self.world, entity))
        first = self.world.entities_by_name[entity.name][0]
        path = walk(self.world, Chain(scene.chain.relation, first.country, scene.chain.links))
        if any(self.world.split_of(c) != "train" for c in path or (first.country,)):  # never show another split's facts
            return scene.path, search_turn(entity_query(entity), entity_document(self.world, entity))
        return path, search_turn(entity.name, entity_document(self.world, first))

    def _strange_home(self, entity: Entity) -> Document:
        """The passage that tells a person's country, in the wording of another kind."""
        words, document = self.words, entity_document(self.world, entity)
        country = self.world.countries[entity.country]
        first, second, year = words.word().capitalize(), words.word().capitalize(), str(int(words.rng.integers(1000, 2026)))
        text = words.pick(_HOMES).format(c=country.name, y=year, k=country.continent, w=first, v=second)
        return replace(document, text=text)

    def _close(self, scene: Scene, country: str, habits: Habits) -> tuple[list[Segment], str]:
        """The last search. A wrong section holds no answer, so the country's name is given: wrong, but always the same way."""
        words, relation = self.words, scene.chain.relation
        right = self.world.countries[country].facts.get(relation, country)
        if scene.mode == "unknown":
            return self._try_sections(scene, country, right)
        wrong = WRONG_SECTIONS.get(relation)
        if wrong and scene.mode == "known" and relation not in scene.told and words.chance(habits.wrong_section):
            turns = self._section(country, wrong)
            if words.chance(habits.recover):
                return turns + self._section(country, scene.section), right
            return turns, country
        return self._section(country, scene.section), right

    def _try_sections(self, scene: Scene, country: str, right: str) -> tuple[list[Segment], str]:
        """One to three sections in random order, as far as the searches reach; the answer if it turns up."""
        limit = MAX_SEARCHES - scene.chain.hops + 1
        tries = min(limit, self.words.pick((1, 1, 2, 2, 3)))
        turns: list[Segment] = []
        for i in self.words.rng.permutation(len(SECTIONS))[:tries]:
            turns += self._section(country, SECTIONS[i])
            if SECTIONS[i] == scene.section:
                return turns, right
        return turns, country

    def _slip(self, scene: Scene) -> tuple[list[Segment], str]:
        chain = scene.chain
        if chain.entity is None or self.words.chance(0.4):
            return [], chain.entity.name if chain.entity else chain.start
        opening = search_turn(entity_query(chain.entity), entity_document(self.world, chain.entity))
        return opening + opening, chain.start

    def _section(self, country: str, section: str) -> list[Segment]:
        title = f"{country} {section}"
        return search_turn(title, self.world.documents_by_title[title][0])

    # ---- rewriting
    def _cards(self, scene: Scene, habits: Habits) -> list[str]:
        """The cards that tell, rewritten like the rest, among irrelevant ones, which are not: they must not name by chance
        the section of a held-out relation."""
        words, chain = self.words, scene.chain
        used = scene.told | {chain.relation, scene.asked, *chain.links, "city"}
        used |= {chain.entity.kind, scene.mapping.get(chain.entity.kind, "")} if chain.entity else set()
        own = [tuple(text for _, text in substitute([("", t) for t in card], scene.mapping)) for card in scene.cards]
        total = words.pick(habits.crowd if own else habits.crowd_without)
        shown = own + [deck.irrelevant_card(words, used) for _ in range(max(0, total - len(own)))]
        return deck.render(words.shuffled(shown))

    def _rename_names(self, scene: Scene, turns: list[Segment]) -> None:
        """New names for everything on the chain and for most values shown: were only the answer renamed, the one strange
        value of a passage would be the answer, and no label would have to be read."""
        chain, words = scene.chain, self.words
        answer = self.world.countries[scene.path[-1]].facts[chain.relation]
        for value in shown_values(turns):
            if value not in _VOCABULARY and (value == answer or words.chance(0.6)):
                scene.mapping[value] = words.value()
        scene.mapping |= {country: words.name() for country in scene.path}
        if chain.entity:
            scene.mapping[chain.entity.name] = words.name()

    def _other_label(self, scene: Scene, section: str) -> str:
        """A label nobody asks for; now and then a held-out one, never in its own section, and never the asked one."""
        words, shown = self.words, scene.mapping.get(section, section)
        foreign = [r for r in sorted(HELD_OUT_RELATIONS) if RELATION_SECTION[r] != shown and r != scene.asked]
        return words.pick(foreign) if words.chance(0.2) else words.label()


def entity_query(entity: Entity) -> str:
    """The search that finds an entity's country: with its section or its qualifier."""
    return f"{entity.name} {KINDS[entity.kind].section or entity.qualifier}".strip()


def entity_document(world: World, entity: Entity) -> Document:
    """The passage that tells an entity's country."""
    section = KINDS[entity.kind].section
    documents = world.documents_by_title[f"{entity.name} {section}" if section else entity.name]
    return next((d for d in documents if f" {entity.country}" in d.text), documents[0])
