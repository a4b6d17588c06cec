"""APIs about the cluster itself: ApiVersions, Metadata, DescribeCluster, AlterPartition."""
