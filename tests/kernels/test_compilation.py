"""Kernels that run in the interpreter also compile."""

import os
import subprocess
import sys

import pytest


def test_the_kernels_of_adapters_compile_for_hopper() -> None:
    pytest.importorskip("triton")
    # in a process of its own, because the interpreter is chosen when Triton is imported
    environment = {**os.environ, "TRITON_INTERPRET": "0"}
    command = [sys.executable, "-m", "tests.support.compiled_kernels"]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240, check=False)
    assert ran.returncode == 0, ran.stderr[-2000:]
    of_experts, of_layers = ["_thin", "_own_thin"], ["_group", "_thin", "_correct", "_correct"]
    assert ran.stdout.split() == ["_up", "_down"] * 2 + of_experts + of_layers
