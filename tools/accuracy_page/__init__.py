"""What tools/accuracy.py writes: targets, tables, sections and words of docs/accuracy.md."""
