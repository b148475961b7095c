"""Consumer groups: who is a member, who reads what, and how far each has come.

All state of groups lives on the control loop and is touched by no other thread. What must
survive is appended to ``__consumer_offsets`` before anyone is told of it.
"""
