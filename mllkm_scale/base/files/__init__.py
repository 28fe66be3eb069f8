"""Files: archives, NPY files, atomic writing, and errors of folders."""
