"""Write the codebooks of the IQ types, from gguf, for the host and for CUDA.

Run ``python tools/make_quant_tables.py`` from the repository root; the headers are committed.
"""

from pathlib import Path

import numpy as np

from specrt.reference.quant_blocks import IQ4_VALUES, MXFP4_VALUES, codebook

HOST = Path("specrt/_ext/host/kernels/quant_tables.h")
CUDA = Path("cuda/quant_tables.cuh")
GRIDS = ("IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S")


def array(dtype: str, name: str, values: list[int]) -> str:
    """One constant array, sixteen values a line."""
    lines = [", ".join(map(str, values[i : i + 16])) for i in range(0, len(values), 16)]
    return f"static const {dtype} {name}[{len(values)}] = {{\n" + ",\n".join(lines) + "\n};\n"


def levels(*names: str) -> np.ndarray:
    """What the entries of these codebooks are made of, with either sign; 0 up to sixteen."""
    values = np.unique(np.concatenate([codebook(name).ravel() for name in names]).astype(int))
    both = np.concatenate([values, -values])
    return np.pad(both, (0, 16 - len(both)))


def host_text() -> str:
    """The codebooks as bytes, and tables of the values that a code may stand for."""
    text = "/* Codebooks of the IQ types; written by tools/make_quant_tables.py. */\n"
    text += "#include <stdint.h>\n\n/* These made unsigned by + 128. */\n"
    tables = {
        "iq4_values": IQ4_VALUES,
        "mxfp4_values": MXFP4_VALUES,
        "iq2_values": levels("IQ2_XXS", "IQ2_XS", "IQ2_S"),
        "iq3_xxs_values": levels("IQ3_XXS"),
        "iq3_s_values": levels("IQ3_S"),
    }
    for name, values in tables.items():
        text += array("uint8_t", name, (values.astype(int) + 128).tolist())
    for name in GRIDS:
        text += array("int8_t", f"{name.lower()}_grid", codebook(name).ravel().tolist())
    return text


def cuda_text() -> str:
    """The codebooks as one integer an entry, first value lowest."""
    text = "/* Codebooks of the IQ types; written by tools/make_quant_tables.py. */\n"
    for name in GRIDS:
        book = np.ascontiguousarray(codebook(name))
        kind = "unsigned long long" if book.shape[1] == 8 else "unsigned"
        entries = book.view(f"<u{book.shape[1]}").ravel()
        lines = [", ".join(map(hex, entries[i : i + 4])) for i in range(0, len(entries), 4)]
        text += f"static __device__ const {kind} {name.lower()}_grid[{len(entries)}] = {{\n"
        text += ",\n".join(lines) + "\n};\n"
    return text


def main() -> None:
    """Write the headers."""
    HOST.write_text(host_text())
    CUDA.write_text(cuda_text())


if __name__ == "__main__":
    main()
