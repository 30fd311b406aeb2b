"""For eyes: estimates as tables and pictures. Nothing below imports this, matplotlib is loaded here only."""
