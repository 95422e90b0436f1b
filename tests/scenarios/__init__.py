"""What users of comparable systems ran into, each as a test named after its number (docs/RELIABILITY.md)."""
