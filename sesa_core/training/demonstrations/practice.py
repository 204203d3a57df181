"""Reading practice: one passage of labelled values, several questions about it.

Matching the asked label to its value is the hardest thing that the warm start teaches, and an ordinary demonstration holds
one example of it. Practice holds up to four, in few tokens. Labels are those that stand together in a real section (most
alike: "top export", "top import", "import partner"), or real ones of anywhere (held-out ones too: the words get trained, the
section is invented) among made-up ones. Values are of every kind; some share a word, so that copying must not change rows
("Han Chinese" beside "Standard Chinese or Mandarin" must not become "Han Chinese or Mandarin").
"""

from sesa_core.training.demonstrations import cards as deck
from sesa_core.training.demonstrations.segments import ENVIRONMENT, MODEL, Segment, answer_turn, solver_prompt
from sesa_core.training.demonstrations.words import Words
from sesa_core.world.questions import TEMPLATES
from sesa_core.world.schema import HELD_OUT_RELATIONS, LINK_SECTION, LINKS, RELATIONS, SECTION_RELATIONS, SECTIONS

_REAL = (*RELATIONS, *LINKS)
_SHARING = tuple(
    alike
    for word in sorted({w for label in _REAL for w in label.split()})
    if len(alike := tuple(label for label in _REAL if word in label.split())) > 1
)


def reading(words: Words, alike: bool = False) -> list[Segment]:
    """A transcript whose first question searches; the others ask again about what was found. `alike`: about labels that
    share a word, half of the time with a value's last word in the middle of another."""
    labels = _alike_labels(words) if alike else _section_labels(words) if words.chance(0.5) else _mixed_labels(words)
    values = [words.value() for _ in labels]
    if len(labels) > 1 and words.chance(0.2):
        one, other = words.rng.permutation(len(labels))[:2]
        values[one] = f"{words.value()} {values[other].split()[-1]}"
    if alike and words.chance(0.5):
        one, other = words.rng.permutation(len(labels))[:2]
        values[other] = f"{words.value()} {values[one].split()[-1]} {words.value()}"
    subject, section = words.name(), words.word()
    order = [int(i) for i in words.rng.permutation(len(labels))][:4]
    card = deck.render([deck.relation_card(labels[order[0]], section)])
    facts = " ".join(f"{label}: {value}." for label, value in zip(labels, values, strict=True))
    segments = [
        _question(words, labels[order[0]], subject, card),
        (MODEL, f"<search>{subject} {section}</search>"),
        (ENVIRONMENT, f"<information>{subject} {section}. {facts}</information>"),
        answer_turn(values[order[0]]),
    ]
    for i in order[1:]:
        segments += [_question(words, labels[i], subject, []), answer_turn(values[i])]
    return segments


def _section_labels(words: Words) -> list[str]:
    """The labels of one real section, half of the time in its own order. A held-out one gives way to a made-up one: what it
    stands beside would tell where it stands."""
    section = words.pick(SECTIONS)
    labels = [*(LINKS if section == LINK_SECTION else ()), *SECTION_RELATIONS[section]]
    labels = [words.label() if label in HELD_OUT_RELATIONS else label for label in labels]
    return labels if words.chance(0.5) else words.shuffled(labels)


def _alike_labels(words: Words) -> list[str]:
    """Labels that share a word, real or made up, and up to two others, in any order."""
    if words.chance(0.7):
        labels = list(words.pick(_SHARING))
    else:
        shared, own = words.word(), (words.word(), words.word())
        labels = [f"{shared} {o}" if words.chance(0.3) else f"{o} {shared}" for o in own]
    labels += [words.label() for _ in range(words.pick((0, 1, 2)))]
    return words.shuffled(labels)


def _mixed_labels(words: Words) -> list[str]:
    count = int(words.rng.integers(2, 6))
    return list(dict.fromkeys(words.pick(_REAL) if words.chance(0.6) else words.label() for _ in range(count)))


def _question(words: Words, label: str, subject: str, cards: list[str]) -> Segment:
    return solver_prompt(words.pick(TEMPLATES).format(relation=label, subject=subject), cards)
