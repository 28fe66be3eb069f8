"""`python -m mllkm_scale`: the command line, where the program `mllkm` is not on the path."""

from mllkm_scale.cli import main

if __name__ == "__main__":
    main()
