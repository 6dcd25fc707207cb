"""What a report holds, as typed objects: the document, what only the page shows of it, and both as plain data."""
