"""The pictures of the page, as data and SVG."""
