"""A small corpus of invented places: prose that a chat model can read, about which no model knows anything by heart."""

import json
from pathlib import Path

# title, text
PLACES = (
    ("Harlow Lighthouse", "Harlow Lighthouse stands on Brant Island. Its first keeper was Mara Quint. It was painted red in 1931."),
    ("Brant Island", "Brant Island lies in Ossel Bay. Its only village is Tolling. The island is known for its grey seals."),
    (
        "Tolling",
        "Tolling is a fishing village on Brant Island. Its church was designed by Edvin Sarre. It celebrates Lantern Day.",
    ),
    ("Ossel Bay", "Ossel Bay is a wide bay of the Kettle Coast. The river Immer flows into it. Its main port is Carrow."),
    ("Carrow", "Carrow is a port town on Ossel Bay. Its mayor is Linnea Voss. Its most important export is salted herring."),
    ("Immer", "The Immer is a river of the Kettle Coast. It rises on Mount Pellin. The bridge over it was built by Jonas Reddick."),
    (
        "Mount Pellin",
        "Mount Pellin is the highest mountain of the Kettle Coast. It was first climbed by Asta Holm. It holds copper.",
    ),
    ("Kettle Coast", "The Kettle Coast is a region in the north. Its capital is Wendmoor. Its flower is the sea thistle."),
    (
        "Wendmoor",
        "Wendmoor is the capital of the Kettle Coast. Its university was founded by Ruben Aldane. Its club is the Wendmoor Rooks.",
    ),
    ("Carrow Museum", "Carrow Museum is a museum in Carrow. Its best known painting is The Drowned Bell. Its director is Petra Lindqvar."),
    ("The Drowned Bell", "The Drowned Bell is a painting by Ines Maroy. It hangs in Carrow Museum. It shows the harbour of Tolling."),
    ("Lantern Day", "Lantern Day is a feast of the village Tolling. Its dish is eel pie. It was introduced by Bishop Osk."),
)
TARGETS = (
    "Mara Quint",
    "Tolling",
    "Edvin Sarre",
    "Carrow",
    "Linnea Voss",
    "Jonas Reddick",
    "Asta Holm",
    "Wendmoor",
    "Ruben Aldane",
    "The Drowned Bell",
    "Ines Maroy",
    "Bishop Osk",
)
QUESTIONS = (
    ("On which island does Harlow Lighthouse stand?", "Brant Island"),
    ("Which river flows into Ossel Bay?", "Immer"),
    ("What is the most important export of Carrow?", "salted herring"),
    ("On which mountain does the river Immer rise?", "Mount Pellin"),
    ("What is the flower of the Kettle Coast?", "sea thistle"),
    ("What is the club of Wendmoor?", "Wendmoor Rooks"),
    ("Who is the director of Carrow Museum?", "Petra Lindqvar"),
    ("What dish is eaten on Lantern Day?", "eel pie"),
)


def write(folder: Path) -> None:
    """The three files that `world.kind=files` reads."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = {
        "corpus": [{"id": str(i), "contents": f"{title}\n{text}"} for i, (title, text) in enumerate(PLACES)],
        "targets": [{"answer": answer, "aliases": [], "hops": 1} for answer in TARGETS],
        "questions": [{"question": question, "golden_answers": [answer]} for question, answer in QUESTIONS],
    }
    for name, lines in rows.items():
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
