"""One file per engine: ``llama_cpp`` speaks HTTP with a server, the others run in ``worker``."""
