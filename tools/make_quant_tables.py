"""Write specrt/_ext/host/kernels/quant_tables.h: the codebooks of the IQ types, from gguf.

Run ``python tools/make_quant_tables.py`` from the repository root; the header is committed.
"""

from pathlib import Path

from specrt.reference.quant_blocks import IQ4_VALUES, MXFP4_VALUES, codebook

HEADER = Path("specrt/_ext/host/kernels/quant_tables.h")
GRIDS = ("IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S")


def array(name: str, shape: str, values: list[int]) -> str:
    """One constant array, sixteen values a line."""
    lines = [", ".join(map(str, values[i : i + 16])) for i in range(0, len(values), 16)]
    return f"static const int8_t {name}{shape} = {{\n" + ",\n".join(lines) + "\n};\n"


def main() -> None:
    """Write the header."""
    text = "/* Codebooks of the IQ types; written by tools/make_quant_tables.py. */\n"
    text += "#include <stdint.h>\n\n"
    text += array("iq4_values", "[16]", IQ4_VALUES.tolist())
    text += array("mxfp4_values", "[16]", MXFP4_VALUES.tolist())
    for name in GRIDS:
        grid = codebook(name)
        text += array(f"{name.lower()}_grid", f"[{grid.size}]", grid.ravel().tolist())
    HEADER.write_text(text)


if __name__ == "__main__":
    main()
