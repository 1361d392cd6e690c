"""The CUDA op set: one launcher per ``cuda/<op>.cu``, over CuPy arrays or the emulator's."""
