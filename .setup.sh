# Sourced by ./run and ./test: an environment of the project's own in .venv, installed once per change of
# pyproject.toml, constraints.txt or the interpreter.

find_python() {
    for name in "${PYTHON:-}" python3 python3.13 python3.12 python3.11 python3.10 python; do
        if [ -n "$name" ] && "$name" -c 'import sys, venv; sys.exit(sys.version_info < (3, 10))' 2>/dev/null; then
            echo "$name"
            return
        fi
    done
    echo "Metriscope needs Python 3.10 or newer with the venv module; none was found (set PYTHON to name one)." >&2
    return 1
}

setup() {
    python=$(find_python)
    want=$({ "$python" -VV; pwd; cat pyproject.toml constraints.txt; } | cksum)
    if [ -x .venv/bin/metriscope ] && [ "$(cat .venv/installed 2>/dev/null)" = "$want" ]; then
        return
    fi
    echo "Setting up .venv (once; a few minutes, most of it PyTorch) ..." >&2
    "$python" -m venv --clear .venv
    .venv/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
    # Written last: an interrupted set-up is begun again.
    echo "$want" > .venv/installed
}

# Architectures for the slow tests. timm and torchvision ask for other builds of PyTorch, so they come without what they ask for.
setup_zoo() {
    if ! .venv/bin/python -c 'import importlib.util as i, sys; sys.exit(not all(map(i.find_spec, ("timm", "transformers", "torchvision"))))' 2>/dev/null; then
        { .venv/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt transformers &&
            .venv/bin/python -m pip install --quiet --disable-pip-version-check --no-deps timm torchvision; } ||
            echo "timm and transformers could not be installed: their tests will be skipped" >&2
    fi
}

# Sphinx and what the documentation is built with; only ./test --all needs them.
setup_docs() {
    if ! .venv/bin/python -c 'import importlib.util as i, sys; sys.exit(not all(map(i.find_spec, ("sphinx", "furo", "myst_nb", "sphinx_gallery", "sphinx_copybutton", "sphinx_design"))))' 2>/dev/null; then
        .venv/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[docs]' ||
            echo "Sphinx could not be installed: the documentation will not be built" >&2
    fi
}
