"""Proposer demonstrations: search the answer, walk back to a country or an entity, ask.

The proposer never opens a section by name to find its target: it searches the value itself, so targets of held-out relations
need no knowledge that it lacks. A target's label is often replaced (held-out labels too, with their section renamed).
"""

import re
from dataclasses import dataclass

from sesa_core.training.demonstrations.habits import Habits
from sesa_core.training.demonstrations.segments import Segment, proposer_prompt, question_turn, scramble, search_turn, substitute
from sesa_core.training.demonstrations.solver import KNOWN_RELATIONS
from sesa_core.training.demonstrations.words import Words
from sesa_core.world.load import Findable, World
from sesa_core.world.questions import TEMPLATES
from sesa_core.world.schema import HELD_OUT_RELATIONS, INVERSE_SECTION, LISTINGS, RELATION_SECTION, SECTIONS
from sesa_core.world.targets import reachable_hops
from sesa_core.world.text import mentions

_ITEM = re.compile(r"(city|port|mountain|site|river|person|leader|element) ([^;.]+)")


@dataclass
class Draft:
    """A question in the making: `country` is where the walk back has come to, `subject` how the question names it."""

    target: Findable
    country: str
    turns: list[Segment]
    links: str = ""
    item: str = ""

    @property
    def subject(self) -> str:
        return self.links + (f"the country of the {self.item}" if self.item else self.country)


class ProposerDemonstrations:
    """Draws proposer demonstrations from the training targets of known relations; without `counterfactual` nothing is renamed."""

    def __init__(self, world: World, words: Words, counterfactual: bool = True) -> None:
        self.world, self.words, self.counterfactual = world, words, counterfactual
        rows = [r for r in world.findable if world.split_of(r.country) == "train" and r.relation in KNOWN_RELATIONS]
        self.targets = {h: [r for r in rows if h in reachable_hops(world, r.country)] for h in (1, 2, 3)}

    def draw(self, habits: Habits) -> list[Segment]:
        words = self.words
        while True:
            asked = words.pick((1, 2, 2, 3, 3))
            target = words.pick(self.targets[asked])
            hops = asked if not words.chance(0.12 * habits.proposer) else int(words.rng.integers(1, asked + 1))
            draft = self._walk_back(target, hops)
            if draft is None:
                continue
            template = words.pick(TEMPLATES)
            if mentions(template.format(relation=target.relation, subject=draft.subject), target.answer):
                continue  # the web code of Iceland: "What is" would give it away
            relation = words.pick(KNOWN_RELATIONS) if words.chance(0.05 * habits.proposer) else target.relation
            item = draft.item
            if words.chance(0.2 * habits.proposer):
                draft.item = draft.item.split(" in ")[0]  # drops the qualifier of a namesake
            text = template.format(relation=relation, subject=draft.subject)
            turns = scramble(draft.turns, (), HELD_OUT_RELATIONS, lambda _: words.label(), words.rng, 0.0)
            segments = [proposer_prompt(target.relation, target.answer, asked), *turns, question_turn(text)]
            return substitute(segments, self._renaming(draft, item) if self.counterfactual else {})

    def _walk_back(self, target: Findable, hops: int) -> Draft | None:
        """Follow passages away from the target, one per hop; None if there is nothing to follow."""
        document = self.world.documents_by_id[target.passage_id]
        draft = Draft(target, target.country, search_turn(target.answer, document))
        for left in range(hops - 1, 0, -1):
            by_link = left == 2 or (self.words.chance(0.5) and self._sources(draft))
            if not (self._to_source(draft) if by_link else self._to_item(draft)):
                return None
        return draft

    def _sources(self, draft: Draft) -> list[tuple[str, str]]:
        """Countries that name the current one as a partner, the target's own country left out."""
        return [row for row in self.world.inverse_links.get(draft.country, ()) if row[1] != draft.target.country]

    def _to_source(self, draft: Draft) -> bool:
        sources = self._sources(draft)
        if not sources:
            return False
        title = f"{draft.country} {INVERSE_SECTION}"
        link, source = self.words.pick(sources)
        draft.turns += search_turn(title, self.world.documents_by_title[title][0])
        draft.links += f"the {link} of "
        draft.country = source
        return True

    def _to_item(self, draft: Draft) -> bool:
        title = f"{draft.country} {self.words.pick((LISTINGS[0], LISTINGS[0], LISTINGS[1]))}"
        documents = self.world.documents_by_title.get(title)
        items = _ITEM.findall(documents[0].text) if documents else []
        items = [i for i in items if not mentions(i[1], draft.target.answer)]
        if not items:
            return False
        draft.turns += search_turn(title, documents[0])
        draft.item = " ".join(self.words.pick(items))
        return True

    def _renaming(self, draft: Draft, item: str) -> dict[str, str]:
        words = self.words
        mapping: dict[str, str] = {}
        if words.chance(0.5):
            mapping |= {draft.target.country: words.name(), draft.target.answer: words.name()}
            mapping.setdefault(draft.country, words.name())
            if item:
                mapping[item.split(" ", 1)[1].split(" in ")[0]] = words.name()
        if words.chance(0.5):
            held = words.chance(0.5)
            label = words.pick(sorted(HELD_OUT_RELATIONS)) if held else words.label()
            mapping[draft.target.relation] = label
            mapping[RELATION_SECTION[draft.target.relation]] = words.pick([s for s in SECTIONS if s != RELATION_SECTION.get(label)])
        return mapping
