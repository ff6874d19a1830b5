"""``python -m certify`` is the command ``certify``."""

from certify.cli import main

if __name__ == "__main__":
    main()
