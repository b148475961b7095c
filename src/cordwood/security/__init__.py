"""Who may do what: principals, users, access rules, quotas, and the file they are kept in.

Values and decisions, without sockets. The broker enforces them; the command line edits them.
"""
