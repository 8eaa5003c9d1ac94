"""Topics of a Kafka cluster, read in slices between offsets that are stored in the table's ledger."""

from frazil.sources.kafka.source import KafkaTopics

__all__ = ["KafkaTopics"]
