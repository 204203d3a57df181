"""How a run's settings come to be: preset <- file <- single keys, checked, saved and hashed.

Invariant: what `save_config` wrote, `load_config` reads back to an equal `RunConfig`. Edge case: YAML 1.1 reads `off` and
`on` as booleans and `1e-6` as text; both are common here (arms of an evaluation, learning rates), so the loader reads
them as YAML 1.2 does.
"""

import difflib
import functools
import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import yaml
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails, PydanticUndefined

from sesa_core.config.models import RunConfig
from sesa_core.errors import ConfigError

PRESETS_DIR = Path(__file__).parent / "presets"
DEFAULT_PRESET = "quickstart"
SHORT_KEYS = {"engine": "host"}  # `engine=ray` means `engine.host=ray`
PLACES = frozenset({"runs_dir"})  # where a run lies is not part of what it is
READ = (("world", "path"), ("policy", "path"), ("bank", "seed_path"), ("bank", "warm_start_path"))  # paths, where they exist
WRITTEN = (("bank", "uri"), ("search", "index_path"))
SHIPPED = frozenset({("policy", "path", "tiny"), ("bank", "seed_path", "builtin")})  # names in place of a path


@dataclass(frozen=True)
class KeyDescription:
    """One line of the schema: a dotted key, its type as text, its default and what it means."""

    key: str
    type: str
    default: object
    description: str


class _Yaml12Loader(yaml.SafeLoader):
    """Only `true` and `false` are booleans; exponents need no dot."""


_Yaml12Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag not in ("tag:yaml.org,2002:bool", "tag:yaml.org,2002:float")]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Yaml12Loader.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile(r"^(?:true|True|TRUE|false|False|FALSE)$"), list("tTfF"))
_Yaml12Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"^[-+]?(?:(?:\d+\.\d*|\.\d+)(?:[eE][-+]?\d+)?|\d+[eE][-+]?\d+|\.inf|\.nan)$"),
    list("-+.0123456789"),
)


def presets() -> list[str]:
    """Names of the presets that ship."""
    return sorted(p.stem for p in PRESETS_DIR.glob("*.yaml"))


def load_config(
    preset: str | None = None, file: Path | str | None = None, overrides: Sequence[str] = (), values: Mapping[str, Any] | None = None
) -> RunConfig:
    """Merge preset <- file <- overrides (`key=value`, the value in YAML) <- values (nested, taken as they are) and check the whole.

    Without `preset`, the file's own `preset` key counts, else the quickstart's. Raises `ConfigError`.
    """
    from_file = _read_file(Path(file)) if file is not None else {}
    name = preset or from_file.get("preset") or DEFAULT_PRESET
    single = functools.reduce(merge, map(_parse_override, overrides), {})
    merged = functools.reduce(_lay_over, (_expand(from_file), single, values or {}), _read_preset(name))
    return parse_config({**merged, "preset": name})


def parse_config(settings: Mapping[str, Any]) -> RunConfig:
    """Nested settings to a `RunConfig`. Raises `ConfigError` naming the first key that is wrong."""
    try:
        return RunConfig.model_validate(settings)
    except ValidationError as error:
        raise _config_error(error.errors()[0]) from None


def save_config(config: RunConfig, path: Path) -> None:
    """Write the resolved settings as YAML, headed by their hash; the file is whole or not there."""
    text = yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False, width=120, allow_unicode=True)
    partial = path.with_name(path.name + ".partial")
    partial.write_text(f"# resolved settings of this run, hash {config_hash(config)}\n{text}")
    os.replace(partial, path)


def config_hash(config: RunConfig) -> str:
    """16 hex digits; equal for equal settings, wherever the run lies."""
    text = json.dumps(config.model_dump(mode="json", exclude=set(PLACES)), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def from_the_root(config: RunConfig) -> RunConfig:
    """With every path named from the root, so that a run can be resumed from any directory. Names and URIs stay what they are."""
    found: dict[str, dict[str, str]] = {}
    for section, key in (*READ, *WRITTEN):
        value = getattr(getattr(config, section), key)
        if value is None or (section, key, value) in SHIPPED or "://" in value:
            continue
        path = Path(value).expanduser()
        if (section, key) in WRITTEN or path.exists():
            found.setdefault(section, {})[key] = str(path.resolve())
    return config.model_copy(update={name: getattr(config, name).model_copy(update=paths) for name, paths in found.items()})


def describe_schema() -> list[KeyDescription]:
    """Every key that a person can set, in the order of the models."""
    return list(_describe(RunConfig, ""))


def merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """`over` on top of `base`: mappings merge, everything else (lists too) is replaced."""
    merged = dict(base)
    for key, value in over.items():
        both = isinstance(value, Mapping) and isinstance(merged.get(key), Mapping)
        merged[key] = merge(merged[key], value) if both else value
    return merged


def without_replaced_kinds(overrides: Sequence[str], later: Sequence[str]) -> list[str]:
    """`overrides` but for those of a kind of settings that `later` ones replace by another, which would refuse them."""
    over = functools.reduce(merge, map(_parse_override, later), {})
    return [text for text in overrides if (alone := _parse_override(text)) == _outlasting(alone, over)]


def _lay_over(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """`merge`, where a layer that names another kind of a section leaves behind what only the former kind knew.

    Else the whole settings of an earlier run could never be given another kind by a single key.
    """
    return merge(_outlasting(base, over), over)


def _outlasting(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """`base` without what only a kind knew that `over` replaces by another."""
    kept = dict(base)
    for name, field in RunConfig.model_fields.items():
        given, stood = over.get(name), base.get(name)
        variants = _variants(field.annotation)
        if len(variants) < 2 or not (isinstance(given, Mapping) and isinstance(stood, Mapping)) or "kind" not in given:
            continue
        chosen = [v for v in variants if _kind_of(v) == given["kind"]]
        if chosen and stood.get("kind", field.default.kind) != given["kind"]:
            kept[name] = {key: value for key, value in stood.items() if key in chosen[0].model_fields}
    return kept


def _read_preset(name: object) -> dict[str, Any]:
    if name not in presets():
        raise ConfigError("preset", name, f"the presets are {', '.join(presets())}{_did_you_mean(str(name), presets())}")
    return _expand(_read_file(PRESETS_DIR / f"{name}.yaml"))


def _read_file(path: Path) -> dict[str, Any]:
    try:
        settings = yaml.load(path.read_text(), Loader=_Yaml12Loader)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError("--config", str(path), f"the file cannot be read: {getattr(error, 'strerror', None) or error}") from None
    except yaml.YAMLError as error:
        raise ConfigError("--config", str(path), f"it is not YAML: {_one_line(error)}") from None
    if settings is not None and not isinstance(settings, dict):
        raise ConfigError("--config", str(path), "a file of settings holds `key: value` lines")
    return settings or {}


def _parse_override(override: str) -> dict[str, Any]:
    key, equals, text = override.partition("=")
    key = key.strip()
    if not equals or not key:
        raise ConfigError("--set", override, "write key=value, as in --set selfplay.segments=5")
    if key == "preset":
        raise ConfigError("--set", override, "a preset is what settings start from: choose it with --preset, or in the file of settings")
    try:
        value = yaml.load(text, Loader=_Yaml12Loader)
    except yaml.YAMLError as error:
        raise ConfigError(key, text, f"the value is not YAML: {_one_line(error)}") from None
    for part in reversed(key.split(".")):
        value = {part: value}
    return _expand(value)


def _expand(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Short keys to full ones. A mapping under a short key is left as it is."""
    return {k: {SHORT_KEYS[k]: v} if k in SHORT_KEYS and isinstance(v, str) else v for k, v in settings.items()}


def _one_line(error: yaml.YAMLError) -> str:
    return " ".join(str(error).split())


def _config_error(error: ErrorDetails) -> ConfigError:
    """pydantic's error in the words of a person who sets keys."""
    path, sections = _walk(error["loc"])
    key, value, section = ".".join(path), error["input"], ".".join(path[:-1]) or "the top level"
    if error["type"] == "extra_forbidden":
        siblings = list(sections[0].model_fields)
        if elsewhere := _kinds_with(path):
            has = f"{section} of kind {_kind_of(sections[0])} has {', '.join(siblings)}"
            return ConfigError(key, value, f"{has}; {path[-1]} belongs to kind {' or '.join(elsewhere)}")
        return ConfigError(key, value, f"there is no such key; {section} has {', '.join(siblings)}{_closest_key(key, siblings)}")
    if error["type"].startswith("union_tag"):
        kinds = [str(_kind_of(variant)) for variant in sections]
        if not isinstance(value, Mapping):
            return ConfigError(key, value, f"{key} is a section of settings; set {key}.kind, which is one of {', '.join(kinds)}")
        kind = value.get("kind")
        return ConfigError(f"{key}.kind", kind, f"the kinds are {', '.join(kinds)}{_did_you_mean(str(kind), kinds)}")
    message = error["msg"].removeprefix("Value error, ").removeprefix("Assertion failed, ")
    meaning = next((d.description for d in describe_schema() if d.key == key), "")
    return ConfigError(key, value, message[:1].lower() + message[1:] + (f" ({meaning})" if meaning else ""))


def _walk(loc: Sequence[int | str]) -> tuple[list[str], tuple[type[BaseModel], ...]]:
    """The dotted key that pydantic's `loc` means, without the kinds and types that it names on the way, and the section that it ends in.

    Several sections: it ends before one of these was chosen.
    """
    path: list[str] = []
    sections: tuple[type[BaseModel], ...] = (RunConfig,)
    plain = False  # the value of a key was reached
    for part in loc:
        if len(sections) > 1:
            sections = tuple(s for s in sections if _kind_of(s) == part)
            continue
        if plain and isinstance(part, str):  # one of several types that the value may have
            continue
        path.append(str(part))
        if not plain and (field := sections[0].model_fields.get(str(part))) is not None:
            inner = _variants(field.annotation)
            sections, plain = inner or sections, not inner
    return path, sections


def _kinds_with(path: Sequence[str]) -> list[str]:
    """The kinds of the section at `path[:-1]` that know the key, where it has kinds."""
    _, variants = _walk(path[:-1])
    return [str(_kind_of(v)) for v in variants if path[-1] in v.model_fields] if len(variants) > 1 else []


def _closest_key(key: str, siblings: Sequence[str]) -> str:
    """A sibling that is spelt alike, else a key of another section with the same last part."""
    prefix, _, last = key.rpartition(".")
    near = difflib.get_close_matches(last, siblings, n=1)
    if near:
        return f"; did you mean {prefix + '.' if prefix else ''}{near[0]}?"
    everywhere = [d.key for d in describe_schema()]
    named_so = [k for k in everywhere if k.rpartition(".")[2] == last]
    return f"; did you mean {named_so[0]}?" if named_so else _did_you_mean(key, everywhere)


def _did_you_mean(word: str, known: Sequence[str]) -> str:
    near = difflib.get_close_matches(word, known, n=1)
    return f"; did you mean {near[0]}?" if near else ""


def _describe(model: type[BaseModel], prefix: str) -> Iterator[KeyDescription]:
    for name, field in model.model_fields.items():
        variants = _variants(field.annotation)
        if len(variants) > 1:
            yield from _describe_kinds(variants, field.default.kind, f"{prefix}{name}.")
            continue
        if variants:
            yield from _describe(variants[0], f"{prefix}{name}.")
            continue
        default = None if field.default is PydanticUndefined else field.default
        yield KeyDescription(prefix + name, _type_text(field.annotation, field.metadata), default, field.description or "")


def _describe_kinds(variants: Sequence[type[BaseModel]], default: str, prefix: str) -> Iterator[KeyDescription]:
    """One line for `kind`, whatever it may be, and one for each key of any kind, with the kinds that know it unless all do."""
    described = {_kind_of(v): {d.key: d for d in _describe(v, prefix)} for v in variants}
    kinds = ", ".join(described)
    meanings = "; ".join(f"{kind}: {keys[prefix + 'kind'].description}" for kind, keys in described.items())
    yield KeyDescription(prefix + "kind", f"one of {kinds}", default, meanings)
    for key in dict.fromkeys(key for keys in described.values() for key in keys if key != prefix + "kind"):
        known = [kind for kind, keys in described.items() if key in keys]
        line = described[known[0]][key]
        only = "" if len(known) == len(variants) else f" (kind {' or '.join(known)})"
        yield replace(line, description=line.description + only)


def _variants(annotation: object) -> tuple[type[BaseModel], ...]:
    """The section that a field holds; several, told apart by their `kind`, for a choice of sections; none for a plain value."""
    if get_origin(annotation) is Annotated:
        return _variants(get_args(annotation)[0])
    if get_origin(annotation) in (Union, UnionType):
        members = [_variants(a) for a in get_args(annotation)]
        return tuple(m[0] for m in members) if all(members) else ()
    return (annotation,) if isinstance(annotation, type) and issubclass(annotation, BaseModel) else ()


def _kind_of(variant: type[BaseModel]) -> str:
    return variant.model_fields["kind"].default


def _type_text(annotation: Any, bounds: Sequence[object] = ()) -> str:
    """`int >= 1`, `one of in_process, ray`, `list of (one of off, on)`: a type as a person would say it."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _type_text(arguments[0], arguments[1:])
    if origin is Literal:
        return "one of " + ", ".join(map(str, arguments))
    if origin in (Union, UnionType):
        text = " or ".join("empty" if a is type(None) else _type_text(a) for a in arguments)
    elif origin is tuple:
        text = f"list of ({_type_text(arguments[0])})"
    else:
        text = {"str": "text", "float": "number", "bool": "true or false"}.get(annotation.__name__, annotation.__name__)
    return " ".join([text, *_bounds(bounds)])


def _bounds(constraints: Sequence[object]) -> Iterator[str]:
    signs = {"ge": ">=", "gt": ">", "le": "<=", "lt": "<", "min_length": "with at least"}
    for constraint in constraints:
        parts = [constraint, *getattr(constraint, "metadata", ())]  # pydantic wraps the bounds of one Field together
        yield from (f"{sign} {getattr(p, name):g}" for p in parts for name, sign in signs.items() if getattr(p, name, None) is not None)
