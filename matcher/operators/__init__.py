"""Named operators: functions that filters call, and the table of all of them."""
