"""The stages of the demo, one module each. `demo.__main__` has their order."""
