"""Unit prefixes, conversions and the rendering of quantities: the only file that knows 1e9, 2**30 and their names.

``_gb`` is 10**9 bytes, ``_gib`` is 2**30 bytes. Everything inside the library is in base units (bytes, FLOP, seconds);
a file's key carries the unit that its datasheet prints and is converted once, here.
"""

import math

PICO = 1e-12
NANO = 1e-9
MICRO = 1e-6
MILLI = 1e-3
MEGA = 1e6
GIGA = 1e9
TERA = 1e12
KIB = 2.0**10
MIB = 2.0**20
GIB = 2.0**30
BITS_PER_BYTE = 8.0
HOUR = 3600.0

_PREFIXES = ((1e15, "P"), (TERA, "T"), (GIGA, "G"), (MEGA, "M"), (1e3, "k"), (1.0, ""))
_BINARY = ((2.0**40, "TiB"), (GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB"), (1.0, "bytes"))
#: From here a figure is shown with an exponent.
_ABSURD = 1e15
_TIMES = ((1.0, "s"), (MILLI, "ms"), (MICRO, "us"), (NANO, "ns"))


def significant(value: float, digits: int = 3) -> str:
    """Round to significant digits with thousands separators; an exponent is for what no run can show, 1e15 and more.

    >>> significant(1290.4), significant(0.07441), significant(147456, 6), significant(1e305)
    ('1,290', '0.0744', '147,456', '1.00e+305')
    """
    if not math.isfinite(value) or value == 0:
        return f"{value:g}"
    if abs(value) >= _ABSURD:
        return f"{value:.{digits - 1}e}"
    value = float(f"{value:.{digits - 1}e}")  # first, since rounding may reach the next power of ten
    places = digits - 1 - math.floor(math.log10(abs(value)))
    return f"{value:,.{max(places, 0)}f}"


def _scaled(value: float, table: tuple[tuple[float, str], ...], digits: int) -> str:
    if not math.isfinite(value):
        return f"{value:g} {table[-1][1]}".rstrip()
    scale, name = next((row for row in table if abs(value) >= row[0] * (1 - 0.5 * 10**-digits)), table[-1])
    return f"{significant(value / scale, digits)} {name}".rstrip()


def si(value: float, unit: str, digits: int = 3) -> str:
    """Render with a decimal prefix.

    >>> si(412.3e9, "FLOP"), si(273e9, "B/s"), si(6.95e9, "")
    ('412 GFLOP', '273 GB/s', '6.95 G')
    """
    return _scaled(value, tuple((scale, prefix + unit) for scale, prefix in _PREFIXES), digits)


def binary_bytes(value: float, digits: int = 3) -> str:
    """Render a capacity with a binary prefix.

    >>> binary_bytes(147456), binary_bytes(4.294967296e9)
    ('144 KiB', '4.00 GiB')
    """
    return _scaled(value, _BINARY, digits)


def duration(seconds: float, digits: int = 3) -> str:
    """Render a time with the unit that suits it.

    >>> duration(0.412), duration(3.2e-6), duration(0.9996), duration(12.5)
    ('412 ms', '3.20 us', '1.00 s', '12.5 s')
    """
    return "0 s" if seconds == 0 else _scaled(seconds, _TIMES, digits)


def count(value: float) -> str:
    """Render a count with thousands separators, keeping a fraction only where there is one.

    >>> count(2048.0), count(1.5)
    ('2,048', '1.5')
    """
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.6g}"
