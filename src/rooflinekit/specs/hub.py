"""A model's ``config.json`` by its Hub id, through ``huggingface_hub``: the local cache first, no other file."""

import re
from pathlib import Path
from typing import NoReturn

from rooflinekit.errors import SpecError

_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
_CONFIG = "config.json"
_LONGEST_REASON = 200


def is_hub_id(name: str) -> bool:
    """Tell whether a name has the form of a Hub id.

    >>> is_hub_id("Qwen/Qwen3-8B"), is_hub_id("qwen3-8b"), is_hub_id("./folder/file.json")
    (True, False, False)
    """
    return _ID.fullmatch(name) is not None


def fetch_config(hub_id: str) -> Path:
    """
    Give the path of a repository's ``config.json``.

    A copy in the local cache is taken without asking the Hub. ``HF_HOME``, ``HF_HUB_CACHE``, ``HF_HUB_OFFLINE``,
    ``HF_ENDPOINT`` and ``HF_TOKEN`` hold as ``huggingface_hub`` reads them.

    Parameters
    ----------
    hub_id : str
        ``"Qwen/Qwen3-8B"``.

    Returns
    -------
    path : Path
        The file in the cache.

    Raises
    ------
    SpecError
        No such id, a gated or private repository, no network and no copy in the cache, or the package is missing.
    """
    if not is_hub_id(hub_id):
        _refuse(hub_id, "is no Hub id: expected owner/name, as Qwen/Qwen3-8B")
    cached = _cached(hub_id)
    return cached if cached is not None else _download(hub_id)


def _cached(hub_id: str) -> Path | None:
    try:
        from huggingface_hub import try_to_load_from_cache  # noqa: PLC0415 - an extra: imported only where it is needed
    except ImportError:
        remedy = f"pip install 'rooflinekit[hf]', or download its {_CONFIG} and give the path"
        _refuse(hub_id, f"Hub ids are read with the package huggingface_hub, which is not installed: {remedy}")
    try:
        found = try_to_load_from_cache(hub_id, _CONFIG)
    except ValueError as error:  # its own check of the form, stricter than ours
        _refuse(hub_id, f"is no Hub id: {_first_line(error)}")
    return Path(found) if isinstance(found, str) else None


def _download(hub_id: str) -> Path:
    from huggingface_hub import hf_hub_download  # noqa: PLC0415 - as above

    try:
        return Path(hf_hub_download(hub_id, _CONFIG))
    except Exception as error:  # noqa: BLE001 - its HTTP library changed with its version: any failure is told by kind
        _refuse(hub_id, f"{_CONFIG} could not be fetched from the Hub: {_reason(hub_id, error)}")


def _reason(hub_id: str, error: Exception) -> str:
    """Say why, and what to do; the more special kinds first, since they are subclasses of the others."""
    from huggingface_hub import errors  # noqa: PLC0415 - as above

    reasons: tuple[tuple[type[Exception], str], ...] = (
        (errors.GatedRepoError, f"it is gated: accept its terms at huggingface.co/{hub_id}, then `hf auth login`"),
        (errors.RepositoryNotFoundError, "no such id, or a private one: check the spelling, or `hf auth login`"),
        (errors.LocalEntryNotFoundError, "it is not in the local cache, and the Hub is offline or not reachable"),
        (errors.EntryNotFoundError, f"the repository has no {_CONFIG}"),
        (errors.OfflineModeIsEnabled, "it is not in the local cache, and HF_HUB_OFFLINE is set"),
    )
    found = next((text for kind, text in reasons if isinstance(error, kind)), None)
    return found or f"{type(error).__name__}: {_first_line(error)}"


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [""])[0][:_LONGEST_REASON]


def _refuse(hub_id: str, text: str) -> NoReturn:
    message = f"{hub_id}: {text}"
    raise SpecError(message) from None
