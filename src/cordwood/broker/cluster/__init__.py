"""A broker as a member of a cluster: sockets, threads and files around the machines."""
