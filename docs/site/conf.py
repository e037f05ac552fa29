"""The site of the documentation, made of the repository's own pages: sphinx-build -W -c docs/site . build/site"""

project = "svtoolkit"
copyright = "the svtoolkit developers"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
root_doc = "docs/site/index"
include_patterns = ["*.md", "docs/*.md", "docs/site/*.md", "recipes/*/README.md"]
exclude_patterns = ["CONTRIBUTING.md"]
html_theme = "furo"
html_title = "svtoolkit"
html_copy_source = False
html_extra_path = ["index.html"]  # leads to the root page

myst_heading_anchors = 3
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_inherit_docstrings = False
napoleon_use_ivar = True
add_module_names = False
