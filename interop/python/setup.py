# SPDX-License-Identifier: Apache-2.0
"""Builds the package nezha against the libnezha that pkg-config finds."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from glob import glob

from setuptools import Extension, setup

ABSENT = """\
nezha: pkg-config does not find libnezha: {why}
Install nezha first (its README.md says how). If nezha.pc is in a folder that pkg-config does not look
into, name that folder: PKG_CONFIG_PATH=PREFIX/lib/pkgconfig"""


def pkg_config(*options: str) -> list[str]:
    """Returns what pkg-config says of libnezha, as words. Ends the build if there is no answer."""
    command = [*shlex.split(os.environ.get("PKG_CONFIG", "pkg-config")), *options, "nezha"]
    try:
        return shlex.split(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    except OSError as error:
        why = f"{command[0]} does not run: {error.strerror} (Debian's package is pkg-config)"
    except subprocess.CalledProcessError as error:
        why = error.stderr.strip().replace("\n", " ")
    sys.exit(ABSENT.format(why=why))


def pybind11_folders() -> list[str]:
    """Returns where pip has put pybind11's headers. Debian's pybind11-dev puts them where compilers look."""
    try:
        import pybind11
    except ImportError:
        return []
    return [str(pybind11.get_include())]


[version] = pkg_config("--modversion")
# The package then finds the library that it was built against.
rpaths = [f"-Wl,-rpath,{os.path.realpath(word[2:])}" for word in pkg_config("--libs-only-L")]

setup(
    version=version,
    packages=["nezha"],
    package_data={"nezha": ["py.typed", "*.pyi"]},
    ext_modules=[
        Extension(
            "nezha._nezha",
            sorted(glob("bindings/*.cc")),
            depends=sorted(glob("bindings/*.h")),
            include_dirs=[".", *pybind11_folders()],
            language="c++",
            # pybind11 wants hidden symbols.
            extra_compile_args=["-std=c++17", "-fvisibility=hidden", "-g0", *pkg_config("--cflags")],
            extra_link_args=[*pkg_config("--libs"), *rpaths],
        )
    ],
)
