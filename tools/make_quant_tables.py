"""Write specrt/_ext/host/kernels/quant_tables.h: the codebooks of the IQ types, from gguf.

Run ``python tools/make_quant_tables.py`` from the repository root; the header is committed.
"""

from pathlib import Path

from specrt.reference.quant_blocks import IQ4_VALUES, MXFP4_VALUES, codebook

HEADER = Path("specrt/_ext/host/kernels/quant_tables.h")
GRIDS = ("IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S")


def array(dtype: str, name: str, values: list[int]) -> str:
    """One constant array, sixteen values a line."""
    lines = [", ".join(map(str, values[i : i + 16])) for i in range(0, len(values), 16)]
    return f"static const {dtype} {name}[{len(values)}] = {{\n" + ",\n".join(lines) + "\n};\n"


def main() -> None:
    """Write the header."""
    text = "/* Codebooks of the IQ types; written by tools/make_quant_tables.py. */\n"
    text += "#include <stdint.h>\n\n/* These two made unsigned by + 128. */\n"
    for name, values in {"iq4_values": IQ4_VALUES, "mxfp4_values": MXFP4_VALUES}.items():
        text += array("uint8_t", name, (values.astype(int) + 128).tolist())
    for name in GRIDS:
        text += array("int8_t", f"{name.lower()}_grid", codebook(name).ravel().tolist())
    HEADER.write_text(text)


if __name__ == "__main__":
    main()
