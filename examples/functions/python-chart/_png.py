"""A PNG writer for one-colour bars, standard library only."""

import struct
import zlib


def _chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def bar_chart(values, width=320, height=120, bar=(46, 92, 184), ground=(255, 255, 255)):
    """PNG bytes of a bar chart; values are numbers of at least 0."""
    top = max(values) or 1
    slot = width / len(values)
    heights = [round(value / top * (height - 10)) for value in values]
    rows = bytearray()
    for y in range(height):
        rows.append(0)  # filter type of the row: none
        for x in range(width):
            column = int(x / slot)
            in_bar = 0.1 <= x / slot - column <= 0.9 and height - y <= heights[column]
            rows += bytes(bar if in_bar else ground)
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + _chunk(b"IHDR", header)
        + _chunk(b"IDAT", zlib.compress(bytes(rows)))
        + _chunk(b"IEND", b"")
    )
