"""Models read straight from Hugging Face config.json files."""

from rooflinekit.specs.huggingface.file import load_config
from rooflinekit.specs.huggingface.reader import model_from_config

__all__ = ["load_config", "model_from_config"]
