"""What every client must agree on, as files: bytes and their meaning, and whole conversations of a reader."""
