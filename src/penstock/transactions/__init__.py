"""The transaction coordinator: who writes in which transaction, and how each of them ends."""
