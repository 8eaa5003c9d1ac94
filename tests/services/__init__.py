"""The real services that the tests use, one module a service. Each is started here and ends with the test run."""
