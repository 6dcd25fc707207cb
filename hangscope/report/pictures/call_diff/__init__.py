"""The call diff: classes of ranks of one behaviour, their programs aligned, the differences marked."""
