"""Build the Cython extensions, the host kernels once per instruction set; pack the CUDA kernels."""

import platform
from glob import glob
from pathlib import Path

import numpy
from Cython.Build import cythonize
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py

HOST = "specrt/_ext/host"
# Contraction is off everywhere: every fma in the sources is written as one.
FLAGS = ["-O3", "-std=gnu11", "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math"]
AVX2 = ["-mavx2", "-mfma", "-mf16c", "-mbmi2"]
AVX512 = [*AVX2, *(f"-mavx512{part}" for part in ("f", "bw", "dq", "vl", "vnni"))]
INSTRUCTION_SETS: dict[str, list[str]] = {"portable": []}
if platform.machine() in ("x86_64", "AMD64"):
    INSTRUCTION_SETS |= {"avx2": AVX2, "avx512": AVX512}
MACROS = [
    ("NPY_NO_DEPRECATED_API", "NPY_1_7_API_VERSION"),
    ("HAVE_X86", str(int("avx2" in INSTRUCTION_SETS))),
]


KERNELS = {"host_ops": "*.c", "sampler": "sample.c"}
"""What extensions link of kernels/."""


class BuildExtensions(build_ext):
    """Compile kernels once per instruction set, and link all forms into who calls them."""

    def build_extension(self, ext: Extension) -> None:
        stem = ext.name.rpartition(".")[2]
        if stem in KERNELS:
            for name, flags in INSTRUCTION_SETS.items():
                ext.extra_objects += self.compiler.compile(
                    sorted(glob(f"{HOST}/kernels/{KERNELS[stem]}")),
                    output_dir=str(Path(self.build_temp) / stem / name),
                    include_dirs=[HOST],
                    macros=[*MACROS, ("ISA", name)],
                    extra_postargs=[*FLAGS, *flags],
                    depends=ext.depends,
                )
        super().build_extension(ext)


class BuildPackage(build_py):
    """Put cuda/ into a wheel as specrt/cuda; an editable install reads it where it is."""

    def run(self) -> None:
        super().run()
        if self.editable_mode:
            return
        folder = Path(self.build_lib) / "specrt" / "cuda"
        self.mkpath(str(folder))
        for path in sorted(glob("cuda/*.cu*")):
            self.copy_file(path, str(folder))


SOURCES = {"host_ops": "*.c", "sampler": "isa.c"}
"""Their C sources that are compiled once."""


def extension(path: str) -> Extension:
    """One Cython file with its C sources."""
    name = Path(path).stem
    sources = sorted(glob(f"{HOST}/{SOURCES[name]}")) if name in SOURCES else []
    return Extension(
        f"specrt._ext.{name}",
        [path, *sources],
        include_dirs=[HOST, numpy.get_include()],
        depends=sorted(glob(f"{HOST}/**/*.[ch]", recursive=True)),
        extra_compile_args=[*FLAGS, "-Wno-unused-function"],
        libraries=["m", "pthread"],
        define_macros=MACROS,
    )


setup(
    ext_modules=cythonize(
        [extension(path) for path in sorted(glob("specrt/_ext/*.pyx"))],
        compiler_directives={
            "language_level": 3,
            "boundscheck": False,
            "wraparound": False,
            "cdivision": True,
            "initializedcheck": False,
        },
    ),
    cmdclass={"build_ext": BuildExtensions, "build_py": BuildPackage},
)
