"""Small produces of many connections: received, handed over and answered in one call each.

A connection that does nothing else is in the row (`socket_rows`). What the ready ones of a turn
have sent lies in one buffer (`gathered_frames`), and one object holds all their answers
(`answer_row`). The kernel `row_transfers` makes the calls to the system. Whatever is unusual takes
its connection out of the row first. This room must not know `ClientConnection`, which is a
`Gathering` here, nor what is done with the requests.
"""
