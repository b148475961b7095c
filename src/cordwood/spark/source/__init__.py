"""Reading: options, planning on the driver, ranges on the executors."""
