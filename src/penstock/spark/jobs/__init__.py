"""Jobs over the log on Spark: audit (is every record present, once and in order?), replay (copy a
range into another topic) and stats (sizes, keys, skew, rates).

The driver plans each job from offsets, tasks read one range of one partition each, and pure
functions on the driver judge the results.
"""
