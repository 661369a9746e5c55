"""Named operators: what a filter may call, and the table of all of them."""
