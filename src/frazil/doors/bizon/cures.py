"""What goes wrong when a pipeline of a Bizon file runs: where that stands in the file, and the cure by the names of its keys.

The engine's own cures name keys of a pipeline file.
"""

from __future__ import annotations

from frazil.model.pipeline import Advice
from frazil.reading.document import Document, Path

_BEGIN_ANEW = "Put the old one back, or let the table begin anew: frazil reset."

# By the code of an error, or the word that it begins with: the key of the source, and the cure where that has other names here.
_TOPICS: dict[str, tuple[str, str]] = {
    "kafka": ("topics", ""),
    "kafka-cluster-changed": ("bootstrap_servers", ""),
    "source-unreachable": (
        "bootstrap_servers",
        "Check bootstrap_servers, that the cluster runs, and that this port expects what security.protocol in consumer_config "
        "says: without it, SASL_SSL with a login and PLAINTEXT without one.",
    ),
    "source-not-readable": (
        "authentication",
        "Check username and password in authentication, and sasl.mechanism in consumer_config. The user needs DESCRIBE and READ "
        "of the topics, and READ of the group_id.",
    ),
    "source-tls": (
        "consumer_config",
        "Check ssl.ca.location, ssl.certificate.location and ssl.key.location in consumer_config: PEM files, the key in "
        "PKCS 8 and not encrypted; the name in the server's certificate; and that this port expects TLS.",
    ),
    "source-option": ("consumer_config", "Check consumer_config."),
    "source-missing": ("topics", ""),
    "source-changed": ("group_id", _BEGIN_ANEW),
    "registry": ("authentication", ""),
    "registry-refused": ("authentication", "Check schema_registry_username and schema_registry_password."),
    "registry-unreachable": ("authentication", "Check schema_registry_url, http or https, and that the registry runs."),
    "registry-tls": (
        "authentication",
        "Let this machine trust the registry's authority: SSL_CERT_FILE names a file with certificates. "
        "A registry that asks for a client's certificate cannot be asked from a Bizon file.",
    ),
}

_CATALOG = (
    "catalog",
    "not-authorized",
    "database-missing",
    "refused-by-catalog",
    "not-offered",
    "storage-failed",
    "warehouse-not-writable",
    "s3-access-denied",
    *("host-not-found", "connection", "tls", "warehouse-missing", "no-compare-and-swap"),
    *("s3-keys-refused", "no-such-bucket", "wrong-region", "path-style-needed"),
)

_CURES = {
    "source-changed": _BEGIN_ANEW,
    "position-unknown": f"Another source wrote it. {_BEGIN_ANEW}",
    "partitioning-differs": "Leave time_partitioning out to write by the table's own spec, or change that: "
    "ALTER TABLE ... ADD | DROP PARTITION FIELD ...",
    "order-differs": "Leave clustering_keys out to write in the table's own order, or change that: "
    "ALTER TABLE ... WRITE ORDERED BY ...",
    "duplicate-keys": "Leave only one row of a key with transforms, or add a column to join_cols.",
    "route-unknown": "Declare them in destination_table_config, or set on_error: dead_letter to go on without such rows.",
    "namespace-missing": "Create it.",
    "s3-access-denied": "Check the keys, and the permissions s3:GetObject, s3:PutObject, s3:DeleteObject. For MinIO add "
    "s3.path-style-access: true to the catalog.",
    "s3-keys-refused": "Check s3.access-key-id, s3.secret-access-key and, for temporary keys, s3.session-token.",
    "wrong-region": "Set client.region in the catalog to the region of the bucket.",
    "path-style-needed": "Add s3.path-style-access: true to the catalog.",
    "warehouse-missing": "Correct warehouse: most REST catalogs want the name of a warehouse or catalog there, not a bucket.",
    "rolled-back": "Decide what the table should hold: set the branch back to that snapshot, or give the document another name "
    "to begin anew.",
    "batch-differs": "Two writers used one name without knowing of each other. Give the document another name to begin anew.",
}


def advice_of(document: Document, catalog: Path, *, topics: bool) -> dict[str, Advice]:
    """What to say of errors, by their codes; ``catalog`` is the way to the one catalog."""
    advice = {code: Advice(fix=fix) for code, fix in _CURES.items()}
    advice |= {code: Advice(place=document.key_place(catalog), fix=_CURES.get(code, "")) for code in _CATALOG}
    advice["source"] = Advice(place=document.key_place(("source",)))
    of_source = _TOPICS if topics else {"source-changed": ("name", _BEGIN_ANEW)}
    return advice | {code: Advice(place=document.key_place(("source", key)), fix=fix) for code, (key, fix) in of_source.items()}
