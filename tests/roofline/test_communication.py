"""Messages between devices: each law by hand, nodes in steps, and what must hold whatever the link."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rooflinekit as rk
from rooflinekit.roofline.communication import Links, collective_law
from rooflinekit.specs.catalog import interconnect_of, load_interconnect, load_interconnects
from rooflinekit.specs.interconnect import OPERATIONS


def links(device="h100-sxm", *, own_kernel=False):
    """Links of a device."""
    card = rk.load_device(device)
    inside = interconnect_of(card).of(card)
    return Links(inside, load_interconnect(inside.between) if inside.between else None, own_kernel)


def joined(latency, wire, join=0.5):
    """Latency, wire time and the root of both."""
    return latency + wire + 2 * join * math.sqrt(latency * wire)


MIB = 2.0**20
A8 = 6.18e-6 * (1 + 0.251 * 6)
W8 = 1.75 * 64 * MIB / (0.998 * 450e9)
# fmt: off
BY_HAND = [
    # operation, ranks, nodes, device, bytes -> seconds
    ("all_reduce",     8, 1, "h100-sxm", 64 * MIB, joined(A8, W8)),
    ("all_reduce",     2, 1, "h100-sxm", 64 * MIB, joined(6.18e-6, 64 * MIB / (0.686 * 450e9))),
    ("all_gather",     8, 1, "h100-sxm", 64 * MIB,
        joined(5.44e-6 * (1 + 0.159 * 6), 0.875 * 64 * MIB / (0.799 * 450e9))),
    ("exchange",       8, 1, "h100-sxm", 3 * MIB,  14e-6 + 3 * MIB / (0.5 * 450e9)),
    ("send",           2, 1, "h100-sxm", 3 * MIB,  10e-6 + 3 * MIB / (0.69 * 450e9)),
    ("all_reduce",     4, 1, "l40s",     64 * MIB, 6.67e-6 * 2 + 1.5 * 64 * MIB / ((0.531 + 0.353) / 2 * 31.5e9)),
    ("all_reduce",     2, 1, "mi300x",   64 * MIB, joined(12e-6, 64 * MIB / (0.71 * 64e9), 0.25)),  # one link of seven
    ("all_reduce",     8, 1, "mi300x",   64 * MIB, joined(12e-6 * 2.2, 1.75 * 64 * MIB / (0.71 * 448e9), 0.25)),
    # 16 ranks in two nodes of eight: reduced inside, an eighth between the nodes, gathered inside
    ("all_reduce",    16, 2, "h100-sxm", 64 * MIB,
        joined(5.57e-6 * (1 + 0.13 * 6), 0.875 * 64 * MIB / (0.855 * 450e9))
        + 40e-6 + 64 * MIB / 8 / (0.75 * 50e9)
        + joined(5.44e-6 * (1 + 0.159 * 6), 0.875 * 64 * MIB / (0.799 * 450e9))),
    ("exchange",      16, 2, "h100-sxm", 3 * MIB,  26e-6 + 0.5 * 3 * MIB / (0.87 * 50e9)),
    ("send",           2, 2, "h100-sxm", 3 * MIB,  15e-6 + 3 * MIB / (0.75 * 50e9)),
]
# fmt: on


@pytest.mark.parametrize(("operation", "ranks", "nodes", "device", "size", "seconds"), BY_HAND)
def test_laws_by_hand(operation, ranks, nodes, device, size, seconds):  # noqa: PLR0917 - the columns of the table
    """Latency by the number of ranks, traffic over the part of the link that is reached, the root of both."""
    law = collective_law(operation, ranks, nodes, links(device))
    assert float(law.seconds(1.0, size)) == pytest.approx(seconds, rel=1e-9)
    assert float(law.seconds(5.0, 5 * size)) == pytest.approx(5 * seconds, rel=1e-9)


# fmt: off
OWN = [
    # ranks, bytes -> seconds of the engines' own kernel on Hopper: one round, two rounds
    (2, 8192,      4.5e-6 + 8192 / (0.56 * 450e9)),
    (8, 8192,      4.5e-6 + 7 * 8192 / (0.56 * 450e9)),
    (8, 2 * MIB,   1.9 * 4.5e-6 + 1.75 * 2 * MIB / (0.67 * 450e9)),
]
# fmt: on


@pytest.mark.parametrize(("ranks", "size", "seconds"), OWN)
def test_engines_reduce_small_messages_by_a_kernel_of_their_own(ranks, size, seconds):
    """Its latency hardly grows with the ranks, as the library's does."""
    own = collective_law("all_reduce", ranks, 1, links(own_kernel=True))
    assert float(own.seconds(1.0, size)) == pytest.approx(seconds, rel=1e-9)
    assert float(own.seconds(1.0, size)) < float(collective_law("all_reduce", ranks, 1, links()).seconds(1.0, size))


def test_above_its_limit_the_library_takes_over():
    """Beyond 8 MiB both are the same; the time never falls where they change."""
    own, library = (collective_law("all_reduce", 2, 1, links(own_kernel=kernel)) for kernel in (True, False))
    assert float(own.seconds(1.0, 8 * MIB + 1)) == float(library.seconds(1.0, 8 * MIB + 1))
    sizes = np.geomspace(1e3, 1e9, 4000)
    assert (np.diff(own.seconds(1.0, sizes)) >= 0).all()


DEVICES = (
    "h100-sxm",
    "h200-sxm",
    "a100-sxm-80gb",
    "b200-sxm",
    "gb200",
    "mi300x",
    "l40s",
    "rtx-4090",
    "gb10",
    "tpu-v5e",
)


@given(
    device=st.sampled_from(DEVICES), operation=st.sampled_from(OPERATIONS), ranks=st.integers(2, 8),
    size=st.floats(1, 1e9), more=st.floats(1, 10), own=st.booleans(),
)  # fmt: skip
def test_time_never_falls_with_more_bytes_or_a_slower_link(device, operation, ranks, size, more, own):  # noqa: PLR0917 - drawn
    """Nor is it ever less than what the whole link takes."""
    quick = links(device, own_kernel=own)
    law = collective_law(operation, ranks, 1, quick)
    assert float(law.seconds(1.0, size * more)) >= float(law.seconds(1.0, size))
    slow = quick.inside.model_copy(update={"one_way_gb_per_s": quick.inside.one_way_gb_per_s / more})
    assert float(collective_law(operation, ranks, 1, Links(slow, None, own)).seconds(1.0, size)) >= float(
        law.seconds(1.0, size)
    )
    assert float(law.seconds(1.0, size)) >= law.floor_s_per_byte * size * (1 - 1e-9)


def test_no_message_costs_nothing():
    """A pass that samples nothing gathers no logits."""
    law = collective_law("all_gather", 2, 1, links())
    assert float(law.seconds(0.0, 0.0)) == 0.0


def test_every_link_is_described():
    """Names, kinds and devices do not overlap, and what takes over between nodes exists."""
    found = load_interconnects()
    kinds = [kind for link in found.values() for kind in link.kinds]
    assert len(kinds) == len(set(kinds))
    assert {device for link in found.values() for device in link.devices} <= set(rk.list_devices())
    assert {link.between for link in found.values() if link.between} <= set(found)


def test_every_link_is_sourced():
    """Every key is in the table of sources."""
    from rooflinekit.specs.catalog import load_sources  # noqa: PLC0415 - the one test of it

    keys = {key for link in load_interconnects().values() for _, keys in link.sources for key in keys}
    assert keys
    assert keys <= set(load_sources())


# fmt: off
DEFAULTS = [
    ("h100-sxm", "nvlink-hopper", 450), ("h200-sxm", "nvlink-h200-sxm", 450), ("h800-sxm", "nvlink-hopper", 200),
    ("gb200", "nvlink-blackwell-rack", 900), ("mi300x", "xgmi", 448), ("l40s", "pcie", 31.5),
    ("rtx-4090", "pcie-host", 31.5), ("rtx-3090", "pcie-host", 31.5), ("h100-nvl", "pcie", 63),
    ("tpu-v5e", "ici", 200), ("inferentia2", "neuronlink", 96),
]
# fmt: on


@pytest.mark.parametrize(("device", "link", "rate"), DEFAULTS)
def test_the_link_of_a_device(device, link, rate):
    """Its own, that of its kind, else PCIe: a bridge is an accessory, and consumer cards go through the host."""
    card = rk.load_device(device)
    assert (interconnect_of(card).id, interconnect_of(card).of(card).one_way_gb_per_s) == (link, rate)
