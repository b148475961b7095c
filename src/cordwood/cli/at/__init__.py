"""The target of ``--at``, a directory or a broker, behind one interface."""
