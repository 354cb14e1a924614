"""The page that shows a report in a browser."""
