"""Settings of the documentation site: `sphinx-build -W docs out/docs`."""

import os
import sys
from pathlib import Path

from metriscope import __version__

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "_extensions"))
from gallery_examples import RUN  # noqa: E402  found by the line above

# Read by every kernel that executes a page: one look for all figures, one thread on machines that are shared.
os.environ["MATPLOTLIBRC"] = str(HERE / "_static" / "matplotlibrc")
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ["PYTHONWARNINGS"] = "ignore:IProgress not found"  # tqdm, which looks for widgets

project, author, version = "Metriscope", "The Metriscope developers", __version__
project_copyright = author
extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
    "repository_links",
    "public_names",
    "gallery_examples",
    "flowcharts",
]
exclude_patterns = ["gallery/*.ipynb", "gallery/*.py", "_extensions"]
language, nitpicky = "en", True
# Docstrings describe types in words ("array of int"); only names of this package must resolve.
nitpick_ignore_regex = [
    ("py:(class|obj|data)", r"(?!metriscope\.).*"),
    ("py:.*", r"(time|torch|numpy|sklearn)\..*"),
]

myst_enable_extensions = ["colon_fence", "deflist"]
myst_fence_as_directive = ["mermaid"]
myst_heading_anchors = 3
nb_execution_mode = "force"
nb_execution_raise_on_error = True
nb_execution_in_temp = True
nb_execution_timeout = 120
nb_merge_streams = True
nb_output_stderr = "remove-warn"  # code that warns stops a build with -W

autodoc_typehints = "none"
autodoc_member_order = "bysource"
# Methods that scikit-learn adds, whose texts refer to its own site.
autodoc_default_options = {"exclude-members": "set_fit_request, set_score_request, set_partial_fit_request"}
autosummary_generate = False
napoleon_google_docstring = False
napoleon_use_rtype = False
napoleon_use_ivar = True

sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "gallery",
    "filename_pattern": RUN,
    "within_subsection_order": "FileNameSortKey",
    "image_scrapers": ("gallery_examples.scrape",),
    "reset_argv": "gallery_examples.arguments",
    "run_stale_examples": True,
    "abort_on_example_error": True,
    "write_computation_times": False,
    "download_all_examples": False,
    "show_memory": False,
    "show_signature": False,
    "remove_config_comments": True,
    "min_reported_time": 10_000,
}

html_theme, html_title = "furo", "Metriscope"
html_static_path, html_css_files = ["_static"], ["site.css"]
html_copy_source = html_show_sourcelink = html_show_sphinx = False
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#0a5fae", "color-brand-content": "#0a5fae"},
    "dark_css_variables": {"color-brand-primary": "#6cb6ff", "color-brand-content": "#6cb6ff"},
}
copybutton_exclude = ".linenos, .gp, .go"
