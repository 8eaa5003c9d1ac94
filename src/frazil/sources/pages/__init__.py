"""Sources that are asked for page after page, by Python code that is not frazil's."""
