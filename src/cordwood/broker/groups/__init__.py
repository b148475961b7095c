"""Consumer groups: their members, their assignments and their committed offsets.

Only the control loop touches the state of groups. A change that must survive is appended to
``__consumer_offsets`` before a client is told of it.
"""
