"""Seeded simulated worlds: the real core under loss, crashes, clones and frozen owners, judged by plain facts."""
