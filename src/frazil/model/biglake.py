"""BigQuery's view of a table: an external table (BigLake) that is pointed at each new metadata file."""

from __future__ import annotations

from pydantic import Field, SecretStr

from frazil.model.base import Model

DEFAULT_CONNECTION = "us.biglake-connection"


class BigLakeSpec(Model):
    """An external table in BigQuery that shows the sink's table."""

    project_id: str = Field(min_length=1, description="Project of the external table.")
    dataset_id: str = Field(min_length=1, description="Dataset of the external table; it is made when it is missing.")
    dataset_location: str = Field("US", min_length=1, description="Where a dataset that is made is put.")
    table: str | None = Field(None, min_length=1, description="Name of the external table; that of the sink's when left out.")
    connection_id: str = Field(
        DEFAULT_CONNECTION,
        min_length=1,
        description="Connection with which BigQuery reads the files: `location.name`, or with the project before it.",
    )
    service_account_key: SecretStr | None = Field(
        None, description="JSON key of a service account. Left out: Google's default credentials."
    )
    endpoint: str | None = Field(None, pattern=r"^https?://", description="Address of a service that speaks the same protocol.")
    no_auth: bool = Field(False, description="Send no credentials; for emulators.")
    timeout_secs: float = Field(30.0, gt=0, le=300, description="How long an answer may take.")

    @property
    def connection(self) -> str:
        """The connection with its project."""
        whole = self.connection_id.startswith("projects/") or self.connection_id.count(".") > 1
        return self.connection_id if whole else f"{self.project_id}.{self.connection_id}"
