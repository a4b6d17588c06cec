"""ZooKeeper as the metadata store: our client of it, and servers started on this machine."""
