"""A report as typed objects: the document, what only the page shows, and both as plain data."""
