"""``python -m engine`` is the command ``gaugeblock``."""

from engine.cli import main

if __name__ == "__main__":
    main()
