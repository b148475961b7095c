"""Jobs: whole topics and stores read, checked, rewritten or carried elsewhere by Spark.

Each is a module with a function that runs it, and a `transform(df) -> df` where the work can be
told as one. They are safe to run twice and to be killed: what they change is staged first, and
put in place in one step that either happened or did not. `cordwood spark JOB` runs them.
"""
