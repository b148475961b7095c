"""Who may do what: users, access rules and quotas, and the file they are kept in.

Values and decisions, without sockets. The broker enforces them; the command line edits them.
The state and its file are here; each room beside them has one part of the decisions.
"""
