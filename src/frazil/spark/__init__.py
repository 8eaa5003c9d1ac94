"""How Spark is started and reached: Java, jars, sessions, catalogs, and the bridges to the JVM."""
