"""``rooflinekit devices``, ``models`` and ``schema``: what the catalogue holds, and what its files may say."""

from typing import Annotated, Any

import typer

from rooflinekit.cli import options
from rooflinekit.cli.output import model_of, named, remark, say, show, show_figures
from rooflinekit.cli.shell import Command
from rooflinekit.specs.catalog import list_devices, list_models, load_device, load_model
from rooflinekit.specs.device import Device
from rooflinekit.specs.model import Model
from rooflinekit.specs.precision import one_of

Record = dict[str, Any]

devices = typer.Typer(help="List the devices, or show one with its sources.", rich_markup_mode=None)
models = typer.Typer(help="List the models, or show one with its sources.", rich_markup_mode=None)

# fmt: off
_DEVICES = ("device", "vendor", "memory_bytes", "bytes_per_s", "half_flops_per_s", "fp8_flops_per_s", "status")
_MODELS = (
    "model", "family", "parameters", "active_parameters", "layers", "kv_bytes_per_token", "state_bytes",
    "max_context_tokens", "weights", "figures",
)

Vendor = Annotated[str | None, typer.Option("--vendor", metavar="NAME", help="Only this vendor's.")]
Kind = Annotated[str | None, typer.Option("--kind", metavar="KIND", help="Only datacenter, consumer, edge, ...")]
Family = Annotated[str | None, typer.Option("--family", metavar="NAME", help="Only this family's.")]
What = Annotated[str, typer.Argument(metavar="device|model", help="Which file the schema describes.")]
# fmt: on


@devices.command("list", cls=Command)
def devices_list(vendor: Vendor = None, kind: Kind = None, form: options.Format = "table") -> None:
    """List the devices with the figures that bound inference."""
    from rooflinekit.reports.catalog import device_row  # noqa: PLC0415 - loaded when asked for

    rows = [device_row(load_device(name)) for name in list_devices()]
    rows = _only(_only(rows, "vendor", vendor), "kind", kind)
    show(rows, form, columns=_DEVICES)
    remark(form, f"{len(rows)} devices")


@devices.command("show", cls=Command)
def devices_show(device: options.DeviceName, form: options.Format = "table") -> None:
    """Show every figure of a device with its source beside it."""
    from rooflinekit.reports.catalog import device_figures  # noqa: PLC0415 - as above

    spec = load_device(named(device))
    show_figures(spec, device_figures(spec), form)


@models.command("list", cls=Command)
def models_list(family: Family = None, form: options.Format = "table") -> None:
    """List the models with the figures that bound inference."""
    from rooflinekit.reports.models import model_row  # noqa: PLC0415 - as above

    rows = _only([model_row(load_model(name)) for name in list_models()], "family", family)
    show(rows, form, columns=_MODELS)
    remark(form, f"{len(rows)} models")


@models.command("show", cls=Command)
def models_show(model: options.ModelName, *, assume: options.Assume = None, form: options.Format = "table") -> None:
    """Show every figure of a model with its source beside it, and the counts that follow."""
    from rooflinekit.reports.models import model_figures  # noqa: PLC0415 - as above

    spec = model_of(model, assume)
    show_figures(spec, model_figures(spec), form)


def schema(what: What) -> None:
    """Print the JSON Schema of a device or model file, for editors that check YAML as it is written."""
    from rooflinekit.reports.tables import to_json  # noqa: PLC0415 - as above

    described: dict[str, type[Device | Model]] = {"device": Device, "model": Model}
    spec = described[one_of("schema", what, described)]
    say(to_json({"$schema": "https://json-schema.org/draft/2020-12/schema", **spec.model_json_schema()}))


def _only(rows: list[Record], key: str, wanted: str | None) -> list[Record]:
    """Keep the rows that hold the wanted word, spelled in any case."""
    if wanted is None:
        return rows
    spelled = {row[key].casefold(): row[key] for row in rows}
    found = spelled.get(wanted.casefold()) or one_of(key, wanted, sorted(spelled.values()))
    return [row for row in rows if row[key] == found]
