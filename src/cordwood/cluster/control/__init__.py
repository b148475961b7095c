"""What a broker and the controllers say to each other, as machines without sockets or clocks."""
