"""A short text as a whole: the lines that are alike, its labelled parts, how its steps count, and what people write in it."""
