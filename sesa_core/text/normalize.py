"""When are two answers the same? NFKC, case, quotes, punctuation, articles and white space do not count; numbers do.

The usual rule (kept verbatim as `em_searchr1`) strips punctuation and articles blindly, so that "A" becomes empty, "3.5"
equals "35", "-5" equals "5" and "Vitamin A" equals "Vitamin". `normalize` gets these right.
"""

import re
import string
import unicodedata
from collections.abc import Iterable, Sequence

# Letters of scripts that put no blank between words (Thai and its neighbours, kana, Han): each is a token.
_UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
_TOKEN = re.compile(rf"(?<![\w.])[-+]?(?:\d+(?:[.,:]\d+)*|\.\d+)|[{_UNSPACED}]|(?:(?![{_UNSPACED}])\w)+")
POSSESSIVE = re.compile(r"(?<=\w)['\u2019\u02bc]s?(?!\w)", re.IGNORECASE)
_QUOTES = str.maketrans({"\u2018": "'", "\u2019": "'", "\u02bc": "'", "\u2032": "'", "\u201c": '"', "\u201d": '"', "\u2212": "-"})
# Unicode does not take these letters for marked ones.
_STROKED = str.maketrans({"ø": "o", "Ø": "O", "ł": "l", "Ł": "L", "đ": "d", "Đ": "D", "ħ": "h", "Ħ": "H", "ı": "i"})
_ARTICLES = {"a", "an", "the"}
GLUED_WORD = 3  # letters of a name's first word, and of the whole name, from which it is looked for inside longer words
GLUED_LETTERS = 8


def _number(token: str) -> str:
    """Thousands separators leave, the sign stays: "+1,200.50" -> "1200.50", "-5" -> "-5", ".5" -> "0.5"."""
    if re.fullmatch(r"[-+]?\d{1,3}(,\d{3})+(\.\d+)?", token):
        token = token.replace(",", "")
    return re.sub(r"^(-?)\.", r"\g<1>0.", token.lstrip("+"))


def visible(text: str) -> str:
    """The text without characters that nobody sees: soft hyphens, zero-width blanks, direction marks."""
    return text if text.isascii() else "".join(c for c in text if unicodedata.category(c) != "Cf")


def strip_accents(text: str) -> str:
    """The text without combining marks and strokes ("São" -> "Sao", "Łódź" -> "Lodz")."""
    return "".join(c for c in unicodedata.normalize("NFKD", text) if not unicodedata.combining(c)).translate(_STROKED)


def tokens(text: str, *, fold_accents: bool = False) -> tuple[str, ...]:
    """Normalised tokens, articles kept. `fold_accents` also folds what is written with invisible characters."""
    text = unicodedata.normalize("NFKC", text).translate(_QUOTES)
    text = re.sub(r"(?<=\w)'(?=\w)", "", strip_accents(visible(text)) if fold_accents else text)
    return tuple(_number(t) if t[-1].isdigit() else t.casefold() for t in _TOKEN.findall(text.replace("_", " ")))


def _without_articles(words: Sequence[str], originals: Sequence[str]) -> list[str]:
    """Articles leave only where they can be one: not last, and a capital A only at the start ("Vitamin A test" keeps it)."""
    kept = []
    for i, (word, original) in enumerate(zip(words, originals, strict=True)):
        is_letter = original == "A" and i > 0
        if word in _ARTICLES and i < len(words) - 1 and not is_letter:
            continue
        kept.append(word)
    return kept


def normalize(text: str) -> str:
    """The canonical form of an answer; two answers are equal if theirs are. Never empty unless `text` has no letter or digit."""
    text = unicodedata.normalize("NFKC", text).translate(_QUOTES)
    text = re.sub(r"(?<=\w)'(?=\w)", "", text).replace("_", " ")
    originals = _TOKEN.findall(text)
    words = [_number(t) if t[-1].isdigit() else t.casefold() for t in originals]
    return " ".join(_without_articles(words, originals))


def matches(answer: str, references: Iterable[str]) -> bool:
    """Whether the answer equals one of the references under `normalize`, or in every token with the articles among them: whether an A
    is a letter is told by its being a capital, which a title in capitals must not change. An empty form matches nothing."""
    form, words = normalize(answer), tokens(answer)
    return bool(form) and any(form == normalize(r) or words == tokens(r) for r in references)


def contains(haystack: str, needle: str) -> bool:
    """Whether the needle's tokens stand in the haystack as a run, accents and width and case aside ("5" is not in "1905")."""
    hay, pin = tokens(haystack, fold_accents=True), tokens(needle, fold_accents=True)
    return bool(pin) and any(hay[i : i + len(pin)] == pin for i in range(len(hay) - len(pin) + 1))


def names(text: str, name: str) -> bool:
    """Whether the name's tokens stand in the text as a run, also in the possessive ("Spain's")."""
    plain = POSSESSIVE.sub("", text)
    return contains(text, name) or (plain != text and contains(plain, name))


def holds_glued(haystack: str, needle: str) -> bool:
    """Whether the needle stands in the haystack without the blank that should part it from the word before it, or its own words from
    one another: "Ada Byron" in "ofAda byron" and in "an adabyron", "Ada" in "ofAda".

    A capital behind small letters begins a word; a needle is looked for inside a longer word only where it has several words, and of
    some length: "U.S." is not in "famous".
    """
    pin = tokens(needle, fold_accents=True)
    if contains(" ".join(map(_part, haystack.split())), needle):
        return True
    if len(pin) < 2:
        return False
    hay, joined = tokens(haystack, fold_accents=True), "".join(pin)
    if len(joined) >= GLUED_LETTERS and any(joined in token for token in hay):
        return True
    runs = ((hay[i], hay[i + 1 : i + len(pin)]) for i in range(len(hay) - len(pin) + 1))
    return len(pin[0]) >= GLUED_WORD and pin[0].isalpha() and any(first.endswith(pin[0]) and rest == pin[1:] for first, rest in runs)


def _part(word: str) -> str:
    """`namedAda` as `named Ada`; `YouTube` as it is."""
    capital = next((i for i, letter in enumerate(word) if letter.isupper()), 0)
    return f"{word[:capital]} {word[capital:]}" if word[:capital].islower() else word


def jaccard(left: str, right: str) -> float:
    """Share of distinct tokens that two texts have in common, in [0, 1]."""
    a, b = set(tokens(left)), set(tokens(right))
    return len(a & b) / len(a | b) if a | b else 1.0


def em_searchr1(answer: str, references: Iterable[str]) -> bool:
    """Exact match under the rule of the published Search-R1 evaluation, for comparison with its numbers."""

    def form(text: str) -> str:
        text = "".join(c for c in text.lower() if c not in string.punctuation)
        return " ".join(re.sub(r"\b(a|an|the)\b", " ", text).split())

    return any(form(answer) == form(r) for r in references)
