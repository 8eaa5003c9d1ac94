"""What goes wrong outside is reported at the statement that it is about, with a cure in the words of SQL."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from sql_cases import LAKE, run, session

from frazil.doors.sql.grammar import VOCABULARY
from frazil.errors import DataError, FrazilError, Halted, SourceLocation
from frazil.model.pipeline import tell_in_file

SCRIPT = f"""{LAKE}
CREATE CONNECTION kafka TO KAFKA (BROKER 'a:9092', SASL MECHANISMS 'PLAIN', SASL USERNAME 'u', SASL PASSWORD 'kafka-password');
CREATE CONNECTION csr TO CONFLUENT SCHEMA REGISTRY (URL 'http://127.0.0.1:1');
CREATE CONNECTION pg TO POSTGRES (HOST '127.0.0.1', PORT 1, DATABASE 'd', USER 'u', PASSWORD 'pg-password');
CREATE SOURCE avro FROM KAFKA CONNECTION kafka (TOPIC 't') FORMAT AVRO USING CONFLUENT SCHEMA REGISTRY CONNECTION csr;
CREATE SOURCE shop FROM POSTGRES CONNECTION pg (PUBLICATION 'p', SLOT 'mine') FOR TABLES (orders);
CREATE SOURCE files (id bigint, at timestamptz) FROM FILES (PATH = 'in', FORMAT = 'json');
CREATE VIEW some AS SELECT id, at FROM files;
CREATE SINK of_kafka FROM avro INTO ICEBERG CATALOG CONNECTION lake (NAMESPACE 'n', TABLE 'k');
CREATE SINK of_pg FROM orders INTO ICEBERG CATALOG CONNECTION lake (NAMESPACE 'n', TABLE 'p');
CREATE SINK of_files FROM some INTO ICEBERG CATALOG CONNECTION lake (NAMESPACE 'n', TABLE 'f')
  KEY (id) PARTITION BY (day(at)) WITH (COMMIT INTERVAL '5s');
"""
# Words of a cure that stand for what a user fills in, or belong to others: to Kafka, to files, to Spark, to PostgreSQL.
OTHERS = {"READ", "PEM", "PKCS", "TLS", "TIME", "COLUMN", "FIELD", "ADD", "NULL", "REPLICA", "IDENTITY", "FULL"}


def token(place: SourceLocation | None) -> str:
    """Where it is: the object's definition, and the token there."""
    assert place is not None
    return f"{place.file} {re.split(r'[ ,()]', place.text[place.column - 1 :])[0]}"


@pytest.mark.parametrize(
    ("sink", "code", "place", "cure"),
    [
        ("of_kafka", "source-unreachable", "<connection kafka> BROKERS", "Check BROKERS"),
        ("of_kafka", "source-not-readable", "<connection kafka> SASL", "Check SASL USERNAME, SASL PASSWORD"),
        ("of_kafka", "source-tls", "<connection kafka> kafka", "Check SSL CERTIFICATE AUTHORITY"),
        ("of_kafka", "registry-refused", "<connection csr> csr", "Check USERNAME and PASSWORD"),
        ("of_kafka", "source-missing", "<source avro> TOPIC", "as it was"),
        ("of_kafka", "kafka-messages-expired", "<source avro> TOPIC", "sql.db of_kafka --to-offset nearest."),
        ("of_kafka", "avro-malformed", "<sink of_kafka> of_kafka", "ALTER SINK of_kafka SET (ON ERROR = 'dead_letter')"),
        ("of_kafka", "catalog-unreachable", "<connection lake> lake", "as it was"),
        ("of_kafka", "connection-refused", "<connection lake> lake", "as it was"),
        ("of_kafka", "warehouse-missing", "<connection lake> WAREHOUSE", "Correct WAREHOUSE"),
        ("of_kafka", "not-authorized", "<connection lake> lake", "Check USER and PASSWORD"),
        ("of_pg", "database-tls", "<connection pg> pg", "Check SSL MODE"),
        ("of_pg", "slot-in-use", "<source shop> SLOT", "leave SLOT out of the source"),
        ("of_pg", "slot-lost", "<source shop> shop", "Create the sink under another name"),
        ("of_files", "source-missing", "<source files> PATH", "correct PATH"),
        ("of_files", "duplicate-keys", "<sink of_files> id", "LATEST BY"),
        ("of_files", "partitioning-differs", "<sink of_files> at", "Leave PARTITION BY out"),
        ("of_files", "columns-differ-by-case", "<sink of_files> of_files", "in a view"),
        ("of_files", "rolled-back", "<sink of_files> of_files", "under another name"),
    ],
)
def test_an_error_of_a_run_is_reported_in_the_words_of_sql(tmp_path: Path, sink: str, code: str, place: str, cure: str) -> None:
    here = session(tmp_path)
    run(here, SCRIPT)
    made = {one.name: one for one in here.project().pipelines}[sink]
    error = Halted(code, "Something is wrong.", fix="as it was")
    tell_in_file(error, made)
    assert token(error.location) == place
    assert cure in error.fix
    assert token(made.place) == f"<sink {sink}> {sink}"


def test_what_is_not_known_is_left_as_it_is(tmp_path: Path) -> None:
    here = session(tmp_path)
    run(here, SCRIPT)
    error = DataError("of-another-kind", "Something is wrong.", fix="as it was")
    tell_in_file(error, here.project().pipelines[0])
    assert (error.location, error.fix) == (None, "as it was")


def test_cures_name_options_that_there_are(tmp_path: Path) -> None:
    here = session(tmp_path)
    run(here, SCRIPT)
    for made in here.project().pipelines:
        for code, advice in made.advice.items():
            fix = advice.fix.replace(str(tmp_path), "")
            words = set(re.findall(r"\b[A-Z][A-Z0-9]+\b", fix)) - OTHERS
            assert words <= {*VOCABULARY}, code
            assert re.findall(r"\b[a-z]+_[a-z_]+\b", fix.replace(made.name, "").replace("dead_letter", "")) == [], code


@pytest.mark.parametrize(
    ("connection", "place", "cure"),
    [
        ("pg", "<connection pg> HOST", "Check HOST and PORT, and that the server runs."),
        ("csr", "<connection csr> URI", "Check URL, http or https, and that the registry runs."),
    ],
)
def test_a_connection_that_leads_nowhere_is_reported_at_its_definition(
    tmp_path: Path, connection: str, place: str, cure: str
) -> None:
    here = session(tmp_path)
    run(here, SCRIPT)
    with pytest.raises(FrazilError) as raised:
        run(here, f"VALIDATE CONNECTION {connection}")
    assert (token(raised.value.location), raised.value.fix) == (place, cure)
    assert "pg-password" not in str(raised.value)
