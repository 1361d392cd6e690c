"""fma32 against the C library's fmaf, by equality."""

import ctypes
import ctypes.util

import numpy as np

from specrt.reference.fma import fma32

libm = ctypes.CDLL(ctypes.util.find_library("m"))
libm.fmaf.restype = ctypes.c_float
libm.fmaf.argtypes = [ctypes.c_float] * 3


def assert_as_c(a, b, c):
    a, b, c = (np.asarray(v, np.float32).ravel() for v in (a, b, c))
    got = fma32(a, b, c)
    expected = np.array([libm.fmaf(*v) for v in zip(a, b, c, strict=True)], np.float32)
    same = (got.view(np.int32) == expected.view(np.int32)) | (np.isnan(got) & np.isnan(expected))
    assert same.all(), (a[~same][:3], b[~same][:3], c[~same][:3])


def test_random_bits():
    bits = np.random.default_rng(1).integers(0, 2**32, (3, 20000), dtype=np.uint32)
    assert_as_c(*bits.view(np.float32))


def test_close_magnitudes_cancel():
    rng = np.random.default_rng(2)
    a, b = rng.standard_normal((2, 20000)).astype(np.float32)
    c = -(a * b) * (1 + rng.integers(-4, 5, 20000).astype(np.float32) * np.float32(2**-23))
    assert_as_c(a, b, c)


def test_ties_that_rounding_twice_gets_wrong():
    # a * b + c lies just beside the middle of two float32 values, by less than float64 can hold.
    rng = np.random.default_rng(3)
    c = rng.integers(2**23, 2**24, 5000).astype(np.float32)
    odd = rng.integers(2**22, 2**23, 5000) * 2 + 1
    a = np.where(rng.random(5000) < 0.5, 0.5, -0.5).astype(np.float32)
    b = (1 + odd * 2.0**-24 - 0.5).astype(np.float32)
    assert_as_c(a, np.float32(1) + np.float32(2**-23) * np.sign(b), c)
    tiny = np.float32(2**-40) * a
    assert_as_c(tiny, tiny, c + 0)
    middle = np.float32(1 + 2**-23)  # squared: 1 + 2^-22 + 2^-46
    for shift in range(20, 60):
        scale = np.float32(2.0 ** (shift - 23))
        for sign in (1, -1):
            assert_as_c([middle], [middle * sign], [scale])
            assert_as_c([middle], [middle * sign * scale], [np.float32(2.0**-23) * sign])


def test_exact_halves_with_a_far_remainder():
    # 2^24 + 1 is a tie in float32; the remainder 2^-60 decides it, and float64 alone loses it.
    for remainder in (2.0**-60, -(2.0**-60)):
        for base in (2.0**24 + 2, 2.0**24 + 4):
            a = np.float32(1 + 2.0**-12)
            b = np.float32(1 - 2.0**-12)  # a * b = 1 - 2^-24
            assert_as_c([a], [b], [base])
            assert_as_c([1 + 2.0**-23], [remainder], [base])
    product = np.float32(2.0**24 + 2) * np.float32(0.5)
    assert_as_c([product], [1 + 2.0**-23], [2.0**24])


def test_specials_and_signed_zeros():
    values = np.array(
        [0.0, -0.0, 1, -1, np.inf, -np.inf, np.nan, 1e-45, -1e-45, 1e-30, 3.4e38, -3.4e38],
        np.float32,
    )
    assert_as_c(*np.meshgrid(values, values, values))
