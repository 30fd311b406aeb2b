"""An interconnect: what messages between devices take, one YAML file of ``hardware_db/interconnects``."""

from typing import Literal

from rooflinekit.errors import InvalidInputError, MissingFigureError
from rooflinekit.specs.device import Device
from rooflinekit.specs.spec import Count, Fraction, Identifier, NotNegative, Positive, SourceMap, Spec

#: What devices do together, by the names of the law's constants.
OPERATIONS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "exchange", "send")


class Collective(Spec):
    """Constants of one operation: latency, and the part of the link that large messages reach.

    ``latency_us`` is of two ranks, ``growth`` what each further rank adds to it, as a part. ``fraction`` is of two
    ranks, ``fraction_of_eight`` of eight (in-switch reduction), in between by the logarithm. ``join`` is the part of
    the root of latency and wire time that comes on top: 0.5 where a library changes protocol with the size.
    """

    latency_us: NotNegative
    growth: NotNegative = 0.0
    fraction: Fraction
    fraction_of_eight: Fraction | None = None
    join: NotNegative = 0.0


class OwnKernel(Spec):
    """The all-reduce that engines run instead of the library's, up to `up_to_mib`.

    One round: every rank reads the other ranks' messages whole, at ``read_fraction`` of the link. Two rounds: it
    reduces its share of the message and gathers the others', at ``fraction``, for ``second_round`` times the latency.
    The quicker one runs.
    """

    engines: tuple[str, ...]
    latency_us: NotNegative
    read_fraction: Fraction
    fraction: Fraction
    second_round: Positive
    up_to_mib: Positive


class Interconnect(Spec):
    """
    A link between devices with the constants of every operation.

    ``kinds`` are the links of device files that it describes, ``devices`` those that have a file of their own.
    ``rate`` says which figure of the device file is the link's where ``one_way_gb_per_s`` is not given. ``domain`` is
    the number of devices that it joins: beyond it ``between`` takes over. ``peers`` is set where each pair of devices
    has a link of its own, so that n devices reach (n - 1) / peers of the rate. ``exchange`` is the dispatch and combine
    of engines' own kernels for experts.
    """

    id: Identifier
    name: str
    kinds: tuple[str, ...] = ()
    devices: tuple[Identifier, ...] = ()
    rate: Literal["scale_up", "pcie"] = "scale_up"
    one_way_gb_per_s: Positive | None = None
    domain: Count = 8
    peers: Count | None = None
    between: Identifier | None = None
    all_reduce: Collective
    all_gather: Collective
    reduce_scatter: Collective
    all_to_all: Collective
    exchange: Collective
    send: Collective
    own_kernel: OwnKernel | None = None
    sources: SourceMap = ()
    notes: tuple[str, ...] = ()

    def of(self, device: Device) -> "Interconnect":
        """Return it with this device's rate, or raise the error that names the missing figure."""
        if self.one_way_gb_per_s is not None:
            return self
        found = _scale_up(device) if self.rate == "scale_up" else _pcie(device)
        if found is None:
            figure = "scale_up.one_way_gb_per_s" if self.rate == "scale_up" else "pcie.one_way_gb_per_s"
            message = (
                f"{device.id} has no {figure}, which {self.id} needs: pass interconnect={{'one_way_gb_per_s': ...}}, "
                "or add the figure to the device file"
            )
            raise MissingFigureError(message)
        return self.model_copy(update={"one_way_gb_per_s": found})

    def has_own_kernel(self, engine: str | None) -> bool:
        """Tell whether an engine brings its own all-reduce; where none is named, as serving engines do."""
        kernel = self.own_kernel
        if kernel is None:
            return False
        return engine is None or any(engine == one or engine.startswith(f"{one}-") for one in kernel.engines)


class LinkChoice(Spec):
    """What a user says about the link: another one by name, or single figures of it.

    ``latency_us`` (of two ranks) and ``fraction`` replace those of every operation, and the engines' own kernel with
    them.
    """

    name: str | None = None
    one_way_gb_per_s: Positive | None = None
    latency_us: NotNegative | None = None
    fraction: Fraction | None = None
    join: NotNegative | None = None
    domain: Count | None = None
    between: str | None = None
    own_kernel: bool | None = None

    def applied(self, base: Interconnect) -> Interconnect:
        """Return an interconnect with these figures."""
        changes: dict[str, object] = {
            name: value for name in ("one_way_gb_per_s", "domain", "between") if (value := getattr(self, name))
        }
        figures = {
            name: value for name in ("latency_us", "fraction", "join") if (value := getattr(self, name)) is not None
        }
        if "fraction" in figures:
            figures["fraction_of_eight"] = None  # one figure for any number of ranks
        if figures:
            changes |= {name: getattr(base, name).model_copy(update=figures) for name in OPERATIONS}
        if self.own_kernel is False or (figures and self.own_kernel is None):
            changes["own_kernel"] = None
        if self.own_kernel and base.own_kernel is None:
            message = f"own_kernel: {base.id} knows no all-reduce of an engine's own; leave it out"
            raise InvalidInputError(message)
        return base.model_copy(update=changes)

    @property
    def said(self) -> str:
        """Name the figures that were given."""
        given = {name: getattr(self, name) for name in type(self).model_fields if getattr(self, name) is not None}
        return ", ".join(f"{name} {value}" for name, value in given.items() if name != "name")


def _scale_up(device: Device) -> float | None:
    link = device.datasheet.scale_up
    if link is None:
        return None
    return link.one_way_gb_per_s or (link.both_ways_gb_per_s / 2.0 if link.both_ways_gb_per_s else None)


def _pcie(device: Device) -> float | None:
    return device.datasheet.pcie.one_way_gb_per_s if device.datasheet.pcie else None


def default_link(device: Device) -> str:
    """Name the kind of link that devices of this kind talk over: their own, else PCIe.

    A bridge between two cards is an accessory: PCIe unless it is asked for. Consumer cards have no access to each
    other's memory by PCIe: their messages pass through the host's.
    """
    link = device.datasheet.scale_up
    if link is not None and "bridge" not in f"{link.kind} {link.note}":
        return link.kind
    return "pcie-host" if device.kind == "consumer" else "pcie"
