"""Copies of model files with something exchanged."""

from __future__ import annotations

from pathlib import Path

import gguf


def rewritten(
    source: Path,
    path: Path,
    *,
    keys=None,
    tensors=None,
    types=None,
    extra=None,
    drop: tuple[str, ...] = (),
) -> Path:
    """A copy of a file with keys or tensors exchanged or dropped, and tensors added.

    Args:
        types: of exchanged tensors that are quantised.
    """
    reader = gguf.GGUFReader(source)
    architecture = reader.fields["general.architecture"].contents()
    writer = gguf.GGUFWriter(path, architecture)
    keys = keys or {}
    for name, field in reader.fields.items():
        if name.startswith("GGUF.") or name == "general.architecture" or name in (*keys, *drop):
            continue
        kind, item = field.types[0], field.types[-1] if len(field.types) > 1 else None
        writer.add_key_value(name, field.contents(), kind, item)
    for name, (value, kind) in keys.items():
        writer.add_key_value(name, value, kind)
    for tensor in reader.tensors:
        if tensor.name in drop:
            continue
        values = (tensors or {}).get(tensor.name)
        if values is not None:
            writer.add_tensor(tensor.name, values, raw_dtype=(types or {}).get(tensor.name))
        else:
            writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
    for name, values in (extra or {}).items():
        writer.add_tensor(name, values)
    write_all(writer)
    return path


def write_all(writer: gguf.GGUFWriter) -> None:
    """Header, keys and tensors."""
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
