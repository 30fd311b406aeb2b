"""Hub ids: a fake cache as huggingface_hub lays it out, and every way to fail; no network is used."""

import sys

import huggingface_hub
import pytest
from huggingface_hub import constants, errors

from rooflinekit.errors import SpecError
from rooflinekit.specs.hub import fetch_config, is_hub_id

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """Give an empty cache, and take the Hub offline."""
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    return tmp_path


def cached(cache, hub_id):
    """Lay out one repository: a ref, a blob, and a snapshot that points at it."""
    folder = cache / f"models--{hub_id.replace('/', '--')}"
    (folder / "refs").mkdir(parents=True)
    (folder / "refs" / "main").write_text(COMMIT)
    (folder / "blobs").mkdir()
    (folder / "blobs" / "aa").write_text('{"model_type": "llama"}')
    (folder / "snapshots" / COMMIT).mkdir(parents=True)
    (folder / "snapshots" / COMMIT / "config.json").symlink_to(folder / "blobs" / "aa")


def failing(monkeypatch, error):
    """Let each download fail in one way."""

    def download(*_args, **_kwargs):
        raise error

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", download)


def make(kind):
    """Make an error of the Hub without an answer of the Hub."""
    error = kind.__new__(kind)
    error.args = ("404 Client Error.\nmore",)
    return error


def test_a_cached_config_needs_no_network(cache, monkeypatch):
    """The copy in the cache is taken; nothing is asked for."""
    cached(cache, "owner/Model-1B")
    failing(monkeypatch, AssertionError("asked for"))
    path = fetch_config("owner/Model-1B")
    assert path.name == "config.json"
    assert path.read_text() == '{"model_type": "llama"}'


def test_offline_without_a_copy(cache):
    """The real package, offline, with an empty cache."""
    assert not list(cache.iterdir())
    with pytest.raises(SpecError, match=r"owner/none: config.json could not be fetched from the Hub: it is not in the"):
        fetch_config("owner/none")


# fmt: off
FAILURES = [
    (errors.GatedRepoError,          "it is gated: accept its terms at huggingface.co/owner/model"),
    (errors.RepositoryNotFoundError, "no such id, or a private one"),
    (errors.LocalEntryNotFoundError, "not in the local cache, and the Hub is offline or not reachable"),
    (errors.EntryNotFoundError,      "the repository has no config.json"),
    (errors.OfflineModeIsEnabled,    "HF_HUB_OFFLINE is set"),
    (ConnectionError,                "ConnectionError: 404 Client Error."),
]
# fmt: on


@pytest.mark.usefixtures("cache")
@pytest.mark.parametrize(("kind", "said"), FAILURES)
def test_failures_say_what_to_do(monkeypatch, kind, said):
    """Each failure is one line with its reason."""
    failing(monkeypatch, make(kind))
    with pytest.raises(SpecError, match=said) as caught:
        fetch_config("owner/model")
    assert "\n" not in str(caught.value)


@pytest.mark.usefixtures("cache")
def test_names_that_are_no_ids():
    """Paths, plain names and names that the Hub does not allow are refused."""
    for name in ("qwen3-8b", "./a/b", "a/b/c", "a/../b", "a--b/c..d", ""):
        with pytest.raises(SpecError, match="is no Hub id"):
            fetch_config(name)
    assert is_hub_id("meta-llama/Llama-3.1-8B")


def test_without_the_package(monkeypatch):
    """The error says what to install."""
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(SpecError, match=r"pip install 'rooflinekit\[hf\]'"):
        fetch_config("owner/model")
