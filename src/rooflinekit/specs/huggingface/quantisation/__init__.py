from rooflinekit.specs.huggingface.config import Config
def read_quantisation(outer, inner, model, modules):
    for c in (outer, inner): c.skip("quantization_config","quantization")
    return None
