"""Every benchmark names the processor that its times were taken on."""

from __future__ import annotations

import ast
import os
import platform

import pytest
import torch

from metriscope import benching


def first_statement_of_main(path):
    functions = [node for node in ast.parse(path.read_text()).body if isinstance(node, ast.FunctionDef)]
    return ast.unparse(next(node for node in functions if node.name == "main").body[0])


@pytest.mark.parametrize("name", benching.benchmarks())
def test_a_benchmark_prints_the_processor_first(name):
    assert first_statement_of_main(benching.benchmarks()[name]) == "print(processor())"


def test_a_processor_is_one_line_of_what_speed_depends_on():
    found = benching.processor()
    assert "\n" not in found
    assert f"PyTorch uses {torch.backends.cpu.get_cpu_capability()}" in found
    assert found.endswith(f"{os.cpu_count()} CPUs")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("processor\t: 0\nmodel name\t: Some CPU @ 2 GHz\nmodel name\t: Some\n", "Some CPU @ 2 GHz"),
        ("", None),
        (None, None),
    ],
    ids=["named", "silent", "not Linux"],
)
def test_the_model_is_linuxs_name_or_pythons(tmp_path, text, expected):
    if text is not None:
        (tmp_path / "cpuinfo").write_text(text)
    assert benching._model(tmp_path / "cpuinfo") == (expected or platform.processor() or "unknown")
