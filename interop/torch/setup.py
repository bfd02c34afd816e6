# SPDX-License-Identifier: Apache-2.0
"""Builds the package against the PyTorch and the nezha that are installed."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import torch
from setuptools import Extension, setup
from torch.utils.cpp_extension import BuildExtension, CppExtension, include_paths, library_paths

ROOT = str(Path(__file__).resolve().parents[2])  # the repository's, from which sources name headers


def pkg_config(*what: str) -> list[str]:
    """The words that pkg-config has to say of nezha."""
    command = [os.environ.get("PKG_CONFIG", "pkg-config"), *what, "nezha"]
    try:
        return shlex.split(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    except FileNotFoundError:
        sys.exit("pkg-config is not installed; install it (Debian: pkg-config)")
    except subprocess.CalledProcessError as error:
        sys.exit(
            f"{error.stderr.strip()}\nnezha is not installed where pkg-config looks for it; install it, "
            "and let PKG_CONFIG_PATH name the folder of its nezha.pc"
        )


def uses_shared_gloo() -> bool:
    """Whether PyTorch's Gloo is the library libgloo.so, which nezha uses, too."""
    for folder in library_paths():
        library = Path(folder) / "libtorch_cpu.so"
        if library.exists():
            needed = subprocess.run(["readelf", "-d", library], check=True, capture_output=True, text=True)
            return "[libgloo.so" in needed.stdout
    return False


def extension() -> Extension:
    if not torch._C._GLIBCXX_USE_CXX11_ABI:
        sys.exit(
            f"PyTorch {torch.__version__} was built with the old ABI of C++'s library, and cannot be "
            "linked to nezha; take one with the new ABI (torch.compiled_with_cxx11_abi() is true)"
        )
    macros: list[tuple[str, str | None]] = []
    if uses_shared_gloo():
        macros = [("NEZHA_TORCH_GLOO", None), ("USE_C10D_GLOO", None)]
    else:
        print(
            "GLOO_DEVICE_TRANSPORT=NEZHA is left out: this PyTorch has a Gloo of its own inside. "
            'The backend "nezha" does not need it.'
        )
    rpaths = [f"-Wl,-rpath,{word[2:]}" for word in pkg_config("--libs-only-L")]
    system = [word for folder in include_paths() for word in ("-isystem", folder)]
    cflags = pkg_config("--cflags")
    return CppExtension(
        "nezha_torch._C",
        sorted(str(path) for path in Path("csrc").glob("*.cc")),
        define_macros=macros,
        extra_compile_args=["-std=c++17", "-Wall", "-Wextra", "-iquote", ROOT, *system, *cflags],
        extra_link_args=[*pkg_config("--libs"), *rpaths],
    )


setup(ext_modules=[extension()], cmdclass={"build_ext": BuildExtension})
