"""`python -m hangscope`."""

from hangscope.cli import main

if __name__ == "__main__":
    main()
