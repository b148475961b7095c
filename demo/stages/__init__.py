"""The stages of the demonstration, one module each, in the order of `demo.__main__`."""
