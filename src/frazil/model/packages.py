"""What brings the packages that only looking at some catalogs and stores needs: names for `pip install`."""

from __future__ import annotations

BROUGHT_BY = {
    "thrift": "frazil[hive]",
    "boto3": "frazil[glue]",
    "psycopg2": "frazil[postgres]",
    "pymysql": "frazil[mysql]",
    "google": "pyiceberg[bigquery]",
    "s3fs": "pyiceberg[s3fs]",
    "gcsfs": "pyiceberg[gcsfs]",
    "adlfs": "pyiceberg[adlfs]",
}
"""By the module that is missing."""

BROUGHT_BY_FOR = {"hive": BROUGHT_BY["thrift"], "glue": BROUGHT_BY["boto3"], "bigquery": BROUGHT_BY["google"]}
"""By the type of the catalog, where it is not said which module is missing."""
