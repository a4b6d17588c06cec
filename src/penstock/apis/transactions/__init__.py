"""APIs of idempotent and transactional producers."""
