"""Reading a log, alike for its writer and for a process beside it."""
