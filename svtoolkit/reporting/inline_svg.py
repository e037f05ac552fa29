"""An SVG figure as a part of an HTML page: no prologue, no foreign ids, the ink of the page around it."""

from __future__ import annotations

import re
from xml.etree import ElementTree

from svtoolkit.reporting.formatting import printable

INK = "#202124"  # text and axes; in a page, the colour of the text around the figure (light or dark) replaces it
DROPPED = {"metadata", "style", "title"}  # metadata names external vocabularies; a <style> reaches the whole page


def inline_svg(svg: str, *, prefix: str, label: str) -> str:
    """Turn a stand-alone SVG document into an element that can stand in HTML beside others.

    Two figures of one program name their parts alike (``axes_1``), and ids are shared by a whole page: a clip path
    of one would cut the other. So every id, and every reference to it, gets ``prefix``.

    Args:
        svg: the document, as ``canvas.svg_text`` gives it.
        prefix: what ids begin with; different for each figure of a page.
        label: what the figure shows, for readers who do not see it.
    """
    root = ElementTree.fromstring(svg)
    for element in root.iter():
        element.tag = element.tag.rpartition("}")[2]
        for child in list(element):
            if child.tag.rpartition("}")[2] in DROPPED:
                element.remove(child)
        element.attrib = {
            name.rpartition("}")[2]: _rewrite(name.rpartition("}")[2], value, prefix)
            for name, value in element.attrib.items()
        }
    root.attrib |= {"role": "img", "aria-label": printable(label)}
    return ElementTree.tostring(root, encoding="unicode")


def _rewrite(name: str, value: str, prefix: str) -> str:
    if name == "id":
        return prefix + value
    if name == "href" and value.startswith("#"):
        return f"#{prefix}{value[1:]}"
    return re.sub(r"url\(#", f"url(#{prefix}", value).replace(INK, "currentColor")
