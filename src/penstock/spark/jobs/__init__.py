"""Jobs over the log on Spark: audit (is everything there, once and in order?), replay (copy a part
into another topic) and stats (sizes, keys, skew, rates).

Each job is planned on the driver from offsets, carried out by tasks that each read a range of one
partition, and judged on the driver by functions without input or output.
"""
