"""``python -m rooflinekit``: the command line."""

from rooflinekit.cli import main

if __name__ == "__main__":
    main()
