from __future__ import annotations

from svtoolkit.reporting.inline_svg import INK, inline_svg


def test_inline_svg_rewrites_ids_but_not_text():
    svg = (
        '<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink"><metadata>m</metadata>'
        '<defs><style>* {fill: red}</style><path id="p"/></defs><use xlink:href="#p" style="clip-path: url(#p)"/>'
        f'<text style="fill: {INK}">id="p" url(#p) {INK}</text></svg>'
    )
    assert inline_svg(svg, prefix="a-", label='x "y"') == (
        '<svg role="img" aria-label="x &quot;y&quot;"><defs><path id="a-p" /></defs>'
        '<use href="#a-p" style="clip-path: url(#a-p)" />'
        f'<text style="fill: currentColor">id="p" url(#p) {INK}</text></svg>'
    )
