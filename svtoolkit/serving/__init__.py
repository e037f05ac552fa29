"""`svt serve`: enrol, verify and identify over HTTP, with limits, and one page for the browser."""
