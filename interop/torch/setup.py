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

HERE = Path(__file__).resolve().parent
ABSENT = """\
nezha_torch: pkg-config does not find libnezha: {why}
Install nezha first (its README.md says how). If nezha.pc is in a folder that pkg-config does not look
into, name that folder: PKG_CONFIG_PATH=PREFIX/lib/pkgconfig"""


def pkg_config(*what: str) -> list[str]:
    """Returns what pkg-config says of libnezha, as words. Ends the build if there is no answer."""
    command = [*shlex.split(os.environ.get("PKG_CONFIG", "pkg-config")), *what, "nezha"]
    try:
        return shlex.split(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    except OSError as error:
        why = f"{command[0]} does not run: {error.strerror} (Debian's package is pkg-config)"
    except subprocess.CalledProcessError as error:
        why = error.stderr.strip().replace("\n", " ")
    sys.exit(ABSENT.format(why=why))


def uses_shared_gloo() -> bool:
    """Returns whether PyTorch's Gloo is the library libgloo.so, which nezha uses, too."""
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
    rpaths = [f"-Wl,-rpath,{os.path.realpath(word[2:])}" for word in pkg_config("--libs-only-L")]
    system = [word for folder in include_paths() for word in ("-isystem", folder)]
    cflags = pkg_config("--cflags")
    # nezha's headers need C++17. PyTorch 1 would take C++14, and each later version takes what it needs.
    standard = ["-std=c++17"] if torch.__version__.startswith("1.") else []
    return CppExtension(
        "nezha_torch._C",
        sorted(str(path) for path in Path("csrc").glob("*.cc")),
        define_macros=macros,
        extra_compile_args=[*standard, "-Wall", "-Wextra", *system, *cflags],
        extra_link_args=[*pkg_config("--libs"), *rpaths],
    )


class Build(BuildExtension):
    """Builds the package also without the rest of nezha's repository, as from a source distribution."""

    def build_extensions(self) -> None:
        # Sources name their headers from the repository's root.
        root = Path(self.build_temp).resolve() / "root"
        (root / "interop").mkdir(parents=True, exist_ok=True)
        link = root / "interop" / "torch"
        link.unlink(missing_ok=True)
        link.symlink_to(HERE)
        for each in self.extensions:
            each.extra_compile_args += ["-iquote", str(root)]
        super().build_extensions()


setup(ext_modules=[extension()], cmdclass={"build_ext": Build})
