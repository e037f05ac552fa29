"""YAML and JSON as plain data of bounded depth: what few lines can blow up to gigabytes is refused before it is built.

An alias of YAML (`*name`) stands for a whole node: ten lines of ten aliases each are ten thousand million nodes for
whoever walks them. Nothing that svtoolkit writes has one, or is nested deeper than ``DEEPEST``.
"""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, NamedTuple

from svtoolkit.system.atomic import atomic_write
from svtoolkit.system.regular_file import check_regular

DEEPEST = 32
"""Lists and mappings within each other."""

LARGEST_YAML = 1 << 20
"""Bytes; PyYAML takes ten seconds and half a gigabyte for that many."""


class MalformedError(ValueError):
    """Text that is no plain data; says why on one line.

    Attributes:
        line: where, counted from 1; None where that is not known.
    """

    def __init__(self, reason: str, line: int | None = None) -> None:
        super().__init__(" ".join(reason.split())[:300])
        self.line = line


def read_text(path: str | os.PathLike[str], *, most: int | None = None) -> str:
    """A file of UTF-8.

    Raises:
        MalformedError: it is none, or has more bytes than ``most``.
        UserError: a pipe or a device.
        OSError: it cannot be read.
    """
    check_regular(path)
    if most is not None and (size := os.path.getsize(path)) > most:
        raise MalformedError(f"it has {size} bytes, expected at most {most}")
    try:
        return Path(path).read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise MalformedError(f"byte {error.object[error.start]:#04x} on line {line} is not UTF-8", line) from error


def read_yaml(path: str | os.PathLike[str]) -> Any:
    """The content of a YAML file, by PyYAML's safe loader.

    Raises: as ``read_text``; MalformedError for what is no YAML, has an alias or is nested too deep, too.
    """
    return _parse(read_text(path, most=LARGEST_YAML), "get_single_data")


def check_yaml(path: str | os.PathLike[str]) -> None:
    """Refuse what ``read_yaml`` would refuse of the form of a file that another loader will read."""
    _parse(read_text(path, most=LARGEST_YAML), "get_single_node")


class Tagged(NamedTuple):
    """A node of YAML with a tag of its own, which is nothing but a word here.

    Attributes:
        tag: as it is written, such as ``!new:speechbrain.lobes.models.ECAPA_TDNN.ECAPA_TDNN``.
        value: plain data; of a mapping or a list its items.
    """

    tag: str
    value: Any


def parse_tagged_yaml(text: str, *, aliases: bool = False) -> Any:
    """The content of a YAML text by PyYAML's safe loader, with ``Tagged`` where it has tags of another program.

    Args:
        text: YAML.
        aliases: whether it may have any. One of a word, a number or a list of these is what it stands for, and any
            other is a word, too, ``Tagged("*", name)``; so nothing is walked twice.

    Raises: MalformedError, as ``read_yaml``.
    """
    return _parse(text, "get_single_data", _aliased_loader() if aliases else _tagged_loader())


def write_yaml(content: Any, stream: IO[str], **options: Any) -> None:
    """YAML in the order of the keys, without aliases; options are those of ``yaml.dump``."""
    import yaml

    class Dumper(yaml.SafeDumper):
        def ignore_aliases(self, data: Any) -> bool:
            return True

    yaml.dump(content, stream, Dumper=Dumper, sort_keys=False, **options)


def write_json(path: str | os.PathLike[str], content: Any) -> None:
    """Write a file of JSON to be read by people, too, whole or not at all."""
    with atomic_write(path) as stream:
        json.dump(content, stream, indent=2)
        stream.write("\n")


def flatten(node: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Dotted key -> value; an empty mapping has none."""
    flat: dict[str, Any] = {}
    for key, value in node.items():
        flat.update(flatten(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": value})
    return flat


def parse_json(text: str) -> Any:
    """The value of a JSON text.

    Raises:
        MalformedError: it is no JSON, or nested too deep.
    """
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise MalformedError(error.msg, error.lineno) from error
    except (ValueError, RecursionError) as error:
        raise MalformedError(str(error)) from error
    # No text is deeper than it has brackets that open.
    if text.count("[") + text.count("{") > DEEPEST and _depth(value) > DEEPEST:
        raise MalformedError(f"it is nested deeper than {DEEPEST} levels")
    return value


def _depth(value: Any) -> int:
    depth, level = 0, [value]
    while level := [item for item in level if isinstance(item, dict | list)]:
        depth += 1
        level = [inner for item in level for inner in (item.values() if isinstance(item, dict) else item)]
    return depth


def _parse(text: str, method: str, loader_class: type[Any] | None = None) -> Any:
    loader = None
    try:
        loader = (loader_class or _plain_loader())(text)
        return getattr(loader, method)()
    except MalformedError:
        raise
    except Exception as error:  # PyYAML's constructors raise what their arithmetic does: KeyError, OverflowError, ...
        mark = getattr(error, "problem_mark", None)
        raise MalformedError(str(error) or type(error).__name__, mark and mark.line + 1) from error
    finally:
        if loader is not None:
            loader.dispose()


@functools.cache
def _plain_loader() -> type[Any]:
    import yaml

    class PlainLoader(yaml.SafeLoader):
        depth = 0

        def compose_node(self, parent: Any, index: Any) -> Any:
            if self.check_event(yaml.AliasEvent):
                event = self.peek_event()
                line = event.start_mark.line + 1
                raise MalformedError(
                    f"found the alias *{event.anchor} on line {line}; write out what it stands for", line
                )
            self.depth += 1
            try:
                if self.depth > DEEPEST:
                    line = self.peek_event().start_mark.line + 1
                    raise MalformedError(f"line {line} is nested deeper than {DEEPEST} levels", line)
                return super().compose_node(parent, index)
            finally:
                self.depth -= 1

    return PlainLoader


@functools.cache
def _tagged_loader() -> type[Any]:
    import yaml

    class TaggedLoader(_plain_loader()):  # type: ignore[misc]
        def construct_tagged(self, node: Any) -> Tagged:
            if isinstance(node, yaml.ScalarNode):
                return Tagged(node.tag, self.construct_scalar(node))
            if isinstance(node, yaml.SequenceNode):
                return Tagged(node.tag, self.construct_sequence(node, deep=True))
            return Tagged(node.tag, self.construct_mapping(node, deep=True))

    TaggedLoader.add_constructor(None, TaggedLoader.construct_tagged)
    return TaggedLoader


@functools.cache
def _aliased_loader() -> type[Any]:
    import yaml

    class AliasedLoader(_tagged_loader()):  # type: ignore[misc]
        def compose_node(self, parent: Any, index: Any) -> Any:
            if not self.check_event(yaml.AliasEvent):
                return super().compose_node(parent, index)
            event = self.get_event()
            node = self.anchors.get(event.anchor)
            is_list = isinstance(node, yaml.SequenceNode) and node.end_mark is not None  # which has come to its end
            if isinstance(node, yaml.ScalarNode) or (
                is_list and all(isinstance(item, yaml.ScalarNode) for item in node.value)
            ):
                return node
            return yaml.ScalarNode("*", event.anchor, event.start_mark, event.end_mark)

    return AliasedLoader
