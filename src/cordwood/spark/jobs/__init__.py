"""Jobs: Spark reads, checks, rewrites or copies whole topics and stores.

Each job is a module with a function that runs it, and a `transform(df) -> df` if the work can be
expressed as one. Jobs may be killed and run twice: they stage their changes first, and put them in
place in one atomic step. `cordwood spark JOB` runs them.
"""
