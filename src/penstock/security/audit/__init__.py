"""The audit trail: who authenticated, who was denied what, and who changed what."""
