"""Settings: every broker and topic setting declared once, with Kafka's names."""
