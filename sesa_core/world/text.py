"""Cleaning of source values: ASCII, short, free of the characters that the transcript and the passages use as marks."""

import html
import re
import unicodedata

_LATIN = str.maketrans(
    {"ł": "l", "Ł": "L", "ø": "o", "Ø": "O", "đ": "d", "Đ": "D", "ı": "i", "ß": "ss", "æ": "ae", "Æ": "Ae", "œ": "oe",
     "Œ": "Oe", "þ": "th", "Þ": "Th", "ð": "d", "ə": "a", "Ə": "A", "‘": "'", "’": "'", "ʻ": "'", "ʼ": "'", "`": "'",
     "“": '"', "”": '"', "–": "-", "—": "-"}
)  # fmt: skip
_TAG = re.compile(r"<[^>]+>")
_PLAIN = re.compile(r"[A-Za-z0-9+][A-Za-z0-9 ,'&/+()-]*")
_EMPTY = {
    "none",
    "na",
    "n/a",
    "unknown",
    "other",
    "no data",
    "nothing",
    "not available",
    "unnamed",
    "unnamed elevation",
    "note",
    "see note",
}
MAX_VALUE = 32


def fold(text: str) -> str:
    """ASCII letters only, accents dropped, white space single."""
    text = unicodedata.normalize("NFKD", text.translate(_LATIN))
    return re.sub(r"\s+", " ", "".join(c for c in text if ord(c) < 128)).strip()


def strip_markup(text: str) -> str:
    """Source HTML to plain text, accents kept."""
    return re.sub(r"\s+", " ", _TAG.sub(" ", html.unescape(text))).strip()


def first_item(text: str, separators: str = r"[,;(\d]|\s-\s| and ") -> str:
    """The first item of a list-like value: what stands before the first separator, without quotes and stray marks."""
    return re.split(separators, text, maxsplit=1)[0].strip(" .\"'*-:") if text else ""


def short_value(text: str) -> str:
    """The folded value if it is clean and short enough to be a fact, else ""."""
    value = fold(text).strip(" .\"'*-:,")
    if not value or value.lower() in _EMPTY or value.lower().startswith("unnamed") or len(value) > MAX_VALUE:
        return ""
    return value if _PLAIN.fullmatch(value) else ""


def words(text: str) -> list[str]:
    """Lower-case alphanumeric words, as the search index sees them."""
    return re.findall(r"[a-z0-9]+", text.lower())


def proper_case(name: str) -> str:
    """Factbook names print the family name in capitals: Frank-Walter STEINMEIER -> Frank-Walter Steinmeier; numerals stay."""
    return " ".join(
        w if not w.isupper() or (i and re.fullmatch(r"[IVX]+", w)) else "-".join(p.capitalize() for p in w.split("-"))
        for i, w in enumerate(name.split())
    )


def mentions(text: str, phrase: str) -> bool:
    """True if the words of `phrase` stand in `text`, in a row."""
    return f" {' '.join(words(phrase))} " in f" {' '.join(words(text))} "
