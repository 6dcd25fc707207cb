"""What the reader sees: the verdict and its view as text, Markdown, JSON and HTML."""
