"""``rooflinekit models import``: read a checkpoint's description, show what it says, or write it as our YAML."""

from pathlib import Path
from typing import Annotated

import typer

from rooflinekit.cli import options
from rooflinekit.cli.output import model_of, say, show_figures
from rooflinekit.specs.catalog import is_path, list_models
from rooflinekit.specs.hub import fetch_config, is_hub_id
from rooflinekit.specs.model import Model
from rooflinekit.specs.modelfile import write_model

# fmt: off
_Source = Annotated[
    str, typer.Argument(metavar="PATH", help="config.json, folder that holds one, GGUF or YAML file, or a Hub id.")
]
_Write = Annotated[Path | None, typer.Option("--write", metavar="DIR", help="Write our YAML to DIR/FAMILY/ID.yaml.")]
_Force = Annotated[bool, typer.Option("--force", help="Overwrite a file that is there.")]
# fmt: on


def models_import(
    path: _Source,
    *,
    write: _Write = None,
    force: _Force = False,
    assume: options.Assume = None,
    form: options.Format = "table",
) -> None:
    """Read a model from its config.json, GGUF header or Hub id, and show what was read or write it as YAML."""
    local = _local(path)
    model = _sourced(model_of(local, assume), path)
    if write is not None:
        say(f"{model.id}: written to {write_model(model, write, overwrite=force)}")
        return
    from rooflinekit.reports.models import checkpoint_figures, model_figures  # noqa: PLC0415 - loaded when asked for

    folder = None if _is_catalogued(local, model) else _checkpoint(local)
    figures = [*model_figures(model), *(checkpoint_figures(model, folder) if folder else ())]
    show_figures(model, figures, form)


def _local(path: str) -> str:
    """Take a Hub id from its folder here, else from the Hub, even where the catalogue has a model of that name."""
    if is_path(path) or not is_hub_id(path):
        return path
    return f"./{path}" if Path(path).exists() else str(fetch_config(path))


def _is_catalogued(local: str, model: Model) -> bool:
    """Tell whether the name was the catalogue's, so that a folder of that name has no part in the model."""
    return not is_path(local) and model.id in list_models()


def _checkpoint(local: str) -> Path | None:
    """Give the folder of a config.json: only there do *.safetensors belong to the model."""
    path = Path(local)
    return path if path.is_dir() else path.parent if path.suffix == ".json" else None


def _sourced(model: Model, path: str) -> Model:
    """Name the source of the figures where the file did not."""
    return model if model.sources else model.model_copy(update={"sources": (("figures", (f"read from {path}",)),)})
