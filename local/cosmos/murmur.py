"""MurmurHash3, the x64 variant of 128 bits with seed 0 (Austin Appleby, public domain)."""

import struct

LOW64 = 0xFFFFFFFFFFFFFFFF
FIRST = 0x87C37B91114253D5
SECOND = 0x4CF5AD432745937F


def rotated(value: int, bits: int) -> int:
    """Rotate a 64-bit number to the left."""
    return (value << bits | value >> (64 - bits)) & LOW64


def finished(value: int) -> int:
    """The final avalanche of MurmurHash3."""
    value ^= value >> 33
    value = value * 0xFF51AFD7ED558CCD & LOW64
    value ^= value >> 33
    value = value * 0xC4CEB9FE1A85EC53 & LOW64
    return value ^ value >> 33


def murmur3_128(data: bytes) -> tuple[int, int]:
    """The hash of `data` as two 64-bit halves (low, high)."""
    low = high = 0
    whole = len(data) // 16 * 16
    for at in range(0, whole, 16):
        one, two = struct.unpack_from("<QQ", data, at)
        low ^= rotated(one * FIRST & LOW64, 31) * SECOND & LOW64
        low = (rotated(low, 27) + high) * 5 + 0x52DCE729 & LOW64
        high ^= rotated(two * SECOND & LOW64, 33) * FIRST & LOW64
        high = (rotated(high, 31) + low) * 5 + 0x38495AB5 & LOW64
    one, two = struct.unpack("<QQ", data[whole:].ljust(16, b"\0"))
    low ^= (rotated(one * FIRST & LOW64, 31) * SECOND & LOW64) ^ len(data)
    high ^= (rotated(two * SECOND & LOW64, 33) * FIRST & LOW64) ^ len(data)
    low = low + high & LOW64
    high = high + low & LOW64
    low, high = finished(low), finished(high)
    low = low + high & LOW64
    return low, high + low & LOW64
