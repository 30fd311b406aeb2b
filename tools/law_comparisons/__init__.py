"""What tools/compare_laws.py compares, a file a subject, and how it is judged and drawn."""
