"""What tools/measure_h200.py measures, a file a subject: shapes, small kernels, mixtures, decoders."""
